//! Bearer tokens: `id.secret`. The store keeps a hash of the secret.
//!
//! A secret has 130 random bits, so an unsalted SHA-256 cannot be guessed. Pure; tokens are made by
//! `router::admin_endpoints` and checked by the router.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{
    ADMIN_GROUP, BOOTSTRAP_GROUP, CONTROLLER_GROUP, METRICS_GROUP, UserInfo, VIEWER_GROUP,
};
use crate::hex;

/// Key prefix of tokens in the store. No kind has this group.
pub const TOKEN_KEY_PREFIX: &str = "/machinist/tokens/-/";

/// Prefix of the user name of a bootstrap token; its id follows.
const BOOTSTRAP_USER_PREFIX: &str = "system:bootstrap:";

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
    /// May read metrics. Every machine that serves metrics sees this token.
    Metrics,
}

impl HubTokenRole {
    fn group(self) -> &'static str {
        match self {
            Self::Admin => ADMIN_GROUP,
            Self::Viewer => VIEWER_GROUP,
            Self::Controller => CONTROLLER_GROUP,
            Self::Bootstrap => BOOTSTRAP_GROUP,
            Self::Metrics => METRICS_GROUP,
        }
    }

    fn user(self, id: &str) -> String {
        match self {
            Self::Bootstrap => format!("{BOOTSTRAP_USER_PREFIX}{id}"),
            Self::Admin | Self::Viewer | Self::Controller | Self::Metrics => {
                format!("machinist:token:{id}")
            }
        }
    }
}

/// Which machines may join with a bootstrap token.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BootstrapBinding {
    /// Their pools; empty means all.
    #[serde(default)]
    pub pools: BTreeSet<String>,
    /// Their name, or a pattern in which `*` stands for any text; `None` means any name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_names: Option<String>,
    /// How many machines may join; `None` means any number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_uses: Option<u32>,
    /// How many machines have joined.
    #[serde(default)]
    pub uses: u32,
    /// The machine that may be replaced: its name may be in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<String>,
}

impl BootstrapBinding {
    /// Returns the roles that a machine gets with the token. A machine that asks for none gets the token's only pool.
    ///
    /// # Errors
    /// The token is not for this machine; the text says why and what to do.
    pub fn admit(
        &self,
        name: &str,
        requested: &BTreeSet<String>,
    ) -> Result<BTreeSet<String>, String> {
        const REMEDY: &str = "create another with machinist hub token --role bootstrap";
        if self.max_uses.is_some_and(|max| self.uses >= max) {
            return Err(format!(
                "the token was used {} times, as often as it may be: {REMEDY}",
                self.uses
            ));
        }
        let own = self.replaces.as_deref().or(self.node_names.as_deref());
        if let Some(pattern) = own.filter(|pattern| !matches_pattern(pattern, name)) {
            return Err(format!(
                "the token is for machines named {pattern}, not for {name}: {REMEDY} --node-name {name}"
            ));
        }
        if requested.is_empty() {
            let only = if self.pools.len() == 1 { self.pools.clone() } else { BTreeSet::new() };
            return Ok(only);
        }
        match requested.iter().find(|pool| !self.pools.is_empty() && !self.pools.contains(*pool)) {
            Some(pool) => {
                let own: Vec<&str> = self.pools.iter().map(String::as_str).collect();
                let own = own.join(", ");
                Err(format!("the token is for pool {own}, not for {pool}: {REMEDY} --pool {pool}"))
            }
            None => Ok(requested.clone()),
        }
    }
}

/// Whether a name matches a pattern in which `*` stands for any text. Takes linear time.
#[must_use]
pub fn matches_pattern(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(start) else { return false };
    let (middle, end) = rest.rsplit_once('*').map_or(("", rest), |(middle, end)| (middle, end));
    for part in middle.split('*').filter(|part| !part.is_empty()) {
        let Some(at) = name.find(part) else { return false };
        name = &name[at + part.len()..];
    }
    name.ends_with(end)
}

/// What the store keeps of a token. Records of earlier versions have a role, a hash and an expiry only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TokenRecord {
    /// Its role.
    pub role: HubTokenRole,
    /// SHA-256 of the secret, in hex.
    pub hash: String,
    /// Expiry in seconds since 1970; `None` means never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<i64>,
    /// What its owner calls it; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// When it was created, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<i64>,
    /// When it was last used, in seconds since 1970, give or take [`LAST_USE_INTERVAL_SECONDS`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used: Option<i64>,
    /// Who may join with it, if it is a bootstrap token. Without it, any machine may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap: Option<BootstrapBinding>,
}

impl TokenRecord {
    /// Whether it has expired.
    #[must_use]
    pub fn is_expired(&self, now: i64) -> bool {
        self.expires.is_some_and(|end| end <= now)
    }
}

/// How often the last use of a token is written at most: each write is a commit.
pub const LAST_USE_INTERVAL_SECONDS: i64 = 60;

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
    let record = TokenRecord {
        role,
        hash: hash_secret(&secret),
        expires,
        name: String::new(),
        created: None,
        last_used: None,
        bootstrap: None,
    };
    NewToken { token: format!("{id}.{secret}"), id, record }
}

/// Returns the id in the text of a token; `None` if it is not a token.
#[must_use]
pub fn token_id(token: &str) -> Option<&str> {
    let (id, secret) = token.split_once('.')?;
    let plain = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric());
    (is_token_id(id) && plain(secret)).then_some(id)
}

/// Returns the id of the bootstrap token that a user name stands for.
#[must_use]
pub fn bootstrap_token_id(user: &str) -> Option<&str> {
    user.strip_prefix(BOOTSTRAP_USER_PREFIX).filter(|id| is_token_id(id))
}

/// Whether a text can be the id of a token, and so a part of a key.
#[must_use]
pub fn is_token_id(id: &str) -> bool {
    !id.is_empty() && id.len() <= 64 && id.bytes().all(|b| b.is_ascii_alphanumeric())
}

/// Returns the user of a token if it matches the record and has not expired.
#[must_use]
pub fn authenticate(token: &str, record: &TokenRecord, now: i64) -> Option<UserInfo> {
    let (id, secret) = token.split_once('.')?;
    let good = constant_time_eq(hash_secret(secret).as_bytes(), record.hash.as_bytes());
    (good && !record.is_expired(now))
        .then(|| UserInfo::new(record.role.user(id), [record.role.group().to_owned()]))
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
    fn records_of_earlier_versions_are_read() {
        let old = r#"{"role":"bootstrap","hash":"00"}"#;
        let record: TokenRecord = serde_json::from_str(old).unwrap();
        assert_eq!((record.expires, record.bootstrap.clone()), (None, None));
        assert_eq!(serde_json::to_string(&record).unwrap(), old);
    }

    #[test]
    fn a_bound_token_admits_only_its_machines() {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let bound = BootstrapBinding {
            pools: set(&["worker"]),
            node_names: Some("w*".into()),
            max_uses: Some(2),
            ..BootstrapBinding::default()
        };
        let many =
            BootstrapBinding { pools: set(&["infra", "worker"]), ..BootstrapBinding::default() };
        let used = BootstrapBinding { uses: 2, ..bound.clone() };
        let replaces = BootstrapBinding { replaces: Some("w1".into()), ..bound.clone() };
        /// The token, the machine, the roles that it asks for, and those that it gets.
        type Case<'a> = (&'a BootstrapBinding, &'a str, &'a [&'a str], Option<&'a [&'a str]>);
        let table: [Case<'_>; 9] = [
            (&bound, "w1", &["worker"], Some(&["worker"])),
            (&bound, "w1", &[], Some(&["worker"])),
            (&bound, "w1", &["master"], None),
            (&bound, "w1", &["worker", "master"], None),
            (&bound, "m1", &["worker"], None),
            (&used, "w1", &["worker"], None),
            (&replaces, "w2", &["worker"], None),
            (&many, "x", &["infra"], Some(&["infra"])),
            (&many, "x", &[], Some(&[])),
        ];
        for (binding, name, requested, expected) in table {
            let found = binding.admit(name, &set(requested));
            assert_eq!(found.clone().ok(), expected.map(set), "{name} {requested:?}: {found:?}");
        }
    }

    #[test]
    fn patterns() {
        for (pattern, name, expected) in [
            ("w1", "w1", true),
            ("w1", "w11", false),
            ("*", "", true),
            ("w*", "w", true),
            ("w*", "x", false),
            ("*.example.com", "a.example.com", true),
            ("*.example.com", "a.example.org", false),
            ("a*b*c", "axbyc", true),
            ("a*b*c", "acb", false),
            ("a*a", "a", false),
            ("*ab*ab", "ab", false),
        ] {
            assert_eq!(matches_pattern(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn malformed_tokens_have_no_id() {
        for text in ["", ".", "a.", ".a", "a/b.c", "a", "a.b/../c", "ä.b"] {
            assert_eq!(token_id(text), None, "{text}");
        }
    }
}
