//! The errors and warnings of Ignition 0.35 for a config of specification 2, each with its JSON
//! path. As there, nothing below an invalid object is checked.

mod disk;
mod storage;

use super::schema::Verification;
use super::schema::{Config, Dropin, Ignition, Networkd, Passwd, PasswdUser, Reference, Unit};
use crate::go::{path as go_path, unit_file, url};
use crate::ignition::data_url;
use crate::ignition::report::{ConfigPath, IgnitionReport, ReportSeverity};
use crate::ignition::version::IgnitionVersion;

/// The suffixes of systemd unit names.
const UNIT_SUFFIXES: [&str; 12] = [
    ".service",
    ".socket",
    ".device",
    ".mount",
    ".automount",
    ".swap",
    ".target",
    ".path",
    ".timer",
    ".snapshot",
    ".slice",
    ".scope",
];

/// Validates a config held in memory as one of 2.2.
#[must_use]
pub fn validate(config: &Config) -> IgnitionReport {
    validate_as(config, 2)
}

/// Validates a config by the rules of `2.<minor>`. With 3, it is validated as the 2.3 config that
/// the translator would make of it: only the unit of partition sizes differs.
pub(super) fn validate_as(config: &Config, minor: u8) -> IgnitionReport {
    let mut validator = V2Validator { minor, report: IgnitionReport::default() };
    let root = ConfigPath::root();
    validator.filesystem_names(&config.storage, &root.key("storage"));
    validator.ignition(&config.ignition, &root.key("ignition"));
    validator.networkd(&config.networkd, &root.key("networkd"));
    validator.passwd(&config.passwd, &root.key("passwd"));
    validator.storage(&config.storage, &root.key("storage"));
    for (index, unit) in config.systemd.units.iter().enumerate() {
        validator.unit(unit, &root.key("systemd").key("units").index(index));
    }
    validator.report
}

/// Validates by the rules of one version.
struct V2Validator {
    minor: u8,
    report: IgnitionReport,
}

impl V2Validator {
    fn error_if(
        &mut self,
        problem: Option<impl Into<String>>,
        path: &ConfigPath,
        key: &'static str,
    ) {
        if let Some(problem) = problem {
            self.report.error(&path.key(key), problem);
        }
    }

    /// Adds findings about an object as a whole. Returns whether to validate its fields.
    fn report_problems(
        &mut self,
        problems: impl IntoIterator<Item = &'static str>,
        path: &ConfigPath,
    ) -> bool {
        let before = self.report.entries.len();
        for problem in problems {
            self.report.error(path, problem);
        }
        self.report.entries.len() == before
    }

    fn ignition(&mut self, ignition: &Ignition, path: &ConfigPath) {
        if !self.report_problems(self.version_problem(&ignition.version), path) {
            return;
        }
        for (index, reference) in ignition.config.append.iter().enumerate() {
            self.reference(reference, &path.key("config").key("append").index(index));
        }
        if let Some(reference) = &ignition.config.replace {
            self.reference(reference, &path.key("config").key("replace"));
        }
        let authorities = path.key("security").key("tls").key("certificateAuthorities");
        for (index, reference) in ignition.security.tls.certificate_authorities.iter().enumerate() {
            self.reference(reference, &authorities.index(index));
        }
    }

    fn version_problem(&self, version: &str) -> Option<&'static str> {
        let minor = i64::from(self.minor);
        if minor > 2 {
            return None; // the translator sets the version itself
        }
        match IgnitionVersion::parse(version) {
            None => Some("invalid config version (couldn't parse)"),
            Some(version) if version.major < 2 => Some("incorrect config version (too old)"),
            Some(v) if (v.major, v.minor, v.patch) > (2, minor, 0) => {
                Some("incorrect config version (too new)")
            }
            Some(_) => None,
        }
    }

    fn reference(&mut self, reference: &Reference, path: &ConfigPath) {
        self.error_if(self.source_problem(&reference.source), path, "source");
        self.verification(&reference.verification, path);
    }

    fn source_problem(&self, source: &str) -> Option<String> {
        if source.is_empty() {
            return None; // an empty file
        }
        let Ok(parsed) = url::parse(source) else {
            return Some("unable to parse url".to_owned());
        };
        match parsed.scheme.as_str() {
            "http" | "https" | "oem" => None,
            "tftp" if self.minor >= 1 => None,
            "s3" if self.minor >= 1 => parsed
                .query_value("versionId")
                .filter(Vec::is_empty)
                .map(|_| "invalid S3 object VersionId".to_owned()),
            "data" => data_url::check(source).err().map(|problem| problem.to_string()),
            _ => Some("invalid url scheme".to_owned()),
        }
    }

    fn verification(&mut self, verification: &Verification, path: &ConfigPath) {
        let problem = verification.hash.as_deref().and_then(|hash| match hash.split_once('-') {
            None => Some("malformed hash specifier"),
            Some(("sha512", sum)) => (sum.len() != 128).then_some("incorrect size for hash sum"),
            Some(_) => Some("unrecognized hash function"),
        });
        self.error_if(problem, &path.key("verification"), "hash");
    }

    fn networkd(&mut self, networkd: &Networkd, path: &ConfigPath) {
        for (index, unit) in networkd.units.iter().enumerate() {
            let path = path.key("units").index(index);
            let before = self.report.entries.len();
            self.error_if(contents_problem(&unit.contents), &path, "contents");
            if !matches!(go_path::ext(&unit.name), ".link" | ".netdev" | ".network") {
                self.report.error(&path.key("name"), "invalid networkd unit extension");
            }
            if self.report.entries.len() == before {
                self.dropins(&unit.dropins, &path, "invalid networkd drop-in extension");
            }
        }
    }

    fn dropins(&mut self, dropins: &[Dropin], path: &ConfigPath, wrong_name: &str) {
        for (index, dropin) in dropins.iter().enumerate() {
            let path = path.key("dropins").index(index);
            self.error_if(contents_problem(&dropin.contents), &path, "contents");
            if go_path::ext(&dropin.name) != ".conf" {
                self.report.error(&path.key("name"), wrong_name);
            }
        }
    }

    fn unit(&mut self, unit: &Unit, path: &ConfigPath) {
        match unit_file::option_sections(&unit.contents) {
            Err(problem) => {
                let message = format!("invalid unit content: {problem}");
                self.report.error(&path.key("contents"), message);
            }
            Ok(sections) => {
                let enabled = unit.enable || unit.enabled == Some(true);
                if enabled && !sections.is_empty() && !sections.contains(&"Install") {
                    let message = format!(
                        "unit {:?} is enabled, but has no install section so enable does nothing",
                        unit.name
                    );
                    self.report.warning(&path.key("contents"), message);
                }
            }
        }
        self.dropins(&unit.dropins, path, "invalid systemd drop-in extension");
        if !UNIT_SUFFIXES.contains(&go_path::ext(&unit.name)) {
            self.report.error(&path.key("name"), "invalid systemd unit extension");
        }
    }

    fn passwd(&mut self, passwd: &Passwd, path: &ConfigPath) {
        for (index, user) in passwd.users.iter().enumerate() {
            if user.create.is_some() && self.minor >= 1 {
                self.user_with_create(user, &path.key("users").index(index));
            }
        }
    }

    /// The deprecated way to create a user cannot be combined with the one that replaced it.
    fn user_with_create(&mut self, user: &PasswdUser, path: &ConfigPath) {
        let message = "the create object has been deprecated in favor of user-level options";
        self.report.warning(path, message);
        for (set, field) in [
            (!user.gecos.is_empty(), "gecos"),
            (!user.groups.is_empty(), "groups"),
            (!user.home_dir.is_empty(), "homeDir"),
            (user.no_create_home, "noCreateHome"),
            (user.no_log_init, "noLogInit"),
            (user.no_user_group, "noUserGroup"),
            (!user.primary_group.is_empty(), "primaryGroup"),
            (!user.shell.is_empty(), "shell"),
            (user.system, "system"),
            (user.uid.is_some(), "uid"),
        ] {
            if set {
                let message =
                    format!("cannot use both the create object and the user-level {field} field");
                self.report.error(path, message);
            }
        }
    }

    fn deprecated(&mut self, path: &ConfigPath, message: &str) {
        self.report.add(ReportSeverity::Deprecation, path, message);
    }
}

fn contents_problem(contents: &str) -> Option<String> {
    let problem = unit_file::option_sections(contents).err()?;
    Some(format!("invalid unit content: {problem}"))
}

/// A path that must be absolute. It need not be normalized.
fn path_problem(path: &str) -> Option<&'static str> {
    (!path.starts_with('/')).then_some("path not absolute")
}

#[cfg(test)]
mod tests;
