//! `machinist get`: objects as tables, YAML or JSON.

use anyhow::Result;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};

use super::cluster::query::{ResourceQuery, name_of, objects};
use super::cluster::resource_args::ResourceArgs;
use super::cluster::session::{ClusterSession, SessionArgs};
use super::cluster::table::{ServerTable, TablePrinter};
use super::cluster::{self, usage_error};
use super::{CommandOutcome, output};
use crate::kubernetes::ServedResource;
use crate::kubernetes::request::{ACCEPT_JSON, ACCEPT_TABLE, with_query};
use crate::kubernetes::watch::{ObjectWatch, WatchEvent, revision};

/// Show objects of a hub or a Kubernetes cluster as a table, YAML or JSON
///
/// A kind can be written as mcp, machineconfigpool, machineconfigpools or MachineConfigPool, each also
/// with its group. Without names, all objects of the kind are shown.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist get mcp,mc")]
pub(super) struct GetArgs {
    /// Kinds and names (mcp worker), several kinds (mcp,mc), or objects (mcp/worker node/a)
    #[arg(value_name = "TYPE NAME", required = true)]
    resource_args: Vec<String>,

    /// Show only objects with these labels, such as role=worker or 'zone in (a,b)'
    #[arg(short = 'l', long, value_name = "LABELS")]
    selector: Option<String>,

    /// Show only objects with these fields, such as metadata.name=worker
    #[arg(long, value_name = "FIELDS")]
    field_selector: Option<String>,

    /// Show objects of all namespaces
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,

    /// After the list, show every change until Ctrl-C
    #[arg(short, long)]
    watch: bool,

    /// The output format; `wide` is a table with all columns
    #[arg(short, long, value_enum, default_value_t = GetOutputFormat::Text)]
    output: GetOutputFormat,

    #[command(flatten)]
    session: SessionArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum GetOutputFormat {
    Text,
    Wide,
    Name,
    Json,
    Yaml,
}

impl GetOutputFormat {
    fn is_table(self) -> bool {
        matches!(self, Self::Text | Self::Wide)
    }

    /// The format to request from the server.
    fn accept(self) -> &'static str {
        if self.is_table() { ACCEPT_TABLE } else { ACCEPT_JSON }
    }
}

/// The responses to each query.
type QueryResults = Vec<Vec<Value>>;

impl GetArgs {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        let resource_args = ResourceArgs::parse(&self.resource_args)?;
        self.check(&resource_args)?;
        cluster::block_on(async {
            let session = self.session.connect().await?;
            let parts = ResourceQuery::resolve(&session, resource_args)?;
            let (responses, outcome) = self.fetch(&session, &parts).await?;
            let mut printers = Vec::new();
            if self.output.is_table() {
                printers = self.print_tables(&session, &parts, &responses)?;
            } else {
                self.print_objects(&parts, &responses)?;
            }
            if let (true, [part], [responses]) = (self.watch, &parts[..], &responses[..])
                && let Some(from) = responses.first().and_then(revision)
            {
                self.watch_changes(&session, part, from, printers.first_mut()).await?;
            }
            Ok(outcome)
        })
    }

    /// Rejects wrong usage before the first request.
    fn check(&self, resource_args: &ResourceArgs) -> Result<()> {
        let (kinds, names) = match resource_args {
            ResourceArgs::Kinds(kinds, names) => (kinds.len(), names.len()),
            ResourceArgs::Objects(pairs) => (1, pairs.len()),
        };
        let has_selector = self.selector.is_some() || self.field_selector.is_some();
        if names > 0 && has_selector {
            return Err(usage_error("use either names or a selector"));
        }
        if names > 0 && self.all_namespaces {
            return Err(usage_error("an object is in one namespace: use either its name or -A"));
        }
        if self.watch && (kinds > 1 || names > 1) {
            return Err(usage_error("-w watches one object, or all of one kind"));
        }
        Ok(())
    }

    /// The path of a list, or of one object.
    fn path(
        &self,
        session: &ClusterSession,
        resource: &ServedResource,
        name: Option<&str>,
    ) -> String {
        let namespace = session.namespace_of(resource).filter(|_| !self.all_namespaces);
        resource.path(namespace, name)
    }

    fn query(&self, path: &str) -> String {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let (labels, fields) = (text(&self.selector), text(&self.field_selector));
        with_query(path, &[("labelSelector", &labels), ("fieldSelector", &fields)])
    }

    /// Sends all queries. Objects that do not exist are reported, and the rest is shown.
    async fn fetch(
        &self,
        session: &ClusterSession,
        parts: &[ResourceQuery<'_>],
    ) -> Result<(QueryResults, CommandOutcome)> {
        let (mut responses, mut outcome) = (Vec::new(), CommandOutcome::Done);
        let accept = self.output.accept();
        for part in parts {
            let mut found = Vec::new();
            if part.names.is_empty() {
                let path = self.query(&self.path(session, part.resource, None));
                found.push(session.client.list_as(&path, accept).await?);
            }
            for name in &part.names {
                let path = self.path(session, part.resource, Some(name));
                match session.client.get_as(&path, accept).await {
                    Ok(response) => found.push(response),
                    Err(error) => {
                        output::print_error(&format!("{error:#}"));
                        outcome = CommandOutcome::Failed;
                    }
                }
            }
            responses.push(found);
        }
        Ok((responses, outcome))
    }

    fn print_tables(
        &self,
        session: &ClusterSession,
        parts: &[ResourceQuery<'_>],
        responses: &[Vec<Value>],
    ) -> Result<Vec<TablePrinter>> {
        let (mut printers, mut is_empty) = (Vec::new(), true);
        for (part, responses) in parts.iter().zip(responses) {
            let mut table = ServerTable::default();
            for response in responses {
                table.extend(parse_table(part.resource, response));
            }
            let prefix = if parts.len() > 1 {
                format!("{}/", part.resource.kind_and_group())
            } else {
                String::new()
            };
            let with_namespace = self.all_namespaces && part.resource.namespaced;
            let mut printer =
                TablePrinter::new(self.output == GetOutputFormat::Wide, with_namespace, prefix);
            if !table.is_empty() {
                let gap = if is_empty { "" } else { "\n" };
                output::print(&format!("{gap}{}", printer.render(&table)))?;
                is_empty = false;
            }
            printers.push(printer);
        }
        let lists_all = parts.iter().any(|part| part.names.is_empty());
        if is_empty && lists_all && !self.watch {
            output::print_note(&self.not_found_message(session, parts));
        }
        Ok(printers)
    }

    fn not_found_message(&self, session: &ClusterSession, parts: &[ResourceQuery<'_>]) -> String {
        let namespaced = parts.iter().any(|part| part.resource.namespaced);
        if namespaced && !self.all_namespaces {
            format!("No resources found in {} namespace.", session.namespace)
        } else {
            "No resources found".to_owned()
        }
    }

    fn print_objects(&self, parts: &[ResourceQuery<'_>], responses: &[Vec<Value>]) -> Result<()> {
        let mut all = Vec::new();
        for (part, responses) in parts.iter().zip(responses) {
            for object in responses.iter().flat_map(|response| objects(part.resource, response)) {
                if self.output == GetOutputFormat::Name {
                    output::print(&format!("{}\n", part.resource.object_name(name_of(&object))))?;
                }
                all.push(object);
            }
        }
        let is_one = matches!(parts, [part] if part.names.len() == 1);
        match (self.output, is_one) {
            (GetOutputFormat::Name, _) => Ok(()),
            (_, true) => all.first().map_or(Ok(()), |object| self.print_object(object)),
            (_, false) => self.print_object(&json!({
                "apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": all,
            })),
        }
    }

    fn print_object(&self, object: &Value) -> Result<()> {
        if self.output == GetOutputFormat::Json {
            output::print_json(object)
        } else {
            output::print_yaml(object)
        }
    }

    /// Shows changes after a resource version.
    async fn watch_changes(
        &self,
        session: &ClusterSession,
        part: &ResourceQuery<'_>,
        from: &str,
        mut printer: Option<&mut TablePrinter>,
    ) -> Result<()> {
        let name = part.names.first().map(|name| format!("metadata.name={name}"));
        let path = self.query(&self.path(session, part.resource, None));
        let path = with_query(&path, &[("fieldSelector", name.as_deref().unwrap_or_default())]);
        let accept = self.output.accept();
        let mut from = from.to_owned();
        loop {
            let mut watch = ObjectWatch::new(&session.client, path.clone(), accept, &from);
            while let Some(event) = watch.next().await? {
                if let WatchEvent::Applied(object) | WatchEvent::Deleted(object) = event {
                    self.print_change(part.resource, &object, printer.as_deref_mut())?;
                }
            }
            // The resource version has expired: list again and continue from there.
            let list = session.client.list_as(&path, accept).await?;
            from = revision(&list).unwrap_or_default().to_owned();
            self.print_change(part.resource, &list, printer.as_deref_mut())?;
        }
    }

    fn print_change(
        &self,
        resource: &ServedResource,
        response: &Value,
        printer: Option<&mut TablePrinter>,
    ) -> Result<()> {
        if let Some(printer) = printer {
            return output::print(&printer.render(&parse_table(resource, response)));
        }
        for object in objects(resource, response) {
            match self.output {
                GetOutputFormat::Name => {
                    output::print(&format!("{}\n", resource.object_name(name_of(&object))))?;
                }
                GetOutputFormat::Json => output::print_json(&object)?,
                _ => {
                    output::print("---\n")?;
                    output::print_yaml(&object)?;
                }
            }
        }
        Ok(())
    }
}

fn parse_table(resource: &ServedResource, response: &Value) -> ServerTable {
    if resource.group.is_empty() && resource.plural == "nodes" {
        ServerTable::parse_nodes(response)
    } else {
        ServerTable::parse(response)
    }
}
