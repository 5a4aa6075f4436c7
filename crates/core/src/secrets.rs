//! Recognizes what must never be displayed: pull secrets, keys, tokens, password hashes.

/// Paths that hold secrets on any machine.
const SECRET_PATHS: [&str; 8] = [
    "/var/lib/kubelet/config.json",
    "/etc/kubernetes/kubeconfig",
    "/var/lib/kubelet/kubeconfig",
    "/etc/mco/internal-registry-pull-secret.json",
    "/root/.docker/config.json",
    "/etc/shadow",
    "/etc/gshadow",
    "/etc/ignition-machine-config-encapsulated.json",
];

/// Suffixes of key files.
const SECRET_FILE_SUFFIXES: [&str; 7] =
    [".key", ".kubeconfig", ".p12", ".pfx", ".keytab", ".dockerconfigjson", "pull-secret"];

/// Texts that identify a secret.
const SECRET_MARKERS: [&str; 9] = [
    "PRIVATE KEY-----",
    "\"auths\"",
    "client-key-data",
    "_authToken",
    "aws_secret_access_key",
    "-----BEGIN PGP PRIVATE",
    "passwordHash",
    "token:",
    "password=",
];

/// Whether the contents of a file must not be displayed: it has a known path, it contains what
/// looks like a key or a token, or it is not world-readable on the machine either.
#[must_use]
pub fn is_secret_file(path: &str, mode: Option<i64>, contents: &[u8]) -> bool {
    let everyone_may_read = mode.is_none_or(|mode| mode & 0o004 != 0);
    !everyone_may_read
        || SECRET_PATHS.contains(&path)
        || SECRET_FILE_SUFFIXES.iter().any(|ending| path.ends_with(ending))
        || SECRET_MARKERS.iter().any(|mark| contains(contents, mark.as_bytes()))
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_recognized_by_path_mode_and_content() {
        for (path, mode, contents, expected) in [
            ("/etc/motd", Some(0o644), "hello", false),
            ("/etc/motd", None, "hello", false),
            ("/etc/motd", Some(0o600), "hello", true),
            ("/var/lib/kubelet/config.json", Some(0o644), "{}", true),
            ("/etc/x.key", Some(0o644), "", true),
            ("/etc/x", Some(0o644), "-----BEGIN RSA PRIVATE KEY-----", true),
            ("/etc/x", Some(0o644), "{\"auths\": {}}", true),
        ] {
            assert_eq!(is_secret_file(path, mode, contents.as_bytes()), expected, "{path}");
        }
    }
}
