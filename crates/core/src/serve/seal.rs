//! Splits a config into what everyone on the network may read, and what only an enrolled machine
//! gets.
//!
//! Everything is sealed, except what a machine needs to reach the server that enrols it: Machinist's own binary
//! and units, network files and trusted certificates ([`crate::secrets::is_public_file`]), and paths that an
//! administrator names. No pattern decides what is a secret: a pattern misses some. What Ignition itself needs
//! cannot wait for an enrolment: a config with a secret there is refused, so that it is never served by
//! mistake.

use std::collections::BTreeMap;

use super::error::ServeError;
use super::{enrol, first_boot};
use crate::api::names::path;
use crate::ignition::Config;
use crate::ignition::contents::{self, ContentsError};
use crate::ignition::schema::{File, PasswdUser, Resource, Unit};
use crate::secrets::{is_public_file, is_secret_file};

/// The annotation on pools and MachineConfigs with paths that everyone may read: `/etc/a,/etc/b/*`.
pub const PUBLIC_PATHS_ANNOTATION: &str = "machinist.dev/public-paths";
/// The annotation on pools and MachineConfigs with paths to seal although they would be public.
pub const SEALED_PATHS_ANNOTATION: &str = "machinist.dev/sealed-paths";
/// Files that the server adds and that hold the whole config or credentials.
const ALWAYS_SEALED: [&str; 3] = [path::KUBECONFIG, path::SERVED_CONFIG, path::ENCAPSULATED];
/// The units with which a machine enrols and completes its first boot.
const PUBLIC_UNITS: [&str; 2] = [enrol::ENROLMENT_UNIT, first_boot::FIRST_BOOT_UNIT];
/// Larger files are sealed without an inspection.
const MAX_SCANNED_BYTES: u64 = 16 << 20;
/// Larger files are not searched for a warning.
const MAX_WARNED_BYTES: u64 = 1 << 20;
/// The directory of unit files.
const UNIT_DIR: &str = "/etc/systemd/system";
/// A world-readable mode, so that only the text decides.
const WORLD_READABLE: Option<i64> = Some(0o644);

/// A config in two halves.
#[derive(Debug, Clone)]
pub struct SplitConfig {
    /// The public half.
    pub public: Config,
    /// The sealed half.
    pub sealed: Config,
}

/// The paths that annotations name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AnnotatedPaths {
    /// Everyone may read them.
    pub public: Vec<String>,
    /// Nobody may, even if they would be public.
    pub sealed: Vec<String>,
}

impl AnnotatedPaths {
    /// Reads the annotations of a pool and of its MachineConfigs.
    #[must_use]
    pub fn from_annotations<'a>(
        annotations: impl IntoIterator<Item = Option<&'a BTreeMap<String, String>>>,
    ) -> Self {
        let mut named = Self::default();
        for all in annotations.into_iter().flatten() {
            for (annotation, paths) in [
                (PUBLIC_PATHS_ANNOTATION, &mut named.public),
                (SEALED_PATHS_ANNOTATION, &mut named.sealed),
            ] {
                let text = all.get(annotation).map(String::as_str).unwrap_or_default();
                let text = text.split(',').map(str::trim).filter(|path| !path.is_empty());
                paths.extend(text.map(str::to_owned));
            }
        }
        for paths in [&mut named.public, &mut named.sealed] {
            paths.sort();
            paths.dedup();
        }
        named
    }

    /// Whether an administrator allows everyone to read a path.
    fn allows(&self, path: &str) -> bool {
        is_named(path, &self.public) && !is_named(path, &self.sealed)
    }
}

/// Splits a config.
///
/// # Errors
/// A secret is in a place that cannot be sealed.
pub fn split(mut config: Config, named: &AnnotatedPaths) -> Result<SplitConfig, ServeError> {
    check_needed_by_ignition(&config)?;
    let mut sealed = Config::default();
    sealed.ignition.version.clone_from(&config.ignition.version);
    let files = std::mem::take(&mut config.storage.files).into_vec();
    for file in files {
        if is_sealed_file(&file, named)? {
            sealed.storage.files.push(file);
        } else {
            config.storage.files.push(file);
        }
    }
    for unit in std::mem::take(&mut config.systemd.units).into_vec() {
        if is_public_unit(&unit, named) {
            config.systemd.units.push(unit);
            continue;
        }
        // Ignition masks it; an enrolment only writes texts.
        if unit.mask == Some(true) {
            let (name, mask) = (unit.name.clone(), unit.mask);
            config.systemd.units.push(Unit { name, mask, ..Unit::default() });
        }
        sealed.systemd.units.push(unit);
    }
    for user in config.passwd.users.iter_mut() {
        if let Some(hash) = user.password_hash.take().filter(|hash| !hash.is_empty()) {
            let name = user.name.clone();
            let known = PasswdUser { name, password_hash: Some(hash), ..PasswdUser::default() };
            sealed.passwd.users.push(known);
        }
    }
    Ok(SplitConfig { public: config, sealed })
}

fn is_sealed_file(file: &File, named: &AnnotatedPaths) -> Result<bool, ServeError> {
    let path = file.path.as_str();
    if ALWAYS_SEALED.contains(&path) {
        return Ok(true);
    }
    // Without contents, an entry only sets permissions, which Ignition does.
    let is_empty = file.contents.source.as_deref().unwrap_or_default().is_empty();
    if named.allows(path) || (is_empty && file.append.is_empty()) {
        return Ok(false);
    }
    let cannot = |what: &str| Err(unsealable(format!("storage.files {path:?}: {what}")));
    if !file.append.is_empty() {
        return cannot("contents are appended to the file");
    }
    match contents::decode(&file.contents, MAX_SCANNED_BYTES) {
        // The config holds only the URL, and only Ignition can fetch it.
        Err(ContentsError::Remote { .. }) => {
            if has_credentials(&file.contents) || is_secret_file(path, file.mode, &[]) {
                return cannot("a secret is fetched from a remote URL");
            }
            Ok(false)
        }
        Ok(bytes) => Ok(is_named(path, &named.sealed) || !is_public_file(path, file.mode, &bytes)),
        Err(_) => Ok(true),
    }
}

/// A unit without any text has nothing to hide, and Ignition masks and disables it.
fn is_public_unit(unit: &Unit, named: &AnnotatedPaths) -> bool {
    let path = format!("{UNIT_DIR}/{}", unit.name);
    let has_text = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    PUBLIC_UNITS.contains(&unit.name.as_str())
        || named.allows(&path)
        || !(has_text(&unit.contents) || unit.dropins.iter().any(|one| has_text(&one.contents)))
}

/// The files and units that look like secrets: for a warning where configs are not sealed.
#[must_use]
pub fn suspected_secrets(config: &Config) -> Vec<String> {
    let files = config.storage.files.iter().filter(|file| {
        let bytes = contents::decode(&file.contents, MAX_WARNED_BYTES).unwrap_or_default();
        is_secret_file(&file.path, file.mode, &bytes)
    });
    let looks = |text: &Option<String>| {
        is_secret_file("", WORLD_READABLE, text.as_deref().unwrap_or_default().as_bytes())
    };
    let units = config.systemd.units.iter().filter(|unit| {
        looks(&unit.contents) || unit.dropins.iter().any(|dropin| looks(&dropin.contents))
    });
    let units = units.map(|unit| format!("{UNIT_DIR}/{}", unit.name));
    files.map(|file| file.path.clone()).chain(units).collect()
}

/// Whether a path is in the list; a trailing `*` matches everything.
fn is_named(path: &str, named: &[String]) -> bool {
    named.iter().any(|one| match one.strip_suffix('*') {
        Some(start) => path.starts_with(start),
        None => path == one,
    })
}

/// Ignition needs these before the machine can enrol.
fn check_needed_by_ignition(config: &Config) -> Result<(), ServeError> {
    let ignition = &config.ignition;
    let fetched = ignition.config.merge.iter().chain([&ignition.config.replace]);
    if fetched.chain(ignition.security.tls.certificate_authorities.iter()).any(has_credentials) {
        return Err(unsealable("ignition: credentials in httpHeaders or in a URL".to_owned()));
    }
    // A config inside the config would be served with all its contents.
    let inner = ignition.config.merge.iter().chain([&ignition.config.replace]);
    let is_inline =
        |one: &Resource| one.source.as_deref().is_some_and(|it| it.starts_with("data:"));
    if inner.into_iter().any(is_inline) {
        return Err(unsealable("ignition.config: a config in a data URL".to_owned()));
    }
    let proxies = [&ignition.proxy.http_proxy, &ignition.proxy.https_proxy];
    if proxies.into_iter().flatten().any(|url| url.contains('@')) {
        return Err(unsealable("ignition.proxy: a password".to_owned()));
    }
    for luks in config.storage.luks.iter() {
        if luks.key_file.source.as_deref().is_some_and(|source| !source.is_empty()) {
            return Err(unsealable(format!("storage.luks {:?}: keyFile", luks.name)));
        }
    }
    for group in config.passwd.groups.iter() {
        if group.password_hash.as_deref().is_some_and(|hash| !hash.is_empty()) {
            return Err(unsealable(format!("passwd.groups {:?}: passwordHash", group.name)));
        }
    }
    let arguments = config.kernel_arguments.should_exist.iter();
    if arguments.into_iter().any(|text| is_secret_file("", WORLD_READABLE, text.as_bytes())) {
        return Err(unsealable("kernelArguments: an argument looks like a secret".to_owned()));
    }
    Ok(())
}

/// Whether fetching it needs credentials: a header, user information in the URL, or a query, which may be a
/// signature.
fn has_credentials(resource: &Resource) -> bool {
    let source = resource.source.as_deref().unwrap_or_default();
    if source.contains("://") && source.contains('?') {
        return true;
    }
    let host = source.split_once("://").map_or("", |(_, rest)| rest);
    let host = host.split('/').next().unwrap_or_default();
    !resource.http_headers.is_empty() || host.contains('@')
}

fn unsealable(what: String) -> ServeError {
    ServeError::Unsealable(what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ignition::parse_and_upgrade;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn config(mut rest: Value) -> Config {
        rest["ignition"]["version"] = "3.5.0".into();
        parse_and_upgrade(&rest).unwrap().0
    }

    fn file(path: &str, mode: i64, contents: &str) -> Value {
        let source = crate::ignition::data_url::encode(contents.as_bytes());
        json!({"path": path, "mode": mode, "contents": {"source": source}})
    }

    fn paths(config: &Config) -> Vec<&str> {
        config.storage.files.iter().map(|file| file.path.as_str()).collect()
    }

    #[test]
    fn which_files_are_sealed() {
        let files = json!([
            file("/etc/motd", 0o644, "hello"),
            file("/etc/private", 0o600, "hello"),
            file("/var/lib/kubelet/config.json", 0o644, "{}"),
            file("/etc/kubernetes/kubeconfig", 0o644, "clusters"),
            file("/etc/mcs-machine-config-content.json", 0o644, "{}"),
            file("/etc/pki/a.key", 0o644, ""),
            file("/etc/some", 0o644, "-----BEGIN PRIVATE KEY-----"),
            file("/etc/named/one", 0o644, "x"),
            file("/etc/exact", 0o644, "x"),
            file("/etc/hostname", 0o644, "n1"),
            file("/etc/hosts", 0o644, "127.0.0.1 localhost"),
            file("/etc/NetworkManager/system-connections/wifi", 0o644, "psk=hunter2"),
            file("/etc/public", 0o644, "x"),
            {"path": "/etc/far", "mode": 0o644, "contents": {"source": "https://example.com/x"}},
        ]);
        let config = config(json!({"storage": {"files": files}}));
        let named = AnnotatedPaths {
            public: vec!["/etc/named/*".into(), "/etc/public".into(), "/etc/exact".into()],
            sealed: vec!["/etc/hosts".into(), "/etc/exact".into()],
        };
        let halves = split(config, &named).unwrap();
        let public = ["/etc/named/one", "/etc/hostname", "/etc/public", "/etc/far"];
        assert_eq!(paths(&halves.public), public);
        assert_eq!(halves.sealed.storage.files.len(), 10);
        assert_eq!(halves.sealed.ignition.version, "3.5.0");
    }

    #[test]
    fn units_and_password_hashes_are_sealed() {
        let config = config(json!({
            "passwd": {"users": [{"name": "core", "passwordHash": "$6$x", "sshAuthorizedKeys": ["k"]}]},
            "systemd": {"units": [
                {"name": "machinist-firstboot.service", "contents": "[Service]\nExecStart=/bin/true\n"},
                {"name": "masked.service", "mask": true},
                {"name": "a.service", "enabled": true, "contents": "[Service]\nExecStart=/bin/true\n"},
                {"name": "b.service", "contents": "[Service]\nExecStart=/bin/x --password=abc\n"},
                {"name": "c.service", "dropins": [{"name": "d.conf",
                    "contents": "[Service]\nEnvironment=aws_secret_access_key=x\n"}]},
            ]},
        }));
        let halves = split(config, &AnnotatedPaths::default()).unwrap();
        let names = |config: &Config| -> Vec<String> {
            config.systemd.units.iter().map(|unit| unit.name.clone()).collect()
        };
        assert_eq!(names(&halves.public), ["machinist-firstboot.service", "masked.service"]);
        assert_eq!(names(&halves.sealed), ["a.service", "b.service", "c.service"]);
        let public = serde_json::to_string(&halves.public).unwrap();
        assert!(public.contains("sshAuthorizedKeys") && !public.contains("$6$x"), "{public}");
        assert_eq!(halves.sealed.passwd.users[0].password_hash.as_deref(), Some("$6$x"));
    }

    #[test]
    fn secrets_that_ignition_needs_are_refused() {
        let header = json!([{"name": "Authorization", "value": "x"}]);
        for (name, rest) in [
            (
                "luks",
                json!({"storage": {"luks": [{"name": "a", "device": "/dev/a",
                "keyFile": {"source": "data:,x"}}]}}),
            ),
            (
                "merge",
                json!({"ignition": {"config": {"merge": [
                {"source": "https://example.com", "httpHeaders": header}]}}}),
            ),
            (
                "far",
                json!({"storage": {"files": [{"path": "/a", "mode": 0o600,
                "contents": {"source": "https://example.com/x"}}]}}),
            ),
            (
                "far with a key",
                json!({"storage": {"files": [{"path": "/a",
                "contents": {"source": "https://example.com/x", "httpHeaders": header}}]}}),
            ),
            (
                "append",
                json!({"storage": {"files": [{"path": "/a", "mode": 0o600,
                "append": [{"source": "data:,x"}]}]}}),
            ),
            ("inner config", json!({"ignition": {"config": {"merge": [{"source": "data:,x"}]}}})),
            (
                "signed URL",
                json!({"storage": {"files": [{"path": "/a",
                "contents": {"source": "https://example.com/x?signature=y"}}]}}),
            ),
            ("arguments", json!({"kernelArguments": {"shouldExist": ["rd.password=x"]}})),
            ("proxy", json!({"ignition": {"proxy": {"httpProxy": "http://a:b@proxy"}}})),
            ("group", json!({"passwd": {"groups": [{"name": "g", "passwordHash": "x"}]}})),
        ] {
            let refusal = split(config(rest), &AnnotatedPaths::default()).map(drop).unwrap_err();
            assert!(matches!(refusal, ServeError::Unsealable(_)), "{name}: {refusal}");
        }
    }

    #[test]
    fn paths_are_read_from_annotations() {
        let of = |annotation: &str, text: &str| {
            BTreeMap::from([(annotation.to_owned(), text.to_owned())])
        };
        let one = of(SEALED_PATHS_ANNOTATION, " /a , /b/*,");
        let other = of(SEALED_PATHS_ANNOTATION, "/a");
        let public = of(PUBLIC_PATHS_ANNOTATION, "/c");
        let found =
            AnnotatedPaths::from_annotations([Some(&one), None, Some(&other), Some(&public)]);
        assert_eq!(found.sealed, ["/a", "/b/*"]);
        assert_eq!(found.public, ["/c"]);
    }

    #[test]
    fn secrets_are_suspected_where_configs_are_not_sealed() {
        let config = config(json!({
            "storage": {"files": [file("/etc/motd", 0o644, "hello"), file("/etc/db", 0o644, "DB_PASSWORD: x")]},
            "systemd": {"units": [{"name": "a.service", "contents": "[Service]\nEnvironment=API_KEY=x\n"}]},
        }));
        assert_eq!(suspected_secrets(&config), ["/etc/db", "/etc/systemd/system/a.service"]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        /// Whatever a secret looks like and wherever it is, it is not in the public half.
        #[test]
        fn no_contents_are_public_unless_they_are_listed(
            secret in "[a-z]{16}",
            before in "[A-Za-z_=:\" ]{0,20}",
            name in "[a-z]{1,8}",
            mode in prop::sample::select(vec![0o600, 0o644, 0o755]),
        ) {
            let text = format!("{before}{secret}");
            let config = config(json!({
                "storage": {"files": [file(&format!("/etc/{name}/x"), mode, &text)]},
                "passwd": {"users": [{"name": "core", "passwordHash": secret}]},
                "systemd": {"units": [
                    {"name": format!("{name}.service"), "contents": format!("[Service]\nExecStart=/bin/x {secret}\n")},
                    {"name": format!("{name}-2.service"), "dropins": [{"name": "a.conf",
                        "contents": format!("[Service]\nExecStart=/bin/x {secret}\n")}]},
                ]},
            }));
            let halves = split(config, &AnnotatedPaths::default()).unwrap();
            let public = serde_json::to_string(&halves.public).unwrap();
            prop_assert!(!public.contains(&secret), "{}", public);
            prop_assert_eq!(halves.sealed.storage.files.len(), 1);
            prop_assert_eq!(halves.sealed.systemd.units.len(), 2);
        }
    }
}
