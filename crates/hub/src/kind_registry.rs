//! The registry of the kinds that the hub serves, by group, version and resource.
//!
//! Filled by [`crate::served_kinds`]; read by the router, discovery and OpenAPI.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::Value;

use crate::schema::Schema;

/// A column of a server-side table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrinterColumn {
    /// Heading.
    pub name: String,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub type_: String,
    /// `name`, or empty.
    pub format: String,
    /// What the column shows.
    pub description: String,
    /// 0 is always shown; higher only with `-o wide`.
    pub priority: i32,
    /// JSONPath of the value: `.status.machineCount`.
    pub json_path: String,
}

/// A served kind.
#[derive(Debug, Clone)]
pub struct ResourceKind {
    /// API group; empty for the core group.
    pub group: String,
    /// Version: `v1`.
    pub version: String,
    /// Kind: `MachineConfigPool`.
    pub kind: String,
    /// Kind of a list: `MachineConfigPoolList`.
    pub list_kind: String,
    /// Resource: `machineconfigpools`.
    pub plural: String,
    /// Resource in the singular.
    pub singular: String,
    /// Short names: `mcp`.
    pub short_names: Vec<String>,
    /// Categories: `all`.
    pub categories: Vec<String>,
    /// Whether its objects are namespaced.
    pub namespaced: bool,
    /// Whether it has a `status` subresource.
    pub status_subresource: bool,
    /// Structural schema (`openAPIV3Schema`); `None` for built-in kinds.
    pub schema: Option<Value>,
    /// Whether it is built into Kubernetes or comes from a CRD. Only built-in kinds take strategic
    /// merge patches and protobuf.
    pub built_in: bool,
    /// Table columns after the name.
    pub columns: Vec<PrinterColumn>,
    /// Where the `scale` subresource finds its values; `None` if there is no such subresource.
    pub scale: Option<ScalePaths>,
    /// The fields, besides those of the metadata, by which objects can be selected: `spec.color`.
    pub selectable_fields: Vec<String>,
    /// What only kinds have whose definition a client created.
    pub defined: Option<Arc<DefinedKind>>,
}

/// The fields behind the `scale` subresource, as JSON pointers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScalePaths {
    /// The wanted number of replicas: `/spec/replicas`.
    pub spec_replicas: String,
    /// The actual number of replicas.
    pub status_replicas: String,
    /// The label selector of the replicas as text, if there is one.
    pub label_selector: Option<String>,
}

/// What only kinds have whose definition a client created: their objects are stored in one version and shown in several,
/// and the definition may change while there are objects.
#[derive(Debug)]
pub struct DefinedKind {
    /// The version in which objects are stored.
    pub storage_version: String,
    /// The versions that are served.
    pub served_versions: Vec<String>,
    /// The schema of each version, also of those that are not served.
    pub schemas: BTreeMap<String, Arc<Schema>>,
    /// Whether the definition is being deleted: there may be no new objects.
    pub is_terminating: bool,
    /// The warning that clients of a deprecated version get.
    pub deprecation_warning: Option<String>,
}

impl DefinedKind {
    /// Gives a stored object the form of a version: without what the schemas do not know, with their defaults.
    pub fn convert(&self, object: &mut Value, group: &str, version: &str) {
        let stored = object["apiVersion"].as_str().and_then(|name| name.rsplit('/').next());
        let stored = stored.unwrap_or(&self.storage_version).to_owned();
        self.fit(object, &stored);
        if stored != version {
            object["apiVersion"] = format!("{group}/{version}").into();
            self.fit(object, version);
        }
    }

    /// Gives an object the form in which it is stored.
    pub fn convert_to_stored(&self, object: &mut Value, group: &str) {
        object["apiVersion"] = format!("{group}/{}", self.storage_version).into();
        if let Some(schema) = self.schemas.get(&self.storage_version) {
            schema.prune(object);
        }
    }

    fn fit(&self, object: &mut Value, version: &str) {
        if let Some(schema) = self.schemas.get(version) {
            schema.prune(object);
            schema.apply_defaults(object);
        }
    }
}

/// The kinds of Kubernetes that are served for clients that expect them, and of which there never is an object: group,
/// kind, resource, short name, whether it is in the category `all`.
pub const EMPTY_KINDS: &[(&str, &str, &str, &str, bool)] = &[
    ("", "Endpoints", "endpoints", "ep", false),
    ("", "PersistentVolume", "persistentvolumes", "pv", false),
    ("", "PersistentVolumeClaim", "persistentvolumeclaims", "pvc", false),
    ("", "Pod", "pods", "po", true),
    ("", "ReplicationController", "replicationcontrollers", "rc", true),
    ("", "Service", "services", "svc", true),
    ("apps", "DaemonSet", "daemonsets", "ds", true),
    ("apps", "Deployment", "deployments", "deploy", true),
    ("apps", "ReplicaSet", "replicasets", "rs", true),
    ("apps", "StatefulSet", "statefulsets", "sts", true),
    ("batch", "CronJob", "cronjobs", "cj", true),
    ("batch", "Job", "jobs", "", true),
    ("networking.k8s.io", "Ingress", "ingresses", "ing", false),
];

impl ResourceKind {
    /// Whether the kind is one of [`EMPTY_KINDS`].
    #[must_use]
    pub fn is_always_empty(&self) -> bool {
        let own = (self.group.as_str(), self.plural.as_str());
        self.built_in && EMPTY_KINDS.iter().any(|(group, _, plural, ..)| own == (*group, *plural))
    }

    /// `v1`, or `group/v1`.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Whether this is its `apiVersion`.
    #[must_use]
    pub fn has_api_version(&self, text: &str) -> bool {
        match text.split_once('/') {
            Some((group, version)) => group == self.group && version == self.version,
            None => self.group.is_empty() && text == self.version,
        }
    }
}

/// All served kinds.
#[derive(Debug, Clone, Default)]
pub struct KindRegistry {
    kinds: Vec<Arc<ResourceKind>>,
    by_resource: HashMap<(String, String, String), Arc<ResourceKind>>,
}

impl KindRegistry {
    /// Adds a kind.
    pub fn add(&mut self, kind: ResourceKind) {
        self.add_shared(Arc::new(kind));
    }

    /// Adds a kind that others hold too.
    pub fn add_shared(&mut self, kind: Arc<ResourceKind>) {
        let key = (kind.group.clone(), kind.version.clone(), kind.plural.clone());
        self.by_resource.insert(key, Arc::clone(&kind));
        self.kinds.push(kind);
    }

    /// The kinds in the order in which they were added.
    pub fn kinds(&self) -> impl Iterator<Item = &Arc<ResourceKind>> {
        self.kinds.iter()
    }

    /// Returns the kind that serves a path.
    #[must_use]
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<ResourceKind>> {
        self.by_resource.get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }
}
