//! The Node config of a cluster: cgroup version and latency profile, in a MachineConfig (97) for
//! every pool.

use super::base::{BaseError, KubeletSources, base_configuration, status_update_seconds};
use super::reconcile::mark_profile;
use crate::api::names::object;
use crate::generated_config::{GeneratedConfig, machine_config};

/// Kernel arguments for cgroup v1, which is no longer supported.
const VERSION_1: [&str; 2] =
    ["systemd.unified_cgroup_hierarchy=0", "systemd.legacy_systemd_cgroup_controller=1"];
/// Kernel arguments for cgroup v2.
const VERSION_2: [&str; 2] = ["systemd.unified_cgroup_hierarchy=1", "cgroup_no_v1=\"all\""];

/// Why the Node config cannot be applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodeConfigError {
    /// The pool has no base configuration.
    #[error(transparent)]
    Base(#[from] BaseError),
    /// Unknown latency profile.
    #[error(
        "unknown worker latency profile type found {0}, failed to update the original kubelet \
         configuration (Node cluster, spec.workerLatencyProfile: use Default, \
         MediumUpdateAverageReaction or LowUpdateSlowReaction)"
    )]
    LatencyProfile(String),
    /// Unknown cgroup mode.
    #[error(
        "unknown cgroup mode found {0}, failed to update the machine config resource (Node \
         cluster, spec.cgroupMode: use v2 or leave it out)"
    )]
    CgroupMode(String),
}

/// The MachineConfig that the Node config generates for a pool. `present` are the kernel arguments it
/// already has.
///
/// # Errors
/// The settings are invalid, or the pool has no base configuration.
pub fn node_config(
    sources: &KubeletSources<'_>,
    pool: &str,
    present: &[String],
) -> Result<GeneratedConfig, NodeConfigError> {
    let profile = sources.node.and_then(|node| node.spec.worker_latency_profile.as_deref());
    if let Some(unknown) =
        profile.filter(|it| !it.is_empty() && status_update_seconds(it).is_none())
    {
        return Err(NodeConfigError::LatencyProfile(unknown.to_owned()));
    }
    let config = base_configuration(sources, pool)?;
    let name = format!("97-{pool}-generated-kubelet");
    let mut machine_config = machine_config(&name, pool, &[config.to_file()]);
    mark_profile(&mut machine_config, sources);
    let built_in = [object::POOL_WORKER, object::POOL_MASTER, object::POOL_ARBITER];
    if built_in.contains(&pool) {
        let mode = sources.node.and_then(|node| node.spec.cgroup_mode.as_deref());
        machine_config.spec.kernel_arguments =
            Some(kernel_arguments(mode.unwrap_or_default(), present)?);
    }
    Ok(GeneratedConfig {
        machine_config,
        from: vec!["Node cluster".to_owned()],
        warnings: Vec::new(),
    })
}

fn kernel_arguments(mode: &str, present: &[String]) -> Result<Vec<String>, NodeConfigError> {
    if !matches!(mode, "" | "v2") {
        return Err(NodeConfigError::CgroupMode(mode.to_owned()));
    }
    let mut arguments: Vec<String> =
        present.iter().filter(|given| !VERSION_1.contains(&given.as_str())).cloned().collect();
    for wanted in VERSION_2 {
        if !arguments.iter().any(|given| given == wanted) {
            arguments.push(wanted.to_owned());
        }
    }
    Ok(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_cgroup_v2_is_supported() {
        let arguments = |mode: &str, present: &[&str]| {
            let present: Vec<String> = present.iter().map(|&given| given.to_owned()).collect();
            kernel_arguments(mode, &present).map(|arguments| arguments.join(" "))
        };
        let both = "systemd.unified_cgroup_hierarchy=1 cgroup_no_v1=\"all\"";
        assert_eq!(arguments("", &[]).unwrap(), both);
        assert_eq!(arguments("v2", &VERSION_2).unwrap(), both);
        assert_eq!(
            arguments("v2", &["a=b", VERSION_1[0], VERSION_1[1], "cgroup_no_v1=\"all\""]).unwrap(),
            "a=b cgroup_no_v1=\"all\" systemd.unified_cgroup_hierarchy=1"
        );
        assert!(
            arguments("v1", &[])
                .unwrap_err()
                .to_string()
                .starts_with("unknown cgroup mode found v1")
        );
    }
}
