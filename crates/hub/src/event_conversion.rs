//! Conversion between the two APIs of events, `v1` and `events.k8s.io/v1`.
//!
//! Pure. Events are stored as `v1`; the router converts requests and responses of the other API.

use serde_json::Value;

use crate::kind_registry::ResourceKind;

/// Fields with different names: in `events.k8s.io/v1`, in `v1`.
const FIELD_NAMES: &[(&str, &str)] = &[
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
    ("reportingController", "reportingComponent"),
];

/// Whether a kind is the API whose form is not stored.
pub(crate) fn is_events_v1(kind: &ResourceKind) -> bool {
    kind.built_in && kind.group == "events.k8s.io" && kind.kind == "Event"
}

/// Converts to `v1`. An object that is already `v1` is unchanged.
pub(crate) fn to_core_v1(event: &mut Value) {
    rename_fields(event, "v1", FIELD_NAMES.iter().copied());
}

/// Converts to `events.k8s.io/v1`.
pub(crate) fn to_events_v1(event: &mut Value) {
    let names = FIELD_NAMES.iter().map(|(other, stored)| (*stored, *other));
    rename_fields(event, "events.k8s.io/v1", names);
}

fn rename_fields<'a>(
    event: &mut Value,
    version: &str,
    names: impl Iterator<Item = (&'a str, &'a str)>,
) {
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
    fn conversion_round_trips() {
        let other = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "regarding": {"name": "a"},
            "note": "n", "reportingController": "c", "reason": "r",
        });
        let stored = json!({
            "apiVersion": "v1", "kind": "Event", "involvedObject": {"name": "a"},
            "message": "n", "reportingComponent": "c", "reason": "r",
        });
        let mut event = other.clone();
        to_core_v1(&mut event);
        assert_eq!(event, stored);
        to_core_v1(&mut event);
        assert_eq!(event, stored);
        to_events_v1(&mut event);
        assert_eq!(event, other);
    }
}
