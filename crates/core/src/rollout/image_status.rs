//! The conditions of a pool about its layered image.

use crate::api::MachineConfigPool;
use crate::api::names::condition::pool as condition;

use super::image_layering::{self, BuildProgress, PoolLayering};
use super::pool_status::PoolConditions;

/// Sets the conditions for the progress of a layered image.
pub(super) fn image_progress(
    conditions: &mut PoolConditions<'_>,
    layering: &PoolLayering<'_>,
    pool: &MachineConfigPool,
    all_updated: bool,
) {
    let Some(config) = layering.config else { return };
    let of_config = config.metadata.name.as_deref().unwrap_or_default();
    let of_build = layering.build.and_then(|build| build.metadata.name.as_deref());
    let of_build = of_build.unwrap_or_default();
    let progress = layering.build.map(image_layering::build_progress);
    let paused = pool.spec.paused == Some(true);
    let degraded = [
        condition::RENDER_DEGRADED,
        condition::NODE_DEGRADED,
        condition::PINNED_IMAGE_SETS_DEGRADED,
    ];
    if !paused && degraded.iter().any(|type_| conditions.is_true(type_)) {
        let message = "Pool update paused due to degraded condition";
        return conditions.set(condition::UPDATING, false, "", message);
    }
    let (updating, text) = match (paused, progress) {
        (false, None) => (true, "is waiting for a new OS image build to start"),
        (false, Some(BuildProgress::Prepared | BuildProgress::Initial)) => {
            (true, "is waiting for OS image build to start")
        }
        (false, Some(BuildProgress::Building)) => {
            (true, "is waiting for OS image build to complete")
        }
        (false, Some(BuildProgress::Succeeded)) if all_updated => return,
        (false, Some(BuildProgress::Succeeded)) => (true, "is waiting for nodes to apply OS image"),
        (false, Some(BuildProgress::Failed)) => {
            (false, "update stopped due to OS image build failure")
        }
        (false, Some(BuildProgress::Interrupted)) => {
            (false, "update stopped due to OS image build being interrupted")
        }
        (true, None) => (true, "is paused; waiting for a new OS image build to start"),
        (true, Some(BuildProgress::Prepared)) => {
            (true, "is paused; OS image build has been prepared but will not rollout")
        }
        (true, Some(BuildProgress::Building)) => (true, "is paused; OS image build in progress"),
        (true, Some(BuildProgress::Succeeded)) => {
            (false, "is paused; OS image build completed successfully")
        }
        (true, Some(BuildProgress::Failed)) => (false, "is paused; OS image build failed"),
        (true, Some(BuildProgress::Interrupted)) => {
            (false, "is paused; OS image build was interrupted")
        }
        (true, Some(BuildProgress::Initial)) => {
            (true, "is paused; OS image build has been created but not yet started")
        }
    };
    let about = match progress {
        None => format!("mosc: {of_config}"),
        Some(_) => format!("mosb: {of_build}"),
    };
    conditions.set(condition::UPDATING, updating, "", &format!("Pool {text} ({about})"));
}

/// Clears the build failure when a newer state is known. Returns whether the failure persists.
pub(super) fn image_degradation(
    conditions: &mut PoolConditions<'_>,
    layering: &PoolLayering<'_>,
) -> bool {
    let is_degraded = conditions.is_true(condition::IMAGE_BUILD_DEGRADED);
    let (reason, message) =
        match (layering.build.map(image_layering::build_progress), layering.config) {
            (Some(BuildProgress::Building | BuildProgress::Prepared), _) => {
                (condition::BUILDING, "New build started")
            }
            (Some(BuildProgress::Succeeded), _) => {
                (condition::BUILD_SUCCESS, "Build completed successfully")
            }
            (Some(_), _) => return is_degraded,
            (None, _) if !is_degraded => return false,
            (None, Some(_)) => (
                condition::BUILD_PENDING,
                "MachineOSConfig updated/created, waiting for MachineOSBuild",
            ),
            // Left over from a time when the pool had a layered image.
            (None, None) => (
                "NoLayeredObjects",
                "No layered pool objects found, clearing stale build degraded condition",
            ),
        };
    conditions.set(condition::IMAGE_BUILD_DEGRADED, false, reason, message);
    false
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;
    use serde_json::{Value, json};

    use crate::api::names::annotation;
    use crate::api::{
        MachineConfigPool, MachineConfigPoolStatus, MachineOSBuild, MachineOSConfig, find_condition,
    };
    use crate::rollout::{PoolLayering, RolloutPolicy, decide_layered_rollout, pool_status_for};

    const IMAGE: &str = "registry.example/os@sha256:aa";

    fn read<T: serde::de::DeserializeOwned>(kind: &str, value: &Value) -> T {
        let mut value = value.clone();
        value["apiVersion"] = "machineconfiguration.openshift.io/v1".into();
        value["kind"] = kind.into();
        serde_json::from_value(value).unwrap()
    }

    fn pool(paused: bool) -> MachineConfigPool {
        read(
            "MachineConfigPool",
            &json!({
                "metadata": {"name": "layered"},
                "spec": {"paused": paused, "configuration": {"name": "rendered-layered-1"}},
            }),
        )
    }

    fn config(image: &str) -> MachineOSConfig {
        read(
            "MachineOSConfig",
            &json!({
                "metadata": {"name": "layered", "annotations": {annotation::CURRENT_MACHINE_OS_BUILD: "b1"}},
                "spec": {"machineConfigPool": {"name": "layered"}},
                "status": {"currentImagePullSpec": image},
            }),
        )
    }

    fn build(name: &str, config: &str, condition: &str) -> MachineOSBuild {
        let conditions = [json!({"type": condition, "status": "True"})];
        read(
            "MachineOSBuild",
            &json!({
                "metadata": {"name": name},
                "spec": {"machineConfig": {"name": config}, "machineOSConfig": {"name": "layered"}},
                "status": {"conditions": conditions, "digestedImagePushSpec": IMAGE},
            }),
        )
    }

    fn node(config: &str, image: Option<&str>) -> Node {
        let mut annotations = json!({
            annotation::CURRENT_CONFIG: config, annotation::DESIRED_CONFIG: config, annotation::STATE: "Done",
        });
        if let Some(image) = image {
            annotations[annotation::CURRENT_IMAGE] = image.into();
            annotations[annotation::DESIRED_IMAGE] = image.into();
        }
        serde_json::from_value(json!({
            "metadata": {"name": "n", "annotations": annotations},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        }))
        .unwrap()
    }

    fn now() -> Time {
        Time(Timestamp::UNIX_EPOCH)
    }

    fn status(
        pool: &MachineConfigPool,
        layering: &PoolLayering<'_>,
        node: &Node,
    ) -> MachineConfigPoolStatus {
        pool_status_for(layering, pool, &[node], &[], None, &now())
    }

    fn updating(status: &MachineConfigPoolStatus) -> String {
        let found = find_condition(status.conditions.as_deref().unwrap_or_default(), "Updating");
        let found = found.unwrap();
        format!("{} {}", found.status, found.message.clone().unwrap_or_default())
    }

    #[test]
    fn every_stage_of_a_build_is_reported() {
        let config = config("");
        for (paused, condition, expected) in [
            (false, "", "True Pool is waiting for a new OS image build to start (mosc: layered)"),
            (false, "Prepared", "True Pool is waiting for OS image build to start (mosb: b1)"),
            (false, "Building", "True Pool is waiting for OS image build to complete (mosb: b1)"),
            (false, "Succeeded", "True Pool is waiting for nodes to apply OS image (mosb: b1)"),
            (false, "Failed", "False Pool update stopped due to OS image build failure (mosb: b1)"),
            (
                false,
                "Interrupted",
                "False Pool update stopped due to OS image build being interrupted (mosb: b1)",
            ),
            (
                true,
                "",
                "True Pool is paused; waiting for a new OS image build to start (mosc: layered)",
            ),
            (true, "Building", "True Pool is paused; OS image build in progress (mosb: b1)"),
            (
                true,
                "Succeeded",
                "False Pool is paused; OS image build completed successfully (mosb: b1)",
            ),
            (true, "Failed", "False Pool is paused; OS image build failed (mosb: b1)"),
        ] {
            let build = build("b1", "rendered-layered-1", condition);
            let builds: &[&MachineOSBuild] = if condition.is_empty() { &[] } else { &[&build] };
            let pool = pool(paused);
            let layering = PoolLayering::for_pool(&pool, &[&config], builds);
            assert_eq!(
                updating(&status(&pool, &layering, &node("rendered-layered-0", None))),
                expected
            );
            assert!(layering.wait_reason().is_some(), "{condition}");
        }
    }

    #[test]
    fn machines_get_the_image_with_its_config_and_then_are_updated() {
        let (config, build) = (config(IMAGE), build("b1", "rendered-layered-1", "Succeeded"));
        let pool = pool(false);
        let layering = PoolLayering::for_pool(&pool, &[&config], &[&build]);
        assert_eq!(layering.wait_reason(), None);
        let old = node("rendered-layered-1", None);
        let goal = layering.target(&pool);
        let decision =
            decide_layered_rollout(goal, &pool, &[&old], &RolloutPolicy::default(), 1, &now());
        assert_eq!(decision.next, ["n"], "the config alone is not enough");
        let new = node("rendered-layered-1", Some(IMAGE));
        let decision =
            decide_layered_rollout(goal, &pool, &[&new], &RolloutPolicy::default(), 1, &now());
        assert!(decision.next.is_empty() && decision.waiting.is_empty());
        let status = status(&pool, &layering, &new);
        assert_eq!(status.updated_machine_count, Some(1));
        let updated = find_condition(status.conditions.as_deref().unwrap_or_default(), "Updated");
        let message =
            format!("All nodes are updated with MachineConfig rendered-layered-1 / Image {IMAGE}");
        assert_eq!(updated.and_then(|c| c.message.clone()), Some(message));
    }

    #[test]
    fn a_build_for_another_config_does_not_count() {
        let config = config(IMAGE);
        let stale = build("b1", "rendered-layered-0", "Succeeded");
        let fresh = build("b2", "rendered-layered-1", "Building");
        let pool = pool(false);
        let layering = PoolLayering::for_pool(&pool, &[&config], &[&stale, &fresh]);
        assert_eq!(layering.wait_reason().as_deref(), Some("Image build in progress"));
        let layering = PoolLayering::for_pool(&pool, &[&config], &[&stale]);
        assert!(layering.build.is_none());
    }

    #[test]
    fn a_pool_that_leaves_image_mode_removes_the_image_from_its_machines() {
        let pool = pool(false);
        let layered = node("rendered-layered-1", Some(IMAGE));
        let goal = PoolLayering::default().target(&pool);
        let decision =
            decide_layered_rollout(goal, &pool, &[&layered], &RolloutPolicy::default(), 1, &now());
        assert_eq!(decision.next, ["n"]);
    }
}
