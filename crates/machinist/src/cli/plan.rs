//! `machinist plan`: what a change would do to pools and machines.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use machinist_core::api::names::object::CLUSTER;
use machinist_core::api::{MachineConfig, MachineConfigPool};
use machinist_core::apply::EMPTY_CONFIG_NAME;
use machinist_core::disruption::DecidedChange;
use machinist_core::lint::{self, LintFinding};
use machinist_core::plan::{
    ChangePlan, DisruptionCost, MachinePlan, PlannedChanges, PoolBlocked, PoolPlan, plan_changes,
};
use machinist_hub::patch::PatchKind;
use serde::Serialize;
use serde_json::Value;

use super::cluster::session::{ClusterSession, SessionArgs};
use super::cluster::snapshot::{ClusterSnapshot, SnapshotKind, deserialize};
use super::cluster::{self, usage_error};
use super::output::{DIMMED, ERROR, HEADING, OutputFormat, WARNING};
use super::plan_generated::GeneratedChanges;
use super::{CommandOutcome, diff, output};
use crate::kubernetes::apply::{last_applied, patch};
use crate::manifests::{self, ManifestDocument};

/// At most this many machines are named in a line.
const MAX_NAMED_MACHINES: usize = 5;

/// Show what a change would do to pools and machines, without applying it
///
/// Shows the rendered config and its differences, which machines change, what it costs each of them,
/// which ones update first, and known risks. The cost follows from the node disruption policy of the API server,
/// or from that of a MachineConfiguration in the manifests. Nothing is written. The exit code is 3 if a machine would
/// refuse the change or a pool cannot be rendered.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist plan -f examples/chrony.yaml\n\n\
        More examples:\n  machinist plan --delete mc/50-worker-chrony -o json")]
pub(super) struct PlanArgs {
    /// The new MachineConfigs, MachineConfigPools, MachineConfiguration, mirrors and settings of kubelets: a file, a
    /// directory, or - for standard input (repeatable)
    #[arg(short = 'f', long = "filename", value_name = "PATH", required_unless_present = "delete")]
    filename: Vec<PathBuf>,

    /// Plan the deletion of this MachineConfig or MachineConfigPool: mc/NAME or mcp/NAME (repeatable)
    #[arg(long, value_name = "KIND/NAME")]
    delete: Vec<String>,

    /// The output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,

    #[command(flatten)]
    session: SessionArgs,
}

#[derive(Serialize)]
struct PlanReport<'a> {
    #[serde(flatten)]
    plan: &'a ChangePlan,
    /// Objects of kinds that plans do not cover.
    ignored: &'a [String],
}

impl PlanArgs {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        let documents = manifests::read(&self.filename)?;
        if documents.is_empty() && self.delete.is_empty() {
            bail!("these files contain no objects");
        }
        let findings: Vec<(String, LintFinding)> = documents
            .iter()
            .flat_map(|it| {
                lint::object(&it.value).into_iter().map(|found| (it.object_name(), found))
            })
            .collect();
        cluster::block_on(async {
            let session = self.session.connect().await?;
            let mut snapshot = session.snapshot().await?;
            let (mut changes, others) = changes(&session, &mut snapshot, &documents)?;
            let generated = GeneratedChanges::plan(
                &session,
                &snapshot.pools,
                snapshot.controller_config(),
                &documents,
            )
            .await?;
            let others = others.into_iter().filter(|(key, _)| !generated.covered.contains(key));
            let ignored: Vec<String> = others.map(|(_, object)| object).collect();
            changes.machine_configs.extend(generated.machine_configs);
            changes.deleted_machine_configs.extend(generated.deleted);
            self.deletions(&session, &snapshot, &mut changes)?;
            let policy = snapshot.policy();
            let controller_config = snapshot.controller_config().cloned();
            let snapshot = machinist_core::plan::PlanSnapshot {
                pools: snapshot.pools,
                machine_configs: snapshot.configs,
                nodes: snapshot.nodes,
                controller_config,
                streams: snapshot.streams,
                policy,
            };
            let mut report =
                plan_changes(&snapshot, &changes, &Time(k8s_openapi::jiff::Timestamp::now()));
            for (name, finding) in &findings {
                report.refused |= finding.is_error();
                report.problems.push(format!("{name}: {finding}"));
            }
            report.refused |= generated.is_refused;
            report.problems.extend(generated.problems);
            for object in &ignored {
                output::print_warning(&format!(
                    "{object}: plans cover MachineConfigs, MachineConfigPools, the MachineConfiguration, mirrors, image policies and settings of kubelets with a built-in profile; its effect is not shown"
                ));
            }
            match self.output {
                OutputFormat::Json => {
                    output::print_json(&PlanReport { plan: &report, ignored: &ignored })?;
                }
                OutputFormat::Text => output::print(&text(&report, !ignored.is_empty()))?,
            }
            Ok(if report.refused { CommandOutcome::Refused } else { CommandOutcome::Done })
        })
    }

    fn deletions(
        &self,
        session: &ClusterSession,
        snapshot: &ClusterSnapshot,
        changes: &mut PlannedChanges,
    ) -> Result<()> {
        for word in &self.delete {
            let Some((kind, name)) = word.split_once('/').filter(|(_, name)| !name.is_empty())
            else {
                return Err(usage_error(format!(
                    "{word}: write KIND/NAME, such as mc/50-worker-chrony"
                )));
            };
            let resource = session.resources.by_name(kind)?;
            let is = |kind| session.kind(kind) == Some(resource);
            if is(SnapshotKind::Config) && snapshot.configs.iter().any(|one| one.name_any() == name)
            {
                changes.deleted_machine_configs.push(name.to_owned());
            } else if is(SnapshotKind::Pool)
                && snapshot.pools.iter().any(|one| one.name_any() == name)
            {
                changes.deleted_pools.push(name.to_owned());
            } else if is(SnapshotKind::Config) || is(SnapshotKind::Pool) {
                bail!("{} does not exist", resource.object_name(name));
            } else {
                return Err(usage_error(format!(
                    "{word}: plans cover only MachineConfigs and MachineConfigPools: write mc/NAME or mcp/NAME"
                )));
            }
        }
        Ok(())
    }
}

/// The objects as `machinist apply` would write them, and the others as `Kind/name` and as they are shown. A
/// MachineConfiguration goes into the snapshot: it is in force when the machines take the change.
fn changes(
    session: &ClusterSession,
    snapshot: &mut ClusterSnapshot,
    documents: &[ManifestDocument],
) -> Result<(PlannedChanges, Vec<(String, String)>)> {
    let (mut changes, mut ignored) = (PlannedChanges::default(), Vec::new());
    for (target, manifest) in session.manifests(documents)? {
        let is = |kind| session.kind(kind) == Some(target.resource);
        if is(SnapshotKind::Config) {
            let live = snapshot.configs.iter().find(|one| one.name_any() == target.name);
            let object: MachineConfig = applied(SnapshotKind::Config, live, &manifest)?;
            if changes.machine_configs.iter().any(|one| one.name_any() == target.name) {
                bail!("{} is given twice; remove one", target.object_name());
            }
            changes.machine_configs.push(object);
        } else if is(SnapshotKind::Pool) {
            let live = snapshot.pools.iter().find(|one| one.name_any() == target.name);
            let object: MachineConfigPool = applied(SnapshotKind::Pool, live, &manifest)?;
            if changes.pools.iter().any(|one| one.name_any() == target.name) {
                bail!("{} is given twice; remove one", target.object_name());
            }
            changes.pools.push(object);
        } else if is(SnapshotKind::MachineConfiguration) {
            if target.name != CLUSTER {
                bail!(
                    "{}: metadata.name: only the MachineConfiguration {CLUSTER} has an effect: use this name",
                    target.object_name()
                );
            }
            let live = snapshot.machine_configuration.as_ref();
            let object = applied(SnapshotKind::MachineConfiguration, live, &manifest)?;
            snapshot.machine_configuration = Some(object);
        } else {
            let key = format!("{}/{}", target.resource.kind, target.name);
            ignored.push((key, target.object_name()));
        }
    }
    Ok((changes, ignored))
}

/// The object after its manifest is applied.
fn applied<T: Serialize + serde::de::DeserializeOwned>(
    kind: SnapshotKind,
    live: Option<&T>,
    manifest: &Value,
) -> Result<T> {
    let Some(live) = live else { return deserialize(kind, manifest) };
    let live = serde_json::to_value(live)?;
    let patch = patch(last_applied(&live).as_ref(), &live, manifest);
    deserialize(kind, &machinist_hub::patch::apply(PatchKind::Merge, &live, &patch, None)?)
}

/// `hides_effects` says that there are objects whose effect is not shown.
fn text(plan: &ChangePlan, hides_effects: bool) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    for problem in &plan.problems {
        let _ = writeln!(text, "{WARNING}warning:{WARNING:#} {problem}");
    }
    if plan.pools.is_empty() && plan.moves.is_empty() {
        text.push_str(if hides_effects {
            "Nothing that this plan covers would change.\n"
        } else {
            "Nothing would change.\n"
        });
    }
    let mut moves: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for one in &plan.moves {
        let key =
            (one.from.as_deref().unwrap_or("no pool"), one.to.as_deref().unwrap_or("no pool"));
        moves.entry(key).or_default().push(&one.machine);
    }
    for ((from, to), machines) in moves {
        let _ = writeln!(text, "{} would change from {from} to {to}", abbreviate(&machines));
    }
    for pool in &plan.pools {
        show_pool(&mut text, pool);
    }
    text
}

fn show_pool(text: &mut String, pool: &PoolPlan) {
    let name = |name: &Option<String>| name.clone().unwrap_or_else(|| "(nothing)".to_owned());
    let (before, after) = (name(&pool.before), name(&pool.after));
    let change =
        if before == after { format!("stays on {after}") } else { format!("{before} → {after}") };
    let _ = writeln!(text, "{HEADING}{}{HEADING:#}: {change}", pool.pool);
    match &pool.trouble {
        Some(PoolBlocked::Unrenderable { reason }) => {
            let _ = writeln!(text, "  {ERROR}cannot be rendered:{ERROR:#} {reason}");
        }
        Some(PoolBlocked::Refused { culprit, reason }) => {
            let who = culprit.as_ref().map(|who| format!(" (because of MachineConfig {who})"));
            let who = who.unwrap_or_default();
            let _ = writeln!(text, "  {ERROR}machines would refuse it:{ERROR:#} {reason}{who}");
        }
        None => {}
    }
    for warning in &pool.warnings {
        let names: Vec<&str> = warning.machines.iter().map(String::as_str).collect();
        let who =
            if names.is_empty() { String::new() } else { format!(" [{}]", abbreviate(&names)) };
        let _ = writeln!(text, "  {WARNING}warning:{WARNING:#} {}{who}", warning.message);
    }
    show_machines(text, pool);
    if let Some(diff) = pool.diff.as_ref().filter(|diff| !diff.is_empty()) {
        let mut lines = String::new();
        diff::show_diff(&mut lines, diff);
        for line in lines.lines() {
            let _ = writeln!(text, "  {line}");
        }
    }
}

fn show_machines(text: &mut String, pool: &PoolPlan) {
    let changing = pool.machines.len();
    let all = pool.machine_count;
    if changing == 0 {
        let line = match all {
            0 => "it has no machines".to_owned(),
            all => format!("none of its {all} machines changes"),
        };
        let _ = writeln!(text, "  {line}");
        return;
    }
    let limit = pool.max_unavailable.map(|max| format!(", at most {max} at a time"));
    let _ = writeln!(text, "  {changing} of {all} machines change{}", limit.unwrap_or_default());
    let mut costs: BTreeMap<(std::cmp::Reverse<DisruptionCost>, String), Vec<&str>> =
        BTreeMap::new();
    for machine in &pool.machines {
        let key = (std::cmp::Reverse(machine.cost), cost(machine));
        costs.entry(key).or_default().push(&machine.machine);
    }
    for ((_, what), machines) in costs {
        let _ = writeln!(text, "  {what}: {DIMMED}{}{DIMMED:#}", abbreviate(&machines));
        let first =
            pool.machines.iter().find(|machine| machines.first() == Some(&&*machine.machine));
        show_rules(text, first.map_or(&[], |machine| &machine.decided));
    }
    if !pool.next.is_empty() {
        let first: Vec<&str> = pool.next.iter().map(String::as_str).collect();
        let _ = writeln!(text, "  first: {}", abbreviate(&first));
    }
}

/// What decided about the cost: the files and units by their rule.
fn show_rules(text: &mut String, decided: &[DecidedChange]) {
    let mut by_rule: BTreeMap<(String, String), Vec<&str>> = BTreeMap::new();
    for DecidedChange { name, rule, actions } in decided {
        by_rule.entry((rule.to_string(), diff::cost(actions))).or_default().push(name);
    }
    for ((rule, cost), names) in by_rule {
        let _ = writeln!(text, "    {}: {cost} {DIMMED}({rule}){DIMMED:#}", abbreviate(&names));
    }
}

fn cost(machine: &MachinePlan) -> String {
    match (&machine.refused, machine.cost) {
        (Some(reason), _) => format!("refused from {} ({reason})", machine.from),
        (None, cost) => {
            let cost = match (&machine.unknown, cost) {
                (Some(why), _) => format!("unknown cost: {why}"),
                (None, DisruptionCost::Nothing) => "costs nothing".to_owned(),
                (None, _) => format!("costs {}", diff::cost(&machine.actions)),
            };
            match machine.from == EMPTY_CONFIG_NAME {
                true => format!("first config, {cost}"),
                false => cost,
            }
        }
    }
}

/// The first names, and how many more there are.
fn abbreviate(names: &[&str]) -> String {
    let more = names.len().saturating_sub(MAX_NAMED_MACHINES);
    let shown = names[..names.len().min(MAX_NAMED_MACHINES)].join(", ");
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinist_core::api::operator::{DisruptionAction, DisruptionActionType};

    fn machine(from: &str, cost: DisruptionCost) -> MachinePlan {
        let type_ = DisruptionActionType::Reboot;
        MachinePlan {
            machine: "a".to_owned(),
            from: from.to_owned(),
            towards: None,
            cost,
            actions: vec![DisruptionAction { type_, ..DisruptionAction::default() }],
            decided: Vec::new(),
            refused: None,
            unknown: None,
        }
    }

    #[test]
    fn the_cost_for_a_machine_as_text() {
        let first = machine(EMPTY_CONFIG_NAME, DisruptionCost::Reboot);
        assert_eq!(cost(&first), "first config, costs a drain and a reboot");
        assert_eq!(
            cost(&machine("rendered-a", DisruptionCost::Reboot)),
            "costs a drain and a reboot"
        );
        assert_eq!(cost(&machine("rendered-a", DisruptionCost::Nothing)), "costs nothing");
        let why = Some("it has rendered-a, which is not there any more".to_owned());
        let unknown =
            MachinePlan { unknown: why, ..machine("rendered-a", DisruptionCost::Unknown) };
        assert_eq!(cost(&unknown), "unknown cost: it has rendered-a, which is not there any more");
        let refused = Some("no".to_owned());
        let refused = MachinePlan { refused, ..machine("rendered-a", DisruptionCost::Refused) };
        assert_eq!(cost(&refused), "refused from rendered-a (no)");
    }
}
