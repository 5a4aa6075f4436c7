//! Tokens of service accounts: JSON web tokens with the claims of kube-apiserver, signed with the key of the hub's CA.
//!
//! Only ES256 with that key is read, whatever a token's header says. A token counts while its service account exists with
//! the same UID, which the caller checks. Pure; called by `router::token_requests` and `router::authentication`.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::UserInfo;
use super::certificates::{CertificateAuthority, CertificateError};

/// Who issues the tokens, and whom they are for unless a request names somebody else.
pub const API_AUDIENCE: &str = "https://kubernetes.default.svc";
/// The start of the user names of service accounts.
const USER_PREFIX: &str = "system:serviceaccount:";
/// The group of all service accounts. Each namespace has one with this prefix too.
const GROUP: &str = "system:serviceaccounts";
/// The longest token that is read.
const MAX_TOKEN_BYTES: usize = 8 << 10;

/// A service account. Another one with the same name has another UID.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceAccount {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

impl ServiceAccount {
    /// The user that its tokens authenticate.
    #[must_use]
    pub fn user(&self) -> UserInfo {
        let Self { namespace, name, .. } = self;
        let groups = [GROUP.to_owned(), format!("{GROUP}:{namespace}")];
        UserInfo::new(format!("{USER_PREFIX}{namespace}:{name}"), groups)
    }
}

/// What a token says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenClaims {
    /// Whose it is.
    pub account: ServiceAccount,
    /// Whom it is for.
    pub audiences: Vec<String>,
    /// Its own name, in audit logs.
    pub id: String,
    /// When it was issued, in seconds since 1970.
    pub issued: i64,
    /// When it expires, in seconds since 1970.
    pub expires: i64,
}

/// Signs a token.
///
/// # Errors
/// The CA has no key for ES256.
pub fn sign(claims: &TokenClaims, ca: &CertificateAuthority) -> Result<String, CertificateError> {
    let ServiceAccount { namespace, name, uid } = &claims.account;
    let header = json!({"alg": "ES256", "typ": "JWT"});
    let body = json!({
        "aud": claims.audiences,
        "exp": claims.expires,
        "iat": claims.issued,
        "iss": API_AUDIENCE,
        "jti": claims.id,
        "kubernetes.io": {"namespace": namespace, "serviceaccount": {"name": name, "uid": uid}},
        "nbf": claims.issued,
        "sub": claims.account.user().user,
    });
    let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", encode(&header), encode(&body));
    let signature = URL_SAFE_NO_PAD.encode(ca.sign_es256(signed.as_bytes())?);
    Ok(format!("{signed}.{signature}"))
}

/// Whether a text has the form of a token of a service account.
#[must_use]
pub fn is_token(text: &str) -> bool {
    text.len() <= MAX_TOKEN_BYTES && text.matches('.').count() == 2
}

/// The claims of a token that the CA signed and that has not expired.
#[must_use]
pub fn verify(token: &str, ca: &CertificateAuthority, now: i64) -> Option<TokenClaims> {
    if !is_token(token) {
        return None;
    }
    let (signed, signature) = token.rsplit_once('.')?;
    let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
    if !ca.verify_es256(signed.as_bytes(), &signature) {
        return None;
    }
    let body = URL_SAFE_NO_PAD.decode(signed.split_once('.')?.1).ok()?;
    let body: Value = serde_json::from_slice(&body).ok()?;
    let text = |pointer: &str| body.pointer(pointer)?.as_str().map(ToOwned::to_owned);
    let audiences = body["aud"].as_array()?.iter();
    let claims = TokenClaims {
        account: ServiceAccount {
            namespace: text("/kubernetes.io/namespace")?,
            name: text("/kubernetes.io/serviceaccount/name")?,
            uid: text("/kubernetes.io/serviceaccount/uid")?,
        },
        audiences: audiences.filter_map(|it| it.as_str().map(ToOwned::to_owned)).collect(),
        id: text("/jti")?,
        issued: body["iat"].as_i64()?,
        expires: body["exp"].as_i64()?,
    };
    (body["iss"] == API_AUDIENCE && now < claims.expires).then_some(claims)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ca() -> CertificateAuthority {
        CertificateAuthority::from_pem(&CertificateAuthority::generate("test").unwrap()).unwrap()
    }

    fn claims() -> TokenClaims {
        let account =
            ServiceAccount { namespace: "n".into(), name: "robot".into(), uid: "u1".into() };
        let audiences = vec![API_AUDIENCE.to_owned()];
        TokenClaims { account, audiences, id: "t1".into(), issued: 100, expires: 200 }
    }

    #[test]
    fn a_token_is_read_until_it_expires() {
        let ca = ca();
        for _ in 0..20 {
            // The length of an ASN.1 signature varies.
            let token = sign(&claims(), &ca).unwrap();
            assert_eq!(verify(&token, &ca, 199), Some(claims()));
            assert_eq!(verify(&token, &ca, 200), None);
        }
        let user = claims().account.user();
        assert_eq!(user.user, "system:serviceaccount:n:robot");
        let groups = ["system:serviceaccounts", "system:serviceaccounts:n", "system:authenticated"];
        assert_eq!(user.groups, groups);
    }

    #[test]
    fn forged_tokens_are_refused() {
        let (own, other) = (ca(), ca());
        let token = sign(&claims(), &own).unwrap();
        assert_eq!(verify(&token, &other, 150), None, "another CA");
        let parts: Vec<&str> = token.split('.').collect();
        let encode = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let mut body: Value =
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(parts[1]).unwrap()).unwrap();
        body["exp"] = 9999.into();
        let none = encode(json!({"alg": "none"}));
        for forged in [
            format!("{}.{}.{}", parts[0], encode(body.clone()), parts[2]),
            format!("{none}.{}.", encode(body)),
            format!("{none}.{}.{}", parts[1], parts[2]),
            format!("{}.{}.", parts[0], parts[1]),
            format!("{}.{}.{}", parts[0], parts[1], URL_SAFE_NO_PAD.encode([0; 64])),
            format!("{token}A"),
            "..".to_owned(),
            format!("{token}.x"),
            "a".repeat(MAX_TOKEN_BYTES) + "..",
        ] {
            assert_eq!(verify(&forged, &own, 150), None, "{forged:.80}");
        }
    }
}
