//! Events have two forms, `v1` and `events.k8s.io/v1`, and are one and the same. They are stored as
//! `v1`; the other form is made of it and into it. Pure.

use serde_json::Value;

use crate::registry::Kind;

/// The fields that have another name in the other form: of `events.k8s.io/v1`, of `v1`.
const NAMES: &[(&str, &str)] = &[
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
    ("reportingController", "reportingComponent"),
];

/// Whether a kind is the form that is not stored.
pub(crate) fn is_other_form(kind: &Kind) -> bool {
    kind.built_in && kind.group == "events.k8s.io" && kind.kind == "Event"
}

/// Makes the stored form; one that is in it already stays as it is.
pub(crate) fn to_stored(event: &mut Value) {
    rename(event, "v1", NAMES.iter().copied());
}

/// Makes the other form.
pub(crate) fn from_stored(event: &mut Value) {
    let names = NAMES.iter().map(|(other, stored)| (*stored, *other));
    rename(event, "events.k8s.io/v1", names);
}

fn rename<'a>(event: &mut Value, version: &str, names: impl Iterator<Item = (&'a str, &'a str)>) {
    let Some(fields) = event.as_object_mut() else { return };
    for (from, to) in names {
        if let Some(value) = fields.remove(from) {
            fields.insert(to.to_owned(), value);
        }
    }
    fields.insert("apiVersion".to_owned(), version.into());
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn there_and_back() {
        let other = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "regarding": {"name": "a"},
            "note": "n", "reportingController": "c", "reason": "r",
        });
        let stored = json!({
            "apiVersion": "v1", "kind": "Event", "involvedObject": {"name": "a"},
            "message": "n", "reportingComponent": "c", "reason": "r",
        });
        let mut event = other.clone();
        to_stored(&mut event);
        assert_eq!(event, stored);
        to_stored(&mut event);
        assert_eq!(event, stored);
        from_stored(&mut event);
        assert_eq!(event, other);
    }
}
