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

use super::generate::caches::GenerateCaches;
use super::rendered_backup;
use crate::kubernetes::cache::Cache;

/// What is known, and kept in step. A clone is the same world.
#[derive(Debug, Clone, Default)]
pub(super) struct Caches {
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
    pub generate: GenerateCaches,
    /// Which rendered configs are kept for the day when somebody deletes them.
    pub rendered_backups: Cache<PartialObjectMeta<Secret>>,
}

impl Caches {
    /// Starts the watches; they end with the tasks. Kinds that the home does not serve are empty.
    pub(super) fn start_watches(&self, home: &WatchContext, tasks: &mut JoinSet<()>) {
        let client = &home.client;
        tasks.spawn(self.nodes.clone().reflect(
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
        self.generate.start_watches(home, tasks);
        let secrets: Api<PartialObjectMeta<Secret>> =
            Api::namespaced(client.clone(), &home.namespace);
        let labelled = watcher::Config::default().labels(rendered_backup::RENDERED_CONFIG_LABEL);
        tasks.spawn(self.rendered_backups.clone().reflect(secrets, labelled, strip_managed_fields));
    }

    /// Waits until everything has been seen once.
    pub(super) async fn wait_until_ready(&self) {
        self.pools.wait_until_ready().await;
        self.configs.wait_until_ready().await;
        self.nodes.wait_until_ready().await;
        self.machine_config_nodes.wait_until_ready().await;
        self.controller_configs.wait_until_ready().await;
        self.os_configs.wait_until_ready().await;
        self.os_builds.wait_until_ready().await;
        self.os_image_streams.wait_until_ready().await;
        self.rendered_backups.wait_until_ready().await;
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
pub(super) struct WatchContext {
    /// How it is asked.
    pub(super) client: Client,
    /// The namespace of the system's own objects.
    pub(super) namespace: String,
    /// Which of our kinds it serves, by their plural names; more may come.
    pub(super) served_kinds: watch::Receiver<BTreeSet<String>>,
}

/// Follows all objects of one of our kinds.
pub(super) fn follow<K>(cache: &Cache<K>, home: &WatchContext, tasks: &mut JoinSet<()>)
where
    K: Resource<DynamicType = ()> + Clone + fmt::Debug + DeserializeOwned + Send + Sync + 'static,
{
    let following = cache.clone().reflect(
        Api::all(home.client.clone()),
        watcher::Config::default(),
        strip_managed_fields,
    );
    let is_served = |served: &BTreeSet<String>| served.contains(K::plural(&()).as_ref());
    if is_served(&home.served_kinds.borrow()) {
        tasks.spawn(following);
        return;
    }
    tracing::info!(kind = %K::kind(&()), "the home does not serve this kind");
    cache.clone().mark_empty();
    let mut served = home.served_kinds.clone();
    tasks.spawn(async move {
        // Until then nobody has one.
        if served.wait_for(is_served).await.is_ok() {
            tracing::info!(kind = %K::kind(&()), "the home serves this kind now");
            following.await;
        }
    });
}

/// Who wrote which field is of no use here, and half of an object's size.
fn strip_managed_fields<K: Resource>(object: &mut K) {
    object.meta_mut().managed_fields = None;
}

/// Images and volumes are most of a Node, and nobody here looks at them.
fn trim_node(node: &mut Node) {
    strip_managed_fields(node);
    if let Some(status) = &mut node.status {
        status.images = None;
        status.volumes_attached = None;
        status.volumes_in_use = None;
    }
}
