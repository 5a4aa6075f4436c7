//! `registries.conf`: where images are looked for, and how (containers-registries.conf(5), v2).

mod edit;
mod read;
mod write;

pub(super) use edit::{RegistryEdits, WildcardMirrorsError, edit};
pub use read::RegistriesConfError;

use super::mirrors::PullBy;

/// The file that we begin with when no template gives one: what the real system ships.
pub const DEFAULT_REGISTRIES_CONF: &str =
    "unqualified-search-registries = ['registry.access.redhat.com', 'docker.io']\n";

/// A `registries.conf` in its second version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegistriesConf {
    /// Where short names are looked for.
    pub search: Option<Vec<String>>,
    /// The programs that know credentials.
    pub credential_helpers: Option<Vec<String>>,
    /// How short names are resolved.
    pub short_name_mode: String,
    /// The program that knows credentials for additional layer stores.
    pub layer_store_helper: String,
    /// What is said about places.
    pub registries: Vec<RegistryEntry>,
    /// What short names stand for.
    pub aliases: Vec<(String, String)>,
}

/// What is said about one place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegistryEntry {
    /// What images begin with that this is about; empty: the location.
    pub prefix: String,
    /// Where they are.
    pub location: String,
    /// Whether no certificate is needed there.
    pub insecure: bool,
    /// Which pulls it serves; empty: all.
    pub pull_from_mirror: String,
    /// Whether it is never asked.
    pub blocked: bool,
    /// Whether all its mirrors serve pulls by digest only.
    pub mirror_by_digest_only: bool,
    /// Where to look first.
    pub mirrors: Vec<RegistryMirror>,
}

/// A mirror of a place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegistryMirror {
    /// Where it is.
    pub location: String,
    /// Whether no certificate is needed there.
    pub insecure: bool,
    /// Which pulls it serves: `digest-only`, `tag-only`; empty: all.
    pub pull_from_mirror: String,
}

impl RegistryEntry {
    /// An entry about a scope: a wildcard is a prefix, anything else a location.
    fn for_scope(scope: &str) -> Self {
        let mut registry = Self::default();
        if scope.starts_with("*.") {
            scope.clone_into(&mut registry.prefix);
        } else {
            scope.clone_into(&mut registry.location);
        }
        registry
    }

    /// What it is about.
    pub(super) fn scope(&self) -> &str {
        if self.prefix.is_empty() { &self.location } else { &self.prefix }
    }
}

impl PullBy {
    /// As the file says it.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Digest => "digest-only",
            Self::Tag => "tag-only",
        }
    }
}
