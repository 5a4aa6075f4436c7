//! Legacy names. Old versions of MCO named `99-<pool>-generated-<infix>` by the UID of the pool:
//! `99-<pool>-<uid>-<infix>`. Old clusters still have such MachineConfigs.

use crate::api::MachineConfigPool;

/// Prefix and infix of the names.
const KINDS: [(&str, &str); 5] = [
    ("97", "kubelet"),
    ("98", "kubelet"),
    ("99", "kubelet"),
    ("99", "containerruntime"),
    ("99", "registries"),
];
/// The length of a UID in characters.
const UID_LENGTH: usize = 36;

/// The legacy MachineConfigs that can be deleted because their successors exist. A machine always
/// has one of the two.
pub fn superseded(pools: &[&MachineConfigPool], exists: impl Fn(&str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for pool in pools {
        let (Some(name), Some(uid)) = (&pool.metadata.name, &pool.metadata.uid) else { continue };
        for (prefix, word) in KINDS {
            let old = format!("{prefix}-{name}-{uid}-{word}");
            if exists(&old) && exists(&format!("{prefix}-{name}-generated-{word}")) {
                found.push(old);
            }
        }
    }
    found
}

/// Whether a name is a legacy name with this infix.
#[must_use]
pub fn is_legacy_name(name: &str, word: &str) -> bool {
    let inner = name
        .strip_prefix("99-")
        .and_then(|rest| rest.strip_suffix(word))
        .and_then(|rest| rest.strip_suffix('-'));
    let uid = inner.and_then(|inner| inner.get(inner.len().checked_sub(UID_LENGTH + 1)?..));
    uid.and_then(|uid| uid.strip_prefix('-')).is_some_and(|uid| {
        let is_dash = |at: usize| matches!(at, 8 | 13 | 18 | 23);
        uid.bytes()
            .enumerate()
            .all(|(at, byte)| if is_dash(at) { byte == b'-' } else { byte.is_ascii_hexdigit() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOL: &str = "0a1b2c3d-0000-4000-8000-0123456789ab";

    #[test]
    fn a_legacy_config_is_superseded_when_its_successor_exists() {
        let mut pool = MachineConfigPool::default();
        pool.metadata.name = Some("worker".to_owned());
        pool.metadata.uid = Some(POOL.to_owned());
        let old = format!("99-worker-{POOL}-registries");
        for (there, gone) in [
            (vec![old.as_str()], false),
            (vec![old.as_str(), "99-worker-generated-registries"], true),
            (vec!["99-worker-generated-registries"], false),
            (vec![old.as_str(), "99-worker-generated-kubelet"], false),
        ] {
            let found = superseded(&[&pool], |name| there.contains(&name));
            assert_eq!(found.contains(&old), gone, "{there:?}");
            assert_eq!(found.len(), usize::from(gone), "{there:?}");
        }
    }

    #[test]
    fn only_names_with_a_uid_are_legacy_names() {
        for (name, is_old) in [
            (format!("99-worker-{POOL}-kubelet"), true),
            (format!("99-my-pool-{POOL}-kubelet"), true),
            (format!("99-worker-{POOL}-registries"), false),
            (format!("99-worker{POOL}-kubelet"), false),
            (format!("98-worker-{POOL}-kubelet"), false),
            ("99-worker-generated-kubelet".to_owned(), false),
            ("99-worker-kubelet".to_owned(), false),
            ("99-kubelet".to_owned(), false),
            ("99-é-kubelet".to_owned(), false),
            (String::new(), false),
        ] {
            assert_eq!(is_legacy_name(&name, "kubelet"), is_old, "{name}");
        }
    }
}
