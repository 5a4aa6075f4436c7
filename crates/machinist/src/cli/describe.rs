//! `machinist describe`: details of objects, for people.

use anyhow::Result;
use clap::Args;
use serde_json::Value;

use super::cluster::describe::describe;
use super::cluster::resource_args::ResourceArgs;
use super::cluster::session::{ClusterSession, ObjectTarget, SessionArgs};
use super::cluster::{self, usage_error};
use super::{CommandOutcome, output};
use crate::kubernetes::ServedResource;
use crate::kubernetes::request::{ACCEPT_JSON, with_query};

/// Show details of objects: metadata, spec, status, conditions and events
///
/// Long contents are shortened, and only the size of secrets is shown. `machinist get -o yaml` shows
/// complete objects.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist describe mcp worker")]
pub(super) struct DescribeArgs {
    /// A kind and names (mcp worker), or objects (mcp/worker node/a); a kind alone means all its objects
    #[arg(value_name = "TYPE NAME", required = true)]
    resource_args: Vec<String>,

    /// Show only objects with these labels
    #[arg(short = 'l', long, value_name = "LABELS")]
    selector: Option<String>,

    #[command(flatten)]
    session: SessionArgs,
}

impl DescribeArgs {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        let resource_args = ResourceArgs::parse(&self.resource_args)?;
        let is_named = !matches!(&resource_args, ResourceArgs::Kinds(_, names) if names.is_empty());
        if is_named && self.selector.is_some() {
            return Err(usage_error("use either names or a selector"));
        }
        cluster::block_on(async {
            let session = self.session.connect().await?;
            let (mut is_first, mut outcome) = (true, CommandOutcome::Done);
            for object in self.objects(&session, resource_args).await? {
                let shown = match object {
                    Ok((resource, object)) => show(&session, resource, object, is_first).await,
                    Err(error) => Err(error),
                };
                match shown {
                    Ok(()) => is_first = false,
                    Err(error) => {
                        output::print_error(&format!("{error:#}"));
                        outcome = CommandOutcome::Failed;
                    }
                }
            }
            if is_first && outcome == CommandOutcome::Done {
                output::print_note("No resources found");
            }
            Ok(outcome)
        })
    }

    /// The selected objects, with an error for each that does not exist.
    async fn objects<'a>(
        &self,
        session: &'a ClusterSession,
        resource_args: ResourceArgs,
    ) -> Result<Vec<Result<(&'a ServedResource, Value)>>> {
        let mut targets: Vec<ObjectTarget<'a>> = Vec::new();
        let mut objects = Vec::new();
        match resource_args {
            ResourceArgs::Objects(pairs) => {
                for (kind, name) in pairs {
                    targets.push(session.target(session.resources.by_name(&kind)?, &name));
                }
            }
            ResourceArgs::Kinds(kinds, names) => {
                for kind in kinds {
                    let resource = session.resources.by_name(&kind)?;
                    targets.extend(names.iter().map(|name| session.target(resource, name)));
                    if names.is_empty() {
                        objects.extend(self.list(session, resource).await?.into_iter().map(Ok));
                    }
                }
            }
        }
        for target in targets {
            let found = session.client.get(&target.path()).await;
            objects.push(found.map(|object| (target.resource, object)));
        }
        Ok(objects)
    }

    async fn list<'a>(
        &self,
        session: &ClusterSession,
        resource: &'a ServedResource,
    ) -> Result<Vec<(&'a ServedResource, Value)>> {
        let path = resource.path(session.namespace_of(resource), None);
        let selector = self.selector.as_deref().unwrap_or_default();
        let path = with_query(&path, &[("labelSelector", selector)]);
        let list = session.client.list_as(&path, ACCEPT_JSON).await?;
        let items = list.get("items").and_then(Value::as_array).cloned().unwrap_or_default();
        Ok(items.into_iter().map(|item| (resource, item)).collect())
    }
}

async fn show(
    session: &ClusterSession,
    resource: &ServedResource,
    mut object: Value,
    is_first: bool,
) -> Result<()> {
    if let Some(fields) = object.as_object_mut() {
        fields.entry("apiVersion").or_insert_with(|| resource.api_version().into());
        fields.entry("kind").or_insert_with(|| resource.kind.clone().into());
    }
    let events = events(session, resource, &object).await;
    let gap = if is_first { "" } else { "\n" };
    output::print(&format!("{gap}{}", describe(&object, &events)))
}

/// The events about an object. Missing permission to read events is only a warning.
async fn events(session: &ClusterSession, resource: &ServedResource, object: &Value) -> Vec<Value> {
    let Some(kind) = session.resources.by_kind("v1", "Event") else { return Vec::new() };
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let namespace = text("/metadata/namespace");
    let path = kind.path(Some(namespace).filter(|name| !name.is_empty()), None);
    let fields = format!(
        "involvedObject.name={},involvedObject.kind={}",
        text("/metadata/name"),
        resource.kind
    );
    let list = session.client.get(&with_query(&path, &[("fieldSelector", &fields)])).await;
    let mut list = match list {
        Ok(list) => list.get("items").and_then(Value::as_array).cloned().unwrap_or_default(),
        Err(error) => {
            output::print_warning(&format!("cannot read the events: {error:#}"));
            Vec::new()
        }
    };
    list.sort_by_key(|event| {
        let last = event.get("lastTimestamp").and_then(Value::as_str);
        last.unwrap_or_default().to_owned()
    });
    list
}
