//! Which objects concern a machine, so that it may read them. The model is Kubernetes' node authorizer.
//!
//! A machine writes its own Node, so the Node alone proves nothing: only what an administrator or a controller wrote
//! counts, as the machine's record has it. Pure; `router::visibility` reads record and object.

use serde_json::Value;

use super::machine::MachineRecord;

/// How an object concerns a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeRelation {
    /// It is named like a role of the machine: its pools.
    NamedLikeRole,
    /// Someone other than the machine named it in this annotation of the machine's Node, or it is owned by an object of
    /// this kind that is named like a role of the machine.
    Assigned {
        /// The annotation.
        annotation: &'static str,
        /// The kind of the owner.
        owner_kind: &'static str,
    },
}

impl NodeRelation {
    /// Whether an object concerns a machine. `None` if there is no object of that name.
    #[must_use]
    pub fn holds(self, machine: &MachineRecord, name: &str, object: Option<&Value>) -> bool {
        match self {
            Self::NamedLikeRole => machine.roles.contains(name),
            Self::Assigned { owner_kind, .. } => {
                let owners =
                    object.and_then(|object| object["metadata"]["ownerReferences"].as_array());
                let is_own_pool = |owner: &Value| {
                    owner["kind"] == owner_kind
                        && owner["name"].as_str().is_some_and(|name| machine.roles.contains(name))
                };
                machine.assigned.iter().any(|assigned| assigned == name)
                    || owners.is_some_and(|owners| owners.iter().any(is_own_pool))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_machine_sees_what_it_was_assigned_and_what_its_pools_own() {
        let relation = NodeRelation::Assigned { annotation: "g/desired", owner_kind: "Pool" };
        let machine = MachineRecord {
            roles: ["worker".to_owned()].into(),
            assigned: vec!["mine".into()],
            ..MachineRecord::default()
        };
        let owned = |kind: &str, name: &str| json!({"metadata": {"ownerReferences": [{"kind": kind, "name": name}]}});
        let table = [
            ("mine", None, true),
            ("other", None, false),
            ("other", Some(json!({"metadata": {}})), false),
            ("other", Some(owned("Pool", "worker")), true),
            ("other", Some(owned("Pool", "master")), false),
            ("other", Some(owned("Node", "worker")), false),
        ];
        for (name, object, expected) in table {
            assert_eq!(
                relation.holds(&machine, name, object.as_ref()),
                expected,
                "{name} {object:?}"
            );
        }
        assert!(NodeRelation::NamedLikeRole.holds(&machine, "worker", None));
        assert!(!NodeRelation::NamedLikeRole.holds(&machine, "master", None));
    }
}
