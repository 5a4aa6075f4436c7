//! What the rules need to know about pools and nodes: membership, limits and node state.

use serde_json::Value;

/// A node as the rules see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NodeView {
    pub(super) current: String,
    pub(super) desired: String,
    pub(super) state: String,
    pub(super) ready: bool,
}

impl NodeView {
    pub(super) fn from_node(node: &Value) -> Self {
        let annotation = |key: &str| {
            let key = format!("machineconfiguration.openshift.io/{key}");
            node["metadata"]["annotations"][key].as_str().unwrap_or_default().to_owned()
        };
        let conditions = node["status"]["conditions"].as_array();
        let ready = conditions.is_some_and(|conditions| {
            conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True")
        });
        let schedulable = node["spec"]["unschedulable"] != true;
        Self {
            current: annotation("currentConfig"),
            desired: annotation("desiredConfig"),
            state: annotation("state"),
            ready: ready && schedulable,
        }
    }

    /// Whether an update makes it unavailable. One that is stuck on an older target does not count: it may be left
    /// behind.
    pub(super) fn is_updating(&self, target: &str) -> bool {
        let settled = self.current == self.desired && self.state == "Done";
        let failing = self.current != self.desired
            && matches!(self.state.as_str(), "Degraded" | "Unreconcilable");
        !(settled || failing && self.desired != target)
    }
}

/// The pool that a node belongs to: a custom pool takes precedence over worker, and master over all.
pub(super) fn primary_pool<'a>(
    node: &Value,
    pools: impl Iterator<Item = &'a Value>,
) -> Option<String> {
    let labels = &node["metadata"]["labels"];
    let matching = pools.filter(|pool| selector_matches(&pool["spec"]["nodeSelector"], labels));
    let mut names: Vec<_> =
        matching.filter_map(|pool| pool["metadata"]["name"].as_str().map(str::to_owned)).collect();
    names.sort_by_key(|name| match name.as_str() {
        "master" => 0,
        "worker" => 2,
        _ => 1,
    });
    names.into_iter().next()
}

/// Whether a label selector matches. An empty one matches nothing here.
fn selector_matches(selector: &Value, labels: &Value) -> bool {
    let equal = selector["matchLabels"].as_object();
    let expressions = selector["matchExpressions"].as_array();
    if equal.is_none_or(serde_json::Map::is_empty) && expressions.is_none_or(Vec::is_empty) {
        return false;
    }
    let holds = |expression: &Value| {
        let value = labels.get(expression["key"].as_str().unwrap_or_default());
        let listed = expression["values"]
            .as_array()
            .is_some_and(|values| value.is_some_and(|value| values.contains(value)));
        match expression["operator"].as_str() {
            Some("In") => listed,
            Some("NotIn") => !listed,
            Some("Exists") => value.is_some(),
            Some("DoesNotExist") => value.is_none(),
            _ => false,
        }
    };
    equal.into_iter().flatten().all(|(key, value)| labels.get(key) == Some(value))
        && expressions.into_iter().flatten().all(holds)
}

/// How many nodes of a pool may be unavailable at once.
pub(super) fn max_unavailable(pool: &Value, nodes: usize) -> usize {
    let limit = &pool["spec"]["maxUnavailable"];
    let percent = limit.as_str().and_then(|text| text.strip_suffix('%'));
    let number = match percent.and_then(|text| text.parse::<usize>().ok()) {
        Some(percent) => nodes * percent / 100,
        None => limit.as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(1),
    };
    number.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn limits_are_numbers_or_percentages_rounded_down_and_at_least_one() {
        let limit = |value: Value| max_unavailable(&json!({"spec": {"maxUnavailable": value}}), 4);
        assert_eq!(limit(Value::Null), 1);
        assert_eq!(limit(json!(2)), 2);
        assert_eq!(limit(json!(0)), 1);
        assert_eq!(limit(json!("60%")), 2);
    }

    #[test]
    fn a_custom_pool_takes_precedence_over_worker_and_master_over_all() {
        let pool = |name: &str| {
            let key = format!("node-role/{name}");
            json!({"metadata": {"name": name}, "spec": {"nodeSelector": {"matchLabels": {key: ""}}}})
        };
        let pools = [pool("worker"), pool("infra"), pool("master")];
        let of = |roles: &[&str]| {
            let labels: serde_json::Map<_, _> =
                roles.iter().map(|role| (format!("node-role/{role}"), json!(""))).collect();
            primary_pool(&json!({"metadata": {"labels": labels}}), pools.iter())
        };
        assert_eq!(of(&["worker", "infra"]).as_deref(), Some("infra"));
        assert_eq!(of(&["infra", "master"]).as_deref(), Some("master"));
        assert_eq!(of(&[]), None);
    }
}
