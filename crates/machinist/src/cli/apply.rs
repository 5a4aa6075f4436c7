//! `machinist apply`: creates and updates objects from manifests.

use std::collections::HashMap;
use std::path::PathBuf;

use anyhow::{Context as _, Result, anyhow, bail};
use clap::{Args, ValueEnum};
use http::Method;
use machinist_core::api::{MachineConfig, MachineConfigPool};
use serde_json::Value;

use super::cluster;
use super::cluster::session::{ClusterSession, ObjectTarget, SessionArgs};
use super::cluster::snapshot::SnapshotKind;
use super::prune::{PruneOptions, prune};
use super::{CommandOutcome, findings, output};
use crate::kubernetes::apply::{last_applied, patch, with_last_applied};
use crate::kubernetes::request::{ACCEPT_JSON, JsonResponse, MERGE_PATCH, status_code, with_query};
use crate::manifests::{self, ManifestDocument};

/// How often a write is retried after a conflict with another writer.
const MAX_CONFLICT_RETRIES: usize = 5;

/// Create or update objects from manifests
///
/// Fields that an earlier apply set and the manifest no longer contains are removed; fields that others
/// set stay. The record is the same as that of kubectl apply, so both can be used on the same object.
/// Lists are replaced as a whole. All manifests are checked before the first write.
///
/// With --prune, objects that an earlier apply created and that are no longer in the manifests are deleted, after
/// everything else was applied without an error.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist apply -f examples/chrony.yaml")]
pub(super) struct ApplyArgs {
    /// The manifests: a file, a directory, or - for standard input (repeatable)
    #[arg(short = 'f', long = "filename", value_name = "PATH", required = true)]
    filename: Vec<PathBuf>,

    /// Read the directories below directories, too
    #[arg(short = 'R', long)]
    recursive: bool,

    /// Let the API server check everything, and change nothing
    #[arg(long)]
    dry_run: bool,

    /// Delete what an earlier apply created and these manifests do not contain; needs --selector or --all
    #[arg(long, requires = "pruned")]
    prune: bool,

    /// With --prune: only objects with these labels, such as team=web
    #[arg(short = 'l', long, value_name = "LABELS", group = "pruned", requires = "prune")]
    selector: Option<String>,

    /// With --prune: all objects of the kinds in the manifests, and of Machinist's own kinds
    #[arg(long, group = "pruned", requires = "prune")]
    all: bool,

    /// With --prune: delete pools with machines without asking
    #[arg(short, long, requires = "prune")]
    yes: bool,

    /// The output format
    #[arg(short, long, value_enum, default_value_t = ApplyOutputFormat::Text)]
    output: ApplyOutputFormat,

    #[command(flatten)]
    session: SessionArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ApplyOutputFormat {
    Text,
    Name,
    Json,
    Yaml,
}

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ApplyResult {
    Created,
    Configured,
    Unchanged,
}

impl ApplyArgs {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        let documents = if self.recursive {
            manifests::read_recursively(&self.filename)?
        } else {
            for skipped in manifests::skipped_directories(&self.filename) {
                output::print_note(&format!("skipped {}: use -R to read it", skipped.display()));
            }
            manifests::read(&self.filename)?
        };
        if documents.is_empty() {
            bail!("these files contain no objects");
        }
        cluster::block_on(async {
            let session = self.session.connect().await?;
            let wanted = session.manifests(&documents)?;
            let mut outcome = CommandOutcome::Done;
            for (target, manifest) in &wanted {
                let checked = findings::check_and_print(&target.object_name(), manifest);
                let result = match checked {
                    Ok(()) => self.apply(&session, target, manifest).await,
                    Err(error) => Err(error),
                };
                let shown = result.and_then(|(change, object)| self.show(target, change, &object));
                if let Err(error) = shown {
                    output::print_error(&format!("{}: {error:#}", target.object_name()));
                    outcome = CommandOutcome::Failed;
                }
            }
            warn_of_unselected(&session, &wanted).await;
            if self.prune && outcome == CommandOutcome::Done {
                let selector = self.selector.as_deref().unwrap_or_default();
                let options = PruneOptions { selector, dry_run: self.dry_run, yes: self.yes };
                if !prune(&session, &wanted, &options).await? {
                    outcome = CommandOutcome::Refused;
                }
            }
            Ok(outcome)
        })
    }

    async fn apply(
        &self,
        session: &ClusterSession,
        target: &ObjectTarget<'_>,
        manifest: &Value,
    ) -> Result<(ApplyResult, Value)> {
        let wanted = with_last_applied(manifest);
        let mut tries = 0;
        loop {
            tries += 1;
            match self.try_apply(session, target, &wanted).await {
                // Another writer created, changed or deleted it in between: read it again.
                Err(error)
                    if tries < MAX_CONFLICT_RETRIES
                        && matches!(status_code(&error), Some(404 | 409)) => {}
                result => return result,
            }
        }
    }

    async fn try_apply(
        &self,
        session: &ClusterSession,
        target: &ObjectTarget<'_>,
        wanted: &Value,
    ) -> Result<(ApplyResult, Value)> {
        let dry_run = if self.dry_run { "All" } else { "" };
        let query = |path: &str| {
            let fixed = [("fieldManager", "machinist"), ("fieldValidation", "Strict")];
            with_query(&with_query(path, &fixed), &[("dryRun", dry_run)])
        };
        let live = match session.client.get(&target.path()).await {
            Ok(live) => live,
            Err(error) if status_code(&error) == Some(404) => {
                let list = target.resource.path(target.namespace.as_deref(), None);
                let made =
                    session.client.write(Method::POST, &query(&list), ACCEPT_JSON, wanted).await;
                // Something else is missing, such as the namespace: a retry does not help.
                let response = made.map_err(|error| match status_code(&error) {
                    Some(404) => anyhow!("{error:#}"),
                    _ => error,
                })?;
                return Ok((ApplyResult::Created, print_warnings(response)));
            }
            Err(error) => return Err(error),
        };
        let patch = patch(last_applied(&live).as_ref(), &live, wanted);
        if patch.as_object().is_some_and(serde_json::Map::is_empty) {
            return Ok((ApplyResult::Unchanged, live));
        }
        let path = query(&target.path());
        let response = session.client.write(Method::PATCH, &path, MERGE_PATCH, &patch).await?;
        let revision = |object: &Value| object.pointer("/metadata/resourceVersion").cloned();
        let is_same = !self.dry_run && revision(&response.body) == revision(&live);
        let change = if is_same { ApplyResult::Unchanged } else { ApplyResult::Configured };
        Ok((change, print_warnings(response)))
    }

    fn show(&self, target: &ObjectTarget<'_>, change: ApplyResult, object: &Value) -> Result<()> {
        match self.output {
            ApplyOutputFormat::Text => {
                let word = match change {
                    ApplyResult::Created => "created",
                    ApplyResult::Configured => "configured",
                    ApplyResult::Unchanged => "unchanged",
                };
                let note = if self.dry_run { " (server dry run)" } else { "" };
                output::print(&format!("{} {word}{note}\n", target.object_name()))
            }
            ApplyOutputFormat::Name => output::print(&format!("{}\n", target.object_name())),
            ApplyOutputFormat::Json => output::print_json(object),
            ApplyOutputFormat::Yaml => {
                output::print("---\n")?;
                output::print_yaml(object)
            }
        }
    }
}

/// Reports MachineConfigs that no pool selects. Who may not list pools is not bothered with that.
async fn warn_of_unselected(session: &ClusterSession, wanted: &[(ObjectTarget<'_>, Value)]) {
    let is_config = |object: &&Value| object["kind"] == "MachineConfig";
    let objects = wanted.iter().map(|(_, object)| object);
    let read = |object: &Value| serde_json::from_value(object.clone()).ok();
    let configs: Vec<MachineConfig> = objects.clone().filter(is_config).filter_map(read).collect();
    if configs.is_empty() {
        return;
    }
    if let Ok(mut pools) = session.all::<MachineConfigPool>(SnapshotKind::Pool).await {
        // A dry run does not create those that are given with them.
        pools.extend(
            objects
                .filter(|object| object["kind"] == "MachineConfigPool")
                .filter_map(|object| serde_json::from_value(object.clone()).ok()),
        );
        findings::print_unselected(&configs, &pools);
    }
}

/// The object in a response. Prints the warnings of the server.
fn print_warnings(response: JsonResponse) -> Value {
    for warning in &response.warnings {
        output::print_warning(warning);
    }
    response.body
}

impl ClusterSession {
    /// The objects in manifests with their targets. One error names all problems.
    ///
    /// # Errors
    /// A manifest is incomplete, or the API server does not serve its kind.
    pub(super) fn manifests(
        &self,
        documents: &[ManifestDocument],
    ) -> Result<Vec<(ObjectTarget<'_>, Value)>> {
        let (mut good, mut bad, mut seen) = (Vec::new(), Vec::new(), HashMap::new());
        for document in documents {
            let read = self.manifest(document).and_then(|(target, object)| {
                match seen.insert(target.path(), &document.origin) {
                    Some(first) => bail!("the same object is also in {first}: remove one"),
                    None => Ok((target, object)),
                }
            });
            match read {
                Ok(object) => good.push(object),
                Err(error) => {
                    bad.push(format!("{}: {}: {error:#}", document.origin, document.object_name()));
                }
            }
        }
        if !bad.is_empty() {
            bail!("{}; nothing was changed", bad.join("; "));
        }
        Ok(good)
    }

    fn manifest(&self, document: &ManifestDocument) -> Result<(ObjectTarget<'_>, Value)> {
        for (field, value) in [
            ("apiVersion", document.api_version()),
            ("kind", document.kind()),
            ("metadata.name", document.name()),
        ] {
            if value.is_empty() {
                bail!("{field}: is missing: add it");
            }
        }
        let (version, kind) = (document.api_version(), document.kind());
        let resource = self.resources.by_kind(version, kind).with_context(|| {
            format!("the API server does not serve {kind} in {version}: correct apiVersion and kind, or install its CustomResourceDefinition first")
        })?;
        let mut target = self.target(resource, document.name());
        let mut object = document.value.clone();
        if !resource.namespaced {
            return Ok((target, object));
        }
        let declared = object.pointer("/metadata/namespace").and_then(Value::as_str);
        if let Some(declared) = declared.filter(|name| !name.is_empty()) {
            if let Some(named) = self.explicit_namespace.as_ref().filter(|named| *named != declared)
            {
                bail!("metadata.namespace: is {declared}, but --namespace is {named}: remove one");
            }
            target.namespace = Some(declared.to_owned());
        } else if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("namespace".to_owned(), self.namespace.clone().into());
        }
        Ok((target, object))
    }
}
