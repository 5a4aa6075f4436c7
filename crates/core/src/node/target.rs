//! The config and image that a rollout wants on a machine.

/// What machines of a pool are to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RolloutTarget<'a> {
    /// The pool's config.
    pub config: &'a str,
    /// The image, for a pool that runs one of its own.
    pub image: Option<LayeredImage<'a>>,
}

/// An image and the config that it was built for. Either is empty as long as it is not known; a
/// machine that has nothing wanted of it yet does not have that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LayeredImage<'a> {
    /// Where it is.
    pub pull_spec: &'a str,
    /// The config that it was built for.
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
