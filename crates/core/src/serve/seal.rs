//! Splits a config into what everyone on the network may read, and what only an enrolled machine
//! gets.
//!
//! A file is sealed if its path is named (by an annotation, or because the server puts a secret
//! there), if it looks like a secret, or if it is not world-readable on the machine either. Units
//! that look like secrets are sealed with their drop-ins, and so are password hashes. What Ignition
//! itself needs cannot wait for an enrolment: a config with a secret there is refused, so that it
//! is never served by mistake.

use std::collections::BTreeMap;

use super::error::ServeError;
use crate::api::names::path;
use crate::ignition::Config;
use crate::ignition::contents::{self, ContentsError};
use crate::ignition::schema::{File, PasswdUser, Resource, Unit};
use crate::secrets::is_secret_file;

/// The annotation on pools and MachineConfigs with additional paths to seal: `/etc/a,/etc/b/*`.
pub const SEALED_PATHS_ANNOTATION: &str = "machinist.dev/sealed-paths";
/// Files that the server adds and that hold the whole config or credentials.
const ALWAYS_SEALED: [&str; 3] = [path::KUBECONFIG, path::SERVED_CONFIG, path::ENCAPSULATED];
/// Larger files are sealed without an inspection.
const MAX_SCANNED_BYTES: u64 = 16 << 20;
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

/// The paths in the annotations.
#[must_use]
pub fn annotated_paths<'a>(
    annotations: impl IntoIterator<Item = Option<&'a BTreeMap<String, String>>>,
) -> Vec<String> {
    let values =
        annotations.into_iter().flatten().filter_map(|all| all.get(SEALED_PATHS_ANNOTATION));
    let paths = values.flat_map(|text| text.split(',')).map(str::trim);
    let mut paths: Vec<String> = paths.filter(|it| !it.is_empty()).map(str::to_owned).collect();
    paths.sort();
    paths.dedup();
    paths
}

/// Splits a config.
///
/// # Errors
/// A secret is in a place that cannot be sealed.
pub fn split(mut config: Config, named: &[String]) -> Result<SplitConfig, ServeError> {
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
        let half = if is_sealed_unit(&unit, named) { &mut sealed } else { &mut config };
        half.systemd.units.push(unit);
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

fn is_sealed_file(file: &File, named: &[String]) -> Result<bool, ServeError> {
    let mut all = std::iter::once(&file.contents).chain(file.append.iter());
    let sealed = is_named(&file.path, named)
        || ALWAYS_SEALED.contains(&file.path.as_str())
        || all.any(|contents| is_secret(&file.path, file.mode, contents));
    if !sealed {
        return Ok(false);
    }
    let cannot = |what: &str| Err(unsealable(format!("storage.files {:?}: {what}", file.path)));
    if !file.append.is_empty() {
        return cannot("a secret is appended to the file");
    }
    match contents::decode(&file.contents, MAX_SCANNED_BYTES) {
        Err(ContentsError::Remote { .. }) => cannot("a secret is fetched from a remote URL"),
        _ => Ok(true),
    }
}

/// Contents that cannot be decoded count as a secret.
fn is_secret(path: &str, mode: Option<i64>, resource: &Resource) -> bool {
    match contents::decode(resource, MAX_SCANNED_BYTES) {
        Ok(bytes) => is_secret_file(path, mode, &bytes),
        Err(ContentsError::Remote { .. }) => {
            has_credentials(resource) || is_secret_file(path, mode, &[])
        }
        Err(_) => true,
    }
}

fn is_sealed_unit(unit: &Unit, named: &[String]) -> bool {
    let place = format!("/etc/systemd/system/{}", unit.name);
    let looks = |text: &Option<String>| {
        let text = text.as_deref().unwrap_or_default();
        is_secret_file(&place, WORLD_READABLE, text.as_bytes())
    };
    let dropins = || unit.dropins.iter().any(|dropin| looks(&dropin.contents));
    is_named(&place, named) || looks(&unit.contents) || dropins()
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

/// Whether fetching it needs credentials: a header, or user information in the URL.
fn has_credentials(resource: &Resource) -> bool {
    let source = resource.source.as_deref().unwrap_or_default();
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
            {"path": "/etc/far", "mode": 0o644, "contents": {"source": "https://example.com/x"}},
        ]);
        let config = config(json!({"storage": {"files": files}}));
        let named = ["/etc/named/*".to_owned(), "/etc/exact".to_owned()];
        let halves = split(config, &named).unwrap();
        assert_eq!(paths(&halves.public), ["/etc/motd", "/etc/far"]);
        assert_eq!(halves.sealed.storage.files.len(), 8);
        assert_eq!(halves.sealed.ignition.version, "3.5.0");
    }

    #[test]
    fn units_and_password_hashes_are_sealed() {
        let config = config(json!({
            "passwd": {"users": [{"name": "core", "passwordHash": "$6$x", "sshAuthorizedKeys": ["k"]}]},
            "systemd": {"units": [
                {"name": "a.service", "enabled": true, "contents": "[Service]\nExecStart=/bin/true\n"},
                {"name": "b.service", "contents": "[Service]\nExecStart=/bin/x --password=abc\n"},
                {"name": "c.service", "dropins": [{"name": "d.conf",
                    "contents": "[Service]\nEnvironment=aws_secret_access_key=x\n"}]},
            ]},
        }));
        let halves = split(config, &[]).unwrap();
        let names = |config: &Config| -> Vec<String> {
            config.systemd.units.iter().map(|unit| unit.name.clone()).collect()
        };
        assert_eq!(names(&halves.public), ["a.service"]);
        assert_eq!(names(&halves.sealed), ["b.service", "c.service"]);
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
            ("arguments", json!({"kernelArguments": {"shouldExist": ["rd.password=x"]}})),
            ("proxy", json!({"ignition": {"proxy": {"httpProxy": "http://a:b@proxy"}}})),
            ("group", json!({"passwd": {"groups": [{"name": "g", "passwordHash": "x"}]}})),
        ] {
            let refusal = split(config(rest), &[]).map(drop).unwrap_err();
            assert!(matches!(refusal, ServeError::Unsealable(_)), "{name}: {refusal}");
        }
    }

    #[test]
    fn paths_are_read_from_annotations() {
        let of =
            |text: &str| BTreeMap::from([(SEALED_PATHS_ANNOTATION.to_owned(), text.to_owned())]);
        let (one, other) = (of(" /a , /b/*,"), of("/a"));
        assert_eq!(annotated_paths([Some(&one), None, Some(&other)]), ["/a", "/b/*"]);
    }
}
