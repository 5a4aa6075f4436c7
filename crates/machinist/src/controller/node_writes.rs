//! What the rollout loop writes on the machines of a pool.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use machinist_core::api::names::annotation::{self, machinist as ours};
use machinist_core::rollout::first_boot::custom_pool_labels;
use machinist_core::rollout::guarded_patch::PatchPreconditions;
use machinist_core::rollout::node_patches::{
    control_plane_topology, housekeeping_patch, target_patch,
};
use machinist_core::rollout::{RolloutDecision, RolloutPolicy};
use serde_json::{Value, json};

use super::context::WriteError;
use super::machine_config_node as machine;
use super::rollout::PoolReconcile;

/// How many machines are tended in one turn beside those that get a config, so that a large pool does not keep the
/// others waiting.
const MAX_MAINTAINED_PER_PASS: usize = 256;

/// The name of the machine that was written, or why it was not. Empty for what is not worth an event.
type NodeWrite = Result<String, WriteError>;

/// Annotations to write; those without a value go.
type AnnotationUpdates = BTreeMap<String, Option<String>>;

impl PoolReconcile<'_> {
    /// Sends machines to the target; how many writes failed.
    pub(super) async fn send(&self, names: &[String], target: &str) -> usize {
        let more =
            RolloutPolicy::from_annotations(self.pool).map(|policy| policy.node_annotations());
        let mut more = more.unwrap_or_default();
        let config = self.context.caches.controller_config();
        if let Some(topology) = config.and_then(|config| control_plane_topology(&config)) {
            more.insert(annotation::CONTROL_PLANE_TOPOLOGY.to_owned(), Some(topology));
        }
        let write = |node| self.send_one(node, target, &more).boxed();
        let (sent, failed) = self.all(self.members_named(names).map(write).collect()).await;
        let (reason, what) = match self.layering.target(self.pool).image {
            None => ("SetDesiredConfig", format!("MachineConfig: {target}")),
            Some(image) => {
                let what = format!("MachineConfig: {} / Image: {}", image.config, image.pull_spec);
                ("SetDesiredConfigAndOSImage", what)
            }
        };
        match sent.as_slice() {
            [] => {}
            [one] => self.report_event(reason, &format!("Targeted node {one} to {what}")),
            many => {
                self.report_event(reason, &format!("Set target for {} nodes to {what}", many.len()))
            }
        }
        failed
    }

    async fn send_one(&self, node: &Node, target: &str, more: &AnnotationUpdates) -> NodeWrite {
        if let Some(labels) = self.missing_labels(node) {
            // It is in another pool from now on, and not sent anywhere.
            return self.patch_node(node, labels).await.map(|_| String::new());
        }
        machine::set_desired_config(self.context, node, &self.pool.name_any(), target).await;
        let mut patch = target_patch(node, self.layering.target(self.pool));
        for (key, value) in more {
            // What is not there need not be removed.
            if value.is_some() || node.annotations().contains_key(key) {
                patch["metadata"]["annotations"][key] = json!(value);
            }
        }
        self.send_patch(node, patch).await
    }

    /// What a machine that booted straight into a custom pool lacks to be in it.
    fn missing_labels(&self, node: &Node) -> Option<Value> {
        let world = &self.context.caches;
        let first = node.annotations().get(annotation::FIRST_PIVOT_CONFIG)?;
        let (config, pools) = (world.configs.get(first)?, world.pools.all());
        custom_pool_labels(
            node,
            |_| Some(config.as_ref()),
            |name| pools.iter().map(AsRef::as_ref).find(|pool| pool.name_any() == name),
        )
    }

    /// Lets machines restart that wait for it; how many writes failed.
    pub(super) async fn allow_restart(&self, names: &[String], target: &str) -> usize {
        let patch = json!({"metadata": {"annotations": {ours::REBOOT_APPROVED: target}}});
        let write = |node| self.send_patch(node, patch.clone()).boxed();
        let (allowed, failed) = self.all(self.members_named(names).map(write).collect()).await;
        if !allowed.is_empty() {
            let text = format!("Restart allowed for {}", allowed.join(", "));
            self.report_event("RestartAllowed", &text);
        }
        failed
    }

    /// Keeps taints, labels and MachineConfigNodes in order; whether there is more to do.
    pub(super) async fn tend(&self, decision: &RolloutDecision, exists: bool) -> bool {
        let pool = self.pool.name_any();
        let paused = self.pool.spec.paused == Some(true);
        let goal = self.layering.target(self.pool);
        let sent: BTreeSet<&String> = decision.next.iter().collect();
        let mut writes = Vec::new();
        for node in self.members {
            let name = node.name_any();
            if self.context.caches.machine_config_nodes.get(&name).is_none() {
                writes.push((*node, None));
            }
            if !paused && exists && !sent.contains(&name) {
                writes.extend(housekeeping_patch(node, goal).map(|patch| (*node, Some(patch))));
            }
        }
        let more = writes.len() > MAX_MAINTAINED_PER_PASS;
        writes.truncate(MAX_MAINTAINED_PER_PASS);
        let writes = writes.into_iter().map(|(node, patch)| match patch {
            None => machine::create(self.context, node, &pool).map(|()| Ok(String::new())).boxed(),
            Some(patch) => self.patch_node(node, patch).boxed(),
        });
        self.all(writes.collect()).await;
        more
    }

    fn members_named<'b>(&'b self, names: &'b [String]) -> impl Iterator<Item = &'b Node> {
        let by_name: BTreeMap<&str, &Node> = self
            .members
            .iter()
            .filter_map(|node| Some((node.metadata.name.as_deref()?, *node)))
            .collect();
        names.iter().filter_map(move |name| by_name.get(name.as_str()).copied())
    }

    /// Performs writes side by side; what succeeded, and how many failed.
    async fn all(&self, writes: Vec<BoxFuture<'_, NodeWrite>>) -> (Vec<String>, usize) {
        let mut answers = futures::stream::iter(writes).buffered(32);
        let (mut good, mut failed) = (Vec::new(), 0);
        while let Some(answer) = answers.next().await {
            match answer {
                Ok(name) if name.is_empty() => {}
                Ok(name) => good.push(name),
                // Our view was old; it is new in a moment.
                Err(error) if error.is_stale() || error.is_not_found() => failed += 1,
                Err(error) => {
                    self.log_failure("cannot write a machine", &error);
                    failed += 1;
                }
            }
        }
        (good, failed)
    }

    /// Patches a machine, unless somebody has sent it elsewhere or moved it to another pool since we looked.
    async fn send_patch(&self, node: &Node, patch: Value) -> NodeWrite {
        let grounds =
            PatchPreconditions { annotations: &[annotation::DESIRED_CONFIG], labels: true };
        self.context.patch_node(node, &patch, grounds).await?;
        Ok(node.name_any())
    }

    /// Patches a machine, unless it changed in any way since we looked: for what can wait.
    async fn patch_node(&self, node: &Node, mut patch: Value) -> NodeWrite {
        patch["metadata"]["resourceVersion"] = json!(node.resource_version());
        let written: Node = self.context.merge_patch(&node.name_any(), &patch).await?;
        self.context.caches.nodes.upsert(written);
        Ok(node.name_any())
    }
}
