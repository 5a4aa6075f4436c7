//! The token with which new machines request their certificates: decides the next step.
//!
//! It is a token of the ServiceAccount `node-bootstrapper` with an expiry, bound to the Secret that holds it: deleting the
//! Secret revokes every token that was ever in it. Halfway through its lifetime it is replaced. Machines that have the
//! previous one can still use it until it expires, so each machine has half a lifetime to get its certificate.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::Value;

/// The ServiceAccount of new machines.
pub const BOOTSTRAP_ACCOUNT: &str = "node-bootstrapper";
/// The Secret of its token, which the server mounts.
pub const BOOTSTRAP_SECRET: &str = "machine-config-server-bootstrap-token";
/// The Secret of earlier versions, whose token never expires.
pub const LEGACY_SECRET: &str = "node-bootstrapper-token";
/// How many seconds machines that got the old token can still use it.
const LEGACY_GRACE: i64 = 24 * 3600;
/// How many seconds a token may live longer than it should: the API server rounds.
const LIFETIME_SLACK: i64 = 60;

/// What a token says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenClaims {
    /// Whose token it is.
    pub subject: String,
    /// The UID of the Secret that it is bound to.
    pub secret_uid: String,
    /// When it was issued, in seconds since 1970.
    pub issued: i64,
    /// When it expires.
    pub expires: i64,
}

impl TokenClaims {
    /// Reads the claims of a JSON web token. Verifies no signature: whoever can write the Secret can write any token.
    #[must_use]
    pub fn parse(token: &str) -> Option<Self> {
        let payload = token.trim().split('.').nth(1)?;
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(payload).ok()?;
        let claims: Value = serde_json::from_slice(&bytes).ok()?;
        let secret = &claims["kubernetes.io"]["secret"]["uid"];
        Some(Self {
            subject: claims["sub"].as_str()?.to_owned(),
            secret_uid: secret.as_str().unwrap_or_default().to_owned(),
            issued: claims["iat"].as_i64()?,
            expires: claims["exp"].as_i64()?,
        })
    }
}

/// What exists.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BootstrapTokenState {
    /// The UID of the Secret, if it exists.
    pub secret_uid: Option<String>,
    /// When the Secret was created, in seconds since 1970.
    pub secret_created: i64,
    /// The token in it, if it is one.
    pub token: Option<TokenClaims>,
    /// The CA certificate in it.
    pub ca: String,
    /// Whether an administrator requested a new token.
    pub rotate: bool,
    /// Whether our Secret of an earlier version exists.
    pub has_legacy_secret: bool,
    /// Whether all servers run this release.
    pub is_server_rolled_out: bool,
}

/// What should exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DesiredBootstrapToken {
    /// The namespace of the account.
    pub namespace: String,
    /// How many seconds a token is valid.
    pub lifetime: i64,
    /// The CA certificate of the API server.
    pub ca: String,
}

/// The next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BootstrapTokenStep {
    /// Create the Secret without a token, which can be bound only to a Secret that exists.
    CreateSecret,
    /// Request a token and write it into the Secret, with the CA certificate.
    IssueToken,
    /// Write the CA certificate, and keep the token.
    UpdateCa,
    /// Delete the Secret of an earlier version, which ends its token.
    RemoveLegacySecret,
}

/// The next step, if there is one.
#[must_use]
pub fn next_step(
    state: &BootstrapTokenState,
    desired: &DesiredBootstrapToken,
    now: i64,
) -> Option<BootstrapTokenStep> {
    let Some(uid) = &state.secret_uid else { return Some(BootstrapTokenStep::CreateSecret) };
    let is_current = state.token.as_ref().is_some_and(|token| is_current(token, uid, desired, now));
    if !is_current || state.rotate {
        return Some(BootstrapTokenStep::IssueToken);
    }
    if state.ca != desired.ca {
        return Some(BootstrapTokenStep::UpdateCa);
    }
    let is_over = now - state.secret_created >= LEGACY_GRACE;
    (state.has_legacy_secret && state.is_server_rolled_out && is_over)
        .then_some(BootstrapTokenStep::RemoveLegacySecret)
}

/// Whether a token is ours, valid where it is, and in the first half of its lifetime.
fn is_current(token: &TokenClaims, uid: &str, desired: &DesiredBootstrapToken, now: i64) -> bool {
    let subject = format!("system:serviceaccount:{}:{BOOTSTRAP_ACCOUNT}", desired.namespace);
    let lifetime = token.expires - token.issued;
    token.subject == subject
        && token.secret_uid == uid
        && lifetime <= desired.lifetime + LIFETIME_SLACK
        && now < token.issued + lifetime / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const DAY: i64 = 24 * 3600;

    fn state() -> BootstrapTokenState {
        BootstrapTokenState {
            secret_uid: Some("u".to_owned()),
            token: Some(TokenClaims {
                subject: "system:serviceaccount:ns:node-bootstrapper".to_owned(),
                secret_uid: "u".to_owned(),
                issued: 1000,
                expires: 1000 + 2 * DAY,
            }),
            ca: "CA".to_owned(),
            ..BootstrapTokenState::default()
        }
    }

    fn step(state: &BootstrapTokenState, now: i64) -> Option<BootstrapTokenStep> {
        let (namespace, ca) = ("ns".to_owned(), "CA".to_owned());
        next_step(state, &DesiredBootstrapToken { namespace, lifetime: 2 * DAY, ca }, now)
    }

    #[test]
    fn a_token_is_replaced_halfway_through_its_lifetime() {
        for (now, expected) in [
            (1000, None),
            (999 + DAY, None),
            (1000 + DAY, Some(BootstrapTokenStep::IssueToken)),
            (1000 + 3 * DAY, Some(BootstrapTokenStep::IssueToken)),
        ] {
            assert_eq!(step(&state(), now), expected, "{now}");
        }
    }

    #[test]
    fn a_token_that_is_not_ours_is_replaced() {
        let with = |change: &dyn Fn(&mut TokenClaims)| {
            let mut state = state();
            change(state.token.as_mut().unwrap());
            state
        };
        for changed in [
            BootstrapTokenState { token: None, ..state() },
            BootstrapTokenState { rotate: true, ..state() },
            with(&|token| token.subject = "system:serviceaccount:ns:other".to_owned()),
            with(&|token| token.secret_uid = "deleted".to_owned()),
            with(&|token| token.secret_uid = String::new()),
            // The administrator has set a shorter lifetime.
            with(&|token| token.expires += DAY),
        ] {
            assert_eq!(step(&changed, 2000), Some(BootstrapTokenStep::IssueToken), "{changed:?}");
        }
        let none = BootstrapTokenState { secret_uid: None, ..state() };
        assert_eq!(step(&none, 2000), Some(BootstrapTokenStep::CreateSecret));
        let ca = BootstrapTokenState { ca: "old".to_owned(), ..state() };
        assert_eq!(step(&ca, 2000), Some(BootstrapTokenStep::UpdateCa));
        // The API server may issue shorter tokens than it is asked for.
        assert_eq!(step(&with(&|token| token.expires = 1000 + DAY), 2000), None);
    }

    #[test]
    fn the_token_without_an_expiry_is_removed_when_nobody_needs_it() {
        let legacy = BootstrapTokenState {
            has_legacy_secret: true,
            is_server_rolled_out: true,
            secret_created: 2000 - DAY,
            ..state()
        };
        let remove = Some(BootstrapTokenStep::RemoveLegacySecret);
        assert_eq!(step(&legacy, 2000), remove);
        for early in [
            BootstrapTokenState { secret_created: 2001 - DAY, ..legacy.clone() },
            BootstrapTokenState { is_server_rolled_out: false, ..legacy.clone() },
            BootstrapTokenState { has_legacy_secret: false, ..legacy },
        ] {
            assert_eq!(step(&early, 2000), None, "{early:?}");
        }
    }

    #[test]
    fn claims_are_read() {
        let token =
            |claims: &Value| format!("e30.{}.x", BASE64_URL_SAFE_NO_PAD.encode(claims.to_string()));
        let claims = json!({
            "sub": "s", "iat": 1, "exp": 2, "kubernetes.io": {"secret": {"name": "n", "uid": "u"}},
        });
        let expected = TokenClaims {
            subject: "s".to_owned(),
            secret_uid: "u".to_owned(),
            issued: 1,
            expires: 2,
        };
        assert_eq!(TokenClaims::parse(&token(&claims)), Some(expected));
        // The tokens of earlier versions have no expiry.
        let endless = token(&json!({"sub": "s", "iat": 1}));
        for text in ["", "a", "a.b.c", "e30.e30.x", &endless, "\u{0}.\u{ff}."] {
            assert_eq!(TokenClaims::parse(text), None, "{text}");
        }
    }
}
