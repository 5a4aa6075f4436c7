//! Everything the controller knows: one cache, and so one watch, for each kind.

use k8s_openapi::api::core::v1::{Node, Secret};
use kube::api::PartialObjectMeta;
use kube::runtime::watcher;
use kube::{Api, Client, Resource};
use machinist_core::api::names::object;
use machinist_core::api::{
    ControllerConfig, MachineConfig, MachineConfigNode, MachineConfigPool, MachineOSBuild,
    MachineOSConfig, OSImageStream,
};
use serde::de::DeserializeOwned;
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::generate::kinds::Kinds;
use super::history;
use crate::home::cache::Cache;

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
    /// Which pools run images of their own.
    pub(super) os_configs: Cache<MachineOSConfig>,
    /// The images that are built for them.
    pub(super) os_builds: Cache<MachineOSBuild>,
    /// The operating systems that pools choose from.
    pub(super) os_image_streams: Cache<OSImageStream>,
    /// What MachineConfigs are generated from.
    pub kinds: Kinds,
    /// Which rendered configs are kept for the day when somebody deletes them.
    pub kept: Cache<PartialObjectMeta<Secret>>,
}

impl World {
    /// Starts the watches; they end with the tasks. Kinds that the home does not serve are empty.
    pub(super) fn follow(&self, home: &Home, tasks: &mut JoinSet<()>) {
        let client = &home.client;
        tasks.spawn(self.nodes.clone().follow(
            Api::all(client.clone()),
            watcher::Config::default(),
            trim_node,
        ));
        follow(&self.pools, home, tasks);
        follow(&self.configs, home, tasks);
        follow(&self.machine_config_nodes, home, tasks);
        follow(&self.controller_configs, home, tasks);
        follow(&self.os_configs, home, tasks);
        follow(&self.os_builds, home, tasks);
        follow(&self.os_image_streams, home, tasks);
        self.kinds.follow(home, tasks);
        let secrets: Api<PartialObjectMeta<Secret>> =
            Api::namespaced(client.clone(), &home.namespace);
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
        self.os_configs.ready().await;
        self.os_builds.ready().await;
        self.os_image_streams.ready().await;
        self.kept.ready().await;
    }

    /// The one ControllerConfig, where there is one.
    #[must_use]
    pub(super) fn controller_config(&self) -> Option<Arc<ControllerConfig>> {
        self.controller_configs.get(object::CONTROLLER_CONFIG)
    }

    /// The one OSImageStream, where there is one.
    #[must_use]
    pub(super) fn streams(&self) -> Option<Arc<OSImageStream>> {
        self.os_image_streams.get(object::CLUSTER)
    }
}

/// What the watches need to know about the home.
pub(super) struct Home {
    /// How it is asked.
    pub(super) client: Client,
    /// The namespace of the system's own objects.
    pub(super) namespace: String,
    /// Which of our kinds it serves, by their plural names; more may come.
    pub(super) served: watch::Receiver<BTreeSet<String>>,
}

/// Follows all objects of one of our kinds.
pub(super) fn follow<K>(cache: &Cache<K>, home: &Home, tasks: &mut JoinSet<()>)
where
    K: Resource<DynamicType = ()> + Clone + fmt::Debug + DeserializeOwned + Send + Sync + 'static,
{
    let following = cache.clone().follow(
        Api::all(home.client.clone()),
        watcher::Config::default(),
        forget_fields,
    );
    let is_served = |served: &BTreeSet<String>| served.contains(K::plural(&()).as_ref());
    if is_served(&home.served.borrow()) {
        tasks.spawn(following);
        return;
    }
    tracing::info!(kind = %K::kind(&()), "the home does not serve this kind");
    cache.clone().stay_empty();
    let mut served = home.served.clone();
    tasks.spawn(async move {
        // Until then nobody has one.
        if served.wait_for(is_served).await.is_ok() {
            tracing::info!(kind = %K::kind(&()), "the home serves this kind now");
            following.await;
        }
    });
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
