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
mod tests;
