//! The errors and warnings of Ignition for a config, each with its JSON path.

mod luks;
mod resource;
mod storage;
mod systemd;

use std::collections::HashSet;

use super::config_part::ConfigPart as _;
use super::report::{ConfigPath, IgnitionReport};
use super::schema::{Config, Proxy};
use crate::go::path as go_path;
pub(crate) use resource::check_url;

/// Validates a config as Ignition 2.26 does for the specification `3.<minor>.0`.
#[must_use]
pub fn validate(config: &Config, minor: u8) -> IgnitionReport {
    let mut report = IgnitionReport::default();
    let root = ConfigPath::root();
    let ignition = root.key("ignition");
    validate_proxy(&config.ignition.proxy, &ignition.key("proxy"), &mut report);
    let validator = Validator { minor, report: &mut report };
    validator.config(config, &root);
    config.find_duplicates(&mut ConfigPath::root(), &mut report);
    report
}

/// Validates for one version.
struct Validator<'a> {
    minor: u8,
    report: &'a mut IgnitionReport,
}

impl Validator<'_> {
    fn config(mut self, config: &Config, root: &ConfigPath) {
        self.ignition_section(config, &root.key("ignition"));
        self.storage(&config.storage, &root.key("storage"));
        self.systemd(&config.systemd, &root.key("systemd"));
        self.conflicts_with_units(config, &root.key("storage"));
    }

    fn ignition_section(&mut self, config: &Config, path: &ConfigPath) {
        let merge = path.key("config").key("merge");
        for (index, resource) in config.ignition.config.merge.iter().enumerate() {
            let path = merge.index(index);
            self.reference(resource, &path);
            if self.minor >= 1 {
                self.required_source(resource, &path);
            }
        }
        self.reference(&config.ignition.config.replace, &path.key("config").key("replace"));
        let authorities = path.key("security").key("tls").key("certificateAuthorities");
        for (index, resource) in
            config.ignition.security.tls.certificate_authorities.iter().enumerate()
        {
            let path = authorities.index(index);
            self.reference(resource, &path);
            self.required_source(resource, &path);
        }
    }

    /// A file must not have the path of a unit or drop-in of the same config.
    fn conflicts_with_units(&mut self, config: &Config, path: &ConfigPath) {
        let mut unit_paths: HashSet<String> = HashSet::new();
        let not_empty =
            |contents: &Option<String>| contents.as_ref().is_some_and(|c| !c.is_empty());
        for unit in &config.systemd.units {
            let unit_path = format!("/etc/systemd/system/{}", unit.name);
            for dropin in unit.dropins.iter().filter(|dropin| not_empty(&dropin.contents)) {
                unit_paths.insert(format!("{unit_path}.d/{}", dropin.name));
            }
            if not_empty(&unit.contents) {
                unit_paths.insert(unit_path);
            }
        }
        let storage = &config.storage;
        let files = storage.files.iter().map(|file| &file.path);
        let directories = storage.directories.iter().map(|directory| &directory.path);
        let links = storage.links.iter().map(|link| &link.path);
        self.conflicts(files, &path.key("files"), &unit_paths);
        self.conflicts(directories, &path.key("directories"), &unit_paths);
        self.conflicts(links, &path.key("links"), &unit_paths);
    }

    fn conflicts<'a>(
        &mut self,
        nodes: impl Iterator<Item = &'a String>,
        path: &ConfigPath,
        unit_paths: &HashSet<String>,
    ) {
        for (index, node) in nodes.enumerate() {
            if unit_paths.contains(node) {
                let path = path.index(index).key("path");
                self.report.error(&path, "path conflicts with systemd unit or dropin");
            }
        }
    }

    fn error_if(&mut self, problem: Option<&'static str>, path: &ConfigPath, key: &'static str) {
        if let Some(problem) = problem {
            self.report.error(&path.key(key), problem);
        }
    }
}

fn validate_proxy(proxy: &Proxy, path: &ConfigPath, report: &mut IgnitionReport) {
    let mut check = |url: &Option<String>, key: &'static str, http_is_fine: bool| {
        let Some(url) = url else { return };
        match crate::go::url::parse(url) {
            Err(invalid) => report.error(&path.key(key), invalid.to_string()),
            Ok(url) if url.scheme == "https" => {}
            Ok(url) if url.scheme == "http" => {
                if !http_is_fine {
                    let message = "insecure plaintext HTTP proxy specified for HTTPS resources";
                    report.warning(&path.key(key), message);
                }
            }
            Ok(_) => report.error(&path.key(key), "proxies must be http(s)"),
        }
    };
    check(&proxy.http_proxy, "httpProxy", true);
    check(&proxy.https_proxy, "httpsProxy", false);
}

/// What is wrong with an absolute path, if anything.
fn path_problem(path: &str) -> Option<&'static str> {
    if path.is_empty() {
        Some("path not specified")
    } else if !path.starts_with('/') {
        Some("path not absolute")
    } else if !go_path::is_clean_absolute(path) {
        Some("path is not fully simplified")
    } else {
        None
    }
}
