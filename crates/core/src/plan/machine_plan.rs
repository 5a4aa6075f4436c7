//! What a change costs each machine of a pool. Machines may be on different configs, so each is
//! asked from where it is.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use serde::Serialize;

use crate::api::MachineConfig;
use crate::api::operator::{DisruptionAction, DisruptionActionType, NodeDisruptionPolicy};
use crate::apply::{EMPTY_CONFIG_NAME, empty_config};
use crate::diff;
use crate::disruption::disruption;
use crate::node::NodeView;
use crate::reconcile_check::{ValidationOverrides, check_reconcilable};

/// What a change costs a machine, in one word: the dearest of all that is done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum DisruptionCost {
    /// Nothing that anybody notices.
    #[default]
    Nothing,
    /// A service reads its settings again.
    Reload,
    /// A service is restarted.
    Restart,
    /// Its pods are moved away.
    Drain,
    /// Its pods are moved away, and it is restarted.
    Reboot,
    /// It cannot be told; [`MachinePlan::unknown`] says why.
    Unknown,
    /// The machine would not take the change.
    Refused,
}

/// What happens to a machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MachinePlan {
    /// The machine.
    pub machine: String,
    /// The config that it has.
    pub from: String,
    /// The config that it is on its way to, if it is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub towards: Option<String>,
    /// What it costs, in one word.
    pub cost: DisruptionCost,
    /// What is done, in this order.
    pub actions: Vec<DisruptionAction>,
    /// Why it would not take the change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Why it cannot be told what it costs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
}

/// The machines of a pool that do not have a config, and what it costs to give it to them.
pub(super) fn plan_machines<'a>(
    nodes: &[&Node],
    find: &dyn Fn(&str) -> Option<&'a MachineConfig>,
    wanted: &MachineConfig,
    policy: &NodeDisruptionPolicy,
) -> Vec<MachinePlan> {
    let target = wanted.metadata.name.as_deref().unwrap_or_default();
    let mut prices: BTreeMap<String, TransitionCost> = BTreeMap::new();
    // A machine that has no config yet is asked as its daemon asks: from one in which nothing is.
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
        let is_under_way = !desired.is_empty() && desired != from && desired != target;
        let towards = is_under_way.then(|| desired.to_owned());
        // Nobody knows how far it is: the dearer way is assumed.
        let mut dearest = None;
        for start in [Some(from), towards.as_deref()].into_iter().flatten() {
            let price = prices
                .entry(start.to_owned())
                .or_insert_with(|| transition_cost(start, known(start), wanted, policy));
            if dearest.as_ref().is_none_or(|other: &TransitionCost| other.cost < price.cost) {
                dearest = Some(price.clone());
            }
        }
        let Some(TransitionCost { cost, actions, refused, unknown }) = dearest else { continue };
        let (machine, from) = (view.name().to_owned(), from.to_owned());
        plans.push(MachinePlan { machine, from, towards, cost, actions, refused, unknown });
    }
    plans
}

/// What it costs to go from one config to another.
#[derive(Clone, Default)]
struct TransitionCost {
    cost: DisruptionCost,
    actions: Vec<DisruptionAction>,
    refused: Option<String>,
    unknown: Option<String>,
}

fn transition_cost(
    from: &str,
    old: Option<&MachineConfig>,
    new: &MachineConfig,
    policy: &NodeDisruptionPolicy,
) -> TransitionCost {
    let Some(old) = old else {
        let why = match from {
            "" => "its daemon has not said yet which config it has".to_owned(),
            name => format!("it has {name}, which is not there any more"),
        };
        return TransitionCost {
            cost: DisruptionCost::Unknown,
            unknown: Some(why),
            ..TransitionCost::default()
        };
    };
    match check_reconcilable(old, new, ValidationOverrides::default()) {
        Err(refusal) => {
            let refused = Some(refusal.reason());
            TransitionCost { cost: DisruptionCost::Refused, refused, ..TransitionCost::default() }
        }
        Ok(change) => {
            let flags = diff::diff(old, new, &change).flags;
            let actions = disruption(&change, flags, policy).actions;
            let cost = actions.iter().map(|action| cost_of(&action.type_)).max();
            let unknown = (cost == Some(DisruptionCost::Unknown))
                .then(|| "the disruption policy names an action that is not known".to_owned());
            TransitionCost { cost: cost.unwrap_or_default(), actions, refused: None, unknown }
        }
    }
}

fn cost_of(action: &DisruptionActionType) -> DisruptionCost {
    match action {
        DisruptionActionType::None => DisruptionCost::Nothing,
        DisruptionActionType::Reload | DisruptionActionType::DaemonReload => DisruptionCost::Reload,
        DisruptionActionType::Restart => DisruptionCost::Restart,
        // It may come to a drain, and nobody should be surprised by one.
        DisruptionActionType::Drain | DisruptionActionType::Special => DisruptionCost::Drain,
        DisruptionActionType::Reboot => DisruptionCost::Reboot,
        DisruptionActionType::Unknown(_) => DisruptionCost::Unknown,
    }
}
