//! The home with its kinds, and the objects that are meant.

use anyhow::Result;
use clap::Args;
use serde_json::Value;

use super::resource_args::ResourceArgs;
use super::usage_error;
use crate::cli::connection_args::ConnectionArgs;
use crate::kubernetes::request::{ACCEPT_METADATA, with_query};
use crate::kubernetes::{ApiClient, ServedResource, ServedResources};

/// Which home, and which namespace in it.
#[derive(Debug, Clone, Args)]
pub(in crate::cli) struct SessionArgs {
    #[command(flatten)]
    connection: ConnectionArgs,

    /// The namespace, for kinds that have namespaces [default: that of the kubeconfig]
    #[arg(short, long, value_name = "NAME", help_heading = "The home")]
    namespace: Option<String>,
}

impl SessionArgs {
    /// Finds the home and asks for its kinds.
    pub(in crate::cli) async fn connect(&self) -> Result<ClusterSession> {
        let home = ApiClient::new(self.connection.client().await?);
        let resources = home.resources().await?;
        let named = self.namespace.clone();
        let namespace = named.clone().unwrap_or_else(|| home.default_namespace().to_owned());
        Ok(ClusterSession { client: home, resources, namespace, explicit_namespace: named })
    }
}

/// Objects that are not named.
#[derive(Debug, Clone, Args)]
pub(in crate::cli) struct SelectionArgs {
    /// Those with these labels, such as role=worker or 'zone in (a,b)'
    #[arg(short = 'l', long, value_name = "LABELS")]
    pub(in crate::cli) selector: Option<String>,

    /// All of the kind
    #[arg(long, conflicts_with = "selector")]
    pub(in crate::cli) all: bool,
}

impl SelectionArgs {
    /// Whether objects are meant that are not named.
    pub(in crate::cli) fn is_given(&self) -> bool {
        self.all || self.selector.is_some()
    }

    /// Together with the words that name kinds and objects.
    ///
    /// # Errors
    /// Nothing is meant, or two things.
    pub(in crate::cli) fn select(&self, words: &[String]) -> Result<ResourceSelection> {
        let words = ResourceArgs::parse(words)?;
        let is_named = !matches!(&words, ResourceArgs::Kinds(_, names) if names.is_empty());
        if is_named == self.is_given() {
            return Err(usage_error("give either names, or --selector, or --all"));
        }
        Ok(ResourceSelection {
            resources: words,
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

/// A home that has told its kinds.
#[derive(Debug)]
pub(in crate::cli) struct ClusterSession {
    pub(in crate::cli) client: ApiClient,
    pub(in crate::cli) resources: ServedResources,
    /// The namespace that is meant where an object names none.
    pub(in crate::cli) namespace: String,
    /// The namespace that the user named.
    pub(in crate::cli) explicit_namespace: Option<String>,
}

/// One object that is meant.
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
    /// The namespace for objects of a kind; none if they have none.
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

    /// The objects that are meant. Those by label are asked for.
    pub(in crate::cli) async fn targets(
        &self,
        many: &ResourceSelection,
    ) -> Result<Vec<ObjectTarget<'_>>> {
        match &many.resources {
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
                        targets.extend(self.select_by_label(resource, &many.selector).await?);
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
