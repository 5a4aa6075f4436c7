//! The config and image that a rollout wants on a machine.

/// The config and image that the machines of a pool should have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RolloutTarget<'a> {
    /// The pool's config.
    pub config: &'a str,
    /// The image, for a pool with a layered image.
    pub image: Option<LayeredImage<'a>>,
}

/// A layered image and the config it was built for. Either is empty while it is unknown; no machine
/// counts as updated then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LayeredImage<'a> {
    /// The pull spec.
    pub pull_spec: &'a str,
    /// The config it was built for.
    pub config: &'a str,
}

impl<'a> From<&'a str> for RolloutTarget<'a> {
    fn from(config: &'a str) -> Self {
        Self { config, image: None }
    }
}

impl<'a> From<&'a String> for RolloutTarget<'a> {
    fn from(config: &'a String) -> Self {
        config.as_str().into()
    }
}
