//! `machinist upgrade`: the daemons of a pool, or of single machines, upgrade themselves.

mod binary;
mod report;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use clap::Args;
use http::Method;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use machinist_core::api::MachineConfigPool;
use machinist_core::api::names::annotation::machinist::UPGRADE;
use machinist_core::duration::parse_duration;
use machinist_core::node::UpgradeRequest;
use machinist_core::rollout::{UpgradeState, nodes_of, pools_of};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::cluster::session::{ClusterSession, SessionArgs};
use super::cluster::snapshot::SnapshotKind;
use super::output::OutputFormat;
use super::{CommandOutcome, cluster, output};
use crate::kubernetes::request::{MERGE_PATCH, with_query};
use report::UpgradeReport;

/// How often the machines are read while someone watches.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// Upgrade the daemons of a pool, or of single machines
///
/// Each machine fetches the binary from the hub, verifies its SHA-256 digest, runs it once to see that it works there,
/// and replaces its own. If the new daemon does not come up, the machine's watchdog puts the old one back, and the
/// upgrade of the pool stops.
///
/// The machines of a pool follow its rules: maxUnavailable, canaries with their soak time, maintenance windows, and the
/// limit of failures, which is none for upgrades unless the pool says otherwise. A machine that is named itself
/// upgrades at once. Upgrade the hub first.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist upgrade worker --watch\n\n\
        More examples:\n  machinist upgrade worker-1 --binary ./machinist\n  machinist upgrade --status\n  machinist upgrade worker --cancel")]
pub(super) struct UpgradeArgs {
    /// Pools or machines; mcp/NAME and node/NAME say which
    #[arg(value_name = "POOL|NODE", required_unless_present = "status")]
    names: Vec<String>,

    /// The binary, which is uploaded to the hub [default: the one that the hub runs]
    #[arg(long, value_name = "PATH", conflicts_with_all = ["status", "cancel"])]
    binary: Option<PathBuf>,

    /// Upgrade to an older version, too; it may not read what the newer one has written
    #[arg(long, conflicts_with_all = ["status", "cancel"])]
    allow_downgrade: bool,

    /// Take the request back: no further machine upgrades
    #[arg(long, conflicts_with_all = ["status", "watch"])]
    cancel: bool,

    /// Show which daemon each machine runs, and what the others wait for; without names, of all pools
    #[arg(long)]
    status: bool,

    /// Wait until each machine has upgraded, or nothing more can happen
    #[arg(long, short)]
    watch: bool,

    /// How long to watch, such as 30m [default: until the end]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, requires = "watch")]
    timeout: Option<Duration>,

    /// The output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,

    #[command(flatten)]
    session: SessionArgs,
}

/// What a name stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Target {
    Pool(String),
    Node(String),
}

/// Pools and machines as they are now.
struct UpgradeFleet {
    pools: Vec<MachineConfigPool>,
    nodes: Vec<Node>,
}

impl UpgradeArgs {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        cluster::block_on(async {
            let session = self.session.connect().await?;
            let fleet = UpgradeFleet::read(&session).await?;
            let targets = fleet.targets(&self.names)?;
            if self.cancel {
                cancel(&session, &fleet, &targets).await?;
                return Ok(CommandOutcome::Done);
            }
            if !self.status {
                let request =
                    binary::request(&session, self.binary.as_deref(), self.allow_downgrade).await?;
                if !ask(&session, &fleet, &targets, &request).await? {
                    return Ok(CommandOutcome::Refused);
                }
            }
            if self.watch {
                return self.watch(&session, &targets).await;
            }
            self.show(&reports(&UpgradeFleet::read(&session).await?, &targets))?;
            Ok(CommandOutcome::Done)
        })
    }

    fn show(&self, reports: &[UpgradeReport]) -> Result<()> {
        match self.output {
            OutputFormat::Json => output::print_json(&reports),
            OutputFormat::Text => {
                output::print(&reports.iter().map(UpgradeReport::text).collect::<String>())
            }
        }
    }

    async fn watch(&self, session: &ClusterSession, targets: &[Target]) -> Result<CommandOutcome> {
        let start = Instant::now();
        let mut shown: Vec<UpgradeReport> = Vec::new();
        loop {
            let reports = reports(&UpgradeFleet::read(session).await?, targets);
            let is_over = reports.iter().all(UpgradeReport::is_over);
            if shown != reports && (is_over || self.output == OutputFormat::Text) {
                self.show(&reports)?;
            }
            shown = reports;
            if is_over {
                let is_complete = shown.iter().all(UpgradeReport::is_complete);
                return Ok(if is_complete {
                    CommandOutcome::Done
                } else {
                    CommandOutcome::Refused
                });
            }
            if let Some(timeout) = self.timeout.filter(|timeout| start.elapsed() > *timeout) {
                bail!("the upgrade has not ended after {} s; it continues", timeout.as_secs());
            }
            sleep(WATCH_INTERVAL).await;
        }
    }
}

impl UpgradeFleet {
    async fn read(session: &ClusterSession) -> Result<Self> {
        let pools = session.all(SnapshotKind::Pool).await?;
        Ok(Self { pools, nodes: session.all(SnapshotKind::Node).await? })
    }

    /// What the names stand for; without names, all pools that have machines.
    fn targets(&self, names: &[String]) -> Result<Vec<Target>> {
        if names.is_empty() {
            let pools = self.pools.iter().filter(|pool| !self.members(pool).is_empty());
            return Ok(pools.map(|pool| Target::Pool(pool.name_any())).collect());
        }
        names.iter().map(|name| self.target(name)).collect()
    }

    fn target(&self, text: &str) -> Result<Target> {
        let (kind, name) =
            text.split_once('/').map_or((None, text), |(kind, name)| (Some(kind), name));
        let is_pool = self.pools.iter().any(|pool| pool.name_any() == name);
        let is_node = self.nodes.iter().any(|node| node.name_any() == name);
        match (kind, is_pool, is_node) {
            (None, true, true) => {
                bail!("{name} is a pool and a machine: write mcp/{name} or node/{name}")
            }
            (None | Some("mcp" | "pool"), true, _) => Ok(Target::Pool(name.to_owned())),
            (None | Some("node"), _, true) => Ok(Target::Node(name.to_owned())),
            _ => bail!(
                "no pool and no machine is named {text}: `machinist get mcp` and `machinist status` list all"
            ),
        }
    }

    fn pool(&self, name: &str) -> Option<&MachineConfigPool> {
        self.pools.iter().find(|pool| pool.name_any() == name)
    }

    fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name_any() == name)
    }

    fn members<'a>(&'a self, pool: &MachineConfigPool) -> Vec<&'a Node> {
        nodes_of(pool, &self.pools, &self.nodes).0
    }

    fn report(&self, target: &Target, request: Option<UpgradeRequest>) -> Option<UpgradeReport> {
        let now = Time(Timestamp::now());
        match target {
            Target::Node(name) => Some(UpgradeReport::of_node(self.node(name)?, request)),
            Target::Pool(name) => {
                let pool = self.pool(name)?;
                Some(UpgradeReport::of_pool(pool, &self.members(pool), request, &now))
            }
        }
    }

    /// Why a machine is not asked on its own: its pool asks it for something else, and would ask again.
    fn other_request(&self, name: &str, request: &UpgradeRequest) -> Option<String> {
        let pool = pools_of(self.node(name)?, &self.pools).ok()?.first().copied()?;
        let other = UpgradeRequest::parse(pool.annotations().get(UPGRADE)?).ok()?;
        let pool = pool.name_any();
        (other.sha256 != request.sha256).then(|| {
            format!(
                "{name} is in the pool {pool}, whose daemons are upgraded to another binary: `machinist upgrade {pool}` with this one, or --cancel that first"
            )
        })
    }
}

fn reports(fleet: &UpgradeFleet, targets: &[Target]) -> Vec<UpgradeReport> {
    targets.iter().filter_map(|target| fleet.report(target, None)).collect()
}

/// Writes the request, unless no machine could carry it out. Returns whether it is written.
async fn ask(
    session: &ClusterSession,
    fleet: &UpgradeFleet,
    targets: &[Target],
    request: &UpgradeRequest,
) -> Result<bool> {
    for target in targets {
        if let Target::Node(name) = target
            && let Some(why) = fleet.other_request(name, request)
        {
            output::print_error(&why);
            return Ok(false);
        }
        let Some(report) = fleet.report(target, Some(request.clone())) else { continue };
        let machines = report.decision.machines.values();
        let is_refused = |state: &&UpgradeState| matches!(state, UpgradeState::Cannot { .. });
        let all = machines.len();
        if all > 0 && machines.filter(is_refused).count() == all {
            output::print_error(&format!("nothing was asked for:\n{}", report.text().trim_end()));
            return Ok(false);
        }
    }
    let text = serde_json::to_string(request)?;
    for target in targets {
        write(session, target, &Value::from(text.as_str())).await?;
    }
    Ok(true)
}

/// Takes requests back, from the machines of a pool as well. A machine that has replaced its binary completes that.
async fn cancel(session: &ClusterSession, fleet: &UpgradeFleet, targets: &[Target]) -> Result<()> {
    ensure!(!targets.is_empty(), "name the pools or machines");
    for target in targets {
        write(session, target, &Value::Null).await?;
        let Target::Pool(name) = target else { continue };
        let Some(pool) = fleet.pool(name) else { continue };
        for node in fleet.members(pool) {
            if node.annotations().contains_key(UPGRADE) {
                write(session, &Target::Node(node.name_any()), &Value::Null).await?;
            }
        }
        output::print(&format!("{name}: no further machine upgrades\n"))?;
    }
    Ok(())
}

async fn write(session: &ClusterSession, target: &Target, value: &Value) -> Result<()> {
    let (kind, name) = match target {
        Target::Pool(name) => (SnapshotKind::Pool, name),
        Target::Node(name) => (SnapshotKind::Node, name),
    };
    let path = session.needed(kind)?.path(None, Some(name));
    let path = with_query(&path, &[("fieldManager", "machinist")]);
    let patch = json!({"metadata": {"annotations": {UPGRADE: value}}});
    session.client.write(Method::PATCH, &path, MERGE_PATCH, &patch).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_pool_or_a_machine() {
        let named = |name: &str| json!({"metadata": {"name": name}, "spec": {}});
        let pool = |name: &str| serde_json::from_value(named(name)).unwrap();
        let node = |name: &str| serde_json::from_value(named(name)).unwrap();
        let fleet = UpgradeFleet {
            pools: vec![pool("worker"), pool("both")],
            nodes: vec![node("w1"), node("both")],
        };
        for (text, expected) in [
            ("worker", Ok(Target::Pool("worker".into()))),
            ("mcp/worker", Ok(Target::Pool("worker".into()))),
            ("w1", Ok(Target::Node("w1".into()))),
            ("node/w1", Ok(Target::Node("w1".into()))),
            ("mcp/both", Ok(Target::Pool("both".into()))),
            ("node/both", Ok(Target::Node("both".into()))),
            ("both", Err("write mcp/both or node/both")),
            ("node/worker", Err("no pool and no machine is named node/worker")),
            ("w2", Err("`machinist status` list all")),
        ] {
            match (fleet.target(text), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected),
                (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
        // No pool selects a machine.
        assert_eq!(fleet.targets(&[]).unwrap(), []);
    }
}
