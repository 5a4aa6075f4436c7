//! Provisioning tokens: which machines get a config, and from which networks.
//!
//! A token is `id.secret`. The API server stores a Secret for each, with the SHA-256 of the secret.
//! The secret has 128 random bits, so it needs no salt and cannot be guessed. A pool may have
//! several tokens at a time, so that one can be replaced by the next.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use sha2::{Digest as _, Sha256};

use super::error::ServeError;
use super::network::IpNetwork;
use super::route::query_parameter;

/// The label of the Secrets that store tokens.
pub const TOKEN_LABEL: &str = "machinist.dev/provisioning-token";
/// The type of these Secrets.
pub const SECRET_TYPE: &str = "machinist.dev/provisioning-token";
/// The prefix of the names of these Secrets; the id follows.
pub const SECRET_PREFIX: &str = "provisioning-token-";
/// The key in the Secret that counts uses.
pub const USES: &str = "uses";

/// The stored form of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProvisioningToken {
    /// The id, which is public.
    pub id: String,
    /// The SHA-256 of the secret, in hexadecimal.
    pub hash: String,
    /// The pools that it is valid for; empty for all.
    pub pools: Vec<String>,
    /// When it expires.
    pub expires: Option<Timestamp>,
    /// How often it may be used.
    pub max_uses: Option<u32>,
    /// How often it was used.
    pub uses: u32,
    /// The networks that it may be used from; empty for all.
    pub networks: Vec<IpNetwork>,
}

/// A new token: its text, which is shown once, and its stored form.
pub struct NewProvisioningToken {
    /// The text of the token.
    pub text: String,
    /// The stored form.
    pub token: ProvisioningToken,
}

impl std::fmt::Debug for NewProvisioningToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("New").field("token", &self.token).finish_non_exhaustive()
    }
}

/// The alphabet of tokens.
const TOKEN_ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
/// The length of the id. The secret has 26 characters of 5 bits each.
const NAME_LENGTH: usize = 6;
const SECRET_LENGTH: usize = 26;

/// Whether a text has the form of a token, so that it must not be displayed.
#[must_use]
pub fn looks_like_token(text: &str) -> bool {
    let is = |text: &str, length: usize| {
        text.len() == length && text.bytes().all(|byte| TOKEN_ALPHABET.contains(&byte))
    };
    text.split_once('.')
        .is_some_and(|(name, secret)| is(name, NAME_LENGTH) && is(secret, SECRET_LENGTH))
}

/// Generates a token from random bytes.
#[must_use]
pub fn generate_token(random: [u8; NAME_LENGTH + SECRET_LENGTH]) -> NewProvisioningToken {
    let text = |bytes: &[u8]| -> String {
        bytes.iter().map(|byte| char::from(TOKEN_ALPHABET[usize::from(byte & 31)])).collect()
    };
    let (id, secret) = (text(&random[..NAME_LENGTH]), text(&random[NAME_LENGTH..]));
    let token = ProvisioningToken {
        id: id.clone(),
        hash: hash(&secret),
        pools: Vec::new(),
        expires: None,
        max_uses: None,
        uses: 0,
        networks: Vec::new(),
    };
    NewProvisioningToken { text: format!("{id}.{secret}"), token }
}

fn hash(secret: &str) -> String {
    crate::hex::hex(&Sha256::digest(secret))
}

impl ProvisioningToken {
    /// The data of the Secret that stores it.
    #[must_use]
    pub fn to_secret_data(&self) -> BTreeMap<String, ByteString> {
        let networks: Vec<String> = self.networks.iter().map(IpNetwork::to_string).collect();
        let fields = [
            ("hash", self.hash.clone()),
            ("pools", self.pools.join(",")),
            ("expires", self.expires.map(|time| time.to_string()).unwrap_or_default()),
            ("max-uses", self.max_uses.map(|uses| uses.to_string()).unwrap_or_default()),
            (USES, self.uses.to_string()),
            ("networks", networks.join(",")),
        ];
        let bytes = |text: String| ByteString(text.into_bytes());
        fields.map(|(name, text)| (name.to_owned(), bytes(text))).into()
    }

    /// Parses the data of a Secret. A damaged Secret is not a token, so that it admits nobody.
    #[must_use]
    pub fn from_secret(name: &str, data: &BTreeMap<String, ByteString>) -> Option<Self> {
        let text = |name: &str| match data.get(name) {
            Some(bytes) => str::from_utf8(&bytes.0).ok().map(str::trim),
            None => Some(""),
        };
        let list = |name: &str| -> Option<Vec<String>> {
            let items = text(name)?.split(',').map(str::trim).filter(|item| !item.is_empty());
            Some(items.map(str::to_owned).collect())
        };
        let networks: Result<Vec<IpNetwork>, _> =
            list("networks")?.iter().map(|it| it.parse()).collect();
        Some(Self {
            id: name.strip_prefix(SECRET_PREFIX)?.to_owned(),
            hash: text("hash").filter(|hash| hash.len() == 64)?.to_owned(),
            pools: list("pools")?,
            expires: optional(text("expires")?)?,
            max_uses: optional(text("max-uses")?)?,
            uses: optional(text(USES)?)?.unwrap_or_default(),
            networks: networks.ok()?,
        })
    }

    /// Whether it has expired.
    #[must_use]
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|end| end <= now) || self.is_exhausted()
    }

    /// Whether it has no uses left.
    #[must_use]
    pub fn is_exhausted(&self) -> bool {
        self.max_uses.is_some_and(|most| self.uses >= most)
    }
}

/// `Some(None)` for an empty text, `None` for one that cannot be parsed.
fn optional<T: std::str::FromStr>(text: &str) -> Option<Option<T>> {
    if text.is_empty() { Some(None) } else { text.parse().ok().map(Some) }
}

/// The token of a request: in the `Authorization` header, or else in the URL.
#[must_use]
pub fn token_from_request(authorization: Option<&str>, query: Option<&str>) -> Option<String> {
    let header = authorization.and_then(|text| {
        let (scheme, token) = text.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim().to_owned())
    });
    header.or_else(|| query_parameter(query, "token")).filter(|token| !token.is_empty())
}

/// Finds the token that authorizes a machine.
///
/// # Errors
/// No token authorizes it.
pub fn authorize(
    find: impl FnOnce(&str) -> Option<ProvisioningToken>,
    presented: Option<&str>,
    pool: &str,
    address: IpAddr,
    now: Timestamp,
) -> Result<ProvisioningToken, ServeError> {
    let Some(presented) = presented else {
        return Err(ServeError::Unauthorized("the request contains no provisioning token"));
    };
    let unknown = ServeError::Unauthorized("the provisioning token is unknown");
    let Some((id, secret)) = presented.split_once('.') else { return Err(unknown) };
    let Some(token) = find(id).filter(|token| token.hash == hash(secret)) else {
        return Err(unknown);
    };
    if token.expires.is_some_and(|end| end <= now) {
        return Err(ServeError::Unauthorized("the provisioning token has expired"));
    }
    if token.is_exhausted() {
        return Err(ServeError::Unauthorized("the provisioning token has no uses left"));
    }
    if !token.pools.is_empty() && !token.pools.iter().any(|own| own == pool) {
        return Err(ServeError::Forbidden("the provisioning token is not valid for this pool"));
    }
    if !token.networks.is_empty() && !token.networks.iter().any(|it| it.contains(address)) {
        return Err(ServeError::Forbidden("the provisioning token is not valid for this network"));
    }
    Ok(token)
}

/// Checks whether requests from an address are allowed: it must be in an allowed network, if there
/// are any, and in no denied one.
///
/// # Errors
/// The address is not allowed.
pub fn check_address(
    address: IpAddr,
    allowed: &[IpNetwork],
    denied: &[IpNetwork],
) -> Result<(), ServeError> {
    let is_in = |networks: &[IpNetwork]| networks.iter().any(|network| network.contains(address));
    if is_in(denied) || (!allowed.is_empty() && !is_in(allowed)) {
        return Err(ServeError::Forbidden("requests from this address are not allowed"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-01-02T00:00:00Z";

    fn now() -> Timestamp {
        NOW.parse().unwrap()
    }

    fn ask(
        token: &ProvisioningToken,
        presented: Option<&str>,
        pool: &str,
        from: &str,
    ) -> Result<String, u16> {
        let find = |id: &str| (id == token.id).then(|| token.clone());
        let admitted = authorize(find, presented, pool, from.parse().unwrap(), now());
        admitted.map(|token| token.id).map_err(|refusal| refusal.status())
    }

    #[test]
    fn a_token_authorizes_only_its_pools_networks_and_uses() {
        let new = generate_token([7; 32]);
        let (text, token) = (Some(new.text.as_str()), new.token);
        let with = |change: &dyn Fn(&mut ProvisioningToken)| {
            let mut token = token.clone();
            change(&mut token);
            token
        };
        let wrong = format!("{}.{}", token.id, "a".repeat(26));
        let open = with(&|_| {});
        for (name, token, presented, expected) in [
            ("open", &open, text, Ok(())),
            ("none", &open, None, Err(401)),
            ("wrong", &open, Some(wrong.as_str()), Err(401)),
            ("no dot", &open, Some("abc"), Err(401)),
            ("other id", &open, Some("x.y"), Err(401)),
            (
                "ends later",
                &with(&|it| it.expires = "2026-01-03T00:00:00Z".parse().ok()),
                text,
                Ok(()),
            ),
            ("ended", &with(&|it| it.expires = NOW.parse().ok()), text, Err(401)),
            ("used", &with(&|it| (it.max_uses, it.uses) = (Some(2), 2)), text, Err(401)),
            ("once left", &with(&|it| (it.max_uses, it.uses) = (Some(2), 1)), text, Ok(())),
            ("its pool", &with(&|it| it.pools = vec!["worker".into()]), text, Ok(())),
            ("other pool", &with(&|it| it.pools = vec!["master".into()]), text, Err(403)),
            (
                "its network",
                &with(&|it| it.networks = vec!["10.0.0.0/8".parse().unwrap()]),
                text,
                Ok(()),
            ),
            (
                "other network",
                &with(&|it| it.networks = vec!["11.0.0.0/8".parse().unwrap()]),
                text,
                Err(403),
            ),
        ] {
            let found = ask(token, presented, "worker", "10.0.0.1").map(drop);
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn tokens_are_stored_without_their_secret() {
        let mut new = generate_token(std::array::from_fn(|at| u8::try_from(at * 5).unwrap()));
        new.token.pools = vec!["worker".into(), "infra".into()];
        new.token.expires = NOW.parse().ok();
        new.token.max_uses = Some(3);
        new.token.networks = vec!["10.0.0.0/8".parse().unwrap()];
        let data = new.token.to_secret_data();
        let name = format!("{SECRET_PREFIX}{}", new.token.id);
        assert_eq!(ProvisioningToken::from_secret(&name, &data), Some(new.token.clone()));
        let secret = new.text.split_once('.').unwrap().1;
        assert_eq!(secret.len(), 26);
        assert!(!data.values().any(|bytes| String::from_utf8_lossy(&bytes.0).contains(secret)));
        assert!(!format!("{new:?}").contains(secret));
        for (field, junk) in [
            ("hash", "x"),
            ("expires", "soon"),
            ("max-uses", "-1"),
            ("networks", "all"),
            ("uses", "x"),
        ] {
            let mut damaged = data.clone();
            damaged.insert(field.to_owned(), ByteString(junk.into()));
            assert_eq!(ProvisioningToken::from_secret(&name, &damaged), None, "{field}");
        }
    }

    #[test]
    fn a_token_is_read_from_header_or_query() {
        for (header, query, expected) in [
            (Some("Bearer a.b"), None, Some("a.b")),
            (Some("bearer  a.b "), None, Some("a.b")),
            (Some("Basic a.b"), None, None),
            (Some("Basic x"), Some("token=a.b"), Some("a.b")),
            (None, Some("etcd_index=1&token=a.b"), Some("a.b")),
            (None, Some("token="), None),
            (None, None, None),
        ] {
            assert_eq!(
                token_from_request(header, query).as_deref(),
                expected,
                "{header:?} {query:?}"
            );
        }
    }

    #[test]
    fn addresses_are_checked_against_allowed_and_denied_networks() {
        let networks = |text: &[&str]| -> Vec<IpNetwork> {
            text.iter().map(|text| text.parse().unwrap()).collect()
        };
        for (allowed, denied, expected) in [
            (&[][..], &[][..], true),
            (&["10.0.0.0/8"], &[], true),
            (&["11.0.0.0/8"], &[], false),
            (&[], &["10.0.0.0/8"], false),
            (&["10.0.0.0/8"], &["10.0.0.1"], false),
        ] {
            let found =
                check_address("10.0.0.1".parse().unwrap(), &networks(allowed), &networks(denied));
            assert_eq!(found.is_ok(), expected, "{allowed:?} {denied:?}");
        }
    }
}
