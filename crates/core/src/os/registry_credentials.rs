//! The entry of a pull secret that counts for an image.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// The `user:password` for an image in a pull secret, in base64 as an HTTP header carries it. Of the
/// entries whose name is a prefix of the image, the longest counts.
#[must_use]
pub fn credentials(pull_secret: &Value, host: &str, repository: &str) -> Option<String> {
    let image = format!("{host}/{repository}");
    let entries = pull_secret.get("auths")?.as_object()?.iter();
    let fits = |name: &str| {
        let name = name.trim_start_matches("https://").trim_start_matches("http://");
        let name = name.trim_end_matches('/');
        image.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let (_, entry) = entries.filter(|(name, _)| fits(name)).max_by_key(|(name, _)| name.len())?;
    if let Some(auth) = entry.get("auth").and_then(Value::as_str) {
        return Some(auth.to_owned());
    }
    let text = |name: &str| entry.get(name).and_then(Value::as_str);
    Some(STANDARD.encode(format!("{}:{}", text("username")?, text("password")?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_most_specific_entry_counts() {
        let secret = json!({"auths": {
            "q.io": {"auth": "aG9zdA=="},
            "q.io/os": {"username": "u", "password": "p"},
            "https://other.io/": {"auth": "b3RoZXI="},
        }});
        for (host, repository, expected) in [
            ("q.io", "os/a", Some("dTpw")),
            ("q.io", "osx/a", Some("aG9zdA==")),
            ("other.io", "a", Some("b3RoZXI=")),
            ("none.io", "a", None),
        ] {
            assert_eq!(credentials(&secret, host, repository).as_deref(), expected, "{host}");
        }
    }
}
