//! The order in which a new release reaches the components: the controller, then the server, then
//! the daemons.

use serde_json::Value;

use super::RELEASE_ANNOTATION;

/// The components, in the order in which they get a new release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OperatorComponent {
    /// Renders and rolls out configs.
    Controller,
    /// Serves configs to new machines.
    Server,
    /// Runs on every machine.
    Daemon,
}

impl OperatorComponent {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Controller, Self::Server, Self::Daemon];

    /// The name of its object.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Controller => "machine-config-controller",
            Self::Server => "machine-config-server",
            Self::Daemon => "machine-config-daemon",
        }
    }

    /// The kind of its object.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            Self::Controller => "Deployment",
            Self::Server | Self::Daemon => "DaemonSet",
        }
    }
}

/// The state of a component.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ComponentStatus {
    /// Its release; `None` if it does not exist or its release is unknown.
    pub release: Option<String>,
    /// Whether it exists.
    pub present: bool,
    /// Why it is not ready, if it is not.
    pub not_ready_reason: Option<String>,
    /// How many of its pods are available.
    pub available: i64,
}

impl ComponentStatus {
    /// Reads the state from the component's object, if there is one.
    #[must_use]
    pub fn from_object(part: OperatorComponent, object: Option<&Value>) -> Self {
        let Some(object) = object else {
            let waits =
                format!("{} {} does not exist yet", part.kind().to_lowercase(), part.name());
            return Self { not_ready_reason: Some(waits), ..Self::default() };
        };
        let release =
            object["metadata"]["annotations"][RELEASE_ANNOTATION].as_str().map(str::to_owned);
        let (waits, available) = match part {
            OperatorComponent::Controller => deployment(part.name(), object),
            OperatorComponent::Server | OperatorComponent::Daemon => {
                daemon_set(part.name(), object)
            }
        };
        Self { release, present: true, not_ready_reason: waits, available }
    }

    /// Whether the component has the release and is ready.
    #[must_use]
    pub fn is_rolled_out(&self, release: &str) -> bool {
        self.release.as_deref() == Some(release) && self.not_ready_reason.is_none()
    }
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or_default()
}

fn is_observed(object: &Value) -> bool {
    number(&object["status"]["observedGeneration"]) >= number(&object["metadata"]["generation"])
}

fn deployment(name: &str, object: &Value) -> (Option<String>, i64) {
    let status = &object["status"];
    let wanted = object["spec"]["replicas"].as_i64().unwrap_or(1);
    let (replicas, updated) = (number(&status["replicas"]), number(&status["updatedReplicas"]));
    let (ready, available) =
        (number(&status["readyReplicas"]), number(&status["availableReplicas"]));
    let is_ready =
        is_observed(object) && updated == wanted && replicas == wanted && available == wanted;
    let waits = (!is_ready).then(|| {
        format!(
            "deployment {name} is not ready. status: (replicas: {replicas}, updated: {updated}, ready: {ready}, unavailable: {})",
            (wanted - available).max(0)
        )
    });
    (waits, available)
}

fn daemon_set(name: &str, object: &Value) -> (Option<String>, i64) {
    let status = &object["status"];
    let desired = number(&status["desiredNumberScheduled"]);
    let (updated, ready) =
        (number(&status["updatedNumberScheduled"]), number(&status["numberReady"]));
    let available = number(&status["numberAvailable"]);
    let is_ready = is_observed(object) && updated == desired && available == desired;
    let waits = (!is_ready).then(|| {
        format!(
            "daemonset {name} is not ready. status: (desired: {desired}, updated: {updated}, ready: {ready}, unavailable: {})",
            (desired - available).max(0)
        )
    });
    (waits, available)
}

/// The desired components that may be written now, in order.
///
/// A missing component is created, and one of this release is repaired, whatever the others do. But
/// a component of another release waits until all components before it have this one and are ready.
#[must_use]
pub fn updatable_components(
    parts: &[(OperatorComponent, ComponentStatus)],
    release: &str,
) -> Vec<OperatorComponent> {
    let mut writable = Vec::new();
    let mut earlier_are_done = true;
    for (part, seen) in parts {
        let is_upgrade = seen.present && seen.release.as_deref() != Some(release);
        if !is_upgrade || earlier_are_done {
            writable.push(*part);
        }
        earlier_are_done &= seen.is_rolled_out(release);
    }
    writable
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn seen(release: Option<&str>, ready: bool) -> ComponentStatus {
        let waits = (!ready).then(|| "no".to_owned());
        ComponentStatus {
            release: release.map(str::to_owned),
            present: release.is_some(),
            not_ready_reason: waits,
            available: 0,
        }
    }

    fn asked(all: [(Option<&str>, bool); 3]) -> Vec<OperatorComponent> {
        let seen = all.map(|(release, ready)| seen(release, ready));
        let parts: Vec<_> = OperatorComponent::ALL.into_iter().zip(seen).collect();
        updatable_components(&parts, "2")
    }

    #[test]
    fn the_controller_is_updated_first_then_the_server_then_the_daemons() {
        use OperatorComponent::{Controller, Daemon, Server};
        let old = (Some("1"), true);
        for (why, all, expected) in [
            ("nothing exists", [(None, false); 3], vec![Controller, Server, Daemon]),
            ("all are old", [old; 3], vec![Controller]),
            ("the controller is rolling out", [(Some("2"), false), old, old], vec![Controller]),
            (
                "the controller is rolled out",
                [(Some("2"), true), old, old],
                vec![Controller, Server],
            ),
            (
                "the server too",
                [(Some("2"), true), (Some("2"), true), old],
                vec![Controller, Server, Daemon],
            ),
            (
                "one was deleted meanwhile",
                [(Some("2"), false), old, (None, false)],
                vec![Controller, Daemon],
            ),
            (
                "a repair waits for nobody",
                [(Some("2"), false), (Some("2"), true), (Some("2"), false)],
                vec![Controller, Server, Daemon],
            ),
        ] {
            assert_eq!(asked(all), expected, "{why}");
        }
    }

    proptest! {
        #[test]
        fn no_component_gets_a_new_release_before_the_previous_one(states in proptest::array::uniform3((0u8..3, any::<bool>()))) {
            let all = states.map(|(release, ready)| ([None, Some("1"), Some("2")][usize::from(release)], ready));
            let writable = asked(all);
            for (index, part) in OperatorComponent::ALL.iter().enumerate() {
                let is_upgrade = all[index].0 == Some("1");
                let ahead = all[..index].iter().all(|(release, ready)| *release == Some("2") && *ready);
                prop_assert_eq!(writable.contains(part), !is_upgrade || ahead);
            }
        }
    }

    #[test]
    fn readiness_is_read_from_the_status() {
        let mut object = json!({
            "metadata": {"generation": 2, "annotations": {RELEASE_ANNOTATION: "2"}}, "spec": {"replicas": 2},
            "status": {"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 2},
        });
        assert!(
            ComponentStatus::from_object(OperatorComponent::Controller, Some(&object))
                .is_rolled_out("2")
        );
        object["status"]["availableReplicas"] = 1.into();
        let waits = ComponentStatus::from_object(OperatorComponent::Controller, Some(&object))
            .not_ready_reason
            .unwrap();
        assert!(waits.ends_with("(replicas: 2, updated: 2, ready: 2, unavailable: 1)"), "{waits}");
        object["status"] = json!({"observedGeneration": 2, "desiredNumberScheduled": 0});
        assert!(
            ComponentStatus::from_object(OperatorComponent::Server, Some(&object))
                .is_rolled_out("2"),
            "no machines, nothing to wait for"
        );
        object["status"]["observedGeneration"] = 1.into();
        assert!(
            ComponentStatus::from_object(OperatorComponent::Daemon, Some(&object))
                .not_ready_reason
                .is_some()
        );
        assert!(
            ComponentStatus::from_object(OperatorComponent::Daemon, None)
                .not_ready_reason
                .unwrap()
                .contains("does not exist")
        );
    }
}
