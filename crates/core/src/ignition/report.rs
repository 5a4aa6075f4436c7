//! The findings of parsing and validation: errors and warnings, each with its JSON path.

use std::borrow::Cow;
use std::fmt;

use serde::Serialize;

/// One step of a [`ConfigPath`].
#[derive(Debug, Clone, PartialEq, Eq)]
enum ConfigPathSegment {
    Key(Cow<'static, str>),
    Index(usize),
}

/// A position in a JSON document: `$.storage.files.0.path`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConfigPath(Vec<ConfigPathSegment>);

impl ConfigPath {
    /// The path of the document itself, `$`.
    #[must_use]
    pub fn root() -> Self {
        Self::default()
    }

    /// Descends to a field.
    pub fn push_key(&mut self, key: impl Into<Cow<'static, str>>) {
        self.0.push(ConfigPathSegment::Key(key.into()));
    }

    /// Descends to an element of a list.
    pub fn push_index(&mut self, index: usize) {
        self.0.push(ConfigPathSegment::Index(index));
    }

    /// Ascends one step.
    pub fn pop(&mut self) {
        self.0.pop();
    }

    /// The path of the field `key` below this one.
    #[must_use]
    pub fn key(&self, key: &'static str) -> Self {
        let mut path = self.clone();
        path.push_key(key);
        path
    }

    /// The path of the element `index` of this list.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        let mut path = self.clone();
        path.push_index(index);
        path
    }
}

impl fmt::Display for ConfigPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("$")?;
        for step in &self.0 {
            match step {
                ConfigPathSegment::Key(key) => write!(f, ".{key}")?,
                ConfigPathSegment::Index(index) => write!(f, ".{index}")?,
            }
        }
        Ok(())
    }
}

/// The severity of a [`ReportEntry`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ReportSeverity {
    /// The config cannot be used.
    Error,
    /// The config can be used, but probably does not do what its author intends.
    Warning,
    /// The config uses a field that its version deprecates.
    Deprecation,
}

impl fmt::Display for ReportSeverity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Deprecation => "deprecated",
        })
    }
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReportEntry {
    /// The severity.
    pub severity: ReportSeverity,
    /// The JSON path, for example `$.storage.files.0.path`.
    pub path: String,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for ReportEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}: {}", self.severity, self.path, self.message)
    }
}

/// All findings of parsing and validation, in document order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct IgnitionReport {
    /// The findings.
    pub entries: Vec<ReportEntry>,
}

impl IgnitionReport {
    /// Adds an error.
    pub fn error(&mut self, path: &ConfigPath, message: impl Into<String>) {
        self.add(ReportSeverity::Error, path, message);
    }

    /// Adds a warning.
    pub fn warning(&mut self, path: &ConfigPath, message: impl Into<String>) {
        self.add(ReportSeverity::Warning, path, message);
    }

    /// Adds a finding.
    pub fn add(&mut self, severity: ReportSeverity, path: &ConfigPath, message: impl Into<String>) {
        self.entries.push(ReportEntry {
            severity,
            path: path.to_string(),
            message: message.into(),
        });
    }

    /// Whether any finding makes the config unusable.
    #[must_use]
    pub fn is_fatal(&self) -> bool {
        self.entries.iter().any(|entry| entry.severity == ReportSeverity::Error)
    }

    /// Whether any deprecated field is used.
    #[must_use]
    pub fn is_deprecated(&self) -> bool {
        self.entries.iter().any(|entry| entry.severity == ReportSeverity::Deprecation)
    }

    /// Only the errors.
    pub fn errors(&self) -> impl Iterator<Item = &ReportEntry> {
        self.entries.iter().filter(|entry| entry.severity == ReportSeverity::Error)
    }

    /// Appends the findings of another report.
    pub fn merge(&mut self, other: Self) {
        self.entries.extend(other.entries);
    }
}

impl fmt::Display for IgnitionReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, entry) in self.entries.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{entry}")?;
        }
        Ok(())
    }
}
