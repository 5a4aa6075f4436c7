//! `machinist migrate`: copies all objects from one API server to another, without changing machines.

mod write;

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use machinist_core::adopt::{self, AdoptionVerdict};
use machinist_core::migrate::{self, MigrationStep};
use machinist_core::render::ImageSources;
use serde::Serialize;
use serde_json::{Value, json};

use super::cluster::snapshot::{SnapshotKind, deserialize};
use super::output::OutputFormat;
use super::{CommandOutcome, cluster, output};
use crate::kubernetes::request::ACCEPT_JSON;
use crate::kubernetes::{ApiClient, ConnectionOptions, ServedResource, ServedResources, connect};

/// The group of our kinds.
const MACHINE_CONFIG_GROUP: &str = "machineconfiguration.openshift.io";

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
                write::write_all(&to, &items).await?;
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
