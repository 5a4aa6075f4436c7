//! Pins OS images that are named by a tag. A tag may move, and the machines of a pool must not run
//! different images. So the controller resolves the tag once and writes the digest to an annotation
//! of the rendered config. Annotations are not part of the content that names a config.

use crate::api::MachineConfig;
use crate::api::names::annotation::machinist::OS_IMAGE_PINNED;

/// An image named by a tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaggedImage {
    /// The registry: `registry.example.com:5000`.
    pub host: String,
    /// The repository: `os/fedora`.
    pub repository: String,
    /// The tag.
    pub tag: String,
}

impl TaggedImage {
    /// Parses an image that is named by a tag. `None` for one without a registry: the machine's own
    /// search list applies to it.
    #[must_use]
    pub fn parse(image: &str) -> Option<Self> {
        let (host, rest) = image.split_once('/')?;
        let is_host = host.contains(['.', ':']) || host == "localhost";
        if !is_host || rest.is_empty() || image.contains('@') {
            return None;
        }
        let (repository, tag) = rest.rsplit_once(':').unwrap_or((rest, "latest"));
        let [host, repository, tag] = [host, repository, tag].map(str::to_owned);
        Some(Self { host, repository, tag })
    }

    /// The same image, named by its digest.
    #[must_use]
    pub fn by_digest(&self, digest: &str) -> String {
        format!("{}/{}@{digest}", self.host, self.repository)
    }
}

/// What has to happen before machines may get a config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImagePin {
    /// Nothing: there is no image, it is named by its digest, or it is pinned already.
    NotNeeded,
    /// The pool's present config has the same tag: use its digest.
    Reuse(String),
    /// The tag has to be resolved by the registry.
    Resolve(TaggedImage),
}

/// How to pin the image of a config, given the pool's present config.
#[must_use]
pub fn plan_pin(new: &MachineConfig, present: Option<&MachineConfig>) -> ImagePin {
    let image = new.spec.os_image_url.as_deref().unwrap_or_default();
    let Some(tagged) = TaggedImage::parse(image).filter(|_| pinned_image(new).is_none()) else {
        return ImagePin::NotNeeded;
    };
    let present = present.filter(|present| present.spec.os_image_url.as_deref() == Some(image));
    match present.and_then(pinned_image) {
        Some(known) => ImagePin::Reuse(known.to_owned()),
        None => ImagePin::Resolve(tagged),
    }
}

/// The image that a config is pinned to.
#[must_use]
pub fn pinned_image(config: &MachineConfig) -> Option<&str> {
    let annotations = config.metadata.annotations.as_ref()?;
    annotations.get(OS_IMAGE_PINNED).map(String::as_str).filter(|image| !image.is_empty())
}

/// Pins a config to an image.
pub fn set_pinned_image(config: &mut MachineConfig, image: String) {
    config.metadata.annotations.get_or_insert_default().insert(OS_IMAGE_PINNED.to_owned(), image);
}

/// Whether a text is a valid SHA-256 digest.
#[must_use]
pub fn is_digest(text: &str) -> bool {
    let hex = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    text.strip_prefix("sha256:").is_some_and(|rest| rest.len() == 64 && hex(rest))
}

/// How a registry wants clients to authenticate, from `WWW-Authenticate`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthChallenge {
    /// User name and password.
    Basic,
    /// A token from this URL.
    Bearer {
        /// Includes the query for the repository's scope.
        url: String,
    },
}

impl AuthChallenge {
    /// Parses the header.
    #[must_use]
    pub fn parse(header: &str, repository: &str) -> Option<Self> {
        let (scheme, rest) = header.split_once(' ').unwrap_or((header, ""));
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Self::Basic);
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let part = |name: &str| {
            let (_, after) = rest.split_once(&format!("{name}=\""))?;
            after.split_once('"').map(|(value, _)| value)
        };
        let realm = part("realm")?;
        let mut url = format!("{realm}?scope=repository:{repository}:pull");
        if let Some(service) = part("service") {
            url += &format!("&service={}", service.replace(' ', "%20"));
        }
        Some(Self::Bearer { url })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::from_ignition;
    use serde_json::json;

    fn config(image: &str, pin: Option<&str>) -> MachineConfig {
        let mut config = from_ignition(json!({}));
        config.spec.os_image_url = Some(image.to_owned());
        if let Some(pin) = pin {
            set_pinned_image(&mut config, pin.to_owned());
        }
        config
    }

    #[test]
    fn tagged_images_are_recognized() {
        for (image, expected) in [
            ("quay.io/os/a:1", Some(("quay.io", "os/a", "1"))),
            ("host:5000/a", Some(("host:5000", "a", "latest"))),
            ("localhost/a:b", Some(("localhost", "a", "b"))),
            ("quay.io/os/a@sha256:00", None),
            ("quay.io/os/a:1@sha256:00", None),
            ("fedora:latest", None),
            ("library/fedora", None),
            ("quay.io/", None),
            ("", None),
        ] {
            let found = TaggedImage::parse(image);
            let found = found.as_ref().map(|it| (&*it.host, &*it.repository, &*it.tag));
            assert_eq!(found, expected, "{image}");
        }
    }

    #[test]
    fn a_tag_is_resolved_once() {
        let new = config("q.io/a:1", None);
        let asked = ImagePin::Resolve(TaggedImage::parse("q.io/a:1").unwrap());
        assert_eq!(plan_pin(&new, None), asked);
        assert_eq!(plan_pin(&new, Some(&config("q.io/a:2", Some("q.io/a@sha256:2")))), asked);
        assert_eq!(plan_pin(&new, Some(&config("q.io/a:1", None))), asked);
        let known = config("q.io/a:1", Some("q.io/a@sha256:1"));
        assert_eq!(plan_pin(&new, Some(&known)), ImagePin::Reuse("q.io/a@sha256:1".to_owned()));
        assert_eq!(plan_pin(&config("q.io/a@sha256:1", None), None), ImagePin::NotNeeded);
        assert_eq!(plan_pin(&known, None), ImagePin::NotNeeded);
    }

    #[test]
    fn authentication_challenges_are_parsed() {
        let bearer = r#"Bearer realm="https://q.io/auth",service="q io",scope="x""#;
        let url = "https://q.io/auth?scope=repository:os/a:pull&service=q%20io".to_owned();
        assert_eq!(AuthChallenge::parse(bearer, "os/a"), Some(AuthChallenge::Bearer { url }));
        assert_eq!(AuthChallenge::parse("Basic realm=\"x\"", "a"), Some(AuthChallenge::Basic));
        assert_eq!(AuthChallenge::parse("Bearer service=\"x\"", "a"), None);
        assert_eq!(AuthChallenge::parse("Negotiate", "a"), None);
    }

    #[test]
    fn only_a_whole_sha256_is_a_digest() {
        assert!(is_digest(&format!("sha256:{}", "a1".repeat(32))));
        assert!(!is_digest("sha256:zz") && !is_digest("latest"));
    }
}
