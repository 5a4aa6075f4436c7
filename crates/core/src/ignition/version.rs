//! Versions of the Ignition specification, parsed as Go's `go-semver` does.

use std::fmt;

/// A version as written in `ignition.version`: three numbers and an optional pre-release suffix.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct IgnitionVersion {
    /// The major number: 2 or 3.
    pub major: i64,
    /// The minor number.
    pub minor: i64,
    /// The patch number: always 0 in published versions.
    pub patch: i64,
    /// What follows a `-`.
    pub pre_release: String,
    /// What follows a `+`.
    pub metadata: String,
}

impl IgnitionVersion {
    /// The internal version of configs, which rendered configs also have.
    pub const MAX: Self = Self::new(3, 5);

    /// The published version `major.minor.0`.
    #[must_use]
    pub const fn new(major: i64, minor: i64) -> Self {
        Self { major, minor, patch: 0, pre_release: String::new(), metadata: String::new() }
    }

    /// Parses `3.5.0`. `None` if it is not a version in dotted-triple form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (rest, metadata) = text.split_once('+').unwrap_or((text, ""));
        let (numbers, pre_release) = rest.split_once('-').unwrap_or((rest, ""));
        if !is_identifier(pre_release) || !is_identifier(metadata) {
            return None;
        }
        let mut parts = numbers.splitn(3, '.').map(|part| part.parse::<i64>().ok());
        let (major, minor, patch) = (parts.next()??, parts.next()??, parts.next()??);
        Some(Self {
            major,
            minor,
            patch,
            pre_release: pre_release.to_owned(),
            metadata: metadata.to_owned(),
        })
    }

    /// The minor number, if this is exactly a published version `major.N.0` with `N <= max`.
    #[must_use]
    pub fn published_minor(&self, major: i64, max: u8) -> Option<u8> {
        let minor = u8::try_from(self.minor).ok()?;
        (minor <= max && *self == Self::new(major, i64::from(minor))).then_some(minor)
    }
}

impl fmt::Display for IgnitionVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)?;
        if !self.pre_release.is_empty() {
            write!(f, "-{}", self.pre_release)?;
        }
        if !self.metadata.is_empty() {
            write!(f, "+{}", self.metadata)?;
        }
        Ok(())
    }
}

/// Dot-separated words of letters, digits and dashes; may be empty.
fn is_identifier(text: &str) -> bool {
    text.is_empty()
        || text.split('.').all(|word| {
            !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_parsed_as_dotted_triples() {
        for (text, expected) in [
            ("3.5.0", Some((3, 5, 0))),
            ("2.2.0", Some((2, 2, 0))),
            ("3.6.0-experimental", Some((3, 6, 0))),
            ("3.5", None),
            ("3", None),
            ("", None),
            ("v3.5.0", None),
            ("3.5.0.1", None),
            ("3.5.x", None),
        ] {
            let found = IgnitionVersion::parse(text).map(|v| (v.major, v.minor, v.patch));
            assert_eq!(found, expected, "{text:?}");
        }
    }

    #[test]
    fn only_the_plain_form_is_a_published_version() {
        for (text, minor) in [
            ("3.5.0", Some(5)),
            ("3.0.0", Some(0)),
            ("3.6.0", None),
            ("3.5.1", None),
            ("3.5.0-beta", None),
            ("2.2.0", None),
        ] {
            let found = IgnitionVersion::parse(text).and_then(|v| v.published_minor(3, 5));
            assert_eq!(found, minor, "{text:?}");
        }
    }
}
