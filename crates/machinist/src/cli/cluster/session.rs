//! A connection to an API server with the kinds that it serves, and the objects that a command selects.

use anyhow::Result;
use clap::Args;
use serde_json::Value;

use super::resource_args::ResourceArgs;
use super::usage_error;
use crate::cli::connection_args::ConnectionArgs;
use crate::kubernetes::request::{ACCEPT_METADATA, with_query};
use crate::kubernetes::{ApiClient, ServedResource, ServedResources};

/// Which API server, and which namespace.
#[derive(Debug, Clone, Args)]
pub(in crate::cli) struct SessionArgs {
    #[command(flatten)]
    connection: ConnectionArgs,

    /// The namespace of namespaced objects [default: that of the kubeconfig]
    #[arg(short, long, value_name = "NAME", help_heading = "API server")]
    namespace: Option<String>,
}

impl SessionArgs {
    /// Connects and discovers the served kinds.
    pub(in crate::cli) async fn connect(&self) -> Result<ClusterSession> {
        let client = ApiClient::new(self.connection.client().await?);
        let resources = client.resources().await?;
        let named = self.namespace.clone();
        let namespace = named.clone().unwrap_or_else(|| client.default_namespace().to_owned());
        Ok(ClusterSession { client, resources, namespace, explicit_namespace: named })
    }
}

/// Objects that are selected without names.
#[derive(Debug, Clone, Args)]
pub(in crate::cli) struct SelectionArgs {
    /// Select objects with these labels, such as role=worker or 'zone in (a,b)'
    #[arg(short = 'l', long, value_name = "LABELS")]
    pub(in crate::cli) selector: Option<String>,

    /// Select all objects of the kind
    #[arg(long, conflicts_with = "selector")]
    pub(in crate::cli) all: bool,
}

impl SelectionArgs {
    /// Whether objects are selected without names.
    pub(in crate::cli) fn is_given(&self) -> bool {
        self.all || self.selector.is_some()
    }

    /// Combines the flags with the resource arguments.
    ///
    /// # Errors
    /// Nothing is selected, or names and flags are mixed.
    pub(in crate::cli) fn select(&self, resource_args: &[String]) -> Result<ResourceSelection> {
        let resource_args = ResourceArgs::parse(resource_args)?;
        let is_named = !matches!(&resource_args, ResourceArgs::Kinds(_, names) if names.is_empty());
        if is_named == self.is_given() {
            return Err(usage_error("use either names, or --selector, or --all"));
        }
        Ok(ResourceSelection {
            resources: resource_args,
            selector: self.selector.clone().unwrap_or_default(),
        })
    }
}

/// Objects by name, by label, or all of a kind.
#[derive(Debug, Clone)]
pub(in crate::cli) struct ResourceSelection {
    resources: ResourceArgs,
    selector: String,
}

/// A connection to an API server, with the kinds that it serves.
#[derive(Debug)]
pub(in crate::cli) struct ClusterSession {
    pub(in crate::cli) client: ApiClient,
    pub(in crate::cli) resources: ServedResources,
    /// The namespace of objects that name none.
    pub(in crate::cli) namespace: String,
    /// The namespace that the user set.
    pub(in crate::cli) explicit_namespace: Option<String>,
}

/// One selected object.
#[derive(Debug, Clone)]
pub(in crate::cli) struct ObjectTarget<'a> {
    pub(in crate::cli) resource: &'a ServedResource,
    pub(in crate::cli) namespace: Option<String>,
    pub(in crate::cli) name: String,
}

impl ObjectTarget<'_> {
    pub(in crate::cli) fn path(&self) -> String {
        self.resource.path(self.namespace.as_deref(), Some(&self.name))
    }

    /// `kind.group/name`.
    pub(in crate::cli) fn object_name(&self) -> String {
        self.resource.object_name(&self.name)
    }
}

impl ClusterSession {
    /// The namespace for objects of a kind; none for cluster-scoped kinds.
    pub(in crate::cli) fn namespace_of(&self, resource: &ServedResource) -> Option<&str> {
        resource.namespaced.then_some(self.namespace.as_str())
    }

    /// An object by its kind and name.
    pub(in crate::cli) fn target<'a>(
        &self,
        resource: &'a ServedResource,
        name: &str,
    ) -> ObjectTarget<'a> {
        let namespace = self.namespace_of(resource).map(str::to_owned);
        ObjectTarget { resource, namespace, name: name.to_owned() }
    }

    /// The selected objects. Selection by label sends a request.
    pub(in crate::cli) async fn targets(
        &self,
        selection: &ResourceSelection,
    ) -> Result<Vec<ObjectTarget<'_>>> {
        match &selection.resources {
            ResourceArgs::Objects(pairs) => pairs
                .iter()
                .map(|(kind, name)| Ok(self.target(self.resources.by_name(kind)?, name)))
                .collect(),
            ResourceArgs::Kinds(kinds, names) => {
                let mut targets = Vec::new();
                for kind in kinds {
                    let resource = self.resources.by_name(kind)?;
                    targets.extend(names.iter().map(|name| self.target(resource, name)));
                    if names.is_empty() {
                        targets.extend(self.select_by_label(resource, &selection.selector).await?);
                    }
                }
                Ok(targets)
            }
        }
    }

    async fn select_by_label<'a>(
        &self,
        resource: &'a ServedResource,
        selector: &str,
    ) -> Result<Vec<ObjectTarget<'a>>> {
        let path = resource.path(self.namespace_of(resource), None);
        let list = self
            .client
            .list_as(&with_query(&path, &[("labelSelector", selector)]), ACCEPT_METADATA)
            .await?;
        let items = list.get("items").and_then(Value::as_array).into_iter().flatten();
        let names = items.filter_map(|item| item.pointer("/metadata/name").and_then(Value::as_str));
        Ok(names.map(|name| self.target(resource, name)).collect())
    }
}
