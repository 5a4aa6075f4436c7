//! `machinist migrate`: from a hub to a cluster, or back, without touching a machine.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use http::Method;
use machinist_core::adopt::{self, AdoptionVerdict};
use machinist_core::migrate::{self, MigrationStep};
use machinist_core::render::ImageSources;
use serde::Serialize;
use serde_json::{Value, json};

use super::cluster::snapshot::{SnapshotKind, deserialize};
use super::output::OutputFormat;
use super::{CommandOutcome, cluster, output};
use crate::kubernetes::request::{ACCEPT_JSON, MERGE_PATCH, status_code};
use crate::kubernetes::{ApiClient, ConnectionOptions, ServedResource, ServedResources, connect};

/// The group of our kinds.
const MACHINE_CONFIG_GROUP: &str = "machineconfiguration.openshift.io";
/// How long the pools of the new home have to be as they were before machines may follow them.
const STABLE_PERIOD: Duration = Duration::from_secs(3);
/// How long to wait for that.
const STABLE_TIMEOUT: Duration = Duration::from_secs(60);

/// The group of the cluster's own settings.
const CONFIG_GROUP: &str = "config.openshift.io";

/// Kinds that move, in the order in which they are written. Pools are held until everything is there; machines come last.
const KINDS: [(&str, &str); 20] = [
    (CONFIG_GROUP, "APIServer"),
    (CONFIG_GROUP, "FeatureGate"),
    (CONFIG_GROUP, "Node"),
    (CONFIG_GROUP, "Image"),
    (CONFIG_GROUP, "ClusterImagePolicy"),
    (MACHINE_CONFIG_GROUP, "ControllerConfig"),
    (MACHINE_CONFIG_GROUP, "OSImageStream"),
    ("operator.openshift.io", "MachineConfiguration"),
    (MACHINE_CONFIG_GROUP, "MachineConfigPool"),
    (MACHINE_CONFIG_GROUP, "MachineConfig"),
    (MACHINE_CONFIG_GROUP, "KubeletConfig"),
    (MACHINE_CONFIG_GROUP, "ContainerRuntimeConfig"),
    (MACHINE_CONFIG_GROUP, "MachineOSConfig"),
    (MACHINE_CONFIG_GROUP, "MachineOSBuild"),
    (MACHINE_CONFIG_GROUP, "PinnedImageSet"),
    (CONFIG_GROUP, "ImageDigestMirrorSet"),
    (CONFIG_GROUP, "ImageTagMirrorSet"),
    ("operator.openshift.io", "ImageContentSourcePolicy"),
    ("", "Node"),
    (MACHINE_CONFIG_GROUP, "MachineConfigNode"),
];

/// Take pools, configs, rendered history and machines from one home to another
///
/// No machine is touched: it keeps its config, and the pools keep the names of theirs. Everything is looked at before
/// anything is written; what is in the way is named (exit code 3). It can be repeated: what is there already is left alone. The
/// old home keeps everything; stop its controller before machines join the new one.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  machinist migrate --from hub.kubeconfig --to ~/.kube/config --dry-run"
)]
pub(super) struct MigrateArgs {
    /// The kubeconfig of the home to leave
    #[arg(long, value_name = "KUBECONFIG")]
    from: PathBuf,

    /// The kubeconfig of the home to go to
    #[arg(long, value_name = "KUBECONFIG")]
    to: PathBuf,

    /// Show what would be done, and write nothing
    #[arg(long)]
    dry_run: bool,

    /// The form of the answer
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,
}

/// One object on its way.
struct MigrationItem {
    resource: ServedResource,
    name: String,
    source: Value,
    step: MigrationStep,
}

#[derive(Serialize)]
struct MigrationRow<'a> {
    object: String,
    action: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

/// A home and its kinds.
struct MigrationSide {
    client: ApiClient,
    resources: ServedResources,
}

impl MigrationSide {
    async fn connect(kubeconfig: &std::path::Path) -> Result<Self> {
        let wanted = ConnectionOptions { kubeconfig: Some(kubeconfig.to_owned()), context: None };
        let home = ApiClient::new(connect::client(&wanted).await?);
        let resources = home.resources().await?;
        Ok(Self { client: home, resources })
    }

    fn resource_of(&self, group: &str, kind: &str) -> Option<&ServedResource> {
        self.resources.0.iter().find(|one| one.group == group && one.kind == kind)
    }

    /// All objects of a kind. A list leaves out what each object is.
    async fn list_all(&self, resource: &ServedResource) -> Result<Vec<Value>> {
        let list = self.client.list_as(&resource.path(None, None), ACCEPT_JSON).await?;
        let items = list.get("items").and_then(Value::as_array).cloned().unwrap_or_default();
        let complete = |mut item: Value| {
            item["apiVersion"] = resource.api_version().into();
            item["kind"] = resource.kind.clone().into();
            item
        };
        Ok(items.into_iter().map(complete).collect())
    }
}

impl MigrateArgs {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        cluster::block_on(async {
            let from = MigrationSide::connect(&self.from).await.context("--from")?;
            let to = MigrationSide::connect(&self.to).await.context("--to")?;
            let items = plan(&from, &to).await?;
            let problems = problems(&items)?;
            let blocked = !problems.is_empty();
            if !blocked && !self.dry_run {
                write_all(&to, &items).await?;
            }
            self.show(&items, &problems)?;
            Ok(if blocked { CommandOutcome::Refused } else { CommandOutcome::Done })
        })
    }

    fn show(&self, items: &[MigrationItem], problems: &[String]) -> Result<()> {
        let lines: Vec<MigrationRow<'_>> = items.iter().map(output_row).collect();
        if self.output == OutputFormat::Json {
            let answer = json!({"dryRun": self.dry_run, "objects": lines, "problems": problems});
            return output::print_json(&answer);
        }
        let mut count: BTreeMap<&str, usize> = BTreeMap::new();
        for line in &lines {
            *count.entry(line.action).or_default() += 1;
        }
        let would = if self.dry_run || !problems.is_empty() { "would be " } else { "" };
        let mut text = String::new();
        for (action, count) in count {
            text += &format!("{count} objects {would}{action}\n");
        }
        for problem in problems {
            text += &format!("{problem}\n");
        }
        if !problems.is_empty() {
            text += "Nothing was written.\n";
        }
        output::print(&text)
    }
}

fn output_row(item: &MigrationItem) -> MigrationRow<'_> {
    let (action, reason) = match &item.step {
        MigrationStep::Create(_) => ("created", None),
        MigrationStep::Replace(_) => ("replaced", None),
        MigrationStep::Merge(_) => ("completed", None),
        MigrationStep::Unchanged => ("left alone", None),
        MigrationStep::Conflict(reason) => ("refused", Some(reason.as_str())),
    };
    MigrationRow { object: item.resource.object_name(&item.name), action, reason }
}

/// What has to be done with each object, in order.
async fn plan(from: &MigrationSide, to: &MigrationSide) -> Result<Vec<MigrationItem>> {
    let mut items = Vec::new();
    for (group, kind) in KINDS {
        let Some(source) = from.resource_of(group, kind) else { continue };
        let old = from.list_all(source).await?;
        if old.is_empty() {
            continue;
        }
        let Some(resource) = to.resource_of(group, kind) else {
            bail!(
                "the home to go to has no kind {kind} in {group}: install the CustomResourceDefinitions (`machinist crds`)"
            );
        };
        let there = to.list_all(resource).await?;
        let there: BTreeMap<&str, &Value> = there.iter().map(|one| (name(one), one)).collect();
        for old in old {
            let step = step(resource, &old, there.get(name(&old)).copied());
            items.push(MigrationItem {
                resource: resource.clone(),
                name: name(&old).to_owned(),
                source: old,
                step,
            });
        }
    }
    Ok(items)
}

fn step(resource: &ServedResource, old: &Value, there: Option<&Value>) -> MigrationStep {
    if resource.group.is_empty() && resource.kind == "Node" {
        migrate::node_migration_step(old, there)
    } else {
        migrate::migration_step(old, there)
    }
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// What stands in the way: conflicts, rollouts that run, pools that would get another config.
fn problems(items: &[MigrationItem]) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    for item in items {
        let object = item.resource.object_name(&item.name);
        if let MigrationStep::Conflict(reason) = &item.step {
            problems.push(format!("{object} {reason}"));
        }
        if item.resource.kind == "MachineConfigPool"
            && let Some(reason) = migrate::migration_blocker(&item.source)
        {
            problems.push(format!("{object}: {reason}"));
        }
    }
    let of = |kind: &str| {
        let kind = kind.to_owned();
        items.iter().filter(move |item| item.resource.kind == kind).map(|item| &item.source)
    };
    let pools = of("MachineConfigPool")
        .map(|one| deserialize(SnapshotKind::Pool, one))
        .collect::<Result<Vec<_>>>()?;
    let configs = of("MachineConfig")
        .map(|one| deserialize(SnapshotKind::Config, one))
        .collect::<Result<Vec<_>>>()?;
    let controller =
        of("ControllerConfig").next().map(|one| deserialize(SnapshotKind::ControllerConfig, one));
    let controller = controller.transpose()?;
    let streams =
        of("OSImageStream").next().map(|one| deserialize(SnapshotKind::OsImageStream, one));
    let streams = streams.transpose()?;
    let system = ImageSources {
        controller_config: controller.as_ref(),
        streams: streams.as_ref(),
        worker: None,
    };
    let verdicts = adopt::check(&pools, &configs, system);
    for verdict in verdicts.iter().filter(|verdict| !AdoptionVerdict::is_safe(verdict)) {
        problems.push(format!(
            "MachineConfigPool {} would get another config there; `machinist adopt --check` says why",
            verdict.pool
        ));
    }
    Ok(problems)
}

/// Writes everything, then who owns what.
async fn write_all(to: &MigrationSide, items: &[MigrationItem]) -> Result<()> {
    let mut identities: BTreeMap<(String, String), String> = BTreeMap::new();
    for (at, item) in items.iter().enumerate() {
        if at % 100 == 0 && items.len() > 100 {
            output::print_note(&format!("{at} of {} objects", items.len()));
        }
        let object = item.resource.object_name(&item.name);
        let written = write(&to.client, item).await.with_context(|| object.clone())?;
        if let Some(uid) = written.pointer("/metadata/uid").and_then(Value::as_str) {
            let key = (item.resource.kind.clone(), item.name.clone());
            identities.insert(key, uid.to_owned());
        }
    }
    for item in items
        .iter()
        .filter(|item| matches!(item.step, MigrationStep::Create(_) | MigrationStep::Replace(_)))
    {
        let identity =
            |kind: &str, name: &str| identities.get(&(kind.to_owned(), name.to_owned())).cloned();
        if let Some(owners) = migrate::remapped_owners(&item.source, identity) {
            let patch = json!({"metadata": {"ownerReferences": owners}});
            let path = item.resource.path(None, Some(&item.name));
            let patched = to.client.write(Method::PATCH, &path, MERGE_PATCH, &patch).await;
            patched.with_context(|| item.resource.object_name(&item.name))?;
        }
    }
    release_pools(&to.client, items).await
}

/// Lets the pools go when a controller of the new home, if there is one, has come to the configs they had.
async fn release_pools(home: &ApiClient, items: &[MigrationItem]) -> Result<()> {
    let is_held = |item: &&MigrationItem| {
        item.resource.kind == "MachineConfigPool"
            && matches!(item.step, MigrationStep::Create(_) | MigrationStep::Replace(_))
    };
    let held: Vec<&MigrationItem> = items.iter().filter(is_held).collect();
    let (start, mut calm_since) = (Instant::now(), None);
    while !held.is_empty() {
        let mut wrong = None;
        for item in &held {
            let there = home.get(&item.resource.path(None, Some(&item.name))).await?;
            let target = |pool: &Value| pool["spec"]["configuration"]["name"].clone();
            if target(&there) != target(&item.source) {
                wrong = Some(&item.name);
            }
        }
        match wrong {
            None if calm_since.get_or_insert_with(Instant::now).elapsed() >= STABLE_PERIOD => break,
            None => {}
            Some(pool) if start.elapsed() > STABLE_TIMEOUT => bail!(
                "MachineConfigPool {pool} has another config in its new home; it stays paused: `machinist adopt --check` says why"
            ),
            Some(_) => calm_since = None,
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    for item in held {
        let path = item.resource.path(None, Some(&item.name));
        let patch = migrate::resume_patch(&item.source);
        home.write(Method::PATCH, &path, MERGE_PATCH, &patch).await?;
    }
    Ok(())
}

/// Replaces a pool that nobody has used. A controller of the new home may write its status meanwhile.
async fn replace_pool(
    home: &ApiClient,
    item: &MigrationItem,
    path: &str,
    mut object: Value,
) -> Result<Value> {
    for _ in 0..10 {
        match home.write(Method::PUT, path, ACCEPT_JSON, &object).await {
            Err(error) if status_code(&error) == Some(409) => {}
            answer => return Ok(answer?.body),
        }
        let there = home.get(path).await?;
        match migrate::migration_step(&item.source, Some(&there)) {
            MigrationStep::Replace(newer) => object = migrate::paused_for_migration(&newer),
            _ => bail!("somebody uses it there now; look at it and try again"),
        }
    }
    bail!("somebody goes on writing it there; try again")
}

/// An object that was not there when the move was planned: a controller of the new home, or the machine itself, was quicker.
async fn adopt_concurrent(home: &ApiClient, item: &MigrationItem) -> Result<Value> {
    let path = item.resource.path(None, Some(&item.name));
    let there = home.get(&path).await?;
    match step(&item.resource, &item.source, Some(&there)) {
        MigrationStep::Unchanged => Ok(there),
        MigrationStep::Merge(patch) => {
            Ok(home.write(Method::PATCH, &path, MERGE_PATCH, &patch).await?.body)
        }
        _ if migrate::is_controller_managed(&there) => Ok(there),
        _ => bail!("somebody made it there just now; look at it and try again"),
    }
}

/// Writes one object with its status; gives it as it is there.
async fn write(home: &ApiClient, item: &MigrationItem) -> Result<Value> {
    let path = item.resource.path(None, Some(&item.name));
    let is_pool = item.resource.kind == "MachineConfigPool";
    let first = |object: &Value| {
        if is_pool { migrate::paused_for_migration(object) } else { object.clone() }
    };
    let written = match &item.step {
        MigrationStep::Create(object) => {
            let folder = item.resource.path(None, None);
            match home.write(Method::POST, &folder, ACCEPT_JSON, &first(object)).await {
                Err(error) if status_code(&error) == Some(409) => {
                    return adopt_concurrent(home, item).await;
                }
                answer => answer?.body,
            }
        }
        MigrationStep::Replace(object) => replace_pool(home, item, &path, first(object)).await?,
        MigrationStep::Merge(patch) => {
            return Ok(home.write(Method::PATCH, &path, MERGE_PATCH, patch).await?.body);
        }
        MigrationStep::Unchanged | MigrationStep::Conflict(_) => return home.get(&path).await,
    };
    let status = &item.source["status"];
    if !status.is_null() {
        let patch = json!({ "status": status });
        let answer =
            home.write(Method::PATCH, &format!("{path}/status"), MERGE_PATCH, &patch).await;
        match answer {
            // This kind has no status of its own: it came with the object.
            Err(error) if status_code(&error) == Some(404) => {}
            answer => drop(answer?),
        }
    }
    Ok(written)
}
