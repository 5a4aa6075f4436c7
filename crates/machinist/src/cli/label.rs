//! `machinist label` and `machinist annotate`: change labels and annotations.

use anyhow::{Context as _, Result};
use clap::Args;
use http::Method;
use serde_json::{Value, json};

use super::cluster;
use super::cluster::metadata_changes::MetadataChanges;
use super::cluster::session::{ClusterSession, ObjectTarget, SelectionArgs, SessionArgs};
use super::{CommandOutcome, output};
use crate::kubernetes::request::{MERGE_PATCH, status_code, with_query};

/// How often a write is retried after a conflict with another writer.
const MAX_CONFLICT_RETRIES: usize = 5;

/// Set or remove labels of objects
///
/// An existing value is replaced only with --overwrite.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist label mcp worker team=storage old-")]
pub(super) struct LabelArgs {
    #[command(flatten)]
    change: MetadataChangeArgs,
}

/// Set or remove annotations of objects
///
/// An existing value is replaced only with --overwrite.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist annotate mcp worker why=testing old-")]
pub(super) struct AnnotateArgs {
    #[command(flatten)]
    change: MetadataChangeArgs,
}

#[derive(Debug, Args)]
struct MetadataChangeArgs {
    /// A kind and names (mcp worker) or objects (mcp/worker), then the keys to set (key=value) or to
    /// remove (key-)
    #[arg(value_name = "TYPE NAME KEY=VALUE", required = true)]
    resource_args: Vec<String>,

    /// Replace existing values
    #[arg(long)]
    overwrite: bool,

    #[command(flatten)]
    selection: SelectionArgs,

    #[command(flatten)]
    session: SessionArgs,
}

/// The changed map, and the words that kubectl prints for its changes.
#[derive(Debug, Clone, Copy)]
struct MetadataField {
    field: &'static str,
    changed: &'static str,
    removed: &'static str,
    unchanged: &'static str,
}

const LABELS: MetadataField = MetadataField {
    field: "labels",
    changed: "labeled",
    removed: "unlabeled",
    unchanged: "not labeled",
};
// kubectl prints the same word for every change.
const ANNOTATIONS: MetadataField = MetadataField {
    field: "annotations",
    changed: "annotated",
    removed: "annotated",
    unchanged: "annotated",
};

impl LabelArgs {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        self.change.run(LABELS)
    }
}

impl AnnotateArgs {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        self.change.run(ANNOTATIONS)
    }
}

impl MetadataChangeArgs {
    fn run(&self, map: MetadataField) -> Result<CommandOutcome> {
        let (resource_args, changes) = MetadataChanges::split(&self.resource_args)?;
        let many = self.selection.select(&resource_args)?;
        cluster::block_on(async {
            let session = self.session.connect().await?;
            let targets = session.targets(&many).await?;
            if targets.is_empty() {
                output::print_note("No resources found");
            }
            let mut outcome = CommandOutcome::Done;
            for target in &targets {
                let result = self.change(&session, target, map, &changes).await;
                let shown = result.and_then(|is_changed| {
                    let word = match is_changed {
                        false => map.unchanged,
                        true if changes.only_removes() => map.removed,
                        true => map.changed,
                    };
                    output::print(&format!("{} {word}\n", target.object_name()))
                });
                if let Err(error) = shown {
                    output::print_error(&format!("{error:#}"));
                    outcome = CommandOutcome::Failed;
                }
            }
            Ok(outcome)
        })
    }

    /// Returns whether anything changed.
    async fn change(
        &self,
        session: &ClusterSession,
        target: &ObjectTarget<'_>,
        map: MetadataField,
        changes: &MetadataChanges,
    ) -> Result<bool> {
        let path = with_query(&target.path(), &[("fieldManager", "machinist")]);
        let mut tries = 0;
        loop {
            tries += 1;
            let object = session.client.get(&target.path()).await?;
            let metadata = object.get("metadata");
            let now = metadata.and_then(|metadata| metadata.get(map.field));
            let patch = changes.patch(now, self.overwrite).with_context(|| target.object_name())?;
            let Some(patch) = patch else { return Ok(false) };
            // The resource version makes the write fail if another writer came first.
            let revision = metadata.and_then(|metadata| metadata.get("resourceVersion"));
            let revision = revision.unwrap_or(&Value::Null);
            let patch = json!({"metadata": {map.field: patch, "resourceVersion": revision}});
            match session.client.write(Method::PATCH, &path, MERGE_PATCH, &patch).await {
                Ok(_) => return Ok(true),
                Err(error) if tries < MAX_CONFLICT_RETRIES && status_code(&error) == Some(409) => {}
                Err(error) => return Err(error),
            }
        }
    }
}
