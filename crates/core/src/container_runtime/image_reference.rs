//! Parses image references.

use super::mirrors::PullBy;

/// The repository of an image, and whether it is pulled by digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ImageReference<'a> {
    /// Host and path.
    pub(super) repository: &'a str,
    /// Whether it is pulled by digest.
    pub(super) by: PullBy,
}

/// Parses a full reference: `host/path`, with a tag, a digest or both. `None` for short names.
pub(super) fn parse(image: &str) -> Option<ImageReference<'_>> {
    let (name, digest) = match image.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (image, None),
    };
    let slash = name.rfind('/')?;
    let (repository, tag) = match name[slash..].find(':') {
        Some(colon) => (&name[..slash + colon], Some(&name[slash + colon + 1..])),
        None => (name, None),
    };
    let host = repository.split('/').next()?;
    let is_full = host.contains(['.', ':']) || host == "localhost";
    // A single path component on Docker Hub is an official image.
    let is_short = host == "docker.io" && repository.matches('/').count() == 1;
    let good = is_full
        && !is_short
        && super::scope::is_mirror(repository)
        && tag.is_none_or(is_tag)
        && digest.is_none_or(is_digest);
    let by = if digest.is_some() { PullBy::Digest } else { PullBy::Tag };
    good.then_some(ImageReference { repository, by })
}

/// Whether an image is named in full: `host/path`, with a tag, a digest or both.
#[must_use]
pub fn is_full_image_name(image: &str) -> bool {
    parse(image).is_some()
}

fn is_tag(tag: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    tag.len() <= 128
        && tag.bytes().next().is_some_and(is_word)
        && tag.bytes().all(|byte| is_word(byte) || b".-".contains(&byte))
}

fn is_digest(digest: &str) -> bool {
    let Some((algorithm, hex)) = digest.split_once(':') else { return false };
    let length = match algorithm {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        _ => return false,
    };
    hex.len() == length && hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_parsed() {
        let digest = format!("sha256:{}", "ef".repeat(32));
        let by_digest = format!("quay.io/a/b@{digest}");
        let both = format!("quay.io:5000/a/b:1@{digest}");
        for (image, expected) in [
            (by_digest.as_str(), Some(("quay.io/a/b", PullBy::Digest))),
            (both.as_str(), Some(("quay.io:5000/a/b", PullBy::Digest))),
            ("release-reg.io/image/release", Some(("release-reg.io/image/release", PullBy::Tag))),
            ("localhost/a:1", Some(("localhost/a", PullBy::Tag))),
            ("busybox", None),
            ("library/busybox", None),
            ("docker.io/busybox", None),
            ("quay.io/A", None),
            ("quay.io/a@sha256:1", None),
            ("", None),
        ] {
            let found = parse(image).map(|found| (found.repository, found.by));
            assert_eq!(found, expected, "{image}");
        }
    }
}
