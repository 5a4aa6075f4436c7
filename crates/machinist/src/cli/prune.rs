//! `machinist apply --prune`: deletes what an earlier apply created and the manifests no longer contain.

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use http::Method;
use serde_json::{Value, json};

use super::cluster::session::{ClusterSession, ObjectTarget};
use super::delete::confirm_pools;
use super::output;
use crate::kubernetes::ServedResource;
use crate::kubernetes::apply::last_applied;
use crate::kubernetes::request::{ACCEPT_JSON, status_code, with_query};

/// The kinds that are pruned besides those in the manifests: the last one may have been removed.
const KINDS: [&str; 5] = [
    "MachineConfig",
    "MachineConfigPool",
    "KubeletConfig",
    "ContainerRuntimeConfig",
    "PinnedImageSet",
];

/// What is pruned.
pub(super) struct PruneOptions<'a> {
    /// Only objects with these labels; all if empty.
    pub(super) selector: &'a str,
    /// Nothing is deleted.
    pub(super) dry_run: bool,
    /// Pools with machines, too.
    pub(super) yes: bool,
}

/// Deletes the objects that are not among the wanted ones. Returns whether that was done: pools with machines need an
/// answer.
pub(super) async fn prune(
    session: &ClusterSession,
    wanted: &[(ObjectTarget<'_>, Value)],
    options: &PruneOptions<'_>,
) -> Result<bool> {
    let keep: BTreeSet<String> = wanted.iter().map(|(target, _)| target.path()).collect();
    let is_pruned = |resource: &&ServedResource| {
        let is_ours = resource.group == "machineconfiguration.openshift.io"
            && KINDS.contains(&resource.kind.as_str());
        is_ours || wanted.iter().any(|(target, _)| target.resource == *resource)
    };
    let mut surplus = Vec::new();
    for resource in session.resources.0.iter().filter(is_pruned) {
        let path = resource.path(session.namespace_of(resource), None);
        let path = with_query(&path, &[("labelSelector", options.selector)]);
        let list = match session.client.list_as(&path, ACCEPT_JSON).await {
            // A kind that this user may not list was not applied by this user.
            Err(error) if status_code(&error) == Some(403) => continue,
            list => list?,
        };
        let items = list.get("items").and_then(Value::as_array).into_iter().flatten();
        for name in items.filter(|item| was_applied(item)).filter_map(name_of) {
            let target = session.target(resource, name);
            if !keep.contains(&target.path()) {
                surplus.push(target);
            }
        }
    }
    if !options.yes && !options.dry_run && !confirm_pools(session, &surplus).await? {
        return Ok(false);
    }
    for target in &surplus {
        delete(session, target, options.dry_run).await?;
    }
    Ok(true)
}

/// Whether `machinist apply` or `kubectl apply` made an object, and nobody is deleting it.
fn was_applied(object: &Value) -> bool {
    last_applied(object).is_some() && object.pointer("/metadata/deletionTimestamp").is_none()
}

fn name_of(object: &Value) -> Option<&str> {
    object.pointer("/metadata/name")?.as_str()
}

async fn delete(session: &ClusterSession, target: &ObjectTarget<'_>, dry_run: bool) -> Result<()> {
    let path = with_query(&target.path(), &[("dryRun", if dry_run { "All" } else { "" })]);
    let options = delete_options(session, target).await;
    match session.client.write(Method::DELETE, &path, ACCEPT_JSON, &options).await {
        Err(error) if status_code(&error) == Some(404) => return Ok(()),
        Err(error) => bail!("{}: {error:#}", target.object_name()),
        Ok(_) => {}
    }
    let note = if dry_run { " (server dry run)" } else { "" };
    output::print(&format!("{} pruned{note}\n", target.object_name()))
}

/// How an object is deleted: a pool without its rendered configs, which are the history of its machines.
pub(super) async fn delete_options(session: &ClusterSession, target: &ObjectTarget<'_>) -> Value {
    let has_history = target.resource.kind == "MachineConfigPool"
        && session.client.get(&target.path()).await.is_ok_and(|pool| has_rendered_config(&pool));
    let policy = if has_history { "Orphan" } else { "Background" };
    json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy})
}

fn has_rendered_config(pool: &Value) -> bool {
    let name = pool.pointer("/spec/configuration/name").and_then(Value::as_str);
    name.is_some_and(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_an_apply_made_is_pruned() {
        let key = "kubectl.kubernetes.io/last-applied-configuration";
        let applied = json!({"metadata": {"name": "a", "annotations": {key: "{}"}}});
        let mut going = applied.clone();
        going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        let other = json!({"metadata": {"name": "rendered-worker-1"}});
        assert!(was_applied(&applied) && !was_applied(&going) && !was_applied(&other));
    }

    #[test]
    fn only_a_pool_that_was_rendered_has_a_history() {
        let pool = |configuration: Value| json!({"spec": {"configuration": configuration}});
        assert!(has_rendered_config(&pool(json!({"name": "rendered-worker-1"}))));
        assert!(!has_rendered_config(&pool(json!({"name": ""}))));
        assert!(!has_rendered_config(&json!({"spec": {}})));
    }
}
