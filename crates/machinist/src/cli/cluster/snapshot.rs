//! A snapshot of all objects that affect a rollout.

use std::cell::RefCell;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::core::v1::Node;
use kube::{Resource as _, ResourceExt as _};
use machinist_core::api::names::object::{CLUSTER, CONTROLLER_CONFIG};
use machinist_core::api::operator::{MachineConfiguration, NodeDisruptionPolicy};
use machinist_core::api::{
    ControllerConfig, MachineConfig, MachineConfigNode, MachineConfigPool, MachineOSBuild,
    MachineOSConfig, OSImageStream,
};
use machinist_core::disruption::with_system_policy;
use machinist_core::render::ImageSources;
use machinist_core::rollout::nodes_of;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::session::ClusterSession;
use crate::cli::output;
use crate::kubernetes::ServedResource;
use crate::kubernetes::request::{ACCEPT_JSON, status_code};

/// The API group of MCO's kinds.
const GROUP: &str = "machineconfiguration.openshift.io";

/// A kind that affects a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cli) enum SnapshotKind {
    Pool,
    Config,
    Node,
    MachineConfigNode,
    ControllerConfig,
    MachineConfiguration,
    OsConfig,
    OsBuild,
    OsImageStream,
}

impl SnapshotKind {
    fn name(self) -> (&'static str, &'static str) {
        match self {
            Self::Pool => (GROUP, "MachineConfigPool"),
            Self::Config => (GROUP, "MachineConfig"),
            Self::Node => ("", "Node"),
            Self::MachineConfigNode => (GROUP, "MachineConfigNode"),
            Self::ControllerConfig => (GROUP, "ControllerConfig"),
            Self::MachineConfiguration => ("operator.openshift.io", "MachineConfiguration"),
            Self::OsConfig => (GROUP, "MachineOSConfig"),
            Self::OsBuild => (GROUP, "MachineOSBuild"),
            Self::OsImageStream => (GROUP, "OSImageStream"),
        }
    }
}

impl ClusterSession {
    /// A kind, if the API server serves it.
    pub(in crate::cli) fn kind(&self, kind: SnapshotKind) -> Option<&ServedResource> {
        let (group, name) = kind.name();
        self.resources.0.iter().find(|one| one.group == group && one.kind == name)
    }

    /// A kind that the API server must serve.
    pub(in crate::cli) fn needed(&self, kind: SnapshotKind) -> Result<&ServedResource> {
        self.kind(kind).with_context(|| {
            let (group, name) = kind.name();
            format!("the API server does not serve {name} in {group}: install the CustomResourceDefinitions (`machinist crds`)")
        })
    }

    /// All objects of a kind; none if the API server does not serve it, or if `hidden` may collect the kinds
    /// that the user may not read.
    async fn readable<T: DeserializeOwned>(
        &self,
        kind: SnapshotKind,
        hidden: Option<&RefCell<Vec<SnapshotKind>>>,
    ) -> Result<Vec<T>> {
        match (self.all(kind).await, hidden) {
            (Err(error), Some(hidden)) if status_code(&error) == Some(403) => {
                hidden.borrow_mut().push(kind);
                Ok(Vec::new())
            }
            (result, _) => result,
        }
    }

    /// All objects of a kind; none if the API server does not serve it.
    pub(in crate::cli) async fn all<T: DeserializeOwned>(
        &self,
        kind: SnapshotKind,
    ) -> Result<Vec<T>> {
        let Some(resource) = self.kind(kind) else { return Ok(Vec::new()) };
        let list = self.client.list_as(&resource.path(None, None), ACCEPT_JSON).await?;
        let items = list.get("items").and_then(Value::as_array).into_iter().flatten();
        items.map(|item| deserialize(kind, item)).collect()
    }

    /// Reads all kinds.
    ///
    /// # Errors
    /// The API server does not respond, refuses, or returns an object that cannot be parsed.
    pub(in crate::cli) async fn snapshot(&self) -> Result<ClusterSnapshot> {
        self.read_snapshot(None).await
    }

    /// Reads the kinds that the user may read, pools and Nodes at least. [`ClusterSnapshot::hidden`] has the
    /// others.
    ///
    /// # Errors
    /// As for [`Self::snapshot`].
    pub(in crate::cli) async fn visible_snapshot(&self) -> Result<ClusterSnapshot> {
        let hidden = RefCell::default();
        let snapshot = self.read_snapshot(Some(&hidden)).await?;
        Ok(ClusterSnapshot { hidden: hidden.into_inner(), ..snapshot })
    }

    async fn read_snapshot(
        &self,
        hidden: Option<&RefCell<Vec<SnapshotKind>>>,
    ) -> Result<ClusterSnapshot> {
        self.needed(SnapshotKind::Pool)?;
        let (pools, configs, nodes, machines, controller, settings, images, builds, streams) = futures::try_join!(
            self.all::<MachineConfigPool>(SnapshotKind::Pool),
            self.readable::<MachineConfig>(SnapshotKind::Config, hidden),
            self.all::<Node>(SnapshotKind::Node),
            self.readable::<MachineConfigNode>(SnapshotKind::MachineConfigNode, hidden),
            self.readable::<ControllerConfig>(SnapshotKind::ControllerConfig, hidden),
            self.readable::<MachineConfiguration>(SnapshotKind::MachineConfiguration, hidden),
            self.readable::<MachineOSConfig>(SnapshotKind::OsConfig, hidden),
            self.readable::<MachineOSBuild>(SnapshotKind::OsBuild, hidden),
            self.readable::<OSImageStream>(SnapshotKind::OsImageStream, hidden),
        )?;
        Ok(ClusterSnapshot {
            pools,
            configs,
            nodes,
            machine_config_nodes: machines,
            os_configs: images,
            os_builds: builds,
            controller_configs: controller,
            machine_configuration: settings.into_iter().find(|one| one.name_any() == CLUSTER),
            streams: streams.into_iter().find(|one| one.name_any() == CLUSTER),
            hidden: Vec::new(),
        })
    }
}

/// Parses an object. The error names the field but never its value, which may be secret.
pub(in crate::cli) fn deserialize<T: DeserializeOwned>(
    kind: SnapshotKind,
    object: &Value,
) -> Result<T> {
    serde_path_to_error::deserialize(object).map_err(|error| {
        let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        anyhow::anyhow!("{} {name}: {} cannot be read", kind.name().1, error.path())
    })
}

/// All objects that affect a rollout.
#[derive(Debug, Clone, Default)]
pub(in crate::cli) struct ClusterSnapshot {
    pub(in crate::cli) pools: Vec<MachineConfigPool>,
    pub(in crate::cli) configs: Vec<MachineConfig>,
    pub(in crate::cli) nodes: Vec<Node>,
    pub(in crate::cli) machine_config_nodes: Vec<MachineConfigNode>,
    pub(in crate::cli) os_configs: Vec<MachineOSConfig>,
    pub(in crate::cli) os_builds: Vec<MachineOSBuild>,
    pub(in crate::cli) controller_configs: Vec<ControllerConfig>,
    pub(in crate::cli) machine_configuration: Option<MachineConfiguration>,
    pub(in crate::cli) streams: Option<OSImageStream>,
    /// The kinds that the user may not read.
    pub(in crate::cli) hidden: Vec<SnapshotKind>,
}

impl ClusterSnapshot {
    /// A pool by its name.
    ///
    /// # Errors
    /// The pool does not exist; the error lists the pools.
    pub(in crate::cli) fn pool(&self, name: &str) -> Result<&MachineConfigPool> {
        let Some(pool) = self.pools.iter().find(|pool| pool.name_any() == name) else {
            let names: Vec<String> = self.pools.iter().map(kube::ResourceExt::name_any).collect();
            let existing = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            bail!("MachineConfigPool {name} does not exist; existing pools: {existing}");
        };
        Ok(pool)
    }

    /// The machines of a pool. Prints a warning for machines whose pool is ambiguous.
    pub(in crate::cli) fn members(&self, pool: &MachineConfigPool) -> Vec<&Node> {
        let (members, errors) = nodes_of(pool, &self.pools, &self.nodes);
        for error in errors {
            output::print_warning(&error.to_string());
        }
        members
    }

    /// The ControllerConfig, if it exists.
    pub(in crate::cli) fn controller_config(&self) -> Option<&ControllerConfig> {
        self.controller_configs.iter().find(|one| one.name_any() == CONTROLLER_CONFIG)
    }

    /// The sources of OS images other than MachineConfigs.
    pub(in crate::cli) fn image_inputs(&self) -> ImageSources<'_> {
        let (controller_config, streams) = (self.controller_config(), self.streams.as_ref());
        ImageSources { controller_config, streams, worker: None }.with_worker_pool(&self.pools)
    }

    /// The administrator's disruption policy on top of the built-in one.
    pub(in crate::cli) fn policy(&self) -> NodeDisruptionPolicy {
        let settings = self.machine_configuration.as_ref();
        let policy = settings.and_then(|object| object.spec.node_disruption_policy.clone());
        with_system_policy(&policy.unwrap_or_default())
    }

    /// Replaces all objects of a kind.
    pub(super) fn replace(&mut self, kind: SnapshotKind, objects: &[Value]) -> Result<()> {
        fn read<T: DeserializeOwned + kube::Resource>(
            kind: SnapshotKind,
            objects: &[Value],
        ) -> Result<Vec<T>> {
            let mut all = objects
                .iter()
                .map(|object| deserialize::<T>(kind, object))
                .collect::<Result<Vec<T>>>()?;
            all.sort_by(|a, b| a.meta().name.cmp(&b.meta().name));
            Ok(all)
        }
        match kind {
            SnapshotKind::Pool => self.pools = read(kind, objects)?,
            SnapshotKind::Config => self.configs = read(kind, objects)?,
            SnapshotKind::Node => self.nodes = read(kind, objects)?,
            SnapshotKind::MachineConfigNode => self.machine_config_nodes = read(kind, objects)?,
            SnapshotKind::ControllerConfig => self.controller_configs = read(kind, objects)?,
            SnapshotKind::OsConfig => self.os_configs = read(kind, objects)?,
            SnapshotKind::OsBuild => self.os_builds = read(kind, objects)?,
            SnapshotKind::MachineConfiguration => {
                let all: Vec<MachineConfiguration> = read(kind, objects)?;
                self.machine_configuration =
                    all.into_iter().find(|one| one.meta().name.as_deref() == Some(CLUSTER));
            }
            SnapshotKind::OsImageStream => {
                let all: Vec<OSImageStream> = read(kind, objects)?;
                self.streams =
                    all.into_iter().find(|one| one.meta().name.as_deref() == Some(CLUSTER));
            }
        }
        Ok(())
    }

    /// Inserts, replaces or removes one object. The lists are sorted by name.
    pub(super) fn update(
        &mut self,
        kind: SnapshotKind,
        object: &Value,
        is_gone: bool,
    ) -> Result<()> {
        fn put<T: DeserializeOwned + kube::Resource>(
            list: &mut Vec<T>,
            kind: SnapshotKind,
            object: &Value,
            is_gone: bool,
        ) -> Result<()> {
            let new: T = deserialize(kind, object)?;
            let position = list.binary_search_by(|one| one.meta().name.cmp(&new.meta().name));
            match (position, is_gone) {
                (Ok(at), true) => drop(list.remove(at)),
                (Ok(at), false) => list[at] = new,
                (Err(_), true) => {}
                (Err(at), false) => list.insert(at, new),
            }
            Ok(())
        }
        match kind {
            SnapshotKind::Pool => put(&mut self.pools, kind, object, is_gone),
            SnapshotKind::Config => put(&mut self.configs, kind, object, is_gone),
            SnapshotKind::Node => put(&mut self.nodes, kind, object, is_gone),
            SnapshotKind::MachineConfigNode => {
                put(&mut self.machine_config_nodes, kind, object, is_gone)
            }
            SnapshotKind::ControllerConfig => {
                put(&mut self.controller_configs, kind, object, is_gone)
            }
            SnapshotKind::OsConfig => put(&mut self.os_configs, kind, object, is_gone),
            SnapshotKind::OsBuild => put(&mut self.os_builds, kind, object, is_gone),
            // These kinds are not watched.
            SnapshotKind::MachineConfiguration | SnapshotKind::OsImageStream => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn objects_are_inserted_replaced_and_removed() {
        let node = |name: &str, uid: &str| json!({"metadata": {"name": name, "uid": uid}});
        let mut snapshot = ClusterSnapshot::default();
        snapshot.replace(SnapshotKind::Node, &[node("b", "1"), node("a", "1")]).unwrap();
        snapshot.update(SnapshotKind::Node, &node("c", "1"), false).unwrap();
        snapshot.update(SnapshotKind::Node, &node("b", "2"), false).unwrap();
        snapshot.update(SnapshotKind::Node, &node("a", "1"), true).unwrap();
        snapshot.update(SnapshotKind::Node, &node("z", "1"), true).unwrap();
        let shown: Vec<String> =
            snapshot.nodes.iter().map(|n| n.name_any() + &n.uid().unwrap_or_default()).collect();
        assert_eq!(shown, ["b2", "c1"]);
    }

    #[test]
    fn parse_errors_name_the_field_without_its_value() {
        let object = json!({"metadata": {"name": "x"}, "spec": {"paused": "hunter2"}});
        let error =
            deserialize::<MachineConfigPool>(SnapshotKind::Pool, &object).unwrap_err().to_string();
        assert_eq!(error, "MachineConfigPool x: spec.paused cannot be read");
        let error = ClusterSnapshot::default().pool("y").unwrap_err().to_string();
        assert!(error.contains("existing pools: none"), "{error}");
    }
}
