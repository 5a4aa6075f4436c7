//! Decodes the contents of a file: from its data URL, decompressed.

use std::io::Read as _;

use flate2::read::MultiGzDecoder;

use super::data_url::{self, DataUrlError};
use super::schema::Resource;

/// Why contents cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub enum ContentsError {
    /// The contents must be fetched from a remote URL.
    #[error("contents are fetched from a {scheme:?} URL, not held in the config")]
    Remote {
        /// The scheme of the URL.
        scheme: String,
    },
    /// The data URL is invalid.
    #[error("could not decode file content string: {0}")]
    DataUrl(#[from] DataUrlError),
    /// The contents are not gzip, although they are declared as gzip.
    #[error("failed decompressing: {0}")]
    Gzip(#[source] std::io::Error),
    /// Unknown compression.
    #[error("unsupported compression type {0:?}")]
    Compression(String),
    /// The contents exceed the caller's limit.
    #[error("contents are larger than {limit} bytes when decompressed")]
    TooLarge {
        /// The limit.
        limit: u64,
    },
}

/// The contents, at most `limit` bytes. A resource without a source is an empty file.
pub fn decode(resource: &Resource, limit: u64) -> Result<Vec<u8>, ContentsError> {
    let Some(source) = resource.source.as_deref().filter(|source| !source.is_empty()) else {
        return Ok(Vec::new());
    };
    if let Some(scheme) = remote_scheme(source) {
        return Err(ContentsError::Remote { scheme });
    }
    let bytes = data_url::decode(source)?;
    match resource.compression.as_deref().unwrap_or_default() {
        "" => Ok(bytes),
        "gzip" => gunzip(&bytes, limit),
        other => Err(ContentsError::Compression(other.to_owned())),
    }
}

/// The scheme of a source, unless the config holds the contents itself.
#[must_use]
pub fn remote_scheme(source: &str) -> Option<String> {
    let url = crate::go::url::parse(source).ok()?;
    (url.scheme != "data" && !url.scheme.is_empty()).then_some(url.scheme)
}

fn gunzip(bytes: &[u8], limit: u64) -> Result<Vec<u8>, ContentsError> {
    let mut out = Vec::new();
    let mut reader = MultiGzDecoder::new(bytes).take(limit.saturating_add(1));
    reader.read_to_end(&mut out).map_err(ContentsError::Gzip)?;
    if u64::try_from(out.len()).is_ok_and(|length| length > limit) {
        return Err(ContentsError::TooLarge { limit });
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(source: &str, compression: Option<&str>) -> Resource {
        Resource {
            source: Some(source.to_owned()),
            compression: compression.map(str::to_owned),
            ..Resource::default()
        }
    }

    #[test]
    fn contents_are_decoded_and_decompressed() {
        let gzip = "data:;base64,H4sIAAAAAAAAA0vLz+cCAKhlMn4EAAAA";
        assert_eq!(decode(&resource(gzip, Some("gzip")), 100).unwrap(), b"foo\n");
        assert_eq!(decode(&resource("data:,a%20b", None), 100).unwrap(), b"a b");
        assert_eq!(decode(&Resource::default(), 100).unwrap(), b"");
    }

    #[test]
    fn undecodable_contents_are_errors() {
        let gzip = "data:;base64,H4sIAAAAAAAAA0vLz+cCAKhlMn4EAAAA";
        let too_large = decode(&resource(gzip, Some("gzip")), 3);
        assert!(matches!(too_large, Err(ContentsError::TooLarge { limit: 3 })));
        let not_gzip = decode(&resource("data:,abc", Some("gzip")), 100);
        assert!(matches!(not_gzip, Err(ContentsError::Gzip(_))));
        let remote = decode(&resource("https://example.com/a", None), 100);
        assert!(matches!(remote, Err(ContentsError::Remote { scheme }) if scheme == "https"));
    }
}
