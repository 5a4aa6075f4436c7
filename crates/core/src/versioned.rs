//! JSON files with a version: the journal and the other files in which the daemon keeps state.
//!
//! A file without a version was written before there were versions, and is read as version 0. A file
//! with a newer version is refused: its meaning is unknown, and ignoring it could lose a rollback.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Why a file cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VersionedFileError {
    /// A newer Machinist wrote it.
    #[error(
        "{path}: version {found} is newer than {newest}, the newest that this machinist reads: use the machinist that wrote the file, or a newer one"
    )]
    TooNew {
        /// The file.
        path: String,
        /// Its version.
        found: u32,
        /// The newest version that can be read.
        newest: u32,
    },
    /// It is not what the path promises. The message of the parser is left out: it may quote a secret.
    #[error("{path}: not readable at line {line}, column {column}")]
    Invalid {
        /// The file.
        path: String,
        /// The line.
        line: usize,
        /// The column.
        column: usize,
    },
}

#[derive(Serialize)]
struct WithVersion<'a, T> {
    version: u32,
    #[serde(flatten)]
    value: &'a T,
}

#[derive(Deserialize)]
struct VersionOnly {
    #[serde(default)]
    version: u32,
}

/// The contents of a file.
///
/// # Errors
/// The value is not an object.
pub fn to_json<T: Serialize>(version: u32, value: &T) -> serde_json::Result<Vec<u8>> {
    serde_json::to_vec(&WithVersion { version, value })
}

/// Reads the contents of the file at `path`.
///
/// # Errors
/// The file has a version above `newest`, or is damaged.
pub fn from_json<T: DeserializeOwned>(
    path: &str,
    newest: u32,
    bytes: &[u8],
) -> Result<T, VersionedFileError> {
    let invalid = |error: serde_json::Error| VersionedFileError::Invalid {
        path: path.to_owned(),
        line: error.line(),
        column: error.column(),
    };
    let VersionOnly { version: found } = serde_json::from_slice(bytes).map_err(invalid)?;
    if found > newest {
        return Err(VersionedFileError::TooNew { path: path.to_owned(), found, newest });
    }
    serde_json::from_slice(bytes).map_err(invalid)
}

/// Treats a damaged file like a missing one, for records that are only a convenience.
///
/// # Errors
/// A newer Machinist wrote the file.
pub fn ignore_damage<T>(
    read: Result<T, VersionedFileError>,
) -> Result<Option<T>, VersionedFileError> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(VersionedFileError::Invalid { .. }) => Ok(None),
        Err(error @ VersionedFileError::TooNew { .. }) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Sample {
        name: String,
    }

    #[test]
    fn a_newer_version_is_refused_and_a_missing_one_is_read() {
        let read = |text: &str| from_json::<Sample>("/etc/sample", 2, text.as_bytes());
        let sample = Sample { name: "a".to_owned() };
        let written = to_json(2, &sample).unwrap();
        assert_eq!(String::from_utf8(written).unwrap(), r#"{"version":2,"name":"a"}"#);
        for text in
            [r#"{"name":"a"}"#, r#"{"version":1,"name":"a"}"#, r#"{"version":2,"name":"a"}"#]
        {
            assert_eq!(read(text).as_ref(), Ok(&sample), "{text}");
        }
        // A newer file may mean anything, so its other fields are not looked at.
        let error = read(r#"{"version":3}"#).unwrap_err();
        assert_eq!(
            error.to_string(),
            "/etc/sample: version 3 is newer than 2, the newest that this machinist reads: use the machinist that wrote the file, or a newer one"
        );
        for text in ["", "{", r#"{"version":2}"#, r#"{"version":-1,"name":"a"}"#] {
            assert!(matches!(read(text), Err(VersionedFileError::Invalid { .. })), "{text}");
            assert_eq!(ignore_damage(read(text)), Ok(None), "{text}");
        }
        assert!(ignore_damage(read(r#"{"version":3}"#)).is_err());
    }
}
