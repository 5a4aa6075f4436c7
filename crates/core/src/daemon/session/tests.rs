//! Tables for the retry, timeout and SIGTERM rules, and for what each event changes.

use super::*;
use crate::api::operator::DisruptionActionType;
use crate::apply::empty_config;

const SECOND: Duration = Duration::from_secs(1);

fn pending(config: &str) -> PendingChange {
    let type_ = DisruptionActionType::Reboot;
    let actions = vec![DisruptionAction { type_, ..DisruptionAction::default() }];
    let mut new = empty_config();
    new.metadata.name = Some(config.to_owned());
    PendingChange::new(&empty_config(), &new, actions, "now", None)
}

fn os_change() -> OsChange {
    OsChange { image: Some("i".to_owned()), ..OsChange::default() }
}

#[test]
fn each_event_changes_what_it_is_about() {
    let b = || Some("b".to_owned());
    let retry = Retry { at: SECOND, inputs: Vec::new() };
    let full = Session {
        healthy_on: b(),
        actions_run_for: b(),
        fetched_os_change: Some(os_change()),
        failures: 3,
        retry: Some(retry),
        ..Session::default()
    };
    let table = [
        (
            SessionEvent::DiskVerified,
            Session { is_disk_verified: true, ..Session::default() },
            Session { is_disk_verified: true, ..full.clone() },
        ),
        (
            SessionEvent::OsFetched(os_change()),
            Session { fetched_os_change: Some(os_change()), ..Session::default() },
            full.clone(),
        ),
        (
            SessionEvent::WriteStarted,
            Session::default(),
            Session { actions_run_for: None, healthy_on: None, ..full.clone() },
        ),
        (
            SessionEvent::ActionsRun { config: "c".to_owned() },
            Session { actions_run_for: Some("c".to_owned()), ..Session::default() },
            Session { actions_run_for: Some("c".to_owned()), ..full.clone() },
        ),
        (
            SessionEvent::RebootOrdered,
            Session { is_reboot_ordered: true, ..Session::default() },
            Session { is_reboot_ordered: true, ..full.clone() },
        ),
        (
            SessionEvent::HealthPassed { config: "b".to_owned() },
            Session { healthy_on: b(), ..Session::default() },
            full.clone(),
        ),
        (
            SessionEvent::OsConfirmed,
            Session::default(),
            Session { fetched_os_change: None, ..full.clone() },
        ),
        (
            SessionEvent::ChangeCompleted,
            Session::default(),
            Session { actions_run_for: None, healthy_on: None, ..full.clone() },
        ),
        (
            SessionEvent::UpdateFinished,
            Session { is_disk_verified: true, ..Session::default() },
            Session { is_disk_verified: true, failures: 0, ..full.clone() },
        ),
        (SessionEvent::RetryNow, Session::default(), Session { retry: None, ..full.clone() }),
    ];
    for (event, from_empty, from_full) in table {
        let (mut empty, mut session) = (Session::default(), full.clone());
        empty.after(event.clone());
        session.after(event.clone());
        assert_eq!((empty, session), (from_empty, from_full), "{event:?}");
    }
}

#[test]
fn a_step_ends_the_wait_and_idle_resets_the_backoff() {
    let waiting = Waiting { request: "r".to_owned(), since: SECOND, is_timeout_reported: false };
    let before = Session { waiting: Some(waiting), failures: 2, ..Session::default() };
    let wait = AgentStep::Wait(AgentWait::Drain { request: "r".to_owned() });
    for (step, keeps_wait, failures) in
        [(wait, true, 2), (AgentStep::Update, false, 2), (AgentStep::Idle, false, 0)]
    {
        let mut session = before.clone();
        session.begin(&step);
        assert_eq!(
            (session.waiting.is_some(), session.failures),
            (keeps_wait, failures),
            "{step:?}"
        );
    }
}

#[test]
fn a_failure_is_retried_later_or_when_its_inputs_change() {
    let inputs = |desired: &str| vec![Some(desired.to_owned())];
    let mut session = Session::default();
    assert_eq!(session.retry_delay(SECOND, &inputs("a")), None);
    assert_eq!(session.fail(SECOND, inputs("a")), SECOND);
    assert_eq!(session.fail(SECOND, inputs("a")), 2 * SECOND);
    for (now, desired, expected) in [
        (SECOND, "a", Some(2 * SECOND)),
        (2 * SECOND, "a", Some(SECOND)),
        (3 * SECOND, "a", None),
        (SECOND, "b", None),
    ] {
        let mut session = session.clone();
        assert_eq!(session.retry_delay(now, &inputs(desired)), expected, "{now:?} {desired}");
        assert_eq!(session.retry.is_some(), expected.is_some());
    }
}

#[test]
fn an_unanswered_request_is_reported_once() {
    let drain = AgentWait::Drain { request: "drain-b".to_owned() };
    let uncordon = AgentWait::Uncordon { request: "uncordon-b".to_owned() };
    let start = 10 * SECOND;
    for (wait, timeout, reason, text) in [
        (&drain, DRAIN_TIMEOUT, "FailedToDrain", "failed to drain node: n after 1 hour."),
        (
            &uncordon,
            UNCORDON_TIMEOUT,
            "FailedToUncordon",
            "failed to uncordon node: n after 10 minutes.",
        ),
    ] {
        let mut session = Session::default();
        assert_eq!(session.wait(wait, "n", start), WaitStatus::Waiting(Some(timeout)));
        let left = session.wait(wait, "n", start + timeout - SECOND);
        assert_eq!(left, WaitStatus::Waiting(Some(SECOND)));
        let WaitStatus::TimedOut(found) = session.wait(wait, "n", start + timeout) else {
            panic!("{wait:?} has not timed out");
        };
        assert_eq!(found.event_reason, reason);
        assert!(found.message.starts_with(text), "{}", found.message);
        assert_eq!(session.wait(wait, "n", start + 2 * timeout), WaitStatus::Waiting(None));
    }
    // Another request is measured from its own start.
    let mut session = Session::default();
    session.wait(&drain, "n", start);
    let left = session.wait(&uncordon, "n", start + DRAIN_TIMEOUT);
    assert_eq!(left, WaitStatus::Waiting(Some(UNCORDON_TIMEOUT)));
    // People take as long as they take.
    for wait in [AgentWait::DesiredConfig, AgentWait::RebootApproval { config: "b".to_owned() }] {
        let mut session = Session::default();
        assert_eq!(session.wait(&wait, "n", start), WaitStatus::Waiting(None));
        assert_eq!(session.waiting, None);
    }
}

#[test]
fn sigterm_waits_while_the_machine_changes() {
    use Phase::{
        FetchingOs, Healing, Idle, Preparing, Rebooting, RollingBack, RunningActions, Writing,
    };
    let (added, removed) = (Some(SigtermProtection::Added), Some(SigtermProtection::Removed));
    for (from, to, expected) in [
        (Idle, Idle, None),
        (Idle, Preparing, added),
        (Preparing, FetchingOs, removed),
        (FetchingOs, Writing, added),
        (Preparing, Writing, None),
        (Writing, Idle, removed),
        (Idle, RunningActions, added),
        (RunningActions, Rebooting, removed),
        (Rebooting, Idle, None),
        (Idle, Healing, added),
        (Healing, Idle, removed),
        (Idle, RollingBack, added),
        (FetchingOs, Idle, None),
    ] {
        let mut session = Session { phase: from, ..Session::default() };
        assert_eq!(session.enter(to), expected, "{from:?} to {to:?}");
        assert_eq!(session.phase, to);
    }
}

#[test]
fn actions_that_have_run_are_not_run_again() {
    let session = Session { actions_run_for: Some("b".to_owned()), ..Session::default() };
    for (config, remaining) in [("b", 0), ("c", 1)] {
        let pending = pending(config);
        assert_eq!(session.remaining_actions(&pending, "now").len(), remaining, "{config}");
        let unfinished = session.unfinished(Some(pending)).unwrap();
        assert_eq!(unfinished.actions.len(), remaining, "{config}");
    }
    // A reboot has done what an action would do.
    assert!(Session::default().remaining_actions(&pending("b"), "later").is_empty());
    assert_eq!(session.unfinished(None), None);
}

#[test]
fn what_is_fetched_and_healthy_is_not_checked_again() {
    let fetched = Session { fetched_os_change: Some(os_change()), ..Session::default() };
    let other = OsChange { image: Some("j".to_owned()), ..OsChange::default() };
    assert!(Session::default().needs_fetch(&os_change()) && fetched.needs_fetch(&other));
    assert!(!fetched.needs_fetch(&os_change()) && !fetched.needs_fetch(&OsChange::default()));

    let there = pending("b");
    let back = there.clone().rollback("now");
    let healthy = Session { healthy_on: Some("b".to_owned()), ..Session::default() };
    for (session, pending, expected) in [
        (&Session::default(), Some(&there), true),
        (&healthy, Some(&there), false),
        (&Session::default(), Some(&back), false),
        (&Session::default(), None, false),
    ] {
        assert_eq!(session.needs_health_check(pending, "b"), expected, "{session:?}");
    }
}

#[test]
fn a_failed_recovery_is_tried_again_and_reported_once() {
    let mut session = Session::default();
    session.after(SessionEvent::RecoveryFailed);
    assert!(session.needs_recovery);
    session.after(SessionEvent::Recovered { report: Some("undone".to_owned()) });
    assert_eq!(
        (session.needs_recovery, session.unreported_recovery.as_deref()),
        (false, Some("undone"))
    );
    // A report that nobody has seen yet is kept.
    session.after(SessionEvent::Recovered { report: None });
    assert_eq!(session.unreported_recovery.take().as_deref(), Some("undone"));
}

#[test]
fn a_config_whose_actions_fail_is_given_up_until_someone_asks() {
    let mut session = Session::default();
    let fail = |session: &mut Session, config: &str| {
        let (config, reason) = (config.to_owned(), "restarting a failed".to_owned());
        session.after(SessionEvent::ActionsFailed { config, reason });
    };
    for _ in 1..MAX_ACTION_ATTEMPTS {
        fail(&mut session, "a");
        assert_eq!(session.gave_up_on("a"), None);
    }
    fail(&mut session, "a");
    let reason = session.gave_up_on("a").unwrap();
    assert!(reason.starts_with("restarting a failed; gave up on a after 5 attempts"), "{reason}");
    assert!(reason.contains("/run/machine-config-daemon-force"), "{reason}");
    // Another config is tried, and afterwards this one again.
    assert_eq!(session.gave_up_on("b"), None);
    for event in [SessionEvent::AttemptForced, SessionEvent::UpdateFinished] {
        let mut session = session.clone();
        session.after(event);
        assert_eq!(session.gave_up_on("a"), None);
    }
    fail(&mut session, "b");
    assert_eq!(session.gave_up_on("a"), None);
}

#[test]
fn abilities_are_reported_once_and_again_when_the_disk_has_changed() {
    let reported = |at| Session { abilities_reported_at: at, ..Session::default() };
    for (at, step, changes, expected) in [
        (None, AgentStep::Idle, 0, true),
        (None, AgentStep::Update, 0, true),
        (None, AgentStep::AwaitReboot, 0, false),
        (None, AgentStep::ReportInitialConfig, 0, false),
        (Some(3), AgentStep::Idle, 3, false),
        (Some(3), AgentStep::Idle, 4, true),
        (Some(3), AgentStep::Update, 4, false),
    ] {
        let due = reported(at).are_abilities_due(&step, changes);
        assert_eq!(due, expected, "{at:?} {step:?} {changes}");
    }
}

#[test]
fn a_healthy_daemon_is_stored_once() {
    let mut session = Session::default();
    assert!(session.take_last_good());
    assert!(!session.take_last_good());
}

#[test]
fn drift_that_was_not_healed_before_stops_an_update() {
    let drifted = |path: &str| -> DriftedPath {
        serde_json::from_value(serde_json::json!({"path": path, "kind": "content"})).unwrap()
    };
    let session = Session { drifted: vec![drifted("/a")], ..Session::default() };
    assert!(!session.may_update_despite_drift());
}

#[test]
fn a_slow_download_is_no_stuck_daemon() {
    assert!(Phase::FetchingOs.time_limit() > Phase::Idle.time_limit());
    assert!(Phase::RunningActions.time_limit() > Phase::Writing.time_limit());
}
