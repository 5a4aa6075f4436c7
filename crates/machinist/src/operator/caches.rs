//! The operator's view of the cluster: one cache for each kind, and a few objects that are read on demand.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::PartialObjectMeta;
use kube::runtime::watcher;
use kube::{Api, Client};
use machinist_core::api::names::object;
use machinist_core::api::operator::MachineConfiguration;
use machinist_core::api::{ControllerConfig, MachineConfigPool};
use machinist_core::operator::component_order::{ComponentStatus, OperatorComponent};
use machinist_core::operator::controller_config::ClusterFacts;
use machinist_hub::failure_log::FailureLog;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::kubernetes::cache::{Cache, strip_managed_fields};
use crate::kubernetes::reflectors::{Reflectors, changes_of};
use crate::kubernetes::request::{ACCEPT_METADATA, ApiClient, status_code};

/// The ConfigMap with the CA of the API server, which every namespace has.
const ROOT_CA: &str = "kube-root-ca.crt";

/// All caches. A clone shares them.
#[derive(Debug, Clone, Default)]
pub(super) struct OperatorCaches {
    pub(super) deployments: Cache<Deployment>,
    pub(super) daemon_sets: Cache<DaemonSet>,
    pub(super) config_maps: Cache<ConfigMap>,
    /// Only our own Secrets: there are many others, and large ones.
    secrets: Cache<PartialObjectMeta<Secret>>,
    pub(super) controller_configs: Cache<ControllerConfig>,
    pub(super) machine_configurations: Cache<MachineConfiguration>,
    pub(super) pools: Cache<MachineConfigPool>,
}

impl OperatorCaches {
    /// Starts the watches; they end with the tasks.
    pub(super) fn start(
        client: &Client,
        namespace: &str,
        failures: &FailureLog,
        tasks: &mut JoinSet<()>,
    ) -> Self {
        let caches = Self::default();
        let mut reflectors = Reflectors::new(client.clone(), failures.clone(), tasks);
        let all = watcher::Config::default;
        let own = || client.clone();
        // Repair reports read the managed fields of these kinds: they say who changed what.
        let deployments = Api::namespaced(own(), namespace);
        reflectors.watch(&caches.deployments, deployments, all(), |_| {});
        let daemon_sets = Api::namespaced(own(), namespace);
        reflectors.watch(&caches.daemon_sets, daemon_sets, all(), |_| {});
        reflectors.watch(&caches.controller_configs, Api::all(own()), all(), |_| {});
        let config_maps = Api::namespaced(own(), namespace);
        reflectors.watch(&caches.config_maps, config_maps, all(), strip_managed_fields);
        let ours = all().labels("app.kubernetes.io/managed-by=machine-config-operator");
        let secrets = Api::namespaced(own(), namespace);
        reflectors.watch(&caches.secrets, secrets, ours, strip_managed_fields);
        reflectors.watch_all(&caches.machine_configurations);
        reflectors.watch_all(&caches.pools);
        caches
    }

    /// The change counters of all caches.
    pub(super) fn changes(&self) -> Vec<watch::Receiver<u64>> {
        changes_of(&[
            &self.deployments,
            &self.daemon_sets,
            &self.config_maps,
            &self.secrets,
            &self.controller_configs,
            &self.machine_configurations,
            &self.pools,
        ])
    }

    /// The state of a component.
    pub(super) fn component_status(
        &self,
        namespace: &str,
        part: OperatorComponent,
    ) -> ComponentStatus {
        ComponentStatus::from_object(part, self.component_object(namespace, part).as_ref())
    }

    /// The object of a component.
    pub(super) fn component_object(
        &self,
        namespace: &str,
        part: OperatorComponent,
    ) -> Option<Value> {
        let object = match part {
            OperatorComponent::Controller => {
                self.deployments.get_in(namespace, part.name()).map(|it| serde_json::to_value(&*it))
            }
            OperatorComponent::Server | OperatorComponent::Daemon => {
                self.daemon_sets.get_in(namespace, part.name()).map(|it| serde_json::to_value(&*it))
            }
        };
        object.and_then(Result::ok)
    }

    /// The ControllerConfig.
    pub(super) fn controller_config(&self) -> Option<Value> {
        let found = self.controller_configs.get(object::CONTROLLER_CONFIG)?;
        serde_json::to_value(&*found).ok()
    }

    /// The data of a ConfigMap in our namespace.
    pub(super) fn config_map_data(&self, namespace: &str, name: &str) -> BTreeMap<String, String> {
        let map = self.config_maps.get_in(namespace, name);
        map.and_then(|map| map.data.clone()).unwrap_or_default()
    }
}

/// Reads how the cluster describes itself.
pub(super) async fn read_cluster(
    client: &ApiClient,
    caches: &OperatorCaches,
    namespace: &str,
) -> Result<ClusterFacts> {
    let config = |plural: &str| format!("/apis/config.openshift.io/v1/{plural}/cluster");
    let info =
        get_optional(client, "/api/v1/namespaces/kube-public/configmaps/cluster-info").await?;
    let mut authority = caches.config_map_data(namespace, ROOT_CA);
    let machines = client
        .get_as("/api/v1/nodes?limit=2", ACCEPT_METADATA)
        .await
        .context("cannot count the machines")?;
    Ok(ClusterFacts {
        infrastructure: get_optional(client, &config("infrastructures")).await?,
        network: get_optional(client, &config("networks")).await?,
        dns: get_optional(client, &config("dnses")).await?,
        proxy: get_optional(client, &config("proxies")).await?,
        cluster_info: info["data"]["kubeconfig"].as_str().map(str::to_owned),
        api_ca: authority.remove("ca.crt").unwrap_or_default(),
        is_single_node: machines["items"].as_array().is_some_and(|items| items.len() == 1),
    })
}

/// Reads an object; null if it does not exist or its kind is not served.
pub(super) async fn get_optional(client: &ApiClient, path: &str) -> Result<Value> {
    match client.get(path).await {
        Err(error) if status_code(&error) == Some(404) => Ok(Value::Null),
        response => response.with_context(|| format!("cannot read {path}")),
    }
}
