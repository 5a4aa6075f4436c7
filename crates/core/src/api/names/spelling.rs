//! Finds misspelt annotations: a misspelt name is ignored without an error.

use std::collections::BTreeMap;

use super::EXTENSION_PREFIX;
use super::annotation::machinist;

/// How alike two names are that are meant to be the same.
const ALIKE: f32 = 0.8;

/// The annotations that an administrator writes.
const WRITTEN_BY_PEOPLE: [&str; 16] = [
    machinist::CANARY,
    machinist::CANARY_SOAK,
    machinist::MAINTENANCE_WINDOW,
    machinist::REBOOT,
    machinist::MAX_FAILURES,
    machinist::DRAIN_FLAGS,
    machinist::NODE_NAMES,
    machinist::BAD_CONFIGS,
    machinist::OS_IMAGE,
    machinist::DRIFT,
    machinist::DRIFT_CONFLICT,
    machinist::RETRY,
    machinist::ON_CHANGE,
    machinist::MODE,
    machinist::HOLD,
    machinist::HEAL,
];

/// The messages about annotations that have no effect because of a typing error.
#[must_use]
pub fn misspelt_annotations(annotations: Option<&BTreeMap<String, String>>) -> Vec<String> {
    annotations.into_iter().flatten().filter_map(|(key, _)| misspelt(key)).collect()
}

fn misspelt(key: &str) -> Option<String> {
    // Others write the prefix with another word, too.
    let (prefix, name) = key.split_once('/')?;
    let is_ours = key.starts_with(EXTENSION_PREFIX)
        || similarity(prefix, EXTENSION_PREFIX.trim_end_matches('/')) > ALIKE;
    if !is_ours || WRITTEN_BY_PEOPLE.contains(&key) {
        return None;
    }
    let own = |known: &'static str| known.strip_prefix(EXTENSION_PREFIX).unwrap_or(known);
    // A known name plus a suffix is a different name.
    let meant = WRITTEN_BY_PEOPLE
        .into_iter()
        .map(|known| (similarity(name, own(known)), known))
        .filter(|(ratio, _)| *ratio > ALIKE)
        .max_by(|a, b| a.0.total_cmp(&b.0))?
        .1;
    Some(format!("annotation {key} has no effect: did you mean {meant}?"))
}

fn similarity(a: &str, b: &str) -> f32 {
    similar::TextDiff::from_chars(a, b).ratio()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_almost_ours_are_found() {
        for (key, meant) in [
            ("machinist.dev/canery", Some(machinist::CANARY)),
            ("machinist.dev/maintenence-window", Some(machinist::MAINTENANCE_WINDOW)),
            ("machinist.dev/maintenance_window", Some(machinist::MAINTENANCE_WINDOW)),
            ("machinist.dev/max-failure", Some(machinist::MAX_FAILURES)),
            ("machinist.dev/Reboot", Some(machinist::REBOOT)),
            ("machinst.dev/canary", Some(machinist::CANARY)),
            ("machinist.dev/canary", None),
            ("machinist.dev/restart", None),
            ("machinist.dev/restart-pending", None),
            ("machinist.dev/canary-state", None),
            ("machinist.dev/os-image-pinned", None),
            ("machinist.dev/something-new", None),
            ("other.example/canery", None),
            ("canery", None),
        ] {
            let all = BTreeMap::from([(key.to_owned(), String::new())]);
            let found = misspelt_annotations(Some(&all));
            let expected: Vec<String> = meant
                .map(|meant| format!("annotation {key} has no effect: did you mean {meant}?"))
                .into_iter()
                .collect();
            assert_eq!(found, expected);
        }
    }
}
