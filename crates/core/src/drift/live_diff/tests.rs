use super::*;
use crate::apply::{FileOwner, InMemoryTree, KeysFiles};
use crate::diff::DiffLineKind;
use serde_json::json;

fn defaults() -> HostDefaults {
    let keys_files: Option<KeysFiles> = None;
    HostDefaults { owner: FileOwner::default(), today: 20000, keys_files, has_containerd: false }
}

fn file(path: &str, mode: u32, text: &str) -> serde_json::Value {
    let source = crate::ignition::data_url::encode(text.as_bytes());
    json!({"path": path, "mode": mode, "overwrite": true, "contents": {"source": source}})
}

fn config(files: &[serde_json::Value]) -> MachineConfig {
    serde_json::from_value(json!({
        "metadata": {"name": "rendered-worker-1"},
        "spec": {"config": {
            "ignition": {"version": "3.5.0"}, "storage": {"files": files},
            "systemd": {"units": [{"name": "a.service", "contents": "[Service]\nExecStart=/bin/a\n"}]},
        }},
    }))
    .unwrap()
}

fn machine(files: &[(&str, &str)]) -> InMemoryTree {
    let mut tree = InMemoryTree::new();
    tree.add_file("/etc/systemd/system/a.service", b"[Service]\nExecStart=/bin/a\n");
    for (path, text) in files {
        tree.add_file(path, text.as_bytes());
    }
    tree
}

fn compare(files: &[serde_json::Value], tree: &InMemoryTree, max: usize) -> LiveDiff {
    live_diff(&config(files), tree, defaults(), max).unwrap()
}

#[test]
fn text_is_shown_line_by_line_and_nothing_where_nothing_differs() {
    let wanted = [file("/etc/a", 0o644, "one\ntwo\n"), file("/etc/b", 0o644, "b")];
    let tree = machine(&[("/etc/a", "one\nthree\n"), ("/etc/b", "b")]);
    let found = compare(&wanted, &tree, 10_000);
    assert_eq!((found.config.as_str(), found.changes.len()), ("rendered-worker-1", 1));
    let change = &found.changes[0];
    let lines: Vec<(DiffLineKind, &str)> =
        change.lines.iter().map(|line| (line.kind, line.text.as_str())).collect();
    use DiffLineKind::{Added, Context, Removed};
    assert_eq!(lines, [(Context, "one"), (Removed, "two"), (Added, "three")]);
    assert!(change.degrades && change.fields.is_empty() && change.contents.is_none());
    // What is sent is what is shown.
    let text = serde_json::to_string(&found).unwrap();
    assert_eq!(serde_json::from_str::<LiveDiff>(&text).unwrap(), found);
}

#[test]
fn units_permissions_and_types_are_compared() {
    let wanted = [file("/etc/a", 0o644, "a"), file("/etc/gone", 0o644, "was here")];
    let mut tree = machine(&[("/etc/systemd/system/a.service", "[Service]\nExecStart=/bin/b\n")]);
    tree.add_link("/etc/a", "/etc/passwd");
    let found = compare(&wanted, &tree, 10_000);
    let by_path = |path: &str| found.changes.iter().find(|it| it.path == path).unwrap();
    let kind = &by_path("/etc/a").fields["type"];
    assert_eq!(kind.new.as_deref(), Some("a link to /etc/passwd"));
    assert_eq!(by_path("/etc/gone").lines[0].kind, DiffLineKind::Removed);
    let unit = by_path("/etc/systemd/system/a.service");
    assert!(unit.lines.iter().any(|line| line.text == "ExecStart=/bin/b"), "{unit:?}");

    let mut tree = machine(&[("/etc/gone", "was here")]);
    let meta = FileMeta { mode: 0o666, owner: FileOwner { uid: 1, gid: 2 } };
    tree.put("/etc/a", FsNode::File { meta, content: FileContent::new(b"a".to_vec()) });
    let change = &compare(&wanted, &tree, 10_000).changes[0];
    assert_eq!(change.fields["mode"].new.as_deref(), Some("0666"));
    assert_eq!(change.fields["owner"].new.as_deref(), Some("1:2"));
    assert!(change.lines.is_empty() && change.contents.is_none());
}

#[test]
fn secrets_never_leave_the_machine() {
    for (path, mode, wanted, found) in [
        ("/etc/a", 0o600, "hunter1", "hunter2"),
        ("/etc/a", 0o644, "x", "password=hunter2"),
        ("/etc/a", 0o644, "password=hunter1", "x"),
        ("/etc/tls/a.key", 0o644, "hunter1", "hunter2"),
    ] {
        let found = compare(&[file(path, mode, wanted)], &machine(&[(path, found)]), 10_000);
        let text = serde_json::to_string(&found).unwrap();
        assert!(!text.contains("hunter"), "{text}");
        let contents = found.changes[0].contents.as_ref().unwrap();
        assert_eq!(contents.new, ShownContents::Secret);
    }
}

#[test]
fn the_result_is_limited() {
    let long = "x".repeat(3000);
    let many: String = (0..1000).map(|line| format!("{line}\n")).collect();
    let large = "y".repeat(300 << 10);
    let wanted = [
        file("/etc/long", 0o644, ""),
        file("/etc/many", 0o644, ""),
        file("/etc/large", 0o644, ""),
        file("/etc/binary", 0o644, "text"),
        file("/etc/short-lines", 0o644, ""),
    ];
    let short_lines = "\n".repeat(100_000);
    let tree = machine(&[
        ("/etc/long", &long),
        ("/etc/many", &many),
        ("/etc/large", &large),
        ("/etc/binary", "\0"),
        ("/etc/short-lines", &short_lines),
    ]);
    let found = compare(&wanted, &tree, 1 << 20);
    assert!(found.changes[0].lines[0].text.chars().count() == MAX_LINE_CHARS + 1);
    assert!(found.changes[1].truncated && found.changes[1].lines.len() == MAX_LINES);
    for index in 2..5 {
        let contents = found.changes[index].contents.as_ref().unwrap();
        assert!(matches!(contents.new, ShownContents::Binary { .. }), "{contents:?}");
    }
    for max in [200, 1000, 5000] {
        let found = compare(&wanted, &tree, max);
        assert!(found.left_out > 0 && json_size(&found) <= max, "{max}: {}", json_size(&found));
        assert_eq!(found.changes.len() + found.left_out, 5);
    }
}
