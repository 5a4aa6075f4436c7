//! `machinist label` and `machinist annotate`: the two maps of the metadata.

use anyhow::{Context as _, Result};
use clap::Args;
use http::Method;
use serde_json::{Value, json};

use super::live;
use super::live::keys::Changes;
use super::live::session::{Session, SessionArgs, Target, WhichArgs};
use super::{Outcome, output};
use crate::home::request::{MERGE_PATCH, refused, with};

/// How often a write is tried again after somebody else was quicker.
const TRIES: usize = 5;

/// Set and remove labels of objects
///
/// A value that is there already is replaced only with --overwrite.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist label mcp worker team=storage old-")]
pub(super) struct Label {
    #[command(flatten)]
    change: ChangeArgs,
}

/// Set and remove annotations of objects
///
/// A value that is there already is replaced only with --overwrite.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist annotate mcp worker why=testing old-")]
pub(super) struct Annotate {
    #[command(flatten)]
    change: ChangeArgs,
}

#[derive(Debug, Args)]
struct ChangeArgs {
    /// A kind and names (mcp worker) or objects (mcp/worker), then what to set (key=value) and
    /// what to remove (key-)
    #[arg(value_name = "TYPE NAME KEY=VALUE", required = true)]
    words: Vec<String>,

    /// Replace values that are there already
    #[arg(long)]
    overwrite: bool,

    #[command(flatten)]
    which: WhichArgs,

    #[command(flatten)]
    session: SessionArgs,
}

/// Which map, and what its changes are called.
#[derive(Debug, Clone, Copy)]
struct Map {
    field: &'static str,
    changed: &'static str,
    removed: &'static str,
    unchanged: &'static str,
}

const LABELS: Map =
    Map { field: "labels", changed: "labeled", removed: "unlabeled", unchanged: "not labeled" };
// kubectl says the same whatever was done; so do we.
const ANNOTATIONS: Map = Map {
    field: "annotations",
    changed: "annotated",
    removed: "annotated",
    unchanged: "annotated",
};

impl Label {
    pub(super) fn run(&self) -> Result<Outcome> {
        self.change.run(LABELS)
    }
}

impl Annotate {
    pub(super) fn run(&self) -> Result<Outcome> {
        self.change.run(ANNOTATIONS)
    }
}

impl ChangeArgs {
    fn run(&self, map: Map) -> Result<Outcome> {
        let (words, changes) = Changes::split(&self.words)?;
        let many = self.which.with(&words)?;
        live::run(async {
            let session = self.session.open().await?;
            let targets = session.targets(&many).await?;
            if targets.is_empty() {
                output::note("No resources found");
            }
            let mut outcome = Outcome::Done;
            for target in &targets {
                let result = self.change(&session, target, map, &changes).await;
                let shown = result.and_then(|is_changed| {
                    let word = match is_changed {
                        false => map.unchanged,
                        true if changes.only_removes() => map.removed,
                        true => map.changed,
                    };
                    output::print(&format!("{} {word}\n", target.object()))
                });
                if let Err(error) = shown {
                    output::error(&format!("{error:#}"));
                    outcome = Outcome::Failed;
                }
            }
            Ok(outcome)
        })
    }

    /// Whether anything had to change.
    async fn change(
        &self,
        session: &Session,
        target: &Target<'_>,
        map: Map,
        changes: &Changes,
    ) -> Result<bool> {
        let path = with(&target.path(), &[("fieldManager", "machinist")]);
        let mut tries = 0;
        loop {
            tries += 1;
            let object = session.home.get(&target.path()).await?;
            let metadata = object.get("metadata");
            let now = metadata.and_then(|metadata| metadata.get(map.field));
            let patch = changes.patch(now, self.overwrite).with_context(|| target.object())?;
            let Some(patch) = patch else { return Ok(false) };
            // The revision makes sure that nobody's value is overwritten unseen.
            let revision = metadata.and_then(|metadata| metadata.get("resourceVersion"));
            let revision = revision.unwrap_or(&Value::Null);
            let patch = json!({"metadata": {map.field: patch, "resourceVersion": revision}});
            match session.home.write(Method::PATCH, &path, MERGE_PATCH, &patch).await {
                Ok(_) => return Ok(true),
                Err(error) if tries < TRIES && refused(&error) == Some(409) => {}
                Err(error) => return Err(error),
            }
        }
    }
}
