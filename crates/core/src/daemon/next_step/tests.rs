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
        boot: boot.to_owned(),
        is_way_back: false,
        os: None,
        earlier: None,
    }
}

const DONE: [(&str, &str); 3] = [("current", "a"), ("desired", "a"), ("state", "Done")];

/// A Node that goes from `a` to `b`, and what else it says.
fn moving(more: &[(&'static str, &'static str)]) -> Node {
    let mut pairs = vec![("current", "a"), ("desired", "b"), ("state", "Working")];
    pairs.extend(more);
    node(&pairs)
}

/// What is seen: in words, the Node, the disk, what is unfinished; and what comes next.
type Case<'a> = (&'a str, Node, Option<&'a str>, Option<PendingChange>, DaemonStep);

#[test]
fn what_comes_next() {
    let reboot = || Some(pending("b", &[Type::Reboot], "now"));
    let booted = || Some(pending("b", &[Type::Reboot], "before"));
    let reload = || Some(pending("b", &[Type::Reload], "now"));
    let drained = [("drain", "drain-b"), ("drained", "drain-b")];
    let later = [("reboot", "deferred")];
    let told = [("reboot", "deferred"), ("pending", "b")];
    let allowed = [("reboot", "deferred"), ("pending", "b"), ("restart", "b")];
    let config = || "b".to_owned();
    let table: Vec<Case<'_>> = vec![
        ("a new machine", node(&[]), None, None, DaemonStep::ReportInitialConfig),
        (
            "nobody says",
            node(&[("current", "a")]),
            Some("a"),
            None,
            DaemonStep::Wait(DaemonWait::DesiredConfig),
        ),
        ("all is done", node(&DONE), Some("a"), None, DaemonStep::Idle),
        ("the disk does not say", node(&DONE), None, None, DaemonStep::Idle),
        ("a new config", moving(&[]), Some("a"), None, DaemonStep::Update),
        (
            "asked to be emptied",
            moving(&[("drain", "drain-b"), ("drained", "uncordon-a")]),
            Some("a"),
            None,
            DaemonStep::Wait(DaemonWait::Drain { request: "drain-b".to_owned() }),
        ),
        ("emptied", moving(&drained), Some("a"), None, DaemonStep::Update),
        (
            "a change that did not happen",
            moving(&drained),
            Some("a"),
            reboot(),
            DaemonStep::DropPendingChange,
        ),
        ("files are in place", moving(&drained), Some("b"), reboot(), DaemonStep::RunActions),
        ("files are in place, to reload", moving(&[]), Some("b"), reload(), DaemonStep::RunActions),
        (
            "not emptied before",
            moving(&[]),
            Some("b"),
            reboot(),
            DaemonStep::Drain { config: config() },
        ),
        (
            "the only machine",
            moving(&[("topology", "SingleReplica")]),
            Some("b"),
            reboot(),
            DaemonStep::RunActions,
        ),
        (
            "restart later",
            moving(&later),
            Some("b"),
            reboot(),
            DaemonStep::RequestReboot { config: config() },
        ),
        (
            "restart later, told",
            moving(&told),
            Some("b"),
            reboot(),
            DaemonStep::Wait(DaemonWait::RebootApproval { config: config() }),
        ),
        (
            "restart allowed",
            moving(&allowed),
            Some("b"),
            reboot(),
            DaemonStep::Drain { config: config() },
        ),
        (
            "restart allowed for another",
            moving(&[("reboot", "deferred"), ("pending", "b"), ("restart", "x")]),
            Some("b"),
            reboot(),
            DaemonStep::Wait(DaemonWait::RebootApproval { config: config() }),
        ),
        (
            "the way back needs no permission",
            moving(&[("reboot", "deferred"), ("pending", "b")]),
            Some("b"),
            reboot().map(|pending| PendingChange { is_way_back: true, ..pending }),
            DaemonStep::Drain { config: config() },
        ),
        (
            "the way back of an empty machine",
            moving(&[("drain", "drain-c"), ("drained", "drain-c")]),
            Some("b"),
            reboot().map(|pending| PendingChange { is_way_back: true, ..pending }),
            DaemonStep::RunActions,
        ),
        ("reload needs no permission", moving(&later), Some("b"), reload(), DaemonStep::RunActions),
        (
            "a new config while it waits",
            node(&[("current", "a"), ("desired", "c"), ("reboot", "deferred"), ("pending", "b")]),
            Some("b"),
            reboot(),
            DaemonStep::Update,
        ),
        (
            "restarted",
            moving(&[("post", "Rebooting")]),
            Some("b"),
            booted(),
            DaemonStep::ReportReboot,
        ),
        (
            "did not go down",
            moving(&[("post", "Rebooting"), drained[0], drained[1]]),
            Some("b"),
            reboot(),
            DaemonStep::RunActions,
        ),
        ("restarted, said so", moving(&drained), Some("b"), booted(), DaemonStep::Finish),
        (
            "asked for work",
            moving(&[("drain", "uncordon-b"), ("drained", "drain-b")]),
            Some("b"),
            booted(),
            DaemonStep::Wait(DaemonWait::Uncordon { request: "uncordon-b".to_owned() }),
        ),
        (
            "got work",
            moving(&[("drain", "uncordon-b"), ("drained", "uncordon-b")]),
            Some("b"),
            booted(),
            DaemonStep::Finish,
        ),
        (
            "failed, and the cause is gone",
            node(&[("current", "a"), ("desired", "a"), ("state", "Degraded")]),
            Some("a"),
            None,
            DaemonStep::Finish,
        ),
        ("the Node is older than the disk", node(&DONE), Some("b"), None, DaemonStep::Update),
    ];
    for (what, node, disk, pending, expected) in table {
        let observed = DaemonSnapshot {
            node: &node,
            config_on_disk: disk,
            image_on_disk: None,
            pending: pending.as_ref(),
            boot_id: "now",
            force: false,
            is_disk_verified: true,
        };
        assert_eq!(next_step(&observed), expected, "{what}");
    }
}

#[test]
fn a_daemon_that_starts_looks_at_the_disk_and_the_force_file_is_an_update() {
    let done = node(&DONE);
    let failed = node(&[("current", "a"), ("desired", "a"), ("state", "Degraded")]);
    let step = |node: &Node, force, is_checked| {
        let (disk, boot) = (Some("a"), "now");
        next_step(&DaemonSnapshot {
            node,
            config_on_disk: disk,
            image_on_disk: None,
            pending: None,
            boot_id: boot,
            force,
            is_disk_verified: is_checked,
        })
    };
    assert_eq!(step(&done, false, false), DaemonStep::Finish);
    assert_eq!(step(&done, false, true), DaemonStep::Idle);
    assert_eq!(step(&failed, true, true), DaemonStep::Update);
    assert_eq!(step(&done, true, false), DaemonStep::Update);
}

#[test]
fn an_image_of_the_pools_own_is_wanted_too() {
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
        let (disk, boot) = (Some("a"), "now");
        let (force, is_checked) = (false, true);
        next_step(&DaemonSnapshot {
            node,
            config_on_disk: disk,
            image_on_disk: image,
            pending: None,
            boot_id: boot,
            force,
            is_disk_verified: is_checked,
        })
    };
    assert_eq!(step(&images("i", "i"), Some("i")), DaemonStep::Idle);
    assert_eq!(step(&images("i", "j"), Some("i")), DaemonStep::Update);
    assert_eq!(step(&images("i", ""), Some("i")), DaemonStep::Update);
    // It has the image, and has not said so yet.
    assert_eq!(step(&images("i", "j"), Some("j")), DaemonStep::Finish);
    assert_eq!(step(&images("i", "i"), None), DaemonStep::Idle);
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
    /// A machine never restarts or changes under its pods: no action is done that restarts before
    /// it is empty, and nothing at all while a request is open.
    #[test]
    fn nothing_happens_too_early(
        current in word(), desired in word(), disk in word(), drain in request(),
        drained in request(), deferred: bool, permitted in word(), boots: bool, is_disk_verified: bool,
    ) {
        let node = node(&[
            ("current", &current), ("desired", &desired), ("state", "Working"),
            ("drain", &drain), ("drained", &drained),
            ("reboot", if deferred { "deferred" } else { "" }), ("restart", &permitted),
        ]);
        let pending = pending(&disk, &[Type::Reboot], if boots { "before" } else { "now" });
        let observed = DaemonSnapshot {
            node: &node, config_on_disk: Some(&disk), image_on_disk: None, pending: Some(&pending), boot_id: "now",
            force: false, is_disk_verified,
        };
        let step = next_step(&observed);
        if step == DaemonStep::RunActions {
            let request = format!("drain-{disk}");
            prop_assert_eq!(&drained, &request);
            prop_assert!(!deferred || permitted == disk);
        }
        if !drain.is_empty() && drain != drained {
            prop_assert!(matches!(step, DaemonStep::Wait(_) | DaemonStep::ReportInitialConfig), "{step:?}");
        }
        if matches!(step, DaemonStep::Finish | DaemonStep::Idle) {
            prop_assert_eq!(&disk, &desired);
            prop_assert!(boots);
        }
    }
}
