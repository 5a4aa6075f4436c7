//! Loader entries in the format of the Boot Loader Specification.

use anyhow::{Context, Result};

/// One loader entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BlsEntry {
    /// The default entry has the highest version.
    pub(crate) version: u64,
    /// The kernel arguments.
    pub(crate) options: String,
    /// The kernel, as a path below /boot.
    pub(crate) linux: String,
    /// The initramfs, as a path below /boot.
    pub(crate) initrd: String,
}

impl BlsEntry {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let field = |name: &str| {
            let mut pairs = text.lines().filter_map(|line| line.split_once(' '));
            let found = pairs.find(|(key, _)| *key == name);
            found.map(|(_, value)| value.trim().to_owned())
        };
        let need = |name: &str| field(name).with_context(|| format!("an entry without {name}"));
        Ok(Self {
            version: need("version")?.parse()?,
            options: need("options")?,
            linux: need("linux")?,
            initrd: field("initrd").unwrap_or_default(),
        })
    }
}
