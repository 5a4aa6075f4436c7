//! Which pods a drain evicts: the same as `kubectl drain --force --ignore-daemonsets
//! --delete-emptydir-data`.

use std::collections::BTreeSet;
use std::fmt;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::Serialize;

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

/// What happens to the pods of a machine, in input order.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DrainPlan {
    /// Evicted; the drain waits until they are gone.
    pub evict: Vec<PodRef>,
    /// Already terminating; the drain waits until they are gone.
    pub wait: Vec<PodRef>,
    /// Not evicted and not waited for.
    pub leave: Vec<(PodRef, SkipReason)>,
}

impl DrainPlan {
    /// Whether the drain is complete.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.evict.is_empty() && self.wait.is_empty()
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
pub fn plan_drain(pods: &[Pod], gone: &BTreeSet<DaemonSetRef>) -> DrainPlan {
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
        } else {
            plan.evict.push(reference);
        }
    }
    plan
}

/// The DaemonSet that would recreate a pod. `None` for a finished pod.
fn daemon_set_of(pod: &Pod) -> Option<DaemonSetRef> {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    if matches!(phase, Some("Succeeded" | "Failed")) {
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
            let plan = plan_drain(&[pod("p", &more)], &BTreeSet::new());
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
        assert_eq!(plan_drain(&pods, &asked).evict, [PodRef::of(&pods[0])]);
        assert_eq!(plan_drain(&pods, &asked).evict[0].to_string(), "ns/p");
    }
}
