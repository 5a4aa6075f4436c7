//! Lints manifests: each finding has a field, a message and a remedy.
//!
//! An *error* is refused by a running cluster. A *warning* is accepted, but does not do what the
//! author probably intends.

mod machine_config;
mod object;
mod pool;

use std::fmt;

use serde::Serialize;

use crate::ignition::report::{IgnitionReport, ReportSeverity};
use crate::on_change::OnChangeError;

pub use machine_config::machine_config;
pub use object::object;
pub use pool::pool;

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LintFinding {
    /// Whether the object is refused because of it.
    pub severity: ReportSeverity,
    /// The field, for example `spec.config.storage.files[0].path`.
    pub field: String,
    /// The problem.
    pub message: String,
    /// The remedy.
    pub remedy: String,
}

impl LintFinding {
    /// A finding that makes a cluster refuse the object.
    pub fn error(
        field: impl Into<String>,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self::new(ReportSeverity::Error, field, message, remedy)
    }

    /// A finding that a cluster accepts.
    pub fn warning(
        field: impl Into<String>,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self::new(ReportSeverity::Warning, field, message, remedy)
    }

    fn new(
        severity: ReportSeverity,
        field: impl Into<String>,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let (field, message, remedy) = (field.into(), message.into(), remedy.into());
        Self { severity, field, message, remedy }
    }

    /// Whether the object is refused because of it.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.severity == ReportSeverity::Error
    }
}

impl fmt::Display for LintFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)?;
        if !self.remedy.is_empty() {
            write!(f, " ({})", self.remedy)?;
        }
        Ok(())
    }
}

/// The finding about an annotation that says what a change costs.
fn on_change(error: &OnChangeError) -> LintFinding {
    let text = error.to_string();
    let (field, message) = text.split_once(": ").unwrap_or_default();
    LintFinding::error(field, message, "")
}

/// The findings of an Ignition report, with the field names of a manifest.
fn from_report(report: &IgnitionReport) -> Vec<LintFinding> {
    let finding = |entry: &crate::ignition::report::ReportEntry| LintFinding {
        severity: entry.severity,
        field: field_of(&entry.path),
        message: entry.message.clone(),
        remedy: remedy_for(&entry.message).to_owned(),
    };
    report.entries.iter().map(finding).collect()
}

/// `$.storage.files.0.path` becomes `spec.config.storage.files[0].path`.
fn field_of(path: &str) -> String {
    let mut field = "spec.config".to_owned();
    for step in path.trim_start_matches('$').split('.').filter(|step| !step.is_empty()) {
        if step.bytes().all(|b| b.is_ascii_digit()) {
            field.push('[');
            field.push_str(step);
            field.push(']');
        } else {
            field.push('.');
            field.push_str(step);
        }
    }
    field
}

/// The remedy for a finding of Ignition.
fn remedy_for(message: &str) -> &'static str {
    const REMEDIES: [(&str, &str); 18] = [
        ("path not absolute", "begin the path with /"),
        ("path not specified", "give the path"),
        ("path is not fully simplified", "remove //, /./, /../ and a trailing / from the path"),
        ("duplicate entry defined", "keep one of the entries with this key"),
        ("overwrite must be false", "add contents.source, or remove overwrite"),
        ("cannot use HTTP headers", "remove the headers; only http and https sources have them"),
        ("invalid url scheme", "write the contents into the config as a data: URL"),
        ("unable to parse url", "write the source as a URL; contents as data:,… or data:;base64,…"),
        ("illegal base64 data", "encode the contents again, with padding, on one line"),
        ("invalid percent escape", "escape every % of the contents as %25"),
        ("invalid character in the data", "percent-escape the contents, or use data:;base64,…"),
        ("unused key", "check the spelling of the key and ignition.version"),
        ("invalid systemd unit extension", "end the name in .service, .timer, .mount, …"),
        ("invalid systemd drop-in extension", "end the name in .conf"),
        ("invalid unit content", "correct the unit file; systemd-analyze verify helps"),
        ("has no install section", "add an [Install] section, or remove enabled"),
        ("path conflicts with systemd unit", "write the unit under systemd.units only"),
        ("expected ", "correct the type of the value"),
    ];
    REMEDIES
        .iter()
        .find(|(found, _)| message.contains(found))
        .map_or("see the Ignition specification of this version", |(_, remedy)| remedy)
}
