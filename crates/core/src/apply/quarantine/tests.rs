//! Quarantined steps over a tree in memory.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::tests::{apply, config, file, tree, try_plan_on};
use super::super::{FileContent, FileMeta, FileOwner, InMemoryTree, parse_current_config};
use super::*;
use crate::api::names::path::CURRENT_CONFIG;

const META: FileMeta = FileMeta { mode: 0o644, owner: FileOwner { uid: 0, gid: 0 } };

fn node(text: &str) -> FsNode {
    FsNode::File { meta: META, content: FileContent::new(text.as_bytes().to_vec()) }
}

fn old_path(path: &str, index: usize) -> String {
    format!("{}/.machinist-t-{index}.old", parent_dir(path).trim_end_matches('/'))
}

fn quarantined(step: DiskStep, index: usize) -> QuarantinedStep {
    let old_path = old_path(&step.path, index);
    let new_path = old_path.replace(".old", ".new");
    let obstacle = Obstacle::Immutable { at: step.path.clone() };
    QuarantinedStep { step, work: RemainingWork::Undo, old_path, new_path, obstacle }
}

/// A tree in which a change of some steps was made and could not be undone.
fn interrupted(before: &InMemoryTree, steps: &[DiskStep]) -> (InMemoryTree, Quarantine) {
    let (mut after, mut quarantine) = (before.clone(), Quarantine::default());
    for (index, step) in steps.iter().enumerate() {
        if matches!(step.from, FsNode::File { .. } | FsNode::Link { .. }) {
            after.put(&old_path(&step.path, index), step.from.clone());
        }
        after.put(&step.path, step.to.clone());
        quarantine.add(quarantined(step.clone(), index));
    }
    (after, quarantine)
}

#[test]
fn the_view_shows_a_tree_before_the_change() {
    let link = FsNode::Link { target: "/x".to_owned(), owner: FileOwner::default() };
    let directory = |mode| FsNode::Directory { meta: FileMeta { mode, ..META } };
    for (from, to) in [
        (node("old"), node("new")),
        (FsNode::Absent, node("new")),
        (node("old"), FsNode::Absent),
        (link.clone(), node("new")),
        (node("old"), link),
        (directory(0o755), directory(0o700)),
    ] {
        let mut before = InMemoryTree::new();
        before.put("/etc/x", from.clone());
        let step = DiskStep { path: "/etc/x".to_owned(), from: from.clone(), to };
        let (after, quarantine) = interrupted(&before, &[step]);
        let view = QuarantineView::new(&after, &quarantine);
        assert_eq!(view.node("/etc/x").unwrap(), from);
        assert_eq!(view.read("/etc/x").ok(), before.read("/etc/x").ok());
        assert_eq!(view.entries("/etc").unwrap(), before.entries("/etc").unwrap(), "{from:?}");
    }
}

#[test]
fn a_directory_of_a_failed_change_and_a_leftover_are_shown_as_they_are() {
    let meta = FileMeta { mode: 0o755, ..META };
    let created = DiskStep {
        path: "/etc/d".to_owned(),
        from: FsNode::Absent,
        to: FsNode::Directory { meta },
    };
    let (after, quarantine) = interrupted(&InMemoryTree::new(), &[created]);
    let view = QuarantineView::new(&after, &quarantine);
    assert_eq!(view.node("/etc/d").unwrap(), FsNode::Directory { meta });
    let replaced = DiskStep { path: "/etc/x".to_owned(), from: node("old"), to: node("new") };
    let (after, mut quarantine) = interrupted(&InMemoryTree::new(), &[replaced]);
    quarantine.steps[0].work = RemainingWork::CleanUp;
    let view = QuarantineView::new(&after, &quarantine);
    assert_eq!(view.node("/etc/x").unwrap(), node("new"));
    assert_eq!(view.entries("/etc").unwrap(), ["x"]);
    assert_eq!(quarantine.degraded_reason(), None);
}

#[test]
fn a_plan_is_refused_only_if_the_config_changes_the_path() {
    let mut before = tree();
    let files = |list: &[Value]| json!({"storage": {"files": list}});
    apply(&mut before, &files(&[file("/etc/x", "1"), file("/etc/y", "1")]));
    let step = DiskStep {
        path: "/etc/x".to_owned(),
        from: before.node("/etc/x").unwrap(),
        to: node("interrupted"),
    };
    let (after, quarantine) = interrupted(&before, &[step]);
    let view = QuarantineView::new(&after, &quarantine);
    let old = parse_current_config(&before.read(CURRENT_CONFIG).unwrap()).unwrap();
    for (list, is_refused) in [
        (vec![file("/etc/x", "1"), file("/etc/y", "2")], false),
        (vec![file("/etc/x", "2"), file("/etc/y", "1")], true),
        (vec![file("/etc/y", "1")], true),
        (vec![file("/etc/x", "1")], false),
    ] {
        let plan = try_plan_on(&view, &old, &config("next", &files(&list))).unwrap();
        let touched = quarantine.touched_by(&plan);
        assert_eq!(!touched.is_empty(), is_refused, "{plan:?}");
        assert!(touched.iter().all(|one| one.to_string().contains("run chattr -i /etc/x")));
    }
}

#[test]
fn a_step_that_is_set_aside_twice_is_there_once() {
    let step = |to: &str| DiskStep { path: "/x".to_owned(), from: node("1"), to: node(to) };
    let mut quarantine = Quarantine::default();
    quarantine.add(quarantined(step("2"), 0));
    quarantine.add(quarantined(step("2"), 0));
    assert_eq!(quarantine.steps.len(), 1);
    // A second change of the same path has another old file; the oldest is what the path should hold.
    quarantine.add(quarantined(DiskStep { from: node("2"), ..step("3") }, 1));
    assert_eq!(quarantine.steps.len(), 2);
    let tree = InMemoryTree::new();
    assert_eq!(QuarantineView::new(&tree, &quarantine).node("/x").unwrap(), node("1"));
    let reason = quarantine.degraded_reason().unwrap();
    assert!(reason.contains("\"/x\"") && reason.contains("chattr -i /x"), "{reason}");
    let read = Quarantine::from_json(&quarantine.to_json().unwrap()).unwrap();
    assert_eq!(read, quarantine);
    let newer = Quarantine::from_json(br#"{"version":2}"#).unwrap_err().to_string();
    assert!(newer.contains(QUARANTINE_PATH), "{newer}");
}

proptest! {
    /// Whatever part of a change cannot be undone, the view shows the tree before it.
    #[test]
    fn the_view_undoes_any_part_of_a_change(
        paths in prop::collection::btree_map("/etc/[a-c]", ("[01]?", "[01]?"), 1..4),
    ) {
        let mut before = InMemoryTree::new();
        let content = |text: &str| if text.is_empty() { FsNode::Absent } else { node(text) };
        let mut steps = Vec::new();
        for (path, (from, to)) in &paths {
            before.put(path, content(from));
            if from != to {
                steps.push(DiskStep { path: path.clone(), from: content(from), to: content(to) });
            }
        }
        let (after, quarantine) = interrupted(&before, &steps);
        let view = QuarantineView::new(&after, &quarantine);
        for path in paths.keys() {
            prop_assert_eq!(view.node(path).unwrap(), before.node(path).unwrap());
            prop_assert_eq!(view.read(path).ok(), before.read(path).ok());
        }
        let mut entries = view.entries("/etc").unwrap();
        entries.sort();
        prop_assert_eq!(entries, before.entries("/etc").unwrap());
    }
}
