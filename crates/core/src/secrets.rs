//! What may leave a machine or a cluster, and what looks like a secret.
//!
//! Patterns cannot recognize every secret, so they protect nothing by themselves: what leaves is decided by
//! [`is_public_file`], a list of what may leave. [`is_secret_file`] keeps secrets off a terminal, and warns
//! people who serve configs to everyone.

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

/// Texts that identify a secret, in lower case.
const SECRET_MARKERS: [&str; 6] = [
    "private key-----",
    "\"auths\"",
    "client-key-data",
    "_authtoken",
    "-----begin pgp private",
    "passwordhash",
];

/// Ends of names whose value is a secret, in lower case: `DB_PASSWORD: x`, `Environment=GITHUB_TOKEN=x`.
const SECRET_NAMES: [&str; 13] = [
    "password",
    "passwd",
    "passphrase",
    "psk",
    "secret",
    "token",
    "api_key",
    "apikey",
    "api-key",
    "access_key",
    "private_key",
    "privatekey",
    "credentials",
];

/// Ends of names whose value is a secret in a network file, in lower case: the keys of WireGuard (`PresharedKey=`), MACsec
/// (`Key=`, `mka-cak=`) and WEP (`wep-key0=`), and the PIN of a modem. Elsewhere such a name is mostly harmless.
const NETWORK_SECRET_NAMES: [&str; 8] =
    ["key", "key0", "key1", "key2", "key3", "key4", "cak", "pin"];

/// What a machine needs to reach the network, and the certificates that it trusts. Directories end with `/`.
const PUBLIC_PATHS: [&str; 8] = [
    "/etc/hostname",
    "/etc/hosts",
    "/etc/resolv.conf",
    "/etc/NetworkManager/",
    "/etc/systemd/network/",
    "/etc/systemd/resolved.conf.d/",
    "/etc/sysconfig/network-scripts/",
    "/etc/pki/ca-trust/source/anchors/",
];

/// Whether the contents of a file may be given to everyone: the path is on the list, and neither mode nor
/// contents say otherwise.
#[must_use]
pub fn is_public_file(path: &str, mode: Option<i64>, contents: &[u8]) -> bool {
    let is_listed = |listed: &&str| match listed.ends_with('/') {
        true => path.starts_with(listed) && !path.contains("/../"),
        false => path == *listed,
    };
    PUBLIC_PATHS.iter().any(is_listed)
        && !is_secret_file(path, mode, contents)
        && !assigns_any(&without_public_keys(contents), &NETWORK_SECRET_NAMES)
}

/// The text in lower case without the names of public keys: that of a peer is not a secret.
fn without_public_keys(contents: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(contents).to_lowercase();
    text.replace("publickey", "").replace("public-key", "").into_bytes()
}

/// Whether the contents of a file must not be displayed: it has a known path, it contains what
/// looks like a key or a token, or it is not world-readable on the machine either.
#[must_use]
pub fn is_secret_file(path: &str, mode: Option<i64>, contents: &[u8]) -> bool {
    let everyone_may_read = mode.is_none_or(|mode| mode & 0o004 != 0);
    !everyone_may_read
        || SECRET_PATHS.contains(&path)
        || SECRET_FILE_SUFFIXES.iter().any(|ending| path.ends_with(ending))
        || looks_secret(&contents.to_ascii_lowercase())
}

fn looks_secret(lower_case: &[u8]) -> bool {
    SECRET_MARKERS.iter().any(|mark| positions(lower_case, mark).next().is_some())
        || assigns_any(lower_case, &SECRET_NAMES)
}

/// Whether a value is assigned to a name that ends like one of these.
fn assigns_any(lower_case: &[u8], names: &[&str]) -> bool {
    names.iter().any(|name| {
        positions(lower_case, name).any(|at| is_assigned(&lower_case[at + name.len()..]))
    })
}

/// Whether a value follows a name: `=x`, `: x`, `": "x"`.
fn is_assigned(rest: &[u8]) -> bool {
    let is_separator = |byte: &u8| matches!(byte, b' ' | b'\t' | b'"' | b'\'');
    let after_name = rest.iter().position(|byte| !is_separator(byte)).unwrap_or(rest.len());
    let Some(b'=' | b':') = rest.get(after_name) else { return false };
    let value = rest[after_name + 1..].iter().find(|byte| !is_separator(byte));
    value.is_some_and(|byte| !matches!(byte, b'\n' | b'\r'))
}

fn positions<'a>(haystack: &'a [u8], needle: &'a str) -> impl Iterator<Item = usize> + 'a {
    let windows = haystack.windows(needle.len()).enumerate();
    windows.filter(move |(_, window)| *window == needle.as_bytes()).map(|(at, _)| at)
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
            ("/etc/x", Some(0o644), "DB_PASSWORD: hunter2", true),
            ("/etc/x", Some(0o644), "API_KEY=hunter2", true),
            ("/etc/x", Some(0o644), "{\"password\": \"hunter2\"}", true),
            ("/etc/x", Some(0o644), "[wifi-security]\npsk=hunter2", true),
            ("/etc/x", Some(0o644), "[Service]\nEnvironment=GITHUB_TOKEN=hunter2\n", true),
            ("/etc/x", Some(0o644), "Environment=\"Token=hunter2\"", true),
            ("/etc/x", Some(0o644), "PasswordAuthentication no\n", false),
            ("/etc/x", Some(0o644), "token:\n", false),
            ("/etc/x", Some(0o644), "# the password is elsewhere\n", false),
        ] {
            let found = is_secret_file(path, mode, contents.as_bytes());
            assert_eq!(found, expected, "{path}: {contents}");
        }
    }

    #[test]
    fn only_listed_files_are_public() {
        for (path, mode, contents, expected) in [
            ("/etc/hostname", Some(0o644), "n1", true),
            ("/etc/hostname.d/x", Some(0o644), "n1", false),
            ("/etc/motd", Some(0o644), "hello", false),
            ("/etc/NetworkManager/conf.d/a.conf", Some(0o644), "[main]", true),
            ("/etc/NetworkManager/system-connections/a", Some(0o600), "[main]", false),
            ("/etc/NetworkManager/system-connections/a", Some(0o644), "psk=hunter2", false),
            ("/etc/NetworkManager/../secret", Some(0o644), "x", false),
            (
                "/etc/NetworkManager/system-connections/a",
                None,
                "[wireguard]\nprivate-key=eA==",
                false,
            ),
            ("/etc/NetworkManager/system-connections/a", None, "preshared-key=eA==", false),
            ("/etc/NetworkManager/system-connections/a", None, "wep-key0=hunter2", false),
            ("/etc/NetworkManager/system-connections/a", None, "mka-cak=012", false),
            ("/etc/NetworkManager/system-connections/a", None, "[gsm]\npin=1234", false),
            ("/etc/NetworkManager/system-connections/a", None, "key-mgmt=none", true),
            ("/etc/systemd/network/a.netdev", None, "PresharedKey = eA==", false),
            ("/etc/systemd/network/a.netdev", None, "[MACsecReceiveAssociation]\nKey=0", false),
            ("/etc/systemd/network/a.netdev", None, "PublicKey=eA==", true),
            ("/etc/sysconfig/network-scripts/keys-a", None, "KEY1=s:hunter2", false),
            ("/etc/pki/ca-trust/source/anchors/a.crt", None, "-----BEGIN CERTIFICATE-----", true),
            ("/etc/pki/ca-trust/source/anchors/a.pem", None, "-----BEGIN PRIVATE KEY-----", false),
        ] {
            assert_eq!(is_public_file(path, mode, contents.as_bytes()), expected, "{path}");
        }
    }
}
