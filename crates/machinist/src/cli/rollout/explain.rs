//! `machinist rollout explain`: the controller's next decision about a pool, as a dry run.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use machinist_core::api::{
    ControllerConfig, MachineConfig, MachineConfigNode, MachineConfigPool, MachineConfigPoolStatus,
    MachineOSBuild, MachineOSConfig,
};
use machinist_core::plan::host_refusals;
use machinist_core::rollout::{
    PoolLayering, RolloutDecision, RolloutPolicy, decide_layered_rollout, max_unavailable,
    nodes_of, pool_status_for,
};
use serde::Serialize;

use super::reasons;
use crate::cli::cluster::session::SessionArgs;
use crate::cli::output::{DIMMED, HEADING, OutputFormat};
use crate::cli::pool_inputs::of_kind;
use crate::cli::{CommandOutcome, cluster, output};
use crate::manifests::{self, ManifestDocument};

/// Show what the controller would decide about a pool now, without doing it
///
/// Reads the API server, or files with pools, nodes and MachineConfigNodes that were collected from a
/// cluster. Shows the status that the controller would write, the machines that would get the new config
/// or permission to reboot, and what the others wait for.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  machinist rollout explain worker -f examples/rollout/worker.yaml\n\n\
        More examples:\n  machinist rollout explain worker -o json"
)]
pub(in crate::cli) struct RolloutExplainArgs {
    /// The pool
    pool: String,

    /// Read these manifests instead of the API server: a file, a directory, or - for standard input
    /// (repeatable)
    #[arg(short = 'f', long = "filename", value_name = "PATH")]
    filename: Vec<PathBuf>,

    /// The output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,

    #[command(flatten)]
    session: SessionArgs,
}

/// The inputs of the decision.
struct RolloutExplainInputs {
    pools: Vec<MachineConfigPool>,
    configs: Vec<MachineConfig>,
    nodes: Vec<Node>,
    machine_config_nodes: Vec<MachineConfigNode>,
    controller_config: Option<ControllerConfig>,
    os_configs: Vec<MachineOSConfig>,
    os_builds: Vec<MachineOSBuild>,
}

#[derive(Serialize)]
struct RolloutExplainReport {
    status: MachineConfigPoolStatus,
    #[serde(rename = "maxUnavailable")]
    max_unavailable: i64,
    #[serde(flatten)]
    decision: RolloutDecision,
}

impl RolloutExplainArgs {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        let inputs =
            if self.filename.is_empty() { self.read_cluster()? } else { self.read_manifests()? };
        let pool = inputs.pools.iter().find(|p| p.metadata.name.as_ref() == Some(&self.pool));
        let Some(pool) = pool else {
            bail!("MachineConfigPool {} is not in the inputs: add its manifest with -f", self.pool);
        };
        let (members, errors) = nodes_of(pool, &inputs.pools, &inputs.nodes);
        for error in errors {
            output::print_warning(&error.to_string());
        }
        let now = Time(k8s_openapi::jiff::Timestamp::now());
        let nodes: Vec<&MachineConfigNode> = inputs.machine_config_nodes.iter().collect();
        let controller_config = inputs.controller_config.as_ref();
        let (images, builds): (Vec<_>, Vec<_>) =
            (inputs.os_configs.iter().collect(), inputs.os_builds.iter().collect());
        let layering = PoolLayering::for_pool(pool, &images, &builds);
        let status = pool_status_for(&layering, pool, &members, &nodes, controller_config, &now);
        let max = max_unavailable(pool, members.len())?;
        let target = layering.target(pool);
        let find = |name: &str| inputs.configs.iter().find(|config| config.name_any() == name);
        let refused = host_refusals(&members, find(target.config), find);
        let policy = RolloutPolicy { refused, ..RolloutPolicy::from_annotations(pool)? };
        let decision = decide_layered_rollout(target, pool, &members, &policy, max, &now)
            .waiting_for_image(layering.wait_reason());
        let report = RolloutExplainReport { status, max_unavailable: max, decision };
        match self.output {
            OutputFormat::Json => output::print_json(&report)?,
            OutputFormat::Text => output::print(&text(&self.pool, pool, &report, &now))?,
        }
        Ok(CommandOutcome::Done)
    }

    fn read_cluster(&self) -> Result<RolloutExplainInputs> {
        let snapshot = cluster::block_on(async { self.session.connect().await?.snapshot().await })?;
        snapshot.pool(&self.pool)?;
        let controller_config = snapshot.controller_config().cloned();
        let (pools, nodes) = (snapshot.pools, snapshot.nodes);
        let machine_config_nodes = snapshot.machine_config_nodes;
        let (os_configs, os_builds) = (snapshot.os_configs, snapshot.os_builds);
        Ok(RolloutExplainInputs {
            pools,
            configs: snapshot.configs,
            nodes,
            machine_config_nodes,
            controller_config,
            os_configs,
            os_builds,
        })
    }

    fn read_manifests(&self) -> Result<RolloutExplainInputs> {
        let documents = manifests::read(&self.filename)?;
        let is_node = |document: &&ManifestDocument| {
            document.kind() == "Node" && matches!(document.api_version(), "v1" | "")
        };
        let controller_configs: Vec<ControllerConfig> =
            typed(of_kind(&documents, "ControllerConfig"))?;
        Ok(RolloutExplainInputs {
            pools: typed(of_kind(&documents, "MachineConfigPool"))?,
            configs: typed(of_kind(&documents, "MachineConfig"))?,
            nodes: typed(documents.iter().filter(is_node))?,
            machine_config_nodes: typed(of_kind(&documents, "MachineConfigNode"))?,
            controller_config: controller_configs.into_iter().next(),
            os_configs: typed(of_kind(&documents, "MachineOSConfig"))?,
            os_builds: typed(of_kind(&documents, "MachineOSBuild"))?,
        })
    }
}

fn typed<'a, T: serde::de::DeserializeOwned>(
    documents: impl Iterator<Item = &'a ManifestDocument>,
) -> Result<Vec<T>> {
    documents.map(ManifestDocument::typed).collect()
}

fn text(name: &str, pool: &MachineConfigPool, report: &RolloutExplainReport, now: &Time) -> String {
    let status = &report.status;
    let count = |count: Option<i32>| count.unwrap_or_default();
    let target = pool.spec.configuration.as_ref().and_then(|c| c.name.as_deref());
    let mut text = format!(
        "{HEADING}{name}{HEADING:#} → {}\n{} of {} machines updated, {} unavailable (at most {}), {} degraded\n",
        target.unwrap_or("(no rendered config)"),
        count(status.updated_machine_count),
        count(status.machine_count),
        count(status.unavailable_machine_count),
        report.max_unavailable,
        count(status.degraded_machine_count),
    );
    // Writing to a String cannot fail.
    let decision = &report.decision;
    if let Some(halted) = &decision.halted {
        let _ = writeln!(text, "stopped: {}", reasons::halted_reason(name, halted, now));
    }
    if !decision.next.is_empty() {
        let _ = writeln!(text, "update now: {}", decision.next.join(", "));
    }
    if !decision.restart.is_empty() {
        let _ = writeln!(text, "may reboot now: {}", decision.restart.join(", "));
    }
    for (machine, reason) in &decision.waiting {
        let _ = writeln!(
            text,
            "  {machine}: {DIMMED}{}{DIMMED:#}",
            reasons::waiting_reason(machine, reason, now)
        );
    }
    text
}
