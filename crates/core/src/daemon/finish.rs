//! How an update ends: what is verified and reported after the actions of a change, and in which order, until the machine
//! is `Done`.
//!
//! The shell performs one step after the other (`daemon/agent/finish`). A step that fails, or that has to wait for someone
//! else, ends the sequence; the next reconcile begins it again.

use k8s_openapi::api::core::v1::Node;

use super::annotations::{self, NodeAnnotationPatch};
use super::{PendingChange, Session, actions};
use crate::api::names::annotation::machinist::REBOOT_REQUESTED;
use crate::node::NodeView;

/// One step at the end of an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishStep {
    /// Compare the booted operating system with the config.
    VerifyOs,
    /// Compare the disk with the config.
    VerifyDisk,
    /// Run the health checks; the machine rolls back if they fail.
    CheckHealth,
    /// Store the config that the machine was installed with.
    AdoptConfig,
    /// Remove what is only for the first boot.
    EndFirstBoot,
    /// Report that the machine has the config.
    ReportVerified,
    /// Ask the controller for an uncordon.
    RequestUncordon,
    /// Remove what was kept for a rollback of the operating system.
    ConfirmOs,
    /// Keep the machine degraded if a path is wrong that the config does not repair.
    CheckLeftovers,
    /// Report `Done`.
    ReportDone,
    /// Restart the daemon, because an action of the change asks for it.
    RestartDaemon,
}

/// All steps in their order. Nothing is reported before it is verified; the machine is uncordoned before anything that
/// would be needed for a rollback is removed.
const ORDER: [FinishStep; 11] = [
    FinishStep::VerifyOs,
    FinishStep::VerifyDisk,
    FinishStep::CheckHealth,
    FinishStep::AdoptConfig,
    FinishStep::EndFirstBoot,
    FinishStep::ReportVerified,
    FinishStep::RequestUncordon,
    FinishStep::ConfirmOs,
    FinishStep::CheckLeftovers,
    FinishStep::ReportDone,
    FinishStep::RestartDaemon,
];

/// What the end of an update depends on, besides the [`Session`].
#[derive(Debug, Clone, Copy)]
pub struct FinishFacts<'a> {
    /// The Node.
    pub node: &'a Node,
    /// The config that the machine has now.
    pub config: &'a str,
    /// The change that is about to be complete.
    pub pending: Option<&'a PendingChange>,
    /// The current boot.
    pub boot_id: &'a str,
    /// Whether the config is stored on the disk.
    pub has_config_on_disk: bool,
    /// Whether the machine was installed with annotations for its Node.
    pub has_first_boot_annotations: bool,
}

impl FinishFacts<'_> {
    /// The step after `done`; the first one without. `None` means that the update has ended.
    #[must_use]
    pub fn next(&self, session: &Session, done: Option<FinishStep>) -> Option<FinishStep> {
        let next = done.and_then(|done| ORDER.iter().position(|step| *step == done));
        let left = &ORDER[next.map_or(0, |position| position + 1)..];
        left.iter().copied().find(|step| self.is_due(*step, session))
    }

    fn is_due(&self, step: FinishStep, session: &Session) -> bool {
        match step {
            FinishStep::CheckHealth => session.needs_health_check(self.pending, self.config),
            FinishStep::AdoptConfig => !self.has_config_on_disk && self.has_first_boot_annotations,
            FinishStep::RequestUncordon => !annotations::is_uncordoned(self.node, self.config),
            FinishStep::ConfirmOs => self.pending.is_some_and(|pending| pending.os.is_some()),
            FinishStep::RestartDaemon => self.pending.is_some_and(|pending| {
                actions::restarts_daemon(pending.remaining_actions(self.boot_id))
            }),
            FinishStep::VerifyOs
            | FinishStep::VerifyDisk
            | FinishStep::EndFirstBoot
            | FinishStep::ReportVerified
            | FinishStep::CheckLeftovers
            | FinishStep::ReportDone => true,
        }
    }
}

/// What a machine that is done writes to its Node. The request for a reboot that the change fulfilled is removed; one that
/// came later stands.
#[must_use]
pub fn done_annotations(
    node: &Node,
    config: &str,
    image: Option<&str>,
    pending: Option<&PendingChange>,
) -> NodeAnnotationPatch {
    let mut done = annotations::done(config, image);
    let fulfilled = pending.and_then(|pending| pending.requested_reboot.as_deref());
    if fulfilled.is_some() && NodeView(node).annotation(REBOOT_REQUESTED) == fulfilled {
        done.insert(REBOOT_REQUESTED.to_owned(), None);
    }
    done
}

#[cfg(test)]
mod tests {
    use FinishStep::{
        AdoptConfig, CheckHealth, CheckLeftovers, ConfirmOs, EndFirstBoot, ReportDone,
        ReportVerified, RequestUncordon, RestartDaemon, VerifyDisk, VerifyOs,
    };
    use serde_json::json;

    use super::*;
    use crate::api::names::annotation;
    use crate::api::operator::DisruptionAction;
    use crate::apply::empty_config;
    use crate::daemon::{PendingOsChange, SessionEvent};

    fn node(annotations: &[(&str, &str)]) -> Node {
        let annotations: std::collections::BTreeMap<_, _> = annotations.iter().copied().collect();
        serde_json::from_value(json!({"metadata": {"name": "n", "annotations": annotations}}))
            .unwrap()
    }

    fn uncordoned() -> Node {
        node(&[(annotation::LAST_APPLIED_DRAIN, "uncordon-b")])
    }

    fn change() -> PendingChange {
        let mut previous = empty_config();
        previous.metadata.name = Some("a".to_owned());
        let mut new = empty_config();
        new.metadata.name = Some("b".to_owned());
        PendingChange::new(&previous, &new, Vec::new(), "boot", None)
    }

    fn restart_of_the_daemon() -> DisruptionAction {
        let action = json!({"type": "Restart", "restart": {"serviceName": actions::DAEMON_UNIT}});
        serde_json::from_value(action).unwrap()
    }

    /// The steps of an update that nothing interrupts.
    fn steps(facts: &FinishFacts<'_>, session: &Session) -> Vec<FinishStep> {
        let mut steps = Vec::new();
        while let Some(step) = facts.next(session, steps.last().copied()) {
            steps.push(step);
        }
        steps
    }

    #[test]
    fn the_steps_depend_on_the_change_and_the_node() {
        let (fresh, cordoned) = (uncordoned(), node(&[]));
        let with_os = PendingChange { os: Some(PendingOsChange::default()), ..change() };
        let restarts = PendingChange { actions: vec![restart_of_the_daemon()], ..change() };
        let rollback = PendingChange { is_rollback: true, ..change() };
        let (plain, healthy) = (Session::default(), {
            let mut session = Session::default();
            session.after(SessionEvent::HealthPassed { config: "b".to_owned() });
            session
        });
        let verify = [VerifyOs, VerifyDisk];
        let report = [EndFirstBoot, ReportVerified];
        let end = [CheckLeftovers, ReportDone];
        let all = |parts: &[&[FinishStep]]| parts.concat();
        let cases = [
            ("nothing pending", &fresh, None, &plain, true, all(&[&verify, &report, &end])),
            (
                "cordoned",
                &cordoned,
                None,
                &plain,
                true,
                all(&[&verify, &report, &[RequestUncordon], &end]),
            ),
            (
                "installed",
                &fresh,
                None,
                &plain,
                false,
                all(&[&verify, &[AdoptConfig], &report, &end]),
            ),
            (
                "change",
                &fresh,
                Some(change()),
                &plain,
                true,
                all(&[&verify, &[CheckHealth], &report, &end]),
            ),
            ("checked", &fresh, Some(change()), &healthy, true, all(&[&verify, &report, &end])),
            ("rollback", &fresh, Some(rollback), &plain, true, all(&[&verify, &report, &end])),
            (
                "system",
                &fresh,
                Some(with_os),
                &healthy,
                true,
                all(&[&verify, &report, &[ConfirmOs], &end]),
            ),
            (
                "restart",
                &fresh,
                Some(restarts),
                &healthy,
                true,
                all(&[&verify, &report, &end, &[RestartDaemon]]),
            ),
        ];
        for (name, node, pending, session, has_config_on_disk, expected) in cases {
            let facts = FinishFacts {
                node,
                config: "b",
                pending: pending.as_ref(),
                boot_id: "boot",
                has_config_on_disk,
                has_first_boot_annotations: true,
            };
            assert_eq!(steps(&facts, session), expected, "{name}");
        }
    }

    #[test]
    fn a_reboot_leaves_no_restart_of_the_daemon() {
        let pending = PendingChange { actions: vec![restart_of_the_daemon()], ..change() };
        let node = uncordoned();
        let facts = FinishFacts {
            node: &node,
            config: "b",
            pending: Some(&pending),
            boot_id: "another boot",
            has_config_on_disk: true,
            has_first_boot_annotations: false,
        };
        assert!(!steps(&facts, &Session::default()).contains(&RestartDaemon));
    }

    #[test]
    fn only_the_request_that_the_change_fulfilled_is_removed() {
        for (asked, fulfilled, is_removed) in [
            (Some("1"), Some("1"), true),
            (Some("2"), Some("1"), false),
            (Some("1"), None, false),
            (None, Some("1"), false),
            (None, None, false),
        ] {
            let node =
                node(&asked.map(|it| (REBOOT_REQUESTED, it)).into_iter().collect::<Vec<_>>());
            let pending =
                PendingChange { requested_reboot: fulfilled.map(str::to_owned), ..change() };
            let done = done_annotations(&node, "b", None, Some(&pending));
            assert_eq!(done.contains_key(REBOOT_REQUESTED), is_removed, "{asked:?} {fulfilled:?}");
        }
        assert!(!done_annotations(&node(&[]), "b", None, None).contains_key(REBOOT_REQUESTED));
    }
}
