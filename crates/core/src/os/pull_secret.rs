//! Which credentials are used to pull OS images, and what to do when they are not accepted.

use serde_json::Value;

use super::credentials;
use super::image_ref::DigestImageRef;
use crate::api::names::path::{INTERNAL_REGISTRY_PULL_SECRET as INTERNAL, PULL_SECRET as KUBELET};

/// The file to use: the first if it exists and is JSON, otherwise the kubelet's if that exists.
#[must_use]
pub fn choose_auth_file(internal: Option<&[u8]>, has_kubelet: bool) -> Option<&'static str> {
    let is_json = |bytes: &[u8]| serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_ok();
    if internal.is_some_and(is_json) {
        return Some(INTERNAL);
    }
    has_kubelet.then_some(KUBELET)
}

/// What commands print when a registry does not accept the credentials.
const AUTH_ERROR_MESSAGES: [&str; 4] = [
    "unauthorized",
    "authentication required",
    "invalid username/password",
    "requested access to the resource is denied",
];

/// Why a machine cannot pull an image, and what to do, if a command failed because the registry refused
/// the credentials. They are the file that was used and its contents, which are not repeated.
#[must_use]
pub fn auth_failure(
    complaint: &str,
    image: &DigestImageRef,
    credentials: Option<(&str, &[u8])>,
) -> Option<String> {
    let complaint = complaint.to_lowercase();
    if !AUTH_ERROR_MESSAGES.iter().any(|words| complaint.contains(words)) {
        return None;
    }
    let registry = image.repository.split('/').next().unwrap_or_default();
    Some(match credentials {
        None => format!(
            "the registry {registry} wants credentials for {image}, and this machine has no pull secret: put one with an entry for {registry} into {KUBELET}"
        ),
        Some((file, bytes)) if !has_entry(bytes, image) => format!(
            "the registry {registry} wants credentials for {image}, and the pull secret {file} has none for it: add an entry for {registry}, or for the mirror that it is fetched from"
        ),
        Some((file, _)) => format!(
            "the registry {registry} does not accept the credentials of the pull secret {file} for {image}: correct its entry for {registry}"
        ),
    })
}

fn has_entry(bytes: &[u8], image: &DigestImageRef) -> bool {
    let secret: Value = serde_json::from_slice(bytes).unwrap_or_default();
    let (host, path) = image.repository.split_once('/').unwrap_or((&image.repository, ""));
    credentials(&secret, host, path).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_image_registry_and_remedy_and_no_secret() {
        let image =
            DigestImageRef { repository: "q.io:5000/os/a".to_owned(), sha256: "0".repeat(64) };
        let refusal = "level=fatal msg=\"reading manifest: unauthorized: authentication required\"";
        let entry = |name: &str| format!(r#"{{"auths":{{"{name}":{{"auth":"aHVudGVyMg=="}}}}}}"#);
        let (other, own) = (entry("other.io"), entry("q.io:5000"));
        for (secret, expected) in [
            (None, "no pull secret: put one with an entry for q.io:5000 into /var/lib/kubelet"),
            (Some(&other), "the pull secret /f has none for it: add an entry for q.io:5000"),
            (
                Some(&own),
                "does not accept the credentials of the pull secret /f for q.io:5000/os/a@",
            ),
        ] {
            let secret = secret.map(|text| ("/f", text.as_bytes()));
            let message = auth_failure(refusal, &image, secret).unwrap();
            assert!(
                message.contains(expected) && message.contains(&image.to_string()),
                "{message}"
            );
            assert!(!message.contains("aHVudGVyMg"), "{message}");
        }
        assert_eq!(auth_failure("manifest unknown", &image, None), None);
        assert_eq!(auth_failure("open /x: permission denied", &image, None), None);
    }

    #[test]
    fn an_empty_secret_does_not_count() {
        for (internal, kubelet, expected) in [
            (None, false, None),
            (None, true, Some(KUBELET)),
            (Some("{}"), true, Some(INTERNAL)),
            (Some("\n"), true, Some(KUBELET)),
            (Some("\n"), false, None),
        ] {
            assert_eq!(choose_auth_file(internal.map(str::as_bytes), kubelet), expected);
        }
    }
}
