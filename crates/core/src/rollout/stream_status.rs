//! The OS image stream in a pool's status.

use crate::api::names::condition::pool as condition;
use crate::api::{
    Condition, MachineConfigPoolStatus, OSImageStream, OSImageStreamReference, find_condition,
};

/// The stream whose image all machines of a pool run. `None` while they run different images, or if
/// an administrator set the image. `image_of` returns the image of a MachineConfig.
#[must_use]
pub fn stream_of(
    status: &MachineConfigPoolStatus,
    image_of: impl Fn(&str) -> Option<String>,
    streams: Option<&OSImageStream>,
) -> Option<OSImageStreamReference> {
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let is = |type_| find_condition(conditions, type_).is_some_and(Condition::is_true);
    if !is(condition::UPDATED) || is(condition::DEGRADED) {
        return None;
    }
    let there = streams?.status.as_ref()?.available_streams.as_deref()?;
    let configuration = status.configuration.as_ref()?;
    let image_of = |name: &str| image_of(name).filter(|image| !image.is_empty());
    let mut sources = configuration.source.iter().flatten();
    if sources.any(|source| source.name.as_deref().and_then(image_of).is_some()) {
        return None;
    }
    let image = image_of(configuration.name.as_deref()?)?;
    let stream = there.iter().find(|stream| stream.os_image == image)?;
    Some(OSImageStreamReference { name: stream.name.clone(), ..OSImageStreamReference::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_stream_is_reported_if_all_machines_run_it_without_override() {
        let streams: OSImageStream = serde_json::from_value(json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "OSImageStream",
            "metadata": {"name": "cluster"}, "spec": {"defaultStream": "a"},
            "status": {"defaultStream": "a", "availableStreams": [
                {"name": "a", "osImage": "q.io/a", "osExtensionsImage": "q.io/ax"},
                {"name": "b", "osImage": "q.io/b", "osExtensionsImage": "q.io/bx"},
            ]},
        }))
        .unwrap();
        let status = |updated: bool, degraded: bool, source: &str| -> MachineConfigPoolStatus {
            let condition = |type_: &str, is: bool| -> Value {
                json!({"type": type_, "status": if is { "True" } else { "False" }})
            };
            serde_json::from_value(json!({
                "conditions": [condition("Updated", updated), condition("Degraded", degraded)],
                "configuration": {"name": "rendered", "source": [{"name": source}]},
            }))
            .unwrap()
        };
        let cases = [
            (true, false, "00-worker", "q.io/b", Some("b")),
            (false, false, "00-worker", "q.io/b", None),
            (true, true, "00-worker", "q.io/b", None),
            (true, false, "50-own", "q.io/b", None),
            (true, false, "00-worker", "q.io/own", None),
            (true, false, "00-worker", "", None),
        ];
        for (updated, degraded, source, image, expected) in cases {
            let image_of = |name: &str| match name {
                "rendered" => Some(image.to_owned()),
                "50-own" => Some("q.io/b".to_owned()),
                _ => None,
            };
            let status = status(updated, degraded, source);
            let found = stream_of(&status, image_of, Some(&streams)).map(|it| it.name);
            assert_eq!(found.as_deref(), expected, "{updated} {degraded} {source} {image}");
            assert_eq!(stream_of(&status, image_of, None), None);
        }
    }
}
