//! Writes of the rollout loop to the machines of a pool: desired configs, reboot approvals, labels and taints.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use machinist_core::api::names::annotation::{self, machinist as ours};
use machinist_core::node::{MachineMode, NodeView};
use machinist_core::rollout::first_boot::custom_pool_labels;
use machinist_core::rollout::guarded_patch::PatchPreconditions;
use machinist_core::rollout::node_patches::{
    control_plane_topology, housekeeping_patch, observe_patch, startup_taint_patch, target_patch,
    withdraw_patch,
};
use machinist_core::rollout::{RolloutDecision, RolloutPolicy, pool_mode};
use serde_json::{Value, json};

use super::context::WriteError;
use super::event_component;
use super::machine_config_node as machine;
use super::rollout::PoolReconcile;

/// How many housekeeping writes one pass makes, so that a large pool does not delay the others.
const MAX_MAINTAINED_PER_PASS: usize = 256;
/// How many machines are written at a time.
const MAX_CONCURRENT_WRITES: usize = 32;
/// The task under which failed writes are reported.
const TASK: &str = "write the machine";

/// The name of the written machine, or why the write failed. The name is empty if the write needs no event.
pub(super) type NodeWrite = Result<String, WriteError>;

/// Annotations to write; those without a value are removed.
type AnnotationUpdates = BTreeMap<String, Option<String>>;

impl PoolReconcile<'_> {
    /// Sends machines to the target. Returns how many writes failed.
    pub(super) async fn send(&self, names: &[String], target: &str) -> usize {
        let more =
            RolloutPolicy::from_annotations(self.pool).map(|policy| policy.node_annotations());
        let mut more = more.unwrap_or_default();
        let config = self.context.caches.controller_config();
        if let Some(topology) = config.and_then(|config| control_plane_topology(&config)) {
            more.insert(annotation::CONTROL_PLANE_TOPOLOGY.to_owned(), Some(topology));
        }
        let write = |node| self.reported(node, self.send_one(node, target, &more).boxed()).boxed();
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
                self.report_event(
                    reason,
                    &format!("Set target for {} nodes to {what}", many.len()),
                );
            }
        }
        failed
    }

    async fn send_one(&self, node: &Node, target: &str, more: &AnnotationUpdates) -> NodeWrite {
        if let Some(labels) = self.missing_labels(node) {
            // From now on it is in another pool, which sends it its config.
            return self.patch_node(node, labels).await.map(|_| String::new());
        }
        machine::set_desired_config(self.context, node, &self.pool.name_any(), target).await;
        let mut patch = target_patch(node, self.layering.target(self.pool));
        for (key, value) in more {
            // An annotation that is missing need not be removed.
            if value.is_some() || node.annotations().contains_key(key) {
                patch["metadata"]["annotations"][key] = json!(value);
            }
        }
        if NodeView(node).awaits_drain() {
            // The drain may be complete by now, and the machine may be writing.
            return self.patch_node(node, patch).await;
        }
        self.send_patch(node, patch).await
    }

    /// The labels that a machine lacks that was booted for a custom pool.
    fn missing_labels(&self, node: &Node) -> Option<Value> {
        let caches = &self.context.caches;
        let first = node.annotations().get(annotation::FIRST_PIVOT_CONFIG)?;
        let (config, pools) = (caches.configs.get(first)?, caches.pools.all());
        custom_pool_labels(
            node,
            |_| Some(config.as_ref()),
            |name| pools.iter().map(AsRef::as_ref).find(|pool| pool.name_any() == name),
        )
    }

    /// Allows machines that wait for a reboot to restart. Returns how many writes failed.
    pub(super) async fn allow_restart(&self, names: &[String], target: &str) -> usize {
        let patch = json!({"metadata": {"annotations": {ours::REBOOT_APPROVED: target}}});
        let write =
            |node| self.reported(node, self.send_patch(node, patch.clone()).boxed()).boxed();
        let (allowed, failed) = self.all(self.members_named(names).map(write).collect()).await;
        if !allowed.is_empty() {
            let text = format!("Restart allowed for {}", allowed.join(", "));
            self.report_event("RestartAllowed", &text);
        }
        failed
    }

    /// Withdraws the drain of machines that are observed now. Returns how many writes failed.
    pub(super) async fn withdraw(&self, names: &[String]) -> usize {
        let write = |node: &_| withdraw_patch(node);
        let write = |node| self.reported(node, self.patch_node(node, write(node)).boxed()).boxed();
        let (withdrawn, failed) = self.all(self.members_named(names).map(write).collect()).await;
        if !withdrawn.is_empty() {
            let text = format!("Withdrew the drain of {}", withdrawn.join(", "));
            self.report_event("DrainWithdrawn", &text);
        }
        failed
    }

    /// Keeps taints, labels and MachineConfigNodes current. Returns whether there is more to do.
    pub(super) async fn tend(&self, decision: &RolloutDecision, exists: bool) -> bool {
        let pool = self.pool.name_any();
        let paused = self.pool.spec.paused == Some(true);
        let goal = self.layering.target(self.pool);
        let sent: BTreeSet<&String> = decision.next.iter().collect();
        let mode = pool_mode(self.pool);
        let mut writes = Vec::new();
        for node in self.members {
            let name = node.name_any();
            if self.context.caches.machine_config_nodes.get(&name).is_none() {
                writes.push((*node, None));
            }
            let is_observed = MachineMode::of_machine(NodeView(node), mode) == MachineMode::Observe;
            let observed = Some(goal.config).filter(|_| is_observed && exists);
            if let Some(patch) = observe_patch(node, observed) {
                writes.push((*node, Some(patch)));
            } else if exists && !is_observed && !sent.contains(&name) {
                let patch = match paused {
                    true => startup_taint_patch(node, goal),
                    false => housekeeping_patch(node, goal),
                };
                writes.extend(patch.map(|patch| (*node, Some(patch))));
            }
        }
        let more = writes.len() > MAX_MAINTAINED_PER_PASS;
        writes.truncate(MAX_MAINTAINED_PER_PASS);
        let writes = writes.into_iter().map(|(node, patch)| match patch {
            None => {
                let create = machine::create(self.context, node, &pool);
                create.map(|()| Ok(String::new())).boxed()
            }
            Some(patch) => self.reported(node, self.patch_node(node, patch).boxed()).boxed(),
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

    /// Performs writes concurrently. Returns the names of the written machines, and how many writes failed.
    async fn all(&self, writes: Vec<BoxFuture<'_, NodeWrite>>) -> (Vec<String>, usize) {
        let mut results = futures::stream::iter(writes).buffered(MAX_CONCURRENT_WRITES);
        let (mut written, mut failed) = (Vec::new(), 0);
        while let Some(result) = results.next().await {
            match result {
                Ok(name) if name.is_empty() => {}
                Ok(name) => written.push(name),
                Err(_) => failed += 1,
            }
        }
        (written, failed)
    }

    /// Performs one write and reports how it went.
    async fn reported(&self, node: &Node, write: BoxFuture<'_, NodeWrite>) -> NodeWrite {
        let result = write.await;
        match &result {
            Ok(_) => self.context.write_succeeded(TASK, node),
            // Our cache was stale; the watch updates it.
            Err(error) if error.is_stale() || error.is_not_found() => {}
            Err(error) => {
                self.context.write_failed(TASK, event_component::NODE, node, error);
            }
        }
        result
    }

    /// Patches a machine, unless its desired config or its pool has changed since we read it.
    async fn send_patch(&self, node: &Node, patch: Value) -> NodeWrite {
        let preconditions =
            PatchPreconditions { annotations: &[annotation::DESIRED_CONFIG], labels: true };
        self.context.patch_node(node, &patch, preconditions).await?;
        Ok(node.name_any())
    }

    /// Patches a machine, unless it has changed in any way since we read it: for writes that can wait.
    pub(super) async fn patch_node(&self, node: &Node, mut patch: Value) -> NodeWrite {
        patch["metadata"]["resourceVersion"] = json!(node.resource_version());
        let written: Node = self.context.merge_patch(&node.name_any(), &patch).await?;
        self.context.caches.nodes.upsert(written);
        Ok(node.name_any())
    }
}
