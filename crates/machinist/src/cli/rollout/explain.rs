//! `machinist rollout explain`: the controller's decision about a pool, shown and not taken.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use machinist_core::api::{
    ControllerConfig, MachineConfigNode, MachineConfigPool, MachineConfigPoolStatus,
    MachineOSBuild, MachineOSConfig,
};
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

/// Show the decision that the controller would take about a pool now, without taking it
///
/// From the home, or from files (pools, nodes and MachineConfigNodes as collected from a cluster):
/// the status it would write, the machines that would get the new config or may restart, and what
/// the others wait for.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  machinist rollout explain worker -f examples/rollout/worker.yaml\n\n\
        Others:\n  machinist rollout explain worker -o json"
)]
pub(in crate::cli) struct RolloutExplainArgs {
    /// The pool
    pool: String,

    /// Manifests instead of the home: a file, a folder or - for standard input; may be given more
    /// than once
    #[arg(short = 'f', long = "filename", value_name = "PATH")]
    filename: Vec<PathBuf>,

    /// The form of the answer
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,

    #[command(flatten)]
    session: SessionArgs,
}

/// What the decision is made from.
struct RolloutExplainInputs {
    pools: Vec<MachineConfigPool>,
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
            if self.filename.is_empty() { self.from_cluster()? } else { self.from_manifests()? };
        let pool = inputs.pools.iter().find(|p| p.metadata.name.as_ref() == Some(&self.pool));
        let Some(pool) = pool else {
            bail!(
                "MachineConfigPool {} is not among the inputs; add its manifest with -f",
                self.pool
            );
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
        let goal = layering.target(pool);
        let decision = decide_layered_rollout(
            goal,
            pool,
            &members,
            &RolloutPolicy::from_annotations(pool)?,
            max,
            &now,
        )
        .waiting_for_image(layering.wait_reason());
        let answer = RolloutExplainReport { status, max_unavailable: max, decision };
        match self.output {
            OutputFormat::Json => output::print_json(&answer)?,
            OutputFormat::Text => output::print(&text(&self.pool, pool, &answer, &now))?,
        }
        Ok(CommandOutcome::Done)
    }

    fn from_cluster(&self) -> Result<RolloutExplainInputs> {
        let world = cluster::block_on(async { self.session.connect().await?.world().await })?;
        world.pool(&self.pool)?;
        let controller_config = world.controller_config().cloned();
        let (pools, nodes) = (world.pools, world.nodes);
        let machine_config_nodes = world.machine_config_nodes;
        let (os_configs, os_builds) = (world.os_configs, world.os_builds);
        Ok(RolloutExplainInputs {
            pools,
            nodes,
            machine_config_nodes,
            controller_config,
            os_configs,
            os_builds,
        })
    }

    fn from_manifests(&self) -> Result<RolloutExplainInputs> {
        let documents = manifests::read(&self.filename)?;
        let is_node = |document: &&ManifestDocument| {
            document.kind() == "Node" && matches!(document.api_version(), "v1" | "")
        };
        let controller_configs: Vec<ControllerConfig> =
            typed(of_kind(&documents, "ControllerConfig"))?;
        Ok(RolloutExplainInputs {
            pools: typed(of_kind(&documents, "MachineConfigPool"))?,
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

fn text(name: &str, pool: &MachineConfigPool, answer: &RolloutExplainReport, now: &Time) -> String {
    let status = &answer.status;
    let count = |count: Option<i32>| count.unwrap_or_default();
    let target = pool.spec.configuration.as_ref().and_then(|c| c.name.as_deref());
    let mut text = format!(
        "{HEADING}{name}{HEADING:#} → {}\n{} of {} machines updated, {} unavailable (at most {} may be), {} degraded\n",
        target.unwrap_or("(nothing rendered yet)"),
        count(status.updated_machine_count),
        count(status.machine_count),
        count(status.unavailable_machine_count),
        answer.max_unavailable,
        count(status.degraded_machine_count),
    );
    // Writing to a String cannot fail.
    let decision = &answer.decision;
    if let Some(halted) = &decision.halted {
        let _ = writeln!(text, "stands still: {}", reasons::halted_reason(name, halted));
    }
    if !decision.next.is_empty() {
        let _ = writeln!(text, "go now: {}", decision.next.join(", "));
    }
    if !decision.restart.is_empty() {
        let _ = writeln!(text, "may restart now: {}", decision.restart.join(", "));
    }
    for (machine, reason) in &decision.waiting {
        let _ = writeln!(
            text,
            "  {machine}: {DIMMED}{}{DIMMED:#}",
            reasons::waiting_reason(reason, now)
        );
    }
    text
}
