//! References to images, and which of them mean the same image everywhere.

use thiserror::Error;

/// An image that is named by its digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DigestImageRef {
    /// Registry and repository, without tag and digest.
    pub repository: String,
    /// The digest of its manifest: 64 hexadecimal digits of a SHA-256.
    pub sha256: String,
}

/// Why a reference cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ImageRefError {
    /// A tag may mean another image tomorrow, or on another machine.
    #[error("osImageURL {0}: it has no digest: name the image as NAME@sha256:…")]
    NoDigest(String),
    /// Not a SHA-256.
    #[error("osImageURL {0}: its digest is not sha256: and 64 hexadecimal digits")]
    InvalidDigest(String),
    /// Not a reference to an image.
    #[error("osImageURL {0}: this is not the name of an image: write REGISTRY/NAME@sha256:…")]
    InvalidName(String),
}

impl DigestImageRef {
    /// Reads `registry/name@sha256:…`. A tag next to the digest is ignored.
    pub fn parse(image: &str) -> Result<Self, ImageRefError> {
        let Some((name, digest)) = image.split_once('@') else {
            return Err(ImageRefError::NoDigest(image.to_owned()));
        };
        let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let sha256 = digest.strip_prefix("sha256:").filter(|sum| sum.len() == 64);
        let sha256 = sha256.filter(|sum| sum.bytes().all(hex));
        let sha256 = sha256.ok_or_else(|| ImageRefError::InvalidDigest(image.to_owned()))?;
        let repository = match name.rsplit_once(':') {
            // A colon before the last slash belongs to a port.
            Some((repository, tag)) if !tag.contains('/') => repository,
            _ => name,
        };
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"./:_-[]".contains(&byte);
        let first = repository.bytes().next();
        if !repository.contains('/')
            || !repository.bytes().all(allowed)
            || !first.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'[')
        {
            return Err(ImageRefError::InvalidName(image.to_owned()));
        }
        Ok(Self { repository: repository.to_owned(), sha256: sha256.to_owned() })
    }

    /// The same image with another digest: that of one of its platforms.
    #[must_use]
    pub fn with_digest(&self, sha256: &str) -> Self {
        Self { repository: self.repository.clone(), sha256: sha256.to_owned() }
    }

    /// The ref of the image in an ostree repository.
    #[must_use]
    pub fn ostree_ref(&self) -> String {
        format!("{OSTREE_REF_PREFIX}/{}", self.sha256)
    }
}

impl std::fmt::Display for DigestImageRef {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}@sha256:{}", self.repository, self.sha256)
    }
}

/// Why a text is not a reference to an image in a registry, with a tag, a digest or neither. A reference
/// without a registry could mean another image on another machine.
#[must_use]
pub fn reference_problem(text: &str) -> Option<&'static str> {
    if text.is_empty() {
        return Some("it is empty");
    }
    if text.contains("://") {
        return Some("it is an address, not the name of an image");
    }
    let (name, digest) = match text.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (text, None),
    };
    let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let is_sum = |sum: &str| sum.len() == 64 && sum.bytes().all(hex);
    if digest.is_some_and(|digest| !digest.strip_prefix("sha256:").is_some_and(is_sum)) {
        return Some("its digest is not sha256: and 64 hexadecimal digits");
    }
    let Some((registry, rest)) = name.split_once('/').filter(|(host, _)| is_registry(host)) else {
        return Some("it names no registry");
    };
    let (path, tag) = match rest.rsplit_once(':') {
        Some((path, tag)) => (path, Some(tag)),
        None => (rest, None),
    };
    if !registry.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".:-[]".contains(&byte)) {
        return Some("its registry is not the name of a host");
    }
    if !path.split('/').all(is_name_component) {
        return Some(
            "its name has a part that is not of small letters and digits, with . _ - between",
        );
    }
    if tag.is_some_and(|tag| !is_tag(tag)) {
        return Some("its tag is not of letters, digits and . _ -, at most 128");
    }
    None
}

fn is_registry(host: &str) -> bool {
    host == "localhost" || host.contains(['.', ':'])
}

fn is_name_component(part: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let mut bytes = part.bytes();
    let ends = bytes.next().is_some_and(plain) && part.bytes().last().is_some_and(plain);
    ends && bytes.all(|byte| plain(byte) || b"._-".contains(&byte))
}

fn is_tag(tag: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let first = tag.bytes().next().is_some_and(plain);
    first && tag.len() <= 128 && tag.bytes().all(|byte| plain(byte) || b".-".contains(&byte))
}

/// The refs of all images that Machinist imported into an ostree repository.
pub const OSTREE_REF_PREFIX: &str = "machinist/image";

/// The pullspec in the origin that other tools give a deployment, such as
/// `ostree-unverified-registry:quay.io/os@sha256:…`.
#[must_use]
pub fn pullspec_of_container_reference(reference: &str) -> Option<&str> {
    let rest = match reference.split_once(':')? {
        ("ostree-unverified-registry", rest) => rest,
        ("ostree-image-signed" | "ostree-unverified-image", rest) => {
            rest.strip_prefix("docker://").or_else(|| rest.strip_prefix("registry:"))?
        }
        // ostree-remote-registry:REMOTE:IMAGE, ostree-remote-image:REMOTE:docker://IMAGE
        ("ostree-remote-registry", rest) => rest.split_once(':')?.1,
        ("ostree-remote-image", rest) => rest.split_once(':')?.1.strip_prefix("docker://")?,
        _ => return None,
    };
    Some(rest).filter(|image| !image.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUM: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn only_a_digest_pins_an_image() {
        for (image, repository) in [
            (format!("quay.io/os/x@sha256:{SUM}"), "quay.io/os/x"),
            (format!("quay.io/os/x:4.20@sha256:{SUM}"), "quay.io/os/x"),
            (format!("10.0.0.1:5000/os/x@sha256:{SUM}"), "10.0.0.1:5000/os/x"),
            (format!("[fd00::1]:5000/os@sha256:{SUM}"), "[fd00::1]:5000/os"),
        ] {
            let pinned = DigestImageRef::parse(&image).unwrap();
            assert_eq!((pinned.repository.as_str(), pinned.sha256.as_str()), (repository, SUM));
            assert_eq!(pinned.to_string(), format!("{repository}@sha256:{SUM}"));
            assert_eq!(pinned.ostree_ref(), format!("machinist/image/{SUM}"));
        }
    }

    #[test]
    fn every_other_reference_is_refused_with_its_reason() {
        let cases = [
            ("quay.io/os/x:latest".to_owned(), "no digest"),
            (format!("quay.io/os@sha512:{SUM}"), "sha256"),
            (format!("quay.io/os@sha256:{}", &SUM[1..]), "sha256"),
            (format!("quay.io/os@sha256:{}", SUM.to_uppercase()), "sha256"),
            (format!("os@sha256:{SUM}"), "REGISTRY/NAME"),
            (format!("--help/x@sha256:{SUM}"), "REGISTRY/NAME"),
            (format!("quay.io/a b@sha256:{SUM}"), "REGISTRY/NAME"),
            (String::new(), "no digest"),
        ];
        for (image, reason) in cases {
            let error = DigestImageRef::parse(&image).unwrap_err().to_string();
            assert!(error.contains(reason) && error.starts_with("osImageURL"), "{error}");
        }
    }

    #[test]
    fn references_to_images_in_a_registry() {
        for image in [
            "quay.io/os/fedora-coreos:stable".to_owned(),
            "10.0.0.1:5000/os".to_owned(),
            "localhost/a_b/c.d:V1.0-x".to_owned(),
            "[fd00::1]:5000/os:1".to_owned(),
            format!("quay.io/os/x:4.20@sha256:{SUM}"),
        ] {
            assert_eq!(reference_problem(&image), None, "{image}");
        }
        for (image, reason) in [
            ("", "empty"),
            ("docker://quay.io/os", "address"),
            ("quay.io/os@sha256:12", "digest"),
            ("quay.io/os@latest", "digest"),
            ("fedora:42", "no registry"),
            ("library/fedora", "no registry"),
            ("qu ay.io/os", "registry is not"),
            ("quay.io/", "a part"),
            ("quay.io/Os", "a part"),
            ("quay.io/a//b", "a part"),
            ("quay.io/a b:1", "a part"),
            ("quay.io/os:", "tag"),
            ("quay.io/os:a b", "tag"),
        ] {
            let found = reference_problem(image).unwrap_or_default();
            assert!(found.contains(reason), "{image}: {found}");
        }
    }

    #[test]
    fn origins_of_other_tools_are_read() {
        for (reference, image) in [
            ("ostree-unverified-registry:quay.io/os@sha256:1", Some("quay.io/os@sha256:1")),
            ("ostree-unverified-image:docker://quay.io/os:1", Some("quay.io/os:1")),
            ("ostree-image-signed:docker://quay.io/os:1", Some("quay.io/os:1")),
            ("ostree-remote-registry:fedora:quay.io/os:1", Some("quay.io/os:1")),
            ("ostree-unverified-image:oci:/dir", None),
            ("fedora:fedora/x86_64/coreos/stable", None),
            ("", None),
        ] {
            assert_eq!(pullspec_of_container_reference(reference), image, "{reference}");
        }
    }
}
