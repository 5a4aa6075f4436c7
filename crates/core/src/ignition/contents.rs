//! Decodes the contents of a file: from its data URL, decompressed.

use std::io::{Read as _, Write};

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
    let Some(bytes) = packed(resource)? else { return Ok(Vec::new()) };
    match resource.compression.as_deref().unwrap_or_default() {
        "" if bytes.len() as u64 > limit => Err(ContentsError::TooLarge { limit }),
        "" => Ok(bytes),
        "gzip" => {
            let mut out = Vec::new();
            gunzip(&bytes, limit, &mut out)?;
            Ok(out)
        }
        other => Err(ContentsError::Compression(other.to_owned())),
    }
}

/// The size of the contents, which are not kept. An error if it exceeds `limit`.
pub(super) fn unpacked_size(resource: &Resource, limit: u64) -> Result<u64, ContentsError> {
    match resource.compression.as_deref().unwrap_or_default() {
        "gzip" => match packed(resource)? {
            Some(bytes) => gunzip(&bytes, limit, &mut std::io::sink()),
            None => Ok(0),
        },
        // A data URL is never shorter than its contents, so most need not be decoded.
        "" if resource.source.as_ref().is_none_or(|source| source.len() as u64 <= limit) => {
            Ok(resource.source.as_ref().map_or(0, String::len) as u64)
        }
        _ => decode(resource, limit).map(|bytes| bytes.len() as u64),
    }
}

/// The contents as the config holds them; `None` if there is no source.
fn packed(resource: &Resource) -> Result<Option<Vec<u8>>, ContentsError> {
    let Some(source) = resource.source.as_deref().filter(|source| !source.is_empty()) else {
        return Ok(None);
    };
    if let Some(scheme) = remote_scheme(source) {
        return Err(ContentsError::Remote { scheme });
    }
    Ok(Some(data_url::decode(source)?))
}

/// The scheme of a source, unless the config holds the contents itself.
#[must_use]
pub fn remote_scheme(source: &str) -> Option<String> {
    let url = crate::go::url::parse(source).ok()?;
    (url.scheme != "data" && !url.scheme.is_empty()).then_some(url.scheme)
}

/// Unpacks until the end or the limit, whichever comes first. Returns the size.
fn gunzip(bytes: &[u8], limit: u64, out: &mut impl Write) -> Result<u64, ContentsError> {
    let mut reader = MultiGzDecoder::new(bytes).take(limit.saturating_add(1));
    let size = std::io::copy(&mut reader, out).map_err(ContentsError::Gzip)?;
    if size > limit { Err(ContentsError::TooLarge { limit }) } else { Ok(size) }
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
