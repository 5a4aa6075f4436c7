//! `registries.conf`: where images are pulled from (containers-registries.conf(5), version 2).

mod edit;
mod read;
mod write;

pub(super) use edit::{RegistryEdits, WildcardMirrorsError, edit};
pub use read::RegistriesConfError;

use super::mirrors::PullBy;

/// MCO's default file.
pub const DEFAULT_REGISTRIES_CONF: &str =
    "unqualified-search-registries = ['registry.access.redhat.com', 'docker.io']\n";

/// A `registries.conf` of version 2.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegistriesConf {
    /// The registries that short names are searched in.
    pub search: Option<Vec<String>>,
    /// The credential helpers.
    pub credential_helpers: Option<Vec<String>>,
    /// How short names are resolved.
    pub short_name_mode: String,
    /// The credential helper of additional layer stores.
    pub layer_store_helper: String,
    /// The entries about registries.
    pub registries: Vec<RegistryEntry>,
    /// Aliases of short names.
    pub aliases: Vec<(String, String)>,
}

/// One entry about a registry, namespace or repository.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegistryEntry {
    /// The prefix of matching images; if empty, the location.
    pub prefix: String,
    /// Where the images are.
    pub location: String,
    /// Whether TLS is not verified.
    pub insecure: bool,
    /// Which pulls it serves; if empty, all.
    pub pull_from_mirror: String,
    /// Whether it is never contacted.
    pub blocked: bool,
    /// Whether all its mirrors serve pulls by digest only.
    pub mirror_by_digest_only: bool,
    /// The mirrors, tried first.
    pub mirrors: Vec<RegistryMirror>,
}

/// A mirror.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegistryMirror {
    /// Its location.
    pub location: String,
    /// Whether TLS is not verified.
    pub insecure: bool,
    /// Which pulls it serves: `digest-only`, `tag-only`; if empty, all.
    pub pull_from_mirror: String,
}

impl RegistryEntry {
    /// An entry for a scope: a wildcard is a prefix, anything else a location.
    fn for_scope(scope: &str) -> Self {
        let mut registry = Self::default();
        if scope.starts_with("*.") {
            scope.clone_into(&mut registry.prefix);
        } else {
            scope.clone_into(&mut registry.location);
        }
        registry
    }

    /// Its scope.
    pub(super) fn scope(&self) -> &str {
        if self.prefix.is_empty() { &self.location } else { &self.prefix }
    }
}

impl PullBy {
    /// The value in the file.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Digest => "digest-only",
            Self::Tag => "tag-only",
        }
    }
}
