//! The flags of `kubectl drain` that a pool sets for its machines.

use crate::api::MachineConfigPool;
use crate::api::names::annotation::machinist::DRAIN_FLAGS;

/// Which pods a drain may evict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrainFlags {
    /// Pods that no controller creates again (`--force`).
    pub force: bool,
    /// Pods with an `emptyDir`, whose data is lost (`--delete-emptydir-data`).
    pub delete_emptydir_data: bool,
}

impl Default for DrainFlags {
    /// MCO's.
    fn default() -> Self {
        Self { force: true, delete_emptydir_data: true }
    }
}

/// The annotation is not a list of these flags.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a flag of a drain")]
pub struct DrainFlagsError(String);

impl DrainFlags {
    /// No flag: only pods that somebody creates again and that lose no data.
    pub const NONE: Self = Self { force: false, delete_emptydir_data: false };

    /// The flags of a pool. Flags that cannot be read evict nothing that could be lost.
    #[must_use]
    pub fn of_pool(pool: &MachineConfigPool) -> Self {
        let annotations = pool.metadata.annotations.as_ref();
        match annotations.and_then(|all| all.get(DRAIN_FLAGS)) {
            None => Self::default(),
            Some(text) => Self::parse(text).unwrap_or(Self::NONE),
        }
    }

    /// Parses a list of flags. Those that it does not name are not set, as with kubectl.
    ///
    /// # Errors
    /// A word is not one of the flags.
    pub fn parse(text: &str) -> Result<Self, DrainFlagsError> {
        let mut flags = Self::NONE;
        for word in text.split_whitespace() {
            match word {
                "--force" | "--force=true" => flags.force = true,
                "--delete-emptydir-data" | "--delete-emptydir-data=true" => {
                    flags.delete_emptydir_data = true;
                }
                // The last two always hold: a DaemonSet would create its pods again at once.
                "--force=false"
                | "--delete-emptydir-data=false"
                | "--ignore-daemonsets"
                | "--ignore-daemonsets=true" => {}
                other => return Err(DrainFlagsError(other.chars().take(100).collect())),
            }
        }
        Ok(flags)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pool_sets_the_flags_of_kubectl() {
        let all = DrainFlags::default();
        for (annotation, expected) in [
            (None, all),
            (Some(""), DrainFlags::NONE),
            (Some("--ignore-daemonsets"), DrainFlags::NONE),
            (Some("--force"), DrainFlags { force: true, ..DrainFlags::NONE }),
            (
                Some("--delete-emptydir-data  --force=false"),
                DrainFlags { delete_emptydir_data: true, ..DrainFlags::NONE },
            ),
            (Some("--force --delete-emptydir-data"), all),
            (Some("--force --disable-eviction"), DrainFlags::NONE),
        ] {
            let annotations = annotation.map(|text| json!({DRAIN_FLAGS: text}));
            let pool = serde_json::from_value(json!({
                "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
                "metadata": {"name": "worker", "annotations": annotations}, "spec": {},
            }))
            .unwrap();
            assert_eq!(DrainFlags::of_pool(&pool), expected, "{annotation:?}");
        }
        let error = DrainFlags::parse("--force --disable-eviction").unwrap_err().to_string();
        assert_eq!(error, "\"--disable-eviction\" is not a flag of a drain");
    }
}
