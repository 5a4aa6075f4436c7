//! The controller's view of the API server: one cache, and so one watch, for each kind.

use k8s_openapi::api::core::v1::{Node, Secret};
use kube::api::PartialObjectMeta;
use kube::runtime::watcher;
use kube::{Api, Client};
use machinist_core::api::config::{Feature, FeatureGates};
use machinist_core::api::names::object;
use machinist_core::api::{
    ControllerConfig, MachineConfig, MachineConfigNode, MachineConfigPool, MachineOSBuild,
    MachineOSConfig, OSImageStream,
};
use std::sync::Arc;
use tokio::sync::watch;

use super::generate::caches::GenerateCaches;
use super::rendered_backup;
use crate::kubernetes::cache::{Cache, strip_managed_fields};
use crate::kubernetes::reflectors::{Reflectors, changes_of, wait_until_ready};

/// All caches. A clone shares them.
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
    /// Starts the watches.
    pub(super) fn start_watches(
        &self,
        client: &Client,
        namespace: &str,
        reflectors: &mut Reflectors<'_>,
    ) {
        let nodes = Api::all(client.clone());
        reflectors.watch(&self.nodes, nodes, watcher::Config::default(), trim_node);
        reflectors.watch_all(&self.pools);
        reflectors.watch_all(&self.configs);
        reflectors.watch_optional(&self.machine_config_nodes);
        reflectors.watch_optional(&self.controller_configs);
        reflectors.watch_optional(&self.os_configs);
        reflectors.watch_optional(&self.os_builds);
        reflectors.watch_optional(&self.os_image_streams);
        self.generate.start_watches(reflectors);
        let secrets = Api::namespaced(client.clone(), namespace);
        let labelled = watcher::Config::default().labels(rendered_backup::RENDERED_CONFIG_LABEL);
        reflectors.watch(&self.rendered_backups, secrets, labelled, strip_managed_fields);
    }

    /// Waits until every cache has its first list, except those of the generate loop.
    pub(super) async fn wait_until_ready(&self) {
        wait_until_ready(self.changes()).await;
    }

    fn changes(&self) -> Vec<watch::Receiver<u64>> {
        changes_of(&[
            &self.pools,
            &self.configs,
            &self.nodes,
            &self.machine_config_nodes,
            &self.controller_configs,
            &self.os_configs,
            &self.os_builds,
            &self.os_image_streams,
            &self.rendered_backups,
        ])
    }

    /// The one ControllerConfig, where there is one.
    #[must_use]
    pub(super) fn controller_config(&self) -> Option<Arc<ControllerConfig>> {
        self.controller_configs.get(object::CONTROLLER_CONFIG)
    }

    /// The one OSImageStream, where there is one and its feature is on.
    #[must_use]
    pub(super) fn streams(&self) -> Option<Arc<OSImageStream>> {
        let feature_gate = self.generate.feature_gate();
        let is_on = FeatureGates::of(feature_gate.as_deref()).is_on(Feature::OsStreams);
        self.os_image_streams.get(object::CLUSTER).filter(|_| is_on)
    }
}

/// Images and volumes are most of a Node, and nothing here reads them.
fn trim_node(node: &mut Node) {
    strip_managed_fields(node);
    if let Some(status) = &mut node.status {
        status.images = None;
        status.volumes_attached = None;
        status.volumes_in_use = None;
    }
}
