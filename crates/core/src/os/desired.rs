//! What a config asks of the operating system, and which image counts.

use super::kernel_type;
use crate::api::MachineConfig;
use crate::api::names::annotation::{LAYERED_IMAGE, machinist::OS_IMAGE_PINNED};

/// What a config asks of the operating system.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DesiredOs {
    /// The image; `None` keeps the booted one.
    pub image: Option<String>,
    /// Whether the image is a layered one that already contains kernel and extensions.
    pub is_layered: bool,
    /// Kernel arguments as they stand in the config.
    pub kernel_arguments: Vec<String>,
    /// The kernel: `default`, `realtime` or `64k-pages`.
    pub kernel_type: String,
    /// Extensions.
    pub extensions: Vec<String>,
    /// The image with the packages of extensions and other kernels.
    pub extensions_image: Option<String>,
}

impl DesiredOs {
    /// Reads a config. The layered image counts first, then the image that the controller pinned for the
    /// tag, then the one in the config.
    #[must_use]
    pub fn from_config(config: &MachineConfig) -> Self {
        let some = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let layered = layered_image(config);
        let pinned = annotation(config, OS_IMAGE_PINNED);
        let spec = &config.spec;
        Self {
            image: layered.or(pinned).map(str::to_owned).or_else(|| some(&spec.os_image_url)),
            is_layered: layered.is_some(),
            kernel_arguments: spec.kernel_arguments.clone().unwrap_or_default(),
            kernel_type: kernel_type::canonical(spec.kernel_type.as_deref()).to_owned(),
            extensions: spec.extensions.clone().unwrap_or_default(),
            extensions_image: some(&spec.base_os_extensions_container_image),
        }
    }
}

fn annotation<'a>(config: &'a MachineConfig, key: &str) -> Option<&'a str> {
    let found = config.metadata.annotations.as_ref()?.get(key)?;
    Some(found.as_str()).filter(|text| !text.is_empty())
}

/// The layered image that accompanies a config.
#[must_use]
pub fn layered_image(config: &MachineConfig) -> Option<&str> {
    annotation(config, LAYERED_IMAGE)
}

/// The config with a layered image, or without one. Only in memory and in the record of a pending change:
/// the current image of a machine has a file of its own.
#[must_use]
pub fn with_layered_image(mut config: MachineConfig, image: Option<&str>) -> MachineConfig {
    match image.filter(|image| !image.is_empty()) {
        Some(image) => {
            let annotations = config.metadata.annotations.get_or_insert_default();
            annotations.insert(LAYERED_IMAGE.to_owned(), image.to_owned());
        }
        None => {
            if let Some(annotations) = &mut config.metadata.annotations {
                annotations.remove(LAYERED_IMAGE);
                if annotations.is_empty() {
                    config.metadata.annotations = None;
                }
            }
        }
    }
    config
}

/// Whether two references mean the same image: the same text, or the same digest.
#[must_use]
pub fn is_same_image(a: &str, b: &str) -> bool {
    let digest = |name: &str| name.split_once('@').map(|(_, digest)| digest.to_owned());
    a == b || digest(a).is_some_and(|a| digest(b) == Some(a))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::from_ignition;
    use serde_json::json;

    fn config() -> MachineConfig {
        let mut config = from_ignition(json!({}));
        config.spec.os_image_url = Some("os:latest".to_owned());
        config
    }

    #[test]
    fn which_image_counts() {
        let image = |config: &MachineConfig| DesiredOs::from_config(config).image;
        assert_eq!(image(&from_ignition(json!({}))), None);
        assert_eq!(image(&config()).as_deref(), Some("os:latest"));
        let mut pinned = config();
        let annotations = pinned.metadata.annotations.get_or_insert_default();
        annotations.insert(OS_IMAGE_PINNED.to_owned(), "os@sha256:1".to_owned());
        assert_eq!(image(&pinned).as_deref(), Some("os@sha256:1"));
        let layered = with_layered_image(pinned.clone(), Some("pool@sha256:2"));
        assert_eq!(image(&layered).as_deref(), Some("pool@sha256:2"));
        assert!(DesiredOs::from_config(&layered).is_layered);
        assert_eq!(with_layered_image(layered, None), pinned);
        assert_eq!(with_layered_image(with_layered_image(config(), Some("x")), Some("")), config());
    }

    #[test]
    fn the_same_image() {
        for (a, b, same) in [
            ("a:1", "a:1", true),
            ("a:1", "a:2", false),
            ("a@sha256:1", "mirror/a@sha256:1", true),
            ("a@sha256:1", "a@sha256:2", false),
            ("a:1", "a@sha256:1", false),
        ] {
            assert_eq!(is_same_image(a, b), same, "{a} {b}");
        }
    }
}
