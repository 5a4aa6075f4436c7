//! Everything the controller knows: one cache, and so one watch, for each kind.

use k8s_openapi::api::core::v1::{Node, Secret};
use kube::api::PartialObjectMeta;
use kube::runtime::watcher;
use kube::{Api, Client, Resource};
use machinist_core::api::names::object;
use machinist_core::api::{ControllerConfig, MachineConfig, MachineConfigNode, MachineConfigPool};
use std::sync::Arc;
use tokio::task::JoinSet;

use super::cache::Cache;
use super::history;

/// What is known, and kept in step. A clone is the same world.
#[derive(Debug, Clone, Default)]
pub(super) struct World {
    /// The pools.
    pub pools: Cache<MachineConfigPool>,
    /// The MachineConfigs, rendered ones among them.
    pub configs: Cache<MachineConfig>,
    /// The machines.
    pub nodes: Cache<Node>,
    /// Where each machine is in an update.
    pub machine_config_nodes: Cache<MachineConfigNode>,
    /// The ControllerConfig.
    pub controller_configs: Cache<ControllerConfig>,
    /// Which rendered configs are kept for the day when somebody deletes them.
    pub kept: Cache<PartialObjectMeta<Secret>>,
}

impl World {
    /// Starts the watches; they end with the tasks.
    pub(super) fn follow(&self, client: &Client, namespace: &str, tasks: &mut JoinSet<()>) {
        let config = watcher::Config::default;
        let all = client.clone();
        tasks.spawn(self.pools.clone().follow(Api::all(all.clone()), config(), forget_fields));
        tasks.spawn(self.configs.clone().follow(Api::all(all.clone()), config(), forget_fields));
        tasks.spawn(self.nodes.clone().follow(Api::all(all.clone()), config(), trim_node));
        let nodes = self.machine_config_nodes.clone();
        tasks.spawn(nodes.follow(Api::all(all.clone()), config(), forget_fields));
        let configs = self.controller_configs.clone();
        tasks.spawn(configs.follow(Api::all(all.clone()), config(), forget_fields));
        let secrets: Api<PartialObjectMeta<Secret>> = Api::namespaced(all, namespace);
        let labelled = watcher::Config::default().labels(history::LABEL);
        tasks.spawn(self.kept.clone().follow(secrets, labelled, forget_fields));
    }

    /// Waits until everything has been seen once.
    pub(super) async fn ready(&self) {
        self.pools.ready().await;
        self.configs.ready().await;
        self.nodes.ready().await;
        self.machine_config_nodes.ready().await;
        self.controller_configs.ready().await;
        self.kept.ready().await;
    }

    /// The one ControllerConfig, where there is one.
    #[must_use]
    pub(super) fn controller_config(&self) -> Option<Arc<ControllerConfig>> {
        self.controller_configs.get(object::CONTROLLER_CONFIG)
    }
}

/// Who wrote which field is of no use here, and half of an object's size.
fn forget_fields<K: Resource>(object: &mut K) {
    object.meta_mut().managed_fields = None;
}

/// Images and volumes are most of a Node, and nobody here looks at them.
fn trim_node(node: &mut Node) {
    forget_fields(node);
    if let Some(status) = &mut node.status {
        status.images = None;
        status.volumes_attached = None;
        status.volumes_in_use = None;
    }
}
