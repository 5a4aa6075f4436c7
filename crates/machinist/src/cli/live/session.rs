//! The home with its kinds, and the objects that are meant.

use anyhow::Result;
use clap::Args;
use serde_json::Value;

use super::usage;
use super::words::Words;
use crate::cli::home_args::HomeArgs;
use crate::home::request::{METADATA, with};
use crate::home::{Home, Resource, Resources};

/// Which home, and which namespace in it.
#[derive(Debug, Clone, Args)]
pub(in crate::cli) struct SessionArgs {
    #[command(flatten)]
    home: HomeArgs,

    /// The namespace, for kinds that have namespaces [default: that of the kubeconfig]
    #[arg(short, long, value_name = "NAME", help_heading = "The home")]
    namespace: Option<String>,
}

impl SessionArgs {
    /// Finds the home and asks for its kinds.
    pub(in crate::cli) async fn open(&self) -> Result<Session> {
        let home = Home::new(self.home.client().await?);
        let resources = home.resources().await?;
        let named = self.namespace.clone();
        let namespace = named.clone().unwrap_or_else(|| home.default_namespace().to_owned());
        Ok(Session { home, resources, namespace, named_namespace: named })
    }
}

/// Objects that are not named.
#[derive(Debug, Clone, Args)]
pub(in crate::cli) struct WhichArgs {
    /// Those with these labels, such as role=worker or 'zone in (a,b)'
    #[arg(short = 'l', long, value_name = "LABELS")]
    pub(in crate::cli) selector: Option<String>,

    /// All of the kind
    #[arg(long, conflicts_with = "selector")]
    pub(in crate::cli) all: bool,
}

impl WhichArgs {
    /// Whether objects are meant that are not named.
    pub(in crate::cli) fn is_given(&self) -> bool {
        self.all || self.selector.is_some()
    }

    /// Together with the words that name kinds and objects.
    ///
    /// # Errors
    /// Nothing is meant, or two things.
    pub(in crate::cli) fn with(&self, words: &[String]) -> Result<Many> {
        let words = Words::parse(words)?;
        let is_named = !matches!(&words, Words::Kinds(_, names) if names.is_empty());
        if is_named == self.is_given() {
            return Err(usage("give either names, or --selector, or --all"));
        }
        Ok(Many { words, selector: self.selector.clone().unwrap_or_default() })
    }
}

/// Objects by name, by label, or all of a kind.
#[derive(Debug, Clone)]
pub(in crate::cli) struct Many {
    words: Words,
    selector: String,
}

/// A home that has told its kinds.
#[derive(Debug)]
pub(in crate::cli) struct Session {
    pub(in crate::cli) home: Home,
    pub(in crate::cli) resources: Resources,
    /// The namespace that is meant where an object names none.
    pub(in crate::cli) namespace: String,
    /// The namespace that the user named.
    pub(in crate::cli) named_namespace: Option<String>,
}

/// One object that is meant.
#[derive(Debug, Clone)]
pub(in crate::cli) struct Target<'a> {
    pub(in crate::cli) resource: &'a Resource,
    pub(in crate::cli) namespace: Option<String>,
    pub(in crate::cli) name: String,
}

impl Target<'_> {
    pub(in crate::cli) fn path(&self) -> String {
        self.resource.path(self.namespace.as_deref(), Some(&self.name))
    }

    /// `kind.group/name`.
    pub(in crate::cli) fn object(&self) -> String {
        self.resource.object(&self.name)
    }
}

impl Session {
    /// The namespace for objects of a kind; none if they have none.
    pub(in crate::cli) fn namespace_of(&self, resource: &Resource) -> Option<&str> {
        resource.namespaced.then_some(self.namespace.as_str())
    }

    /// An object by its kind and name.
    pub(in crate::cli) fn target<'a>(&self, resource: &'a Resource, name: &str) -> Target<'a> {
        let namespace = self.namespace_of(resource).map(str::to_owned);
        Target { resource, namespace, name: name.to_owned() }
    }

    /// The objects that are meant. Those by label are asked for.
    pub(in crate::cli) async fn targets(&self, many: &Many) -> Result<Vec<Target<'_>>> {
        match &many.words {
            Words::Objects(pairs) => pairs
                .iter()
                .map(|(kind, name)| Ok(self.target(self.resources.named(kind)?, name)))
                .collect(),
            Words::Kinds(kinds, names) => {
                let mut targets = Vec::new();
                for kind in kinds {
                    let resource = self.resources.named(kind)?;
                    targets.extend(names.iter().map(|name| self.target(resource, name)));
                    if names.is_empty() {
                        targets.extend(self.select(resource, &many.selector).await?);
                    }
                }
                Ok(targets)
            }
        }
    }

    async fn select<'a>(&self, resource: &'a Resource, selector: &str) -> Result<Vec<Target<'a>>> {
        let path = resource.path(self.namespace_of(resource), None);
        let list =
            self.home.list_as(&with(&path, &[("labelSelector", selector)]), METADATA).await?;
        let items = list.get("items").and_then(Value::as_array).into_iter().flatten();
        let names = items.filter_map(|item| item.pointer("/metadata/name").and_then(Value::as_str));
        Ok(names.map(|name| self.target(resource, name)).collect())
    }
}
