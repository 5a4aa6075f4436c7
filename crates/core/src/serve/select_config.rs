//! Selects the MachineConfig and the image for new machines of a pool.

use crate::api::{
    MachineConfigPool, MachineOSBuild, MachineOSConfig, MachineOSConfigStatus, PoolConfiguration,
    find_condition,
};

/// The MachineConfig for new machines of a pool. Once a machine has the desired config, it is known
/// to work and new machines get it; until then, they get the previous one.
#[must_use]
pub fn config_name(pool: &MachineConfigPool) -> Option<&str> {
    let wanted = configuration_name(pool.spec.configuration.as_ref());
    let status = pool.status.as_ref();
    let all_had = configuration_name(status.and_then(|status| status.configuration.as_ref()));
    // The name of the status field in its first version.
    let of_old = status.and_then(|status| status.other.get("currentMachineConfig"));
    let of_old = of_old.and_then(|name| name.as_str()).filter(|name| !name.is_empty());
    match has_updated_machine(pool) {
        true => wanted.or(all_had),
        false => all_had.or(of_old),
    }
}

fn configuration_name(configuration: Option<&PoolConfiguration>) -> Option<&str> {
    configuration?.name.as_deref().filter(|name| !name.is_empty())
}

/// Whether a machine of the pool has the desired config.
fn has_updated_machine(pool: &MachineConfigPool) -> bool {
    let status = pool.status.as_ref();
    status.and_then(|status| status.updated_machine_count).is_some_and(|count| count > 0)
}

/// The image that was built for a pool and that a new machine can boot right away. The caller must
/// also check whether a new machine can pull it: see [`is_internal`].
#[must_use]
pub fn built_image<'a>(
    pool: &MachineConfigPool,
    config_name: &str,
    os_configs: impl IntoIterator<Item = &'a MachineOSConfig>,
    builds: impl IntoIterator<Item = &'a MachineOSBuild>,
) -> Option<&'a str> {
    let pool_name = pool.metadata.name.as_deref()?;
    let is_of_pool = |config: &&MachineOSConfig| {
        config.spec.machine_config_pool.as_ref().is_some_and(|it| it.name == pool_name)
    };
    let os_config = os_configs.into_iter().find(is_of_pool)?;
    let image = image_of(os_config.status.as_ref())?;
    let os_config_name = os_config.metadata.name.as_deref()?;
    let is_of_config = |build: &&MachineOSBuild| {
        let spec = &build.spec;
        spec.machine_os_config.as_ref().is_some_and(|it| it.name == os_config_name)
            && spec.machine_config.as_ref().is_some_and(|it| it.name == config_name)
    };
    let build = builds.into_iter().find(is_of_config)?;
    let conditions = build.status.as_ref()?.conditions.as_deref()?;
    let has_succeeded = find_condition(conditions, "Succeeded")?.is_true();
    (has_succeeded && has_updated_machine(pool)).then_some(image)
}

fn image_of(status: Option<&MachineOSConfigStatus>) -> Option<&str> {
    status?.current_image_pull_spec.as_deref().filter(|image| !image.is_empty())
}

/// Whether an image is in the cluster's own registry, which a machine outside the cluster cannot
/// reach.
#[must_use]
pub fn is_internal(image: &str, hosts: &[String]) -> bool {
    hosts.iter().any(|host| !host.is_empty() && image.starts_with(host.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pool(spec: &Value, status: &Value) -> MachineConfigPool {
        let object = json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
            "metadata": {"name": "worker"}, "spec": spec, "status": status,
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn new_machines_get_the_config_that_is_known_to_work() {
        let wants = || json!({"configuration": {"name": "new"}});
        for (spec, status, expected) in [
            (
                wants(),
                json!({"configuration": {"name": "old"}, "updatedMachineCount": 0}),
                Some("old"),
            ),
            (wants(), json!({"configuration": {"name": "old"}}), Some("old")),
            (
                wants(),
                json!({"configuration": {"name": "old"}, "updatedMachineCount": 1}),
                Some("new"),
            ),
            (wants(), json!({}), None),
            (json!({}), json!({"configuration": {"name": ""}}), None),
            (json!({}), json!({"currentMachineConfig": "first"}), Some("first")),
            (
                json!({}),
                json!({"configuration": {"name": "old"}, "currentMachineConfig": "first"}),
                Some("old"),
            ),
        ] {
            let pool = pool(&spec, &status);
            assert_eq!(config_name(&pool), expected, "{spec} {status}");
        }
    }

    #[test]
    fn new_machines_get_the_built_image_of_their_config() {
        let os_config = |image: Value| -> MachineOSConfig {
            serde_json::from_value(json!({
                "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineOSConfig",
                "metadata": {"name": "layered"}, "spec": {"machineConfigPool": {"name": "worker"}},
                "status": {"currentImagePullSpec": image},
            }))
            .unwrap()
        };
        let build = |config: &str, succeeded: &str| -> MachineOSBuild {
            serde_json::from_value(json!({
                "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineOSBuild",
                "metadata": {"name": "b"},
                "spec": {"machineOSConfig": {"name": "layered"}, "machineConfig": {"name": config}},
                "status": {"conditions": [{"type": "Succeeded", "status": succeeded}]},
            }))
            .unwrap()
        };
        let updated = pool(&json!({}), &json!({"updatedMachineCount": 1}));
        let fresh = pool(&json!({}), &json!({"updatedMachineCount": 0}));
        let image = json!("quay.io/os@sha256:1");
        for (pool, os_config, build, expected) in [
            (&updated, Some(os_config(image.clone())), Some(build("c", "True")), true),
            (&updated, None, Some(build("c", "True")), false),
            (&updated, Some(os_config(json!(""))), Some(build("c", "True")), false),
            (&updated, Some(os_config(Value::Null)), Some(build("c", "True")), false),
            (&updated, Some(os_config(image.clone())), None, false),
            (&updated, Some(os_config(image.clone())), Some(build("d", "True")), false),
            (&updated, Some(os_config(image.clone())), Some(build("c", "False")), false),
            (&fresh, Some(os_config(image.clone())), Some(build("c", "True")), false),
        ] {
            let found = built_image(pool, "c", &os_config, &build);
            assert_eq!(found.is_some(), expected, "{os_config:?} {build:?}");
        }
    }

    #[test]
    fn internal_registries() {
        let hosts = ["image-registry.openshift-image-registry.svc:5000".to_owned(), String::new()];
        assert!(is_internal(
            "image-registry.openshift-image-registry.svc:5000/os@sha256:1",
            &hosts
        ));
        assert!(!is_internal("quay.io/os@sha256:1", &hosts));
        assert!(!is_internal("quay.io/os@sha256:1", &[]));
    }
}
