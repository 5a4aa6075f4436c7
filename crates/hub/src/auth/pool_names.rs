//! Pools that take machines by the names of their Nodes. A machine that chose such a name would choose its pool, so the
//! hub gives a name only with a token for that pool. Pure; the signer reads the pools.

use std::collections::BTreeSet;

use serde_json::Value;

use super::tokens::{BootstrapBinding, matches_pattern};

/// The annotation of a pool with the names. `core::api::NodeNamePatterns` reads it, too; a test compares.
pub const NODE_NAMES_ANNOTATION: &str = "machinist.dev/node-names";
/// What is longer is refused by the controller, and takes no machine.
const MAX_BYTES: usize = 4096;

/// Whether a pool takes a machine by its name.
#[must_use]
pub fn takes_name(pool: &Value, name: &str) -> bool {
    let names = pool["metadata"]["annotations"][NODE_NAMES_ANNOTATION].as_str();
    let separator = |letter: char| letter == ',' || letter.is_whitespace();
    names.filter(|names| names.len() <= MAX_BYTES).is_some_and(|names| {
        let mut patterns = names.split(separator).filter(|pattern| !pattern.is_empty());
        patterns.any(|pattern| matches_pattern(pattern, name))
    })
}

/// Why a token does not give a machine its name: pools that the token is not for would take the machine by it. A token
/// that names this one machine is an administrator's choice.
#[must_use]
pub fn refused_name(
    binding: &BootstrapBinding,
    name: &str,
    pools: &BTreeSet<String>,
) -> Option<String> {
    let own = binding.replaces.as_deref().or(binding.node_names.as_deref());
    let is_named = own == Some(name);
    let pool = pools.iter().find(|pool| !binding.pools.contains(*pool))?;
    if is_named || binding.pools.is_empty() {
        return None;
    }
    let own: Vec<&str> = binding.pools.iter().map(String::as_str).collect();
    Some(format!(
        "the pool {pool} takes machines that are named like {name} ({NODE_NAMES_ANNOTATION}), and the token is for pool {}: choose another name with join --node-name, or create a token with machinist hub token --role bootstrap --pool {pool}",
        own.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn which_names_a_pool_takes() {
        for (annotation, name, expected) in [
            (json!("edge-*"), "edge-1", true),
            (json!("edge-*, core-1"), "core-1", true),
            (json!("edge-*"), "core-1", false),
            (json!(""), "edge-1", false),
            (json!(7), "7", false),
            (json!("edge-1 ".repeat(1000)), "edge-1", false),
            (Value::Null, "edge-1", false),
        ] {
            let pool = json!({"metadata": {"annotations": {NODE_NAMES_ANNOTATION: annotation}}});
            assert_eq!(takes_name(&pool, name), expected, "{annotation:.20} {name}");
        }
        assert!(!takes_name(&Value::Null, "a"));
    }

    /// A machine chooses its name. It must not choose its pool with it.
    #[test]
    fn a_name_that_decides_the_pool_needs_a_token_for_the_pool() {
        let of =
            |pools: &[&str], node_names: Option<&str>, replaces: Option<&str>| BootstrapBinding {
                pools: set(pools),
                node_names: node_names.map(str::to_owned),
                replaces: replaces.map(str::to_owned),
                ..BootstrapBinding::default()
            };
        let edge = &["edge"][..];
        for (binding, taken_by, is_refused) in [
            (of(&["worker"], None, None), &[][..], false),
            (of(&["worker"], None, None), edge, true),
            (of(&["worker"], Some("edge-*"), None), edge, true),
            (of(&["worker", "edge"], None, None), edge, false),
            (of(&["edge"], None, None), edge, false),
            (of(&["edge"], None, None), &["edge", "infra"], true),
            // An administrator chose the name, or trusts the token with every pool.
            (of(&["worker"], Some("edge-1"), None), edge, false),
            (of(&["worker"], None, Some("edge-1")), edge, false),
            (of(&[], None, None), edge, false),
        ] {
            let found = refused_name(&binding, "edge-1", &set(taken_by));
            assert_eq!(found.is_some(), is_refused, "{binding:?} {taken_by:?}: {found:?}");
        }
        let text = refused_name(&of(&["worker"], None, None), "edge-1", &set(edge)).unwrap();
        assert!(text.contains("--pool edge") && text.contains("for pool worker"), "{text}");
    }
}
