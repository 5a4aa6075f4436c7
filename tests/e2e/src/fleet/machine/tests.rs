//! The steps that a simulated machine takes.

use super::*;

fn annotations(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(key, value)| (format!("{ANNOTATION_PREFIX}/{key}"), (*value).to_owned()))
        .collect()
}

const TARGETED: [(&str, &str); 3] =
    [("currentConfig", "a"), ("desiredConfig", "b"), ("state", "Done")];

fn written_annotations(effects: &[MachineEffect]) -> Vec<String> {
    let names = effects.iter().flat_map(|effect| match effect {
        MachineEffect::Annotate(says) => says.iter().map(|(k, v)| format!("{k}={v}")).collect(),
        MachineEffect::Ready(is) => vec![format!("ready={is}")],
        MachineEffect::SetTimer(_) => vec!["wake".to_owned()],
    });
    names.collect()
}

#[test]
fn an_update_with_drain_and_reboot_takes_the_steps_in_order() {
    let behaviour =
        MachineBehaviour { drain: true, reboot: Some(1..=1), ..MachineBehaviour::default() };
    let mut machine = SimulatedMachine::new("m", 1);
    let seen = machine.observe(&behaviour, &annotations(&TARGETED));
    assert_eq!(written_annotations(&seen), ["state=Working", "desiredDrain=drain-b"]);
    assert!(machine.observe(&behaviour, &annotations(&TARGETED)).is_empty());
    let mut drained = annotations(&TARGETED);
    drained.insert(format!("{ANNOTATION_PREFIX}/lastAppliedDrain"), "drain-b".to_owned());
    assert_eq!(written_annotations(&machine.observe(&behaviour, &drained)), ["wake"]);
    let down = machine.timer_fired(&behaviour, machine.timer_id());
    assert_eq!(written_annotations(&down), ["post-config-action=Rebooting", "ready=false", "wake"]);
    let up = machine.timer_fired(&behaviour, machine.timer_id());
    assert_eq!(written_annotations(&up), ["ready=true", "desiredDrain=uncordon-b"]);
    drained.insert(format!("{ANNOTATION_PREFIX}/lastAppliedDrain"), "uncordon-b".to_owned());
    let done = written_annotations(&machine.observe(&behaviour, &drained));
    assert_eq!(done, ["currentConfig=b", "state=Done", "reason=", "post-config-action="]);
    assert_eq!(machine.phase(), &UpdatePhase::Idle);
}

#[test]
fn a_failure_is_reported_and_tried_again_without_flapping() {
    let behaviour = MachineBehaviour { failure: 100, ..MachineBehaviour::default() };
    let mut machine = SimulatedMachine::new("m", 1);
    machine.observe(&behaviour, &annotations(&TARGETED));
    let failed = written_annotations(&machine.timer_fired(&behaviour, machine.timer_id()));
    assert_eq!(failed, ["state=Degraded", "reason=simulated failure of b", "wake"]);
    assert_eq!(written_annotations(&machine.timer_fired(&behaviour, machine.timer_id())), ["wake"]);
    machine.timer_fired(&behaviour, machine.timer_id());
    machine.timer_fired(&behaviour, machine.timer_id());
    let done = written_annotations(&machine.timer_fired(&behaviour, machine.timer_id()));
    assert_eq!(done[0], "currentConfig=b");
}

#[test]
fn a_restarted_update_does_not_drain_again() {
    let behaviour = MachineBehaviour { drain: true, failure: 100, ..MachineBehaviour::default() };
    let mut machine = SimulatedMachine::new("m", 1);
    machine.observe(&behaviour, &annotations(&TARGETED));
    let mut drained = annotations(&TARGETED);
    drained.insert(format!("{ANNOTATION_PREFIX}/lastAppliedDrain"), "drain-b".to_owned());
    machine.observe(&behaviour, &drained);
    machine.timer_fired(&behaviour, machine.timer_id());
    assert_eq!(machine.phase(), &UpdatePhase::Failed);
    machine.timer_fired(&behaviour, machine.timer_id());
    assert_eq!(machine.phase(), &UpdatePhase::Applying);
}

/// What the controller writes on a machine of a pool with deferred reboots.
fn deferred(target: &str, permitted: &str) -> BTreeMap<String, String> {
    let mut seen = annotations(&TARGETED);
    seen.insert(format!("{ANNOTATION_PREFIX}/desiredConfig"), target.to_owned());
    seen.insert(REBOOT_ANNOTATION.to_owned(), "deferred".to_owned());
    if !permitted.is_empty() {
        seen.insert(RESTART_ANNOTATION.to_owned(), permitted.to_owned());
    }
    seen
}

#[test]
fn a_deferred_reboot_waits_for_permission_and_then_drains() {
    let behaviour =
        MachineBehaviour { drain: true, reboot: Some(1..=1), ..MachineBehaviour::default() };
    let mut machine = SimulatedMachine::new("m", 1);
    let seen = machine.observe(&behaviour, &deferred("b", ""));
    assert_eq!(written_annotations(&seen), ["state=Working", "wake"]);
    let applied = written_annotations(&machine.timer_fired(&behaviour, machine.timer_id()));
    assert_eq!(applied, ["machinist.dev/restart-pending=b"]);
    assert_eq!(machine.phase(), &UpdatePhase::AwaitingRebootPermission);
    // A permission for another config does not count.
    assert!(machine.observe(&behaviour, &deferred("b", "a")).is_empty());
    let allowed = machine.observe(&behaviour, &deferred("b", "b"));
    assert_eq!(written_annotations(&allowed), ["desiredDrain=drain-b"]);
    let mut drained = deferred("b", "b");
    drained.insert(format!("{ANNOTATION_PREFIX}/lastAppliedDrain"), "drain-b".to_owned());
    let down = written_annotations(&machine.observe(&behaviour, &drained));
    assert_eq!(down, ["post-config-action=Rebooting", "ready=false", "wake"]);
    machine.timer_fired(&behaviour, machine.timer_id());
    drained.insert(format!("{ANNOTATION_PREFIX}/lastAppliedDrain"), "uncordon-b".to_owned());
    let done = written_annotations(&machine.observe(&behaviour, &drained));
    assert_eq!(done[..2], ["currentConfig=b", "state=Done"]);
    assert_eq!(done[4..], ["machinist.dev/restart-pending=", "machinist.dev/restart="]);
}

#[test]
fn a_machine_awaiting_reboot_takes_a_new_config_and_reboots_once() {
    let behaviour = MachineBehaviour { reboot: Some(1..=1), ..MachineBehaviour::default() };
    let mut machine = SimulatedMachine::new("m", 1);
    machine.observe(&behaviour, &deferred("b", ""));
    machine.timer_fired(&behaviour, machine.timer_id());
    let seen = written_annotations(&machine.observe(&behaviour, &deferred("c", "")));
    assert_eq!(seen, ["state=Working", "wake"]);
    let applied = written_annotations(&machine.timer_fired(&behaviour, machine.timer_id()));
    assert_eq!(applied, ["machinist.dev/restart-pending=c"]);
}

#[test]
fn a_change_without_reboot_needs_no_permission() {
    let behaviour = MachineBehaviour::default();
    let mut machine = SimulatedMachine::new("m", 1);
    machine.observe(&behaviour, &deferred("b", ""));
    let done = written_annotations(&machine.timer_fired(&behaviour, machine.timer_id()));
    assert_eq!(done, ["currentConfig=b", "state=Done", "reason=", "post-config-action="]);
}

#[test]
fn a_timer_of_an_earlier_phase_is_ignored() {
    let behaviour = MachineBehaviour::default();
    let mut machine = SimulatedMachine::new("m", 1);
    machine.observe(&behaviour, &annotations(&TARGETED));
    let timer_id = machine.timer_id();
    machine.timer_fired(&behaviour, timer_id);
    assert!(machine.timer_fired(&behaviour, timer_id).is_empty());
}
