//! The steps that a simulated machine takes.

use super::*;

fn annotations(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| (format!("{PREFIX}/{key}"), (*value).to_owned())).collect()
}

const TARGETED: [(&str, &str); 3] =
    [("currentConfig", "a"), ("desiredConfig", "b"), ("state", "Done")];

fn said(effects: &[Effect]) -> Vec<String> {
    let words = effects.iter().flat_map(|effect| match effect {
        Effect::Annotate(says) => says.iter().map(|(k, v)| format!("{k}={v}")).collect(),
        Effect::Ready(is) => vec![format!("ready={is}")],
        Effect::Wake(_) => vec!["wake".to_owned()],
    });
    words.collect()
}

#[test]
fn an_update_with_drain_and_reboot_takes_the_steps_in_order() {
    let behaviour = Behaviour { drain: true, reboot: Some(1..=1), ..Behaviour::default() };
    let mut machine = Simulated::new("m", 1);
    let seen = machine.observe(&behaviour, &annotations(&TARGETED));
    assert_eq!(said(&seen), ["state=Working", "desiredDrain=drain-b"]);
    assert!(machine.observe(&behaviour, &annotations(&TARGETED)).is_empty());
    let mut drained = annotations(&TARGETED);
    drained.insert(format!("{PREFIX}/lastAppliedDrain"), "drain-b".to_owned());
    assert_eq!(said(&machine.observe(&behaviour, &drained)), ["wake"]);
    let down = machine.wake(&behaviour, machine.clock());
    assert_eq!(said(&down), ["post-config-action=Rebooting", "ready=false", "wake"]);
    let up = machine.wake(&behaviour, machine.clock());
    assert_eq!(said(&up), ["ready=true", "desiredDrain=uncordon-b"]);
    drained.insert(format!("{PREFIX}/lastAppliedDrain"), "uncordon-b".to_owned());
    let done = said(&machine.observe(&behaviour, &drained));
    assert_eq!(done, ["currentConfig=b", "state=Done", "reason=", "post-config-action="]);
    assert_eq!(machine.phase(), &Phase::Idle);
}

#[test]
fn a_failure_is_reported_and_tried_again_without_flapping() {
    let behaviour = Behaviour { failure: 100, ..Behaviour::default() };
    let mut machine = Simulated::new("m", 1);
    machine.observe(&behaviour, &annotations(&TARGETED));
    let failed = said(&machine.wake(&behaviour, machine.clock()));
    assert_eq!(failed, ["state=Degraded", "reason=simulated failure of b", "wake"]);
    assert_eq!(said(&machine.wake(&behaviour, machine.clock())), ["wake"]);
    machine.wake(&behaviour, machine.clock());
    machine.wake(&behaviour, machine.clock());
    let done = said(&machine.wake(&behaviour, machine.clock()));
    assert_eq!(done[0], "currentConfig=b");
}

#[test]
fn one_that_starts_over_does_not_ask_for_a_drain_that_it_has() {
    let behaviour = Behaviour { drain: true, failure: 100, ..Behaviour::default() };
    let mut machine = Simulated::new("m", 1);
    machine.observe(&behaviour, &annotations(&TARGETED));
    let mut drained = annotations(&TARGETED);
    drained.insert(format!("{PREFIX}/lastAppliedDrain"), "drain-b".to_owned());
    machine.observe(&behaviour, &drained);
    machine.wake(&behaviour, machine.clock());
    assert_eq!(machine.phase(), &Phase::Failed);
    machine.wake(&behaviour, machine.clock());
    assert_eq!(machine.phase(), &Phase::Applying);
}

/// What a controller writes on a machine of a pool with deferred restarts.
fn deferred(target: &str, permitted: &str) -> BTreeMap<String, String> {
    let mut seen = annotations(&TARGETED);
    seen.insert(format!("{PREFIX}/desiredConfig"), target.to_owned());
    seen.insert(REBOOT.to_owned(), "deferred".to_owned());
    if !permitted.is_empty() {
        seen.insert(RESTART.to_owned(), permitted.to_owned());
    }
    seen
}

#[test]
fn a_deferred_restart_waits_for_the_permission_and_is_drained_then() {
    let behaviour = Behaviour { drain: true, reboot: Some(1..=1), ..Behaviour::default() };
    let mut machine = Simulated::new("m", 1);
    let seen = machine.observe(&behaviour, &deferred("b", ""));
    assert_eq!(said(&seen), ["state=Working", "wake"]);
    let applied = said(&machine.wake(&behaviour, machine.clock()));
    assert_eq!(applied, ["machinist.dev/restart-pending=b"]);
    assert_eq!(machine.phase(), &Phase::AwaitingRestart);
    // A permission for another config is none.
    assert!(machine.observe(&behaviour, &deferred("b", "a")).is_empty());
    let allowed = machine.observe(&behaviour, &deferred("b", "b"));
    assert_eq!(said(&allowed), ["desiredDrain=drain-b"]);
    let mut drained = deferred("b", "b");
    drained.insert(format!("{PREFIX}/lastAppliedDrain"), "drain-b".to_owned());
    let down = said(&machine.observe(&behaviour, &drained));
    assert_eq!(down, ["post-config-action=Rebooting", "ready=false", "wake"]);
    machine.wake(&behaviour, machine.clock());
    drained.insert(format!("{PREFIX}/lastAppliedDrain"), "uncordon-b".to_owned());
    let done = said(&machine.observe(&behaviour, &drained));
    assert_eq!(done[..2], ["currentConfig=b", "state=Done"]);
    assert_eq!(done[4..], ["machinist.dev/restart-pending=", "machinist.dev/restart="]);
}

#[test]
fn whoever_waits_for_a_restart_goes_to_a_new_config_and_restarts_once() {
    let behaviour = Behaviour { reboot: Some(1..=1), ..Behaviour::default() };
    let mut machine = Simulated::new("m", 1);
    machine.observe(&behaviour, &deferred("b", ""));
    machine.wake(&behaviour, machine.clock());
    let seen = said(&machine.observe(&behaviour, &deferred("c", "")));
    assert_eq!(seen, ["state=Working", "wake"]);
    let applied = said(&machine.wake(&behaviour, machine.clock()));
    assert_eq!(applied, ["machinist.dev/restart-pending=c"]);
}

#[test]
fn a_change_without_restart_needs_no_permission() {
    let behaviour = Behaviour::default();
    let mut machine = Simulated::new("m", 1);
    machine.observe(&behaviour, &deferred("b", ""));
    let done = said(&machine.wake(&behaviour, machine.clock()));
    assert_eq!(done, ["currentConfig=b", "state=Done", "reason=", "post-config-action="]);
}

#[test]
fn a_wake_of_an_earlier_phase_is_ignored() {
    let behaviour = Behaviour::default();
    let mut machine = Simulated::new("m", 1);
    machine.observe(&behaviour, &annotations(&TARGETED));
    let clock = machine.clock();
    machine.wake(&behaviour, clock);
    assert!(machine.wake(&behaviour, clock).is_empty());
}
