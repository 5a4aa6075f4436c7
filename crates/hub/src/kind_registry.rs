//! The kinds that the hub serves.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

/// A column of a server-side table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrinterColumn {
    /// Its heading.
    pub name: String,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub type_: String,
    /// `name`, or nothing.
    pub format: String,
    /// What it shows.
    pub description: String,
    /// 0 is always shown; more only with `-o wide`.
    pub priority: i32,
    /// Where its value is: the JSONPath of CRDs, as `.status.machineCount`.
    pub json_path: String,
}

/// A served kind.
#[derive(Debug, Clone)]
pub struct ResourceKind {
    /// Its group; empty for the core group.
    pub group: String,
    /// Its version: `v1`.
    pub version: String,
    /// Its kind: `MachineConfigPool`.
    pub kind: String,
    /// The kind of its lists: `MachineConfigPoolList`.
    pub list_kind: String,
    /// Its resource: `machineconfigpools`.
    pub plural: String,
    /// The resource in the singular.
    pub singular: String,
    /// Short names: `mcp`.
    pub short_names: Vec<String>,
    /// Groups of resources that it belongs to: `all`.
    pub categories: Vec<String>,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// Whether `status` is a subresource of its own.
    pub status_subresource: bool,
    /// Its structural schema (`openAPIV3Schema`); none for built-in kinds.
    pub schema: Option<Value>,
    /// Whether it is built into Kubernetes (strategic merge, protobuf elsewhere) or a CRD.
    pub built_in: bool,
    /// Its table columns after the name.
    pub columns: Vec<PrinterColumn>,
}

impl ResourceKind {
    /// `v1`, or `group/v1`.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

/// All kinds, found by group, version and resource.
#[derive(Debug, Clone, Default)]
pub struct KindRegistry {
    kinds: Vec<Arc<ResourceKind>>,
    by_resource: HashMap<(String, String, String), Arc<ResourceKind>>,
}

impl KindRegistry {
    /// Adds a kind.
    pub fn add(&mut self, kind: ResourceKind) {
        let kind = Arc::new(kind);
        let key = (kind.group.clone(), kind.version.clone(), kind.plural.clone());
        self.by_resource.insert(key, Arc::clone(&kind));
        self.kinds.push(kind);
    }

    /// The kinds in the order they were added.
    pub fn kinds(&self) -> impl Iterator<Item = &Arc<ResourceKind>> {
        self.kinds.iter()
    }

    /// The kind served under a path.
    #[must_use]
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<ResourceKind>> {
        self.by_resource.get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }
}
