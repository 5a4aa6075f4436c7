//! What a change costs each machine of a pool. Machines may have different configs, so each is
//! planned from its own one.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use serde::Serialize;

use crate::api::MachineConfig;
use crate::api::names::annotation::machinist;
use crate::api::operator::{DisruptionAction, DisruptionActionType, NodeDisruptionPolicy};
use crate::apply::{EMPTY_CONFIG_NAME, empty_config};
use crate::diff;
use crate::disruption::{DecidedChange, Disruption, DisruptionRules, disruption};
use crate::node::NodeView;
use crate::os::abilities::{HostAbilities, UserRules};
use crate::reconcile_check::{ValidationOverrides, check_reconcilable};

/// The cost of a change for a machine: that of the most disruptive action.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum DisruptionCost {
    /// No disruption.
    #[default]
    Nothing,
    /// A service is reloaded.
    Reload,
    /// A service is restarted.
    Restart,
    /// The machine is drained.
    Drain,
    /// The machine is drained and rebooted.
    Reboot,
    /// Unknown; [`MachinePlan::unknown`] says why.
    Unknown,
    /// The machine would refuse the change.
    Refused,
}

/// What happens to a machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MachinePlan {
    /// The machine.
    pub machine: String,
    /// The config that the machine has.
    pub from: String,
    /// The config that it is updating to, if that is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub towards: Option<String>,
    /// The cost of the change.
    pub cost: DisruptionCost,
    /// The actions, in this order.
    pub actions: Vec<DisruptionAction>,
    /// What decided about the cost of each file and unit.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub decided: Vec<DecidedChange>,
    /// Why it would refuse the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Why the cost is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
}

/// Plans every machine of a pool that does not have the desired config.
pub(super) fn plan_machines<'a>(
    nodes: &[&Node],
    find: &dyn Fn(&str) -> Option<&'a MachineConfig>,
    wanted: &MachineConfig,
    policy: &NodeDisruptionPolicy,
    overrides: ValidationOverrides,
) -> Vec<MachinePlan> {
    let target = wanted.metadata.name.as_deref().unwrap_or_default();
    let mut costs: BTreeMap<(String, String), TransitionCost> = BTreeMap::new();
    // A machine that has no config yet starts from the empty one, as in its daemon.
    let nothing = empty_config();
    let known = |name: &str| if name == EMPTY_CONFIG_NAME { Some(&nothing) } else { find(name) };
    let mut plans = Vec::new();
    for node in nodes {
        let view = NodeView(node);
        let from = view.current_config();
        if from == target && !view.needs_target(target) {
            continue;
        }
        let desired = view.desired_config();
        // Machines with the same config differ in what their hosts are.
        let report = view.annotation(machinist::HOST).unwrap_or_default();
        let host = HostAbilities::parse(report);
        let is_under_way = !desired.is_empty() && desired != from && desired != target;
        let towards = is_under_way.then(|| desired.to_owned());
        // The progress is unknown, so the higher cost is assumed.
        let mut highest = None;
        for start in [Some(from), towards.as_deref()].into_iter().flatten() {
            let candidate =
                costs.entry((start.to_owned(), report.to_owned())).or_insert_with(|| {
                    transition_cost(start, known(start), wanted, policy, overrides, host.as_ref())
                });
            if highest.as_ref().is_none_or(|other: &TransitionCost| other.cost < candidate.cost) {
                highest = Some(candidate.clone());
            }
        }
        let Some(highest) = highest else { continue };
        let starts = [Some(from), towards.as_deref()].into_iter().flatten();
        let TransitionCost { cost, actions, decided, refused, unknown } =
            on_host(highest, host.as_ref(), starts.filter_map(known), wanted);
        let (machine, from) = (view.name().to_owned(), from.to_owned());
        plans.push(MachinePlan {
            machine,
            from,
            towards,
            cost,
            actions,
            decided,
            refused,
            unknown,
        });
    }
    plans
}

/// The cost on the host of a machine, which may not be able to carry the change out.
fn on_host<'a>(
    cost: TransitionCost,
    host: Option<&HostAbilities>,
    mut starts: impl Iterator<Item = &'a MachineConfig>,
    wanted: &MachineConfig,
) -> TransitionCost {
    let refusal = host.and_then(|host| starts.find_map(|old| host_refusal(host, old, wanted)));
    match refusal.filter(|_| cost.refused.is_none()) {
        None => cost,
        refused => {
            TransitionCost { cost: DisruptionCost::Refused, refused, ..TransitionCost::default() }
        }
    }
}

fn host_refusal(host: &HostAbilities, old: &MachineConfig, new: &MachineConfig) -> Option<String> {
    let overrides = ValidationOverrides {
        any_user: host.users == UserRules::Any,
        ..ValidationOverrides::default()
    };
    let refused = check_reconcilable(old, new, overrides).err().map(|refusal| refusal.reason());
    refused.or_else(|| host.config_refusal(old, new))
}

/// The cost of a transition from one config to another.
#[derive(Clone, Default)]
struct TransitionCost {
    cost: DisruptionCost,
    actions: Vec<DisruptionAction>,
    decided: Vec<DecidedChange>,
    refused: Option<String>,
    unknown: Option<String>,
}

fn transition_cost(
    from: &str,
    old: Option<&MachineConfig>,
    new: &MachineConfig,
    policy: &NodeDisruptionPolicy,
    overrides: ValidationOverrides,
    host: Option<&HostAbilities>,
) -> TransitionCost {
    let Some(old) = old else {
        let why = match from {
            "" => "its daemon has not reported its config yet".to_owned(),
            name => format!("its config {name} no longer exists"),
        };
        return TransitionCost {
            cost: DisruptionCost::Unknown,
            unknown: Some(why),
            ..TransitionCost::default()
        };
    };
    match check_reconcilable(old, new, overrides) {
        Err(refusal) => {
            let refused = Some(refusal.reason());
            TransitionCost { cost: DisruptionCost::Refused, refused, ..TransitionCost::default() }
        }
        Ok(change) => {
            let flags = diff::diff(old, new, &change).flags;
            let rules = DisruptionRules::new(policy, old, new, host);
            let Disruption { actions, decided, .. } = disruption(&change, flags, &rules);
            let cost = actions.iter().map(|action| cost_of(&action.type_)).max();
            let unknown = (cost == Some(DisruptionCost::Unknown))
                .then(|| "the disruption policy contains an unknown action".to_owned());
            let cost = cost.unwrap_or_default();
            TransitionCost { cost, actions, decided, refused: None, unknown }
        }
    }
}

fn cost_of(action: &DisruptionActionType) -> DisruptionCost {
    match action {
        DisruptionActionType::None => DisruptionCost::Nothing,
        DisruptionActionType::Reload | DisruptionActionType::DaemonReload => DisruptionCost::Reload,
        DisruptionActionType::Restart | DisruptionActionType::Run => DisruptionCost::Restart,
        // This may include a drain, which must not come as a surprise.
        DisruptionActionType::Drain | DisruptionActionType::Special => DisruptionCost::Drain,
        DisruptionActionType::Reboot => DisruptionCost::Reboot,
        DisruptionActionType::Unknown(_) => DisruptionCost::Unknown,
    }
}
