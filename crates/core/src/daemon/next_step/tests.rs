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
fn updating_node(more: &[(&'static str, &'static str)]) -> Node {
    let mut pairs = vec![("current", "a"), ("desired", "b"), ("state", "Working")];
    pairs.extend(more);
    node(&pairs)
}

/// What is seen: in words, the Node, the disk, what is unfinished; and what comes next.
type Case<'a> = (&'a str, Node, Option<&'a str>, Option<PendingChange>, AgentStep);

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
        ("a new machine", node(&[]), None, None, AgentStep::ReportInitialConfig),
        (
            "nobody says",
            node(&[("current", "a")]),
            Some("a"),
            None,
            AgentStep::Wait(AgentWait::DesiredConfig),
        ),
        ("all is done", node(&DONE), Some("a"), None, AgentStep::Idle),
        ("the disk does not say", node(&DONE), None, None, AgentStep::Idle),
        ("a new config", updating_node(&[]), Some("a"), None, AgentStep::Update),
        (
            "asked to be emptied",
            updating_node(&[("drain", "drain-b"), ("drained", "uncordon-a")]),
            Some("a"),
            None,
            AgentStep::Wait(AgentWait::Drain { request: "drain-b".to_owned() }),
        ),
        ("emptied", updating_node(&drained), Some("a"), None, AgentStep::Update),
        (
            "a change that did not happen",
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
            "not emptied before",
            updating_node(&[]),
            Some("b"),
            reboot(),
            AgentStep::Drain { config: config() },
        ),
        (
            "the only machine",
            updating_node(&[("topology", "SingleReplica")]),
            Some("b"),
            reboot(),
            AgentStep::RunActions,
        ),
        (
            "restart later",
            updating_node(&later),
            Some("b"),
            reboot(),
            AgentStep::RequestReboot { config: config() },
        ),
        (
            "restart later, told",
            updating_node(&told),
            Some("b"),
            reboot(),
            AgentStep::Wait(AgentWait::RebootApproval { config: config() }),
        ),
        (
            "restart allowed",
            updating_node(&allowed),
            Some("b"),
            reboot(),
            AgentStep::Drain { config: config() },
        ),
        (
            "restart allowed for another",
            updating_node(&[("reboot", "deferred"), ("pending", "b"), ("restart", "x")]),
            Some("b"),
            reboot(),
            AgentStep::Wait(AgentWait::RebootApproval { config: config() }),
        ),
        (
            "the way back needs no permission",
            updating_node(&[("reboot", "deferred"), ("pending", "b")]),
            Some("b"),
            reboot().map(|pending| PendingChange { is_way_back: true, ..pending }),
            AgentStep::Drain { config: config() },
        ),
        (
            "the way back of an empty machine",
            updating_node(&[("drain", "drain-c"), ("drained", "drain-c")]),
            Some("b"),
            reboot().map(|pending| PendingChange { is_way_back: true, ..pending }),
            AgentStep::RunActions,
        ),
        (
            "reload needs no permission",
            updating_node(&later),
            Some("b"),
            reload(),
            AgentStep::RunActions,
        ),
        (
            "a new config while it waits",
            node(&[("current", "a"), ("desired", "c"), ("reboot", "deferred"), ("pending", "b")]),
            Some("b"),
            reboot(),
            AgentStep::Update,
        ),
        (
            "restarted",
            updating_node(&[("post", "Rebooting")]),
            Some("b"),
            booted(),
            AgentStep::ReportReboot,
        ),
        (
            "did not go down",
            updating_node(&[("post", "Rebooting"), drained[0], drained[1]]),
            Some("b"),
            reboot(),
            AgentStep::RunActions,
        ),
        ("restarted, said so", updating_node(&drained), Some("b"), booted(), AgentStep::Finish),
        (
            "asked for work",
            updating_node(&[("drain", "uncordon-b"), ("drained", "drain-b")]),
            Some("b"),
            booted(),
            AgentStep::Wait(AgentWait::Uncordon { request: "uncordon-b".to_owned() }),
        ),
        (
            "got work",
            updating_node(&[("drain", "uncordon-b"), ("drained", "uncordon-b")]),
            Some("b"),
            booted(),
            AgentStep::Finish,
        ),
        (
            "failed, and the cause is gone",
            node(&[("current", "a"), ("desired", "a"), ("state", "Degraded")]),
            Some("a"),
            None,
            AgentStep::Finish,
        ),
        ("the Node is older than the disk", node(&DONE), Some("b"), None, AgentStep::Update),
    ];
    for (what, node, disk, pending, expected) in table {
        let observed = AgentSnapshot {
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
        next_step(&AgentSnapshot {
            node,
            config_on_disk: disk,
            image_on_disk: None,
            pending: None,
            boot_id: boot,
            force,
            is_disk_verified: is_checked,
        })
    };
    assert_eq!(step(&done, false, false), AgentStep::Finish);
    assert_eq!(step(&done, false, true), AgentStep::Idle);
    assert_eq!(step(&failed, true, true), AgentStep::Update);
    assert_eq!(step(&done, true, false), AgentStep::Update);
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
        next_step(&AgentSnapshot {
            node,
            config_on_disk: disk,
            image_on_disk: image,
            pending: None,
            boot_id: boot,
            force,
            is_disk_verified: is_checked,
        })
    };
    assert_eq!(step(&images("i", "i"), Some("i")), AgentStep::Idle);
    assert_eq!(step(&images("i", "j"), Some("i")), AgentStep::Update);
    assert_eq!(step(&images("i", ""), Some("i")), AgentStep::Update);
    // It has the image, and has not said so yet.
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
        let observed = AgentSnapshot {
            node: &node, config_on_disk: Some(&disk), image_on_disk: None, pending: Some(&pending), boot_id: "now",
            force: false, is_disk_verified,
        };
        let step = next_step(&observed);
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
