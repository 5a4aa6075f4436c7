//! Tables of steps, and properties over random Nodes.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::api::operator::{DisruptionAction, DisruptionActionType as Type};
use crate::apply::empty_config;

fn node(pairs: &[(&str, &str)]) -> Node {
    let names = |key: &str| match key {
        "current" => annotation::CURRENT_CONFIG,
        "desired" => annotation::DESIRED_CONFIG,
        "state" => annotation::STATE,
        "post" => annotation::POST_CONFIG_ACTION,
        "drain" => annotation::DESIRED_DRAIN,
        "drained" => annotation::LAST_APPLIED_DRAIN,
        "reboot" => machinist::REBOOT,
        "pending" => machinist::REBOOT_PENDING,
        "restart" => machinist::REBOOT_APPROVED,
        "hold" => machinist::HOLD,
        "request" => machinist::REBOOT_REQUESTED,
        "mode" => machinist::MODE,
        "topology" => annotation::CONTROL_PLANE_TOPOLOGY,
        other => panic!("{other}"),
    };
    let map: Map<String, Value> =
        pairs.iter().map(|(key, value)| (names(key).to_owned(), json!(value))).collect();
    serde_json::from_value(json!({"metadata": {"name": "n", "annotations": map}})).unwrap()
}

fn pending(config: &str, actions: &[Type], boot: &str) -> PendingChange {
    let action =
        |type_: &Type| DisruptionAction { type_: type_.clone(), ..DisruptionAction::default() };
    PendingChange {
        previous: empty_config(),
        config: config.to_owned(),
        actions: actions.iter().map(action).collect(),
        actions_done: 0,
        boot: boot.to_owned(),
        is_rollback: false,
        requested_reboot: None,
        os: None,
        earlier: None,
    }
}

const DONE: [(&str, &str); 3] = [("current", "a"), ("desired", "a"), ("state", "Done")];

/// A Node that updates from `a` to `b`, with further annotations.
fn updating_node(more: &[(&'static str, &'static str)]) -> Node {
    let mut pairs = vec![("current", "a"), ("desired", "b"), ("state", "Working")];
    pairs.extend(more);
    node(&pairs)
}

/// A name, the Node, the config on disk, the pending change, and the expected step.
type Case<'a> = (&'a str, Node, Option<&'a str>, Option<PendingChange>, AgentStep);

/// Nothing is done to a held machine, whatever is pending.
#[test]
fn a_held_machine_is_left_alone() {
    let held = AgentStep::Wait(AgentWait::Held);
    let drained = [("hold", "why"), ("drain", "drain-b"), ("drained", "drain-b")];
    let done = [&DONE[..], &[("hold", "")]].concat();
    let asked = [&done[..], &[("request", "now")]].concat();
    let rebooted = [("hold", ""), ("post", "Rebooting")];
    let cases: Vec<Case<'_>> = vec![
        ("a new config", updating_node(&[("hold", "")]), Some("a"), None, held.clone()),
        (
            "files are in place",
            updating_node(&drained),
            Some("b"),
            Some(pending("b", &[Type::Reboot], "now")),
            held.clone(),
        ),
        (
            "a change that was undone",
            updating_node(&drained),
            Some("a"),
            Some(pending("b", &[Type::Reboot], "now")),
            held.clone(),
        ),
        // Comparing writes nothing to the machine.
        (
            "observed too",
            updating_node(&[("hold", ""), ("mode", "observe")]),
            Some("a"),
            None,
            AgentStep::Observe,
        ),
        (
            "observed too, files are in place",
            updating_node(&[("hold", ""), ("mode", "observe")]),
            Some("b"),
            Some(pending("b", &[Type::Reboot], "now")),
            held,
        ),
        ("done", node(&done), Some("a"), None, AgentStep::Idle),
        ("asked to reboot", node(&asked), Some("a"), None, AgentStep::Idle),
        ("rebooted", updating_node(&rebooted), Some("a"), None, AgentStep::ReportReboot),
    ];
    for (name, node, config_on_disk, pending, expected) in cases {
        let observed = Observed {
            node: &node,
            config_on_disk,
            image_on_disk: None,
            pending: pending.as_ref(),
            boot_id: "now",
            force: true,
            mode: MachineMode::Enforce,
        };
        assert_eq!(next_step(&observed, &Session::default()), expected, "{name}");
    }
}

/// A requested reboot is recorded, approved by the controller, and done once.
#[test]
fn a_reboot_on_request_waits_for_the_controller() {
    let mut requested = pending("a", &[Type::Reboot], "now");
    requested.requested_reboot = Some("now".to_owned());
    let asked = |more: &[(&'static str, &'static str)]| {
        let mut pairs = vec![("current", "a"), ("desired", "a"), ("request", "now")];
        pairs.extend(more);
        node(&pairs)
    };
    let config = || "a".to_owned();
    let (done, working) = (("state", "Done"), ("state", "Working"));
    let approved = [working, ("pending", "a"), ("restart", "a")];
    let drained = [&approved[..], &[("drain", "drain-a"), ("drained", "drain-a")]].concat();
    for (name, node, pending, expected) in [
        ("asked", asked(&[done]), None, AgentStep::PrepareReboot { request: "now".to_owned() }),
        (
            "recorded",
            asked(&[working]),
            Some(&requested),
            AgentStep::RequestReboot { config: config() },
        ),
        (
            "reported",
            asked(&[working, ("pending", "a")]),
            Some(&requested),
            AgentStep::Wait(AgentWait::RebootApproval { config: config() }),
        ),
        ("approved", asked(&approved), Some(&requested), AgentStep::Drain { config: config() }),
        ("drained", asked(&drained), Some(&requested), AgentStep::RunActions),
    ] {
        let session = Session { is_disk_verified: true, ..Session::default() };
        let observed = Observed {
            node: &node,
            config_on_disk: Some("a"),
            image_on_disk: None,
            pending,
            boot_id: "now",
            force: false,
            mode: MachineMode::Enforce,
        };
        assert_eq!(next_step(&observed, &session), expected, "{name}");
    }
    let session = Session::default();
    assert!(
        !session.needs_health_check(Some(&PendingChange::reboot(&named("a"), "now", "x")), "a")
    );
    assert!(session.needs_health_check(Some(&requested), "a"));
}

fn named(name: &str) -> crate::api::MachineConfig {
    let mut config = empty_config();
    config.metadata.name = Some(name.to_owned());
    config
}

#[test]
fn the_next_step() {
    let reboot = || Some(pending("b", &[Type::Reboot], "now"));
    let booted = || Some(pending("b", &[Type::Reboot], "before"));
    let reload = || Some(pending("b", &[Type::Reload], "now"));
    let drained = [("drain", "drain-b"), ("drained", "drain-b")];
    let deferred = [("reboot", "deferred")];
    let reported = [("reboot", "deferred"), ("pending", "b")];
    let approved = [("reboot", "deferred"), ("pending", "b"), ("restart", "b")];
    let config = || "b".to_owned();
    let table: Vec<Case<'_>> = vec![
        ("a new machine", node(&[]), None, None, AgentStep::ReportInitialConfig),
        (
            "no config assigned",
            node(&[("current", "a")]),
            Some("a"),
            None,
            AgentStep::Wait(AgentWait::DesiredConfig),
        ),
        ("observed", updating_node(&[("mode", "observe")]), Some("a"), None, AgentStep::Observe),
        (
            "observed in the middle of a change",
            updating_node(&[("mode", "observe"), drained[0], drained[1]]),
            Some("b"),
            reboot(),
            AgentStep::RunActions,
        ),
        ("done", node(&DONE), Some("a"), None, AgentStep::Idle),
        ("no config on disk", node(&DONE), None, None, AgentStep::Idle),
        ("a new config", updating_node(&[]), Some("a"), None, AgentStep::Update),
        (
            "a restored Node claims the desired config",
            node(&DONE),
            Some("x"),
            None,
            AgentStep::CorrectCurrentConfig { on_disk: "x".to_owned() },
        ),
        (
            "a restored Node claims an earlier config",
            updating_node(&[]),
            Some("x"),
            None,
            AgentStep::CorrectCurrentConfig { on_disk: "x".to_owned() },
        ),
        ("done except for the report", updating_node(&[]), Some("b"), None, AgentStep::Finish),
        (
            "drain requested",
            updating_node(&[("drain", "drain-b"), ("drained", "uncordon-a")]),
            Some("a"),
            None,
            AgentStep::Wait(AgentWait::Drain { request: "drain-b".to_owned() }),
        ),
        ("drained", updating_node(&drained), Some("a"), None, AgentStep::Update),
        (
            "a change that was undone",
            updating_node(&drained),
            Some("a"),
            reboot(),
            AgentStep::DropPendingChange,
        ),
        ("files are in place", updating_node(&drained), Some("b"), reboot(), AgentStep::RunActions),
        (
            "files are in place, to reload",
            updating_node(&[]),
            Some("b"),
            reload(),
            AgentStep::RunActions,
        ),
        (
            "not drained before",
            updating_node(&[]),
            Some("b"),
            reboot(),
            AgentStep::Drain { config: config() },
        ),
        (
            "a single-node cluster",
            updating_node(&[("topology", "SingleReplica")]),
            Some("b"),
            reboot(),
            AgentStep::RunActions,
        ),
        (
            "reboot deferred",
            updating_node(&deferred),
            Some("b"),
            reboot(),
            AgentStep::RequestReboot { config: config() },
        ),
        (
            "reboot deferred, reported",
            updating_node(&reported),
            Some("b"),
            reboot(),
            AgentStep::Wait(AgentWait::RebootApproval { config: config() }),
        ),
        (
            "reboot approved",
            updating_node(&approved),
            Some("b"),
            reboot(),
            AgentStep::Drain { config: config() },
        ),
        (
            "reboot approved for another config",
            updating_node(&[("reboot", "deferred"), ("pending", "b"), ("restart", "x")]),
            Some("b"),
            reboot(),
            AgentStep::Wait(AgentWait::RebootApproval { config: config() }),
        ),
        (
            "a rollback needs no approval",
            updating_node(&[("reboot", "deferred"), ("pending", "b")]),
            Some("b"),
            reboot().map(|pending| PendingChange { is_rollback: true, ..pending }),
            AgentStep::Drain { config: config() },
        ),
        (
            "a rollback of a drained machine",
            updating_node(&[("drain", "drain-c"), ("drained", "drain-c")]),
            Some("b"),
            reboot().map(|pending| PendingChange { is_rollback: true, ..pending }),
            AgentStep::RunActions,
        ),
        (
            "a reload needs no approval",
            updating_node(&deferred),
            Some("b"),
            reload(),
            AgentStep::RunActions,
        ),
        (
            "a new config while the reboot is deferred",
            node(&[("current", "a"), ("desired", "c"), ("reboot", "deferred"), ("pending", "b")]),
            Some("b"),
            reboot(),
            AgentStep::Update,
        ),
        (
            "rebooted",
            updating_node(&[("post", "Rebooting")]),
            Some("b"),
            booted(),
            AgentStep::ReportReboot,
        ),
        (
            "the reboot did not happen",
            updating_node(&[("post", "Rebooting"), drained[0], drained[1]]),
            Some("b"),
            reboot(),
            AgentStep::RunActions,
        ),
        ("rebooted and reported", updating_node(&drained), Some("b"), booted(), AgentStep::Finish),
        (
            "uncordon requested",
            updating_node(&[("drain", "uncordon-b"), ("drained", "drain-b")]),
            Some("b"),
            booted(),
            AgentStep::Wait(AgentWait::Uncordon { request: "uncordon-b".to_owned() }),
        ),
        (
            "uncordoned",
            updating_node(&[("drain", "uncordon-b"), ("drained", "uncordon-b")]),
            Some("b"),
            booted(),
            AgentStep::Finish,
        ),
        (
            "degraded, and the cause is gone",
            node(&[("current", "a"), ("desired", "a"), ("state", "Degraded")]),
            Some("a"),
            None,
            AgentStep::Finish,
        ),
        (
            "a restored Node, while the machine waits for a drain",
            updating_node(&[("drain", "drain-b"), ("drained", "uncordon-a")]),
            Some("x"),
            None,
            AgentStep::CorrectCurrentConfig { on_disk: "x".to_owned() },
        ),
    ];
    for (what, node, disk, pending, expected) in table {
        let observed = Observed {
            node: &node,
            config_on_disk: disk,
            image_on_disk: None,
            pending: pending.as_ref(),
            boot_id: "now",
            force: false,
            mode: MachineMode::Enforce,
        };
        let session = Session { is_disk_verified: true, ..Session::default() };
        assert_eq!(next_step(&observed, &session), expected, "{what}");
    }
}

#[test]
fn a_new_daemon_verifies_the_disk_and_the_force_file_means_an_update() {
    let done = node(&DONE);
    let failed = node(&[("current", "a"), ("desired", "a"), ("state", "Degraded")]);
    let step = |node: &Node, force, is_disk_verified| {
        let observed = Observed {
            node,
            config_on_disk: Some("a"),
            image_on_disk: None,
            pending: None,
            boot_id: "now",
            force,
            mode: MachineMode::Enforce,
        };
        next_step(&observed, &Session { is_disk_verified, ..Session::default() })
    };
    assert_eq!(step(&done, false, false), AgentStep::Finish);
    assert_eq!(step(&done, false, true), AgentStep::Idle);
    assert_eq!(step(&failed, true, true), AgentStep::Update);
    assert_eq!(step(&done, true, false), AgentStep::Update);
}

#[test]
fn the_session_stops_a_reboot_and_actions_from_running_twice() {
    let drained = updating_node(&[("drain", "drain-b"), ("drained", "drain-b")]);
    let reload = pending("b", &[Type::Reload], "now");
    let observed = Observed {
        node: &drained,
        config_on_disk: Some("b"),
        image_on_disk: None,
        pending: Some(&reload),
        boot_id: "now",
        force: false,
        mode: MachineMode::Enforce,
    };
    let ran =
        |config: &str| Session { actions_run_for: Some(config.to_owned()), ..Session::default() };
    let ordered = Session { is_reboot_ordered: true, ..Session::default() };
    for (session, expected) in [
        (Session::default(), AgentStep::RunActions),
        (ran("b"), AgentStep::Finish),
        (ran("a"), AgentStep::RunActions),
        (ordered, AgentStep::AwaitReboot),
    ] {
        assert_eq!(next_step(&observed, &session), expected, "{session:?}");
    }
}

#[test]
fn a_layered_image_is_desired_too() {
    let images = |current: &str, desired: &str| {
        let mut node = node(&DONE);
        let annotations = node.metadata.annotations.get_or_insert_default();
        for (key, value) in
            [(annotation::CURRENT_IMAGE, current), (annotation::DESIRED_IMAGE, desired)]
        {
            annotations.insert(key.to_owned(), value.to_owned());
        }
        node
    };
    let step = |node: &Node, image: Option<&str>| {
        let observed = Observed {
            node,
            config_on_disk: Some("a"),
            image_on_disk: image,
            pending: None,
            boot_id: "now",
            force: false,
            mode: MachineMode::Enforce,
        };
        next_step(&observed, &Session { is_disk_verified: true, ..Session::default() })
    };
    assert_eq!(step(&images("i", "i"), Some("i")), AgentStep::Idle);
    assert_eq!(step(&images("i", "j"), Some("i")), AgentStep::Update);
    assert_eq!(step(&images("i", ""), Some("i")), AgentStep::Update);
    // It has the image but has not reported it yet.
    assert_eq!(step(&images("i", "j"), Some("j")), AgentStep::Finish);
    assert_eq!(step(&images("i", "i"), None), AgentStep::Idle);
}

fn word() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), Just("a".into()), Just("b".into()), Just("c".into())]
}

fn request() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        Just("drain-b".into()),
        Just("drain-a".into()),
        Just("uncordon-a".into()),
        Just("uncordon-b".into())
    ]
}

proptest! {
    /// A machine never reboots under its pods: no reboot before the drain, and nothing at all while a
    /// request is open.
    #[test]
    fn no_step_comes_too_early(
        current in word(), desired in word(), disk in word(), drain in request(),
        drained in request(), deferred: bool, permitted in word(), boots: bool, is_disk_verified: bool,
    ) {
        let node = node(&[
            ("current", &current), ("desired", &desired), ("state", "Working"),
            ("drain", &drain), ("drained", &drained),
            ("reboot", if deferred { "deferred" } else { "" }), ("restart", &permitted),
        ]);
        let pending = pending(&disk, &[Type::Reboot], if boots { "before" } else { "now" });
        let observed = Observed {
            node: &node, config_on_disk: Some(&disk), image_on_disk: None, pending: Some(&pending), boot_id: "now",
            force: false,
            mode: MachineMode::Enforce,
        };
        let step = next_step(&observed, &Session { is_disk_verified, ..Session::default() });
        if step == AgentStep::RunActions {
            let request = format!("drain-{disk}");
            prop_assert_eq!(&drained, &request);
            prop_assert!(!deferred || permitted == disk);
        }
        if !drain.is_empty() && drain != drained {
            prop_assert!(matches!(step, AgentStep::Wait(_) | AgentStep::ReportInitialConfig), "{step:?}");
        }
        if matches!(step, AgentStep::Finish | AgentStep::Idle) {
            prop_assert_eq!(&disk, &desired);
            prop_assert!(boots);
        }
    }
}
