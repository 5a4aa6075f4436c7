//! Bearer tokens: `id.secret`. The store keeps a hash of the secret.
//!
//! A secret has 130 random bits, so an unsalted SHA-256 cannot be guessed. Pure; tokens are made by
//! `router::admin_endpoints` and checked by the router.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{ADMIN_GROUP, BOOTSTRAP_GROUP, CONTROLLER_GROUP, UserInfo, VIEWER_GROUP};
use crate::hex;

/// Key prefix of tokens in the store. No kind has this group.
pub const TOKEN_KEY_PREFIX: &str = "/machinist/tokens/-/";

/// The role of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HubTokenRole {
    /// May do everything.
    Admin,
    /// May read everything but secrets.
    Viewer,
    /// May do what controllers do.
    Controller,
    /// May request a machine's first certificate.
    Bootstrap,
}

impl HubTokenRole {
    fn group(self) -> &'static str {
        match self {
            Self::Admin => ADMIN_GROUP,
            Self::Viewer => VIEWER_GROUP,
            Self::Controller => CONTROLLER_GROUP,
            Self::Bootstrap => BOOTSTRAP_GROUP,
        }
    }

    fn user(self, id: &str) -> String {
        match self {
            Self::Bootstrap => format!("system:bootstrap:{id}"),
            Self::Admin | Self::Viewer | Self::Controller => format!("machinist:token:{id}"),
        }
    }
}

/// What the store keeps of a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenRecord {
    /// Its role.
    pub role: HubTokenRole,
    /// SHA-256 of the secret, in hex.
    pub hash: String,
    /// Expiry in seconds since 1970; `None` means never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<i64>,
}

/// A new token and its record. The text is shown once, to its owner.
#[derive(Clone, PartialEq, Eq)]
pub struct NewToken {
    /// Its id.
    pub id: String,
    /// Its text.
    pub token: String,
    /// What the store keeps.
    pub record: TokenRecord,
}

impl std::fmt::Debug for NewToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewToken").field("id", &self.id).field("record", &self.record).finish()
    }
}

/// Makes a token from random bytes.
#[must_use]
pub fn generate(role: HubTokenRole, expires: Option<i64>, random: [u8; 32]) -> NewToken {
    const ALPHABET: &[u8] = b"abcdefghijklmnopqrstuvwxyz234567";
    let text = |bytes: &[u8]| -> String {
        bytes.iter().map(|byte| char::from(ALPHABET[usize::from(byte & 31)])).collect()
    };
    let (id, secret) = (text(&random[..6]), text(&random[6..]));
    let record = TokenRecord { role, hash: hash_secret(&secret), expires };
    NewToken { token: format!("{id}.{secret}"), id, record }
}

/// Returns the id in the text of a token; `None` if it is not a token.
#[must_use]
pub fn token_id(token: &str) -> Option<&str> {
    let (id, secret) = token.split_once('.')?;
    let plain = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric());
    (id.len() <= 64 && plain(id) && plain(secret)).then_some(id)
}

/// Returns the user of a token if it matches the record and has not expired.
#[must_use]
pub fn authenticate(token: &str, record: &TokenRecord, now: i64) -> Option<UserInfo> {
    let (id, secret) = token.split_once('.')?;
    let good = constant_time_eq(hash_secret(secret).as_bytes(), record.hash.as_bytes());
    let ended = record.expires.is_some_and(|end| end <= now);
    (good && !ended).then(|| UserInfo::new(record.role.user(id), [record.role.group().to_owned()]))
}

fn hash_secret(secret: &str) -> String {
    hex::encode(&Sha256::digest(secret.as_bytes()))
}

/// Compares in constant time, so that timing reveals nothing about the secret.
fn constant_time_eq(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_authenticates_until_it_expires() {
        let new = generate(HubTokenRole::Bootstrap, Some(100), [7; 32]);
        assert_eq!(token_id(&new.token), Some(new.id.as_str()));
        let found = authenticate(&new.token, &new.record, 99).unwrap();
        assert_eq!(found.user, format!("system:bootstrap:{}", new.id));
        assert!(found.is_in_group(BOOTSTRAP_GROUP));
        assert_eq!(authenticate(&new.token, &new.record, 100), None);
        assert_eq!(authenticate(&format!("{}x", new.token), &new.record, 1), None);
        assert!(!format!("{new:?}").contains(&new.token));
    }

    #[test]
    fn malformed_tokens_have_no_id() {
        for text in ["", ".", "a.", ".a", "a/b.c", "a", "a.b/../c", "ä.b"] {
            assert_eq!(token_id(text), None, "{text}");
        }
    }
}
