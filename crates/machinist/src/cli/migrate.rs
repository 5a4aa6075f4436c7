//! `machinist migrate`: copies all objects from one API server to another, without changing machines.

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
/// The pools must keep their configs for this long at the target before they are unpaused.
const STABLE_PERIOD: Duration = Duration::from_secs(3);
/// After this long without stable pools, the migration fails and the pools stay paused.
const STABLE_TIMEOUT: Duration = Duration::from_secs(60);

/// The group of OpenShift's cluster settings.
const CONFIG_GROUP: &str = "config.openshift.io";

/// The kinds that are migrated, in write order. Pools stay paused until everything is written; machines
/// come last.
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

/// Copy pools, configs, rendered configs and machines from one API server to another
///
/// Either may be a hub or a Kubernetes cluster. No machine changes: machines and pools keep their
/// configs. Everything is checked before the first write; conflicts are listed, with exit code 3. The
/// command can be repeated: objects that exist already stay as they are. The source keeps everything;
/// stop its controller before machines join the target.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  machinist migrate --from hub.kubeconfig --to ~/.kube/config --dry-run"
)]
pub(super) struct MigrateArgs {
    /// The kubeconfig of the source
    #[arg(long, value_name = "KUBECONFIG")]
    from: PathBuf,

    /// The kubeconfig of the target
    #[arg(long, value_name = "KUBECONFIG")]
    to: PathBuf,

    /// Show what would be written, and write nothing
    #[arg(long)]
    dry_run: bool,

    /// The output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,
}

/// One object to migrate.
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

/// The source or the target, with the kinds that it serves.
struct MigrationSide {
    client: ApiClient,
    resources: ServedResources,
}

impl MigrationSide {
    async fn connect(kubeconfig: &std::path::Path) -> Result<Self> {
        let options = ConnectionOptions { kubeconfig: Some(kubeconfig.to_owned()), context: None };
        let client = ApiClient::new(connect::client(&options).await?);
        let resources = client.resources().await?;
        Ok(Self { client, resources })
    }

    fn resource_of(&self, group: &str, kind: &str) -> Option<&ServedResource> {
        self.resources.0.iter().find(|one| one.group == group && one.kind == kind)
    }

    /// All objects of a kind, with `apiVersion` and `kind`, which items of a list lack.
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
            let response = json!({"dryRun": self.dry_run, "objects": lines, "problems": problems});
            return output::print_json(&response);
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

/// The step for each object, in write order.
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
                "the target does not serve {kind} in {group}: install the CustomResourceDefinitions (`machinist crds`)"
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

/// What prevents the migration: conflicts, running rollouts, pools that would get another config.
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
            "MachineConfigPool {} would get another config at the target; `machinist adopt --check` shows why",
            verdict.pool
        ));
    }
    Ok(problems)
}

/// Writes all objects, then their owner references, then unpauses the pools.
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

/// Unpauses the pools when the controller of the target, if it has one, keeps the configs they had.
async fn release_pools(client: &ApiClient, items: &[MigrationItem]) -> Result<()> {
    let is_paused = |item: &&MigrationItem| {
        item.resource.kind == "MachineConfigPool"
            && matches!(item.step, MigrationStep::Create(_) | MigrationStep::Replace(_))
    };
    let paused: Vec<&MigrationItem> = items.iter().filter(is_paused).collect();
    let (start, mut stable_since) = (Instant::now(), None);
    while !paused.is_empty() {
        let mut wrong = None;
        for item in &paused {
            let there = client.get(&item.resource.path(None, Some(&item.name))).await?;
            let target = |pool: &Value| pool["spec"]["configuration"]["name"].clone();
            if target(&there) != target(&item.source) {
                wrong = Some(&item.name);
            }
        }
        match wrong {
            None if stable_since.get_or_insert_with(Instant::now).elapsed() >= STABLE_PERIOD => {
                break;
            }
            None => {}
            Some(pool) if start.elapsed() > STABLE_TIMEOUT => bail!(
                "MachineConfigPool {pool} has another config at the target, so it stays paused; `machinist adopt --check` shows why"
            ),
            Some(_) => stable_since = None,
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    for item in paused {
        let path = item.resource.path(None, Some(&item.name));
        let patch = migrate::resume_patch(&item.source);
        client.write(Method::PATCH, &path, MERGE_PATCH, &patch).await?;
    }
    Ok(())
}

/// Replaces an unused pool of the target, whose controller may write its status at the same time.
async fn replace_pool(
    client: &ApiClient,
    item: &MigrationItem,
    path: &str,
    mut object: Value,
) -> Result<Value> {
    for _ in 0..10 {
        match client.write(Method::PUT, path, ACCEPT_JSON, &object).await {
            Err(error) if status_code(&error) == Some(409) => {}
            response => return Ok(response?.body),
        }
        let there = client.get(path).await?;
        match migrate::migration_step(&item.source, Some(&there)) {
            MigrationStep::Replace(newer) => object = migrate::paused_for_migration(&newer),
            _ => bail!("the target uses it now; check it and run the migration again"),
        }
    }
    bail!("another writer keeps changing it at the target; run the migration again")
}

/// Handles an object that the target's controller, or the machine, created after the plan was made.
async fn adopt_concurrent(client: &ApiClient, item: &MigrationItem) -> Result<Value> {
    let path = item.resource.path(None, Some(&item.name));
    let there = client.get(&path).await?;
    match step(&item.resource, &item.source, Some(&there)) {
        MigrationStep::Unchanged => Ok(there),
        MigrationStep::Merge(patch) => {
            Ok(client.write(Method::PATCH, &path, MERGE_PATCH, &patch).await?.body)
        }
        _ if migrate::is_controller_managed(&there) => Ok(there),
        _ => bail!(
            "it was created at the target during the migration; check it and run the migration again"
        ),
    }
}

/// Writes one object with its status; returns what the target stored.
async fn write(client: &ApiClient, item: &MigrationItem) -> Result<Value> {
    let path = item.resource.path(None, Some(&item.name));
    let is_pool = item.resource.kind == "MachineConfigPool";
    let first = |object: &Value| {
        if is_pool { migrate::paused_for_migration(object) } else { object.clone() }
    };
    let written = match &item.step {
        MigrationStep::Create(object) => {
            let list = item.resource.path(None, None);
            match client.write(Method::POST, &list, ACCEPT_JSON, &first(object)).await {
                Err(error) if status_code(&error) == Some(409) => {
                    return adopt_concurrent(client, item).await;
                }
                response => response?.body,
            }
        }
        MigrationStep::Replace(object) => replace_pool(client, item, &path, first(object)).await?,
        MigrationStep::Merge(patch) => {
            return Ok(client.write(Method::PATCH, &path, MERGE_PATCH, patch).await?.body);
        }
        MigrationStep::Unchanged | MigrationStep::Conflict(_) => return client.get(&path).await,
    };
    let status = &item.source["status"];
    if !status.is_null() {
        let patch = json!({ "status": status });
        let response =
            client.write(Method::PATCH, &format!("{path}/status"), MERGE_PATCH, &patch).await;
        match response {
            // This kind has no status subresource: the status was written with the object.
            Err(error) if status_code(&error) == Some(404) => {}
            response => drop(response?),
        }
    }
    Ok(written)
}
