//! Credentials for the registry of a cluster that hosts its own release images
//! (InternalReleaseImage). They are added to the pull secret of every machine.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::api::ControllerConfig;
use crate::go::escape::escape_html;

/// The Secret with the registry's password, in MCO's namespace.
pub const AUTH_SECRET: &str = "internal-release-image-registry-auth";
/// The key of the password in the Secret.
pub const PASSWORD_KEY: &str = "password";

const PORT: u16 = 22625;
const USER: &str = "openshift";

/// The pull secret with the credentials of the cluster's registry, under the name that all machines
/// use and under the name on the machines that host it.
///
/// # Errors
/// A field is missing. The message names it but contains no secret.
pub fn with_internal_registry(
    pull_secret: &[u8],
    password: &[u8],
    controller_config: &ControllerConfig,
) -> Result<Vec<u8>, String> {
    if password.is_empty() {
        return Err(format!(
            "IRI registry credentials secret missing or empty {PASSWORD_KEY:?} field (Secret {AUTH_SECRET})"
        ));
    }
    let dns = controller_config.spec.dns.as_ref();
    let domain =
        dns.and_then(|dns| dns.spec.as_ref()?.base_domain.as_deref()).unwrap_or_default().trim();
    if domain.is_empty() {
        return Err(
            "ControllerConfig baseDomain must not be empty (set spec.dns.spec.baseDomain)".into()
        );
    }
    let mut config: Value = serde_json::from_slice(pull_secret).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        format!("could not parse pull secret: it is no JSON at line {line}, column {column}")
    })?;
    let auths = config.get_mut("auths").and_then(Value::as_object_mut);
    let auths = auths.ok_or("pull secret missing 'auths' field")?;
    let credentials = [USER.as_bytes(), b":", password].concat();
    let wanted = json!({"auth": STANDARD.encode(credentials)});
    let hosts = [format!("api-int.{domain}:{PORT}"), format!("localhost:{PORT}")];
    if hosts.iter().all(|host| auths.get(host).is_some_and(|it| it["auth"] == wanted["auth"])) {
        return Ok(pull_secret.to_vec());
    }
    for host in hosts {
        auths.insert(host, wanted.clone());
    }
    Ok(escape_html(config.to_string().into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(pull_secret: &str, password: &str, domain: &str) -> Result<String, String> {
        let config =
            json!({"metadata": {"name": "x"}, "spec": {"dns": {"spec": {"baseDomain": domain}}}});
        let config = serde_json::from_value(config).unwrap();
        let merged = with_internal_registry(pull_secret.as_bytes(), password.as_bytes(), &config);
        merged.map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn both_registry_names_are_added_once() {
        let plain = r#"{"auths":{"q.io":{"auth":"eA=="}}, "x": "<"}"#;
        let first = merged(plain, "secret", "c.example.com").unwrap();
        assert_eq!(
            first,
            r#"{"auths":{"api-int.c.example.com:22625":{"auth":"b3BlbnNoaWZ0OnNlY3JldA=="},"localhost:22625":{"auth":"b3BlbnNoaWZ0OnNlY3JldA=="},"q.io":{"auth":"eA=="}},"x":"\u003c"}"#
        );
        assert_eq!(merged(&first, "secret", "c.example.com").unwrap(), first);
        assert_ne!(merged(&first, "other", "c.example.com").unwrap(), first);
    }

    #[test]
    fn errors_name_the_missing_field_and_no_secret() {
        for (pull_secret, password, domain, expected) in [
            ("{}", "hush", "a.b", "missing 'auths'"),
            ("hush", "hush", "a.b", "no JSON at line 1"),
            (r#"{"auths":{}}"#, "", "a.b", "\"password\""),
            (r#"{"auths":{}}"#, "hush", " ", "spec.dns.spec.baseDomain"),
        ] {
            let error = merged(pull_secret, password, domain).unwrap_err();
            assert!(error.contains(expected) && !error.contains("hush"), "{error}");
        }
    }
}
