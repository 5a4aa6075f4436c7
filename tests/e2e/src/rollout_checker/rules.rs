//! The rules, checked entry by entry.

use super::log::{LogEntry, RecordedLog};
use super::pool::{NodeView, max_unavailable, primary_pool};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// How long a controller may act on state from before a change reached it.
#[derive(Debug, Clone, Copy)]
pub struct ReactionTime(pub Duration);

impl Default for ReactionTime {
    fn default() -> Self {
        Self(Duration::from_secs(2))
    }
}

/// A violation of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleViolation {
    /// The rule.
    pub rule: &'static str,
    /// The time, in milliseconds since the log began.
    pub at: u64,
    /// The node.
    pub node: String,
    /// What happened.
    pub message: String,
}

impl fmt::Display for RuleViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms, {}: {} ({})", self.at, self.node, self.message, self.rule)
    }
}

/// The rules by name.
const MAX_UNAVAILABLE_RULE: &str = "never more than maxUnavailable away";
const PAUSED_RULE: &str = "no target while paused";
const TARGET_RULE: &str = "every target is the pool's config";
const CAUSE_RULE: &str = "every change has a cause";

/// All violations, in order.
pub fn check(log: &RecordedLog, reaction_time: ReactionTime) -> Vec<RuleViolation> {
    let mut checker = CheckerState { reaction_time, ..CheckerState::default() };
    for entry in &log.entries {
        match entry.kind.as_str() {
            "Node" => checker.observe_node(entry),
            "MachineConfigPool" => checker.observe_pool(entry),
            _ => {}
        }
    }
    checker.violations
}

/// A pool and its recent history.
#[derive(Debug, Default)]
struct PoolHistory {
    object: Value,
    /// The configs that the pool has pointed at, each with the time of the change.
    configs: Vec<(u64, String)>,
    paused_since: Option<u64>,
    /// The previous limit, and when it changed.
    limits: Vec<(u64, Value)>,
}

/// A node and the pool it belongs to.
#[derive(Debug)]
struct PoolMember {
    view: NodeView,
    object: Value,
    pool: Option<String>,
    /// Its targets since it last applied one. A node that is retargeted while it starts an update may finish that
    /// update.
    targets: Vec<String>,
}

#[derive(Debug, Default)]
struct CheckerState {
    reaction_time: ReactionTime,
    pools: BTreeMap<String, PoolHistory>,
    nodes: BTreeMap<String, PoolMember>,
    /// Since when a node has not been ready.
    not_ready_since: BTreeMap<String, u64>,
    violations: Vec<RuleViolation>,
}

impl CheckerState {
    fn observe_pool(&mut self, entry: &LogEntry) {
        if entry.deleted {
            self.pools.remove(&entry.name);
            return self.assign_pools();
        }
        let selector = |object: &Value| object["spec"]["nodeSelector"].clone();
        let before = self.pools.get(&entry.name).map(|pool| selector(&pool.object));
        let pool = self.pools.entry(entry.name.clone()).or_default();
        let config = entry.object["spec"]["configuration"]["name"].as_str().unwrap_or_default();
        if pool.configs.last().is_none_or(|(_, last)| last != config) {
            pool.configs.push((entry.at, config.to_owned()));
        }
        let paused = entry.object["spec"]["paused"] == true;
        pool.paused_since = paused.then(|| pool.paused_since.unwrap_or(entry.at));
        let limit = entry.object["spec"]["maxUnavailable"].clone();
        if pool.limits.last().is_none_or(|(_, last)| *last != limit) {
            pool.limits.push((entry.at, limit));
        }
        pool.object = entry.object.clone();
        if before != Some(selector(&entry.object)) {
            self.assign_pools();
        }
    }

    /// Determines the pool of every node again.
    fn assign_pools(&mut self) {
        for member in self.nodes.values_mut() {
            let pools = self.pools.values().map(|pool| &pool.object);
            member.pool = primary_pool(&member.object, pools);
        }
    }

    fn observe_node(&mut self, entry: &LogEntry) {
        if entry.deleted {
            self.nodes.remove(&entry.name);
            self.not_ready_since.remove(&entry.name);
            return;
        }
        let view = NodeView::from_node(&entry.object);
        if view.ready {
            self.not_ready_since.remove(&entry.name);
        } else {
            self.not_ready_since.entry(entry.name.clone()).or_insert(entry.at);
        }
        let pool = primary_pool(&entry.object, self.pools.values().map(|pool| &pool.object));
        let sent = vec![view.desired.clone()];
        let member =
            PoolMember { view: view.clone(), object: entry.object.clone(), pool, targets: sent };
        // The first observation of a node is not a change.
        let Some(PoolMember { view: before, targets: mut sent, .. }) =
            self.nodes.insert(entry.name.clone(), member)
        else {
            return;
        };
        if before.desired != view.desired {
            self.check_new_target(entry, &view.desired);
            sent.push(view.desired.clone());
        }
        if before.current == view.current {
            self.nodes.entry(entry.name.clone()).and_modify(|member| member.targets = sent);
        } else if !sent.contains(&view.current) {
            let what = format!("took {} that nobody wanted", view.current);
            self.record_violation(CAUSE_RULE, entry, what);
        }
        if before.state != "Done" && view.state == "Done" && view.current.is_empty() {
            self.record_violation(CAUSE_RULE, entry, "is Done with nothing".to_owned());
        }
    }

    fn check_new_target(&mut self, entry: &LogEntry, desired: &str) {
        let Some(name) = self.nodes.get(&entry.name).and_then(|member| member.pool.clone()) else {
            return self.record_violation(
                TARGET_RULE,
                entry,
                format!("has no pool but was sent to {desired}"),
            );
        };
        let reaction_time = u64::try_from(self.reaction_time.0.as_millis()).unwrap_or(u64::MAX);
        let Some(pool) = self.pools.get(&name) else { return };
        let recent = |since: &u64| since.saturating_add(reaction_time) >= entry.at;
        // Whether this is the pool's config, or one that it had until a moment ago.
        let known = pool.configs.iter().enumerate().any(|(n, (_, config))| {
            let until = pool.configs.get(n + 1).map(|(at, _)| at);
            config == desired && until.is_none_or(recent)
        });
        let paused = pool.paused_since.is_some_and(|since| !recent(&since));
        let belongs = |member: &&PoolMember| member.pool.as_ref() == Some(&name);
        let members = self.nodes.values().filter(belongs).count();
        let limit = pool
            .limits
            .iter()
            .enumerate()
            .filter(|(n, _)| pool.limits.get(n + 1).is_none_or(|(at, _)| recent(at)))
            .map(|(_, (_, value))| {
                let pool = serde_json::json!({"spec": {"maxUnavailable": value}});
                max_unavailable(&pool, members)
            })
            .max();
        let away = self.unavailable(&name, desired, entry);
        if !known {
            self.record_violation(
                TARGET_RULE,
                entry,
                format!("was sent to {desired}, which {name} does not name"),
            );
        }
        if paused {
            self.record_violation(
                PAUSED_RULE,
                entry,
                format!("was sent to {desired} while {name} is paused"),
            );
        }
        if let Some(limit) = limit.filter(|limit| away > *limit) {
            self.record_violation(
                MAX_UNAVAILABLE_RULE,
                entry,
                format!("is number {away} away of {name}, which allows {limit}"),
            );
        }
    }

    /// How many nodes of a pool are unavailable: updating, or not ready for longer than the controller can have missed.
    fn unavailable(&self, pool: &str, target: &str, entry: &LogEntry) -> usize {
        let reaction_time = u64::try_from(self.reaction_time.0.as_millis()).unwrap_or(u64::MAX);
        let is_away = |(name, member): &(&String, &PoolMember)| {
            let down = self
                .not_ready_since
                .get(*name)
                .is_some_and(|since| since + reaction_time < entry.at);
            member.pool.as_deref() == Some(pool) && (member.view.is_updating(target) || down)
        };
        self.nodes.iter().filter(is_away).count()
    }

    fn record_violation(&mut self, rule: &'static str, entry: &LogEntry, what: String) {
        self.violations.push(RuleViolation {
            rule,
            at: entry.at,
            node: entry.name.clone(),
            message: what,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const P: &str = "machineconfiguration.openshift.io";

    fn pool(at: u64, config: &str, paused: bool, max: u64) -> LogEntry {
        let object = json!({"metadata": {"name": "worker"}, "spec": {
            "nodeSelector": {"matchLabels": {"role": "worker"}},
            "configuration": {"name": config}, "paused": paused, "maxUnavailable": max,
        }});
        let (kind, name) = ("MachineConfigPool".to_owned(), "worker".to_owned());
        LogEntry { at, version: at, kind, name, deleted: false, object }
    }

    fn node(at: u64, name: &str, current: &str, desired: &str, state: &str) -> LogEntry {
        let object = json!({
            "metadata": {"name": name, "labels": {"role": "worker"}, "annotations": {
                format!("{P}/currentConfig"): current,
                format!("{P}/desiredConfig"): desired,
                format!("{P}/state"): state,
            }},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        let (kind, name) = ("Node".to_owned(), name.to_owned());
        LogEntry { at, version: at, kind, name, deleted: false, object }
    }

    fn broken(entries: Vec<LogEntry>) -> Vec<&'static str> {
        let log = RecordedLog::new(entries);
        check(&log, ReactionTime(Duration::ZERO))
            .into_iter()
            .map(|violation| violation.rule)
            .collect()
    }

    fn start() -> Vec<LogEntry> {
        vec![pool(1, "a", false, 1), node(2, "x", "a", "a", "Done"), node(3, "y", "a", "a", "Done")]
    }

    #[test]
    fn one_machine_at_a_time_is_allowed() {
        let mut log = start();
        log.extend([
            pool(10, "b", false, 1),
            node(11, "x", "a", "b", "Done"),
            node(12, "x", "a", "b", "Working"),
            node(13, "x", "b", "b", "Done"),
            node(14, "y", "a", "b", "Done"),
            node(15, "y", "b", "b", "Done"),
        ]);
        assert_eq!(broken(log), Vec::<&str>::new());
    }

    #[test]
    fn two_at_once_exceed_max_unavailable() {
        let mut log = start();
        log.extend([
            pool(10, "b", false, 1),
            node(11, "x", "a", "b", "Done"),
            node(12, "y", "a", "b", "Done"),
        ]);
        assert_eq!(broken(log), [MAX_UNAVAILABLE_RULE]);
    }

    #[test]
    fn a_paused_pool_targets_no_machine() {
        let mut log = start();
        log.extend([pool(10, "b", true, 1), node(20, "x", "a", "b", "Done")]);
        assert_eq!(broken(log), [PAUSED_RULE]);
    }

    #[test]
    fn a_target_comes_from_the_pool_and_a_config_from_a_target() {
        let mut log = start();
        log.push(node(20, "x", "a", "c", "Done"));
        assert_eq!(broken(log), [TARGET_RULE]);
        let mut log = start();
        log.push(node(20, "x", "z", "a", "Done"));
        assert_eq!(broken(log), [CAUSE_RULE]);
    }

    #[test]
    fn a_retargeted_machine_may_finish_its_update() {
        let mut log = start();
        log.extend([
            pool(10, "b", false, 1),
            node(11, "x", "a", "b", "Done"),
            pool(12, "c", false, 1),
            node(13, "x", "a", "c", "Done"),
            node(14, "x", "b", "c", "Done"),
            node(15, "x", "c", "c", "Done"),
        ]);
        assert_eq!(broken(log.clone()), Vec::<&str>::new());
        // Only once.
        log.push(node(16, "x", "b", "c", "Done"));
        assert_eq!(broken(log), [CAUSE_RULE]);
    }
}
