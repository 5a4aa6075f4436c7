//! `machinist rollout`: what a rollout would do next, and why somebody has to wait.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use machinist_core::api::{
    ControllerConfig, MachineConfigNode, MachineConfigPool, MachineConfigPoolStatus,
};
use machinist_core::update::{
    Choice, NotReady, Waiting, choose, max_unavailable, nodes_of, pool_status,
};
use serde::Serialize;

use super::output::{FAINT, HEADING, TextOrJson};
use super::pool_inputs::of_kind;
use super::{Outcome, output};
use crate::manifests::{self, Document};

/// Look at the rollout of a pool
#[derive(Debug, Subcommand)]
pub(super) enum Rollout {
    Explain(Explain),
}

impl Rollout {
    pub(super) fn run(&self) -> Result<Outcome> {
        match self {
            Self::Explain(command) => command.run(),
        }
    }
}

/// Show the decision that the controller would take about a pool now, without taking it
///
/// From files (pools, nodes and MachineConfigNodes as collected from a cluster): the status it
/// would write, the machines that would get the new config, and what the others wait for.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  machinist rollout explain worker -f examples/rollout/worker.yaml"
)]
pub(super) struct Explain {
    /// The pool
    pool: String,

    /// Manifests: a file, a folder or - for standard input; may be given more than once
    #[arg(short = 'f', long = "filename", value_name = "PATH", required = true)]
    filename: Vec<PathBuf>,

    /// The form of the answer
    #[arg(short, long, value_enum, default_value_t = TextOrJson::Text)]
    output: TextOrJson,
}

#[derive(Serialize)]
struct Answer {
    status: MachineConfigPoolStatus,
    #[serde(rename = "maxUnavailable")]
    max_unavailable: i64,
    #[serde(flatten)]
    choice: Choice,
}

impl Explain {
    fn run(&self) -> Result<Outcome> {
        let documents = manifests::read(&self.filename)?;
        let pools: Vec<MachineConfigPool> = typed(of_kind(&documents, "MachineConfigPool"))?;
        let has_name = |pool: &&MachineConfigPool| pool.metadata.name.as_ref() == Some(&self.pool);
        let Some(pool) = pools.iter().find(has_name) else {
            bail!(
                "MachineConfigPool {} is not among the inputs; add its manifest with -f",
                self.pool
            );
        };
        let is_node = |document: &&Document| {
            document.kind() == "Node" && matches!(document.api_version(), "v1" | "")
        };
        let nodes: Vec<Node> = typed(documents.iter().filter(is_node))?;
        let machine_config_nodes: Vec<MachineConfigNode> =
            typed(of_kind(&documents, "MachineConfigNode"))?;
        let controller_configs: Vec<ControllerConfig> =
            typed(of_kind(&documents, "ControllerConfig"))?;
        let (members, errors) = nodes_of(pool, &pools, &nodes);
        for error in errors {
            output::warning(&error.to_string());
        }
        let now = Time(k8s_openapi::jiff::Timestamp::now());
        let controller_config = controller_configs.first();
        let machine_config_nodes: Vec<&MachineConfigNode> = machine_config_nodes.iter().collect();
        let status = pool_status(pool, &members, &machine_config_nodes, controller_config, &now);
        let max = max_unavailable(pool, members.len())?;
        let choice = choose(pool, &members, max);
        let answer = Answer { status, max_unavailable: max, choice };
        match self.output {
            TextOrJson::Json => output::print_json(&answer)?,
            TextOrJson::Text => output::print(&text(&self.pool, pool, &answer))?,
        }
        Ok(Outcome::Done)
    }
}

fn typed<'a, T: serde::de::DeserializeOwned>(
    documents: impl Iterator<Item = &'a Document>,
) -> Result<Vec<T>> {
    documents.map(Document::typed).collect()
}

fn text(name: &str, pool: &MachineConfigPool, answer: &Answer) -> String {
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
    if !answer.choice.next.is_empty() {
        let _ = writeln!(text, "go now: {}", answer.choice.next.join(", "));
    }
    for (machine, reason) in &answer.choice.waiting {
        let _ = writeln!(text, "  {machine}: {FAINT}{}{FAINT:#}", describe(reason));
    }
    text
}

fn describe(reason: &Waiting) -> String {
    match reason {
        Waiting::PoolPaused => "the pool is paused".to_owned(),
        Waiting::NothingRendered => "the pool has no rendered config yet".to_owned(),
        Waiting::Working { state } if state.is_empty() => "has not started yet".to_owned(),
        Waiting::Working { state } => format!("is at it ({state})"),
        Waiting::Failing { message } => format!("failed on this config: {message}"),
        Waiting::NotReady { because } => match because {
            NotReady::NotReady(status) => format!("is not ready (Ready={status})"),
            NotReady::DiskPressure(status) => format!("has DiskPressure={status}"),
            NotReady::NetworkUnavailable(status) => format!("has NetworkUnavailable={status}"),
            NotReady::Unschedulable => "is cordoned".to_owned(),
        },
        Waiting::NoCapacity { away, .. } => format!("waits for {}", away.join(", ")),
        Waiting::NotItsTurn { ahead } => format!("waits its turn; {ahead} go before it"),
        Waiting::OutsideWindow { opens } => {
            format!("waits for the maintenance window, which opens at {}", opens.0)
        }
        Waiting::Canary { machines } => {
            format!("waits until the first machines are through: {}", machines.join(", "))
        }
        Waiting::Soaking { until } => {
            format!("waits until {} to see whether the first machines stay well", until.0)
        }
        Waiting::BadConfig { config } => format!("too many machines failed on {config}"),
        Waiting::RestartPending { opens: Some(opens) } => {
            format!("needs a restart, and may from {} on", opens.0)
        }
        Waiting::RestartPending { opens: None } => {
            "needs a restart, and waits for permission".to_owned()
        }
        Waiting::Draining { blockers } if blockers.is_empty() => {
            "is being emptied of its pods".to_owned()
        }
        Waiting::Draining { blockers } => {
            let now = Time(k8s_openapi::jiff::Timestamp::now());
            let sentences: Vec<String> = blockers.iter().map(|b| b.sentence(&now)).collect();
            format!("is being emptied of its pods: {}", sentences.join(", "))
        }
    }
}
