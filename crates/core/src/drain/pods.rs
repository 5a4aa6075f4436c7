//! Which pods a drain evicts: the same as `kubectl drain --ignore-daemonsets` with the flags of the pool, which are
//! `--force --delete-emptydir-data` unless it says otherwise.

use std::collections::BTreeSet;
use std::fmt;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::Serialize;

use super::flags::DrainFlags;

/// The annotation of mirror pods, which represent static pods of the kubelet.
const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

/// A pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct PodRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Distinguishes it from a later pod of the same name.
    pub uid: String,
}

impl PodRef {
    /// The reference to a pod.
    #[must_use]
    pub fn of(pod: &Pod) -> Self {
        Self {
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            name: pod.metadata.name.clone().unwrap_or_default(),
            uid: pod.metadata.uid.clone().unwrap_or_default(),
        }
    }
}

impl fmt::Display for PodRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A DaemonSet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct DaemonSetRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// Why a pod is not evicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum SkipReason {
    /// Its DaemonSet would recreate it at once.
    DaemonSet,
    /// It is a static pod of the kubelet.
    Mirror,
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DaemonSet => "belongs to a DaemonSet",
            Self::Mirror => "is run by the kubelet itself",
        })
    }
}

/// Why a pod may not be evicted, so that the machine is not drained at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum PodRefusal {
    /// It has an `emptyDir`, whose data would be lost.
    LocalData,
    /// Nothing would recreate it.
    NoController,
}

impl fmt::Display for PodRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LocalData => {
                "it has an emptyDir, whose data would be lost: delete the pod, or add --delete-emptydir-data to machinist.dev/drain-flags of the pool"
            }
            Self::NoController => {
                "it has no controller that would create it again: delete the pod, or add --force to machinist.dev/drain-flags of the pool"
            }
        })
    }
}

/// What happens to the pods of a machine, in input order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DrainPlan {
    /// Evicted; the drain waits until they are gone.
    pub evict: Vec<PodRef>,
    /// Already terminating; the drain waits until they are gone.
    pub wait: Vec<PodRef>,
    /// Neither evicted nor left. While there is one, no pod is evicted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<(PodRef, PodRefusal)>,
    /// Not evicted and not waited for.
    pub leave: Vec<(PodRef, SkipReason)>,
}

impl DrainPlan {
    /// Whether the drain is complete.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.evict.is_empty() && self.wait.is_empty() && self.refused.is_empty()
    }
}

/// The DaemonSets that own pods of this machine. The caller looks them up and passes those that no
/// longer exist to [`plan_drain`].
#[must_use]
pub fn daemon_sets(pods: &[Pod]) -> BTreeSet<DaemonSetRef> {
    pods.iter().filter_map(daemon_set_of).collect()
}

/// Decides what happens to the pods of a machine. A pod whose DaemonSet is in `gone` is evicted:
/// nothing would recreate it.
#[must_use]
pub fn plan_drain(pods: &[Pod], gone: &BTreeSet<DaemonSetRef>, flags: DrainFlags) -> DrainPlan {
    let mut plan = DrainPlan::default();
    for pod in pods {
        let reference = PodRef::of(pod);
        let annotations = pod.metadata.annotations.as_ref();
        if daemon_set_of(pod).is_some_and(|daemon_set| !gone.contains(&daemon_set)) {
            plan.leave.push((reference, SkipReason::DaemonSet));
        } else if annotations.is_some_and(|annotations| annotations.contains_key(MIRROR_ANNOTATION))
        {
            plan.leave.push((reference, SkipReason::Mirror));
        } else if pod.metadata.deletion_timestamp.is_some() {
            plan.wait.push(reference);
        } else if let Some(refusal) = refusal(pod, flags) {
            plan.refused.push((reference, refusal));
        } else {
            plan.evict.push(reference);
        }
    }
    plan
}

fn is_finished(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Why a pod may not be evicted with these flags, in kubectl's order. Nothing is lost with a finished pod.
fn refusal(pod: &Pod, flags: DrainFlags) -> Option<PodRefusal> {
    if is_finished(pod) {
        return None;
    }
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let has_local_data = volumes.into_iter().any(|volume| volume.empty_dir.is_some());
    let owners = pod.metadata.owner_references.iter().flatten();
    let has_controller = owners.into_iter().any(|owner| owner.controller == Some(true));
    match () {
        () if has_local_data && !flags.delete_emptydir_data => Some(PodRefusal::LocalData),
        () if !has_controller && !flags.force => Some(PodRefusal::NoController),
        () => None,
    }
}

/// The DaemonSet that would recreate a pod. `None` for a finished pod.
fn daemon_set_of(pod: &Pod) -> Option<DaemonSetRef> {
    if is_finished(pod) {
        return None;
    }
    let is_daemon_set = |owner: &&OwnerReference| {
        owner.controller == Some(true)
            && owner.kind == "DaemonSet"
            && owner.api_version == "apps/v1"
    };
    let owner = pod.metadata.owner_references.iter().flatten().find(is_daemon_set)?;
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    Some(DaemonSetRef { namespace, name: owner.name.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(name: &str, more: &Value) -> Pod {
        let mut pod = json!({"metadata": {"namespace": "ns", "name": name, "uid": name}});
        for (key, value) in more.as_object().unwrap() {
            if key == "phase" {
                pod["status"] = json!({"phase": value});
            } else if key == "emptyDir" {
                pod["spec"] = json!({"containers": [], "volumes": [{"name": "v", "emptyDir": {}}]});
            } else {
                pod["metadata"][key] = value.clone();
            }
        }
        serde_json::from_value(pod).unwrap()
    }

    fn owner(api_version: &str, kind: &str, controller: bool) -> Value {
        json!([{"apiVersion": api_version, "kind": kind, "name": kind.to_lowercase(),
                "uid": "u", "controller": controller}])
    }

    #[test]
    fn pods_are_evicted_waited_for_or_left() {
        let mirror = json!({MIRROR_ANNOTATION: "hash"});
        let daemon = owner("apps/v1", "DaemonSet", true);
        let deleted = "2026-11-15T00:00:00Z";
        for (more, expected) in [
            (json!({}), "evict"), // without an owner nothing recreates it; that is what --force means
            (json!({"ownerReferences": owner("apps/v1", "ReplicaSet", true)}), "evict"),
            (json!({"emptyDir": true}), "evict"),
            (json!({"phase": "Succeeded"}), "evict"),
            (json!({"phase": "Failed"}), "evict"),
            (json!({"phase": "Pending"}), "evict"),
            (json!({"deletionTimestamp": deleted}), "wait"),
            (json!({"deletionTimestamp": deleted, "phase": "Failed"}), "wait"),
            (json!({"annotations": mirror}), "mirror"),
            (json!({"annotations": mirror, "phase": "Failed"}), "mirror"),
            (json!({"annotations": mirror, "deletionTimestamp": deleted}), "mirror"),
            (json!({"ownerReferences": daemon}), "daemon set"),
            (json!({"ownerReferences": daemon, "deletionTimestamp": deleted}), "daemon set"),
            (json!({"ownerReferences": daemon, "phase": "Failed"}), "evict"),
            (json!({"ownerReferences": owner("apps/v1", "DaemonSet", false)}), "evict"),
            (json!({"ownerReferences": owner("example.com/v1", "DaemonSet", true)}), "evict"),
        ] {
            let plan = plan_drain(&[pod("p", &more)], &BTreeSet::new(), DrainFlags::default());
            let found = match (plan.evict.len(), plan.wait.len(), plan.leave.as_slice()) {
                (1, 0, []) => "evict",
                (0, 1, []) => "wait",
                (0, 0, [(_, SkipReason::Mirror)]) => "mirror",
                (0, 0, [(_, SkipReason::DaemonSet)]) => "daemon set",
                _ => "confused",
            };
            assert_eq!(found, expected, "{more}");
            assert_eq!(plan.is_drained(), !plan.leave.is_empty(), "{more}");
        }
    }

    #[test]
    fn orphans_of_a_daemon_set_are_evicted() {
        let pods = [pod("p", &json!({"ownerReferences": owner("apps/v1", "DaemonSet", true)}))];
        let asked = daemon_sets(&pods);
        let name = DaemonSetRef { namespace: "ns".to_owned(), name: "daemonset".to_owned() };
        assert_eq!(asked, BTreeSet::from([name]));
        let plan = plan_drain(&pods, &asked, DrainFlags::default());
        assert_eq!(plan.evict, [PodRef::of(&pods[0])]);
        assert_eq!(plan.evict[0].to_string(), "ns/p");
    }

    /// As `kubectl drain --ignore-daemonsets` with the same flags.
    #[test]
    fn a_pod_is_evicted_only_with_the_flags_that_it_needs() {
        let owned = owner("apps/v1", "ReplicaSet", true);
        let (none, force) = (DrainFlags::NONE, DrainFlags { force: true, ..DrainFlags::NONE });
        let delete = DrainFlags { delete_emptydir_data: true, ..DrainFlags::NONE };
        let (data, bare) = (Some(PodRefusal::LocalData), Some(PodRefusal::NoController));
        for (more, without, with_force, with_delete) in [
            (json!({"ownerReferences": owned}), None, None, None),
            (json!({"ownerReferences": owned, "emptyDir": true}), data, data, None),
            (json!({}), bare, None, bare),
            (json!({"emptyDir": true}), data, data, bare),
            (json!({"emptyDir": true, "phase": "Succeeded"}), None, None, None),
            (
                json!({"emptyDir": true, "annotations": {MIRROR_ANNOTATION: "hash"}}),
                None,
                None,
                None,
            ),
            (
                json!({"emptyDir": true, "deletionTimestamp": "2026-11-15T00:00:00Z"}),
                None,
                None,
                None,
            ),
            (
                json!({"emptyDir": true, "ownerReferences": owner("apps/v1", "DaemonSet", true)}),
                None,
                None,
                None,
            ),
        ] {
            let pods = [pod("p", &more)];
            for (flags, expected) in [
                (none, without),
                (force, with_force),
                (delete, with_delete),
                (DrainFlags::default(), None),
            ] {
                let plan = plan_drain(&pods, &BTreeSet::new(), flags);
                let found = plan.refused.first().map(|(_, refusal)| *refusal);
                assert_eq!(found, expected, "{more} {flags:?}");
                assert!(found.is_none() || plan.evict.is_empty() && !plan.is_drained());
            }
        }
    }
}
