//! Every message that degrades a machine or a pool has an entry in `docs/troubleshooting.md`.

use crate::docs::source::{constants, production, quoted_after};
use crate::docs::{files, read};

/// The files with the messages of machines and pools.
const REASONS: [&str; 9] = [
    "crates/core/src/reconcile_check.rs",
    "crates/core/src/apply/error.rs",
    "crates/core/src/apply/tree.rs",
    "crates/core/src/health/spec.rs",
    "crates/core/src/drain/request.rs",
    "crates/core/src/rollout/membership.rs",
    "crates/core/src/rollout/max_unavailable.rs",
    "crates/core/src/rollout/policy/mod.rs",
    "crates/core/src/render/reconcile.rs",
];

/// The page without the escapes of Markdown tables.
fn page() -> String {
    read("docs/troubleshooting.md").replace("\\|", "|")
}

/// The longest constant part of a message.
fn fixed(message: &str) -> String {
    let mut pieces = Vec::new();
    let mut rest = message;
    while let Some((piece, after)) = rest.split_once('{') {
        pieces.push(piece);
        rest = after.split_once('}').map_or("", |(_, after)| after);
    }
    pieces.push(rest);
    let longest = pieces.into_iter().max_by_key(|piece| piece.len()).unwrap_or_default();
    longest.replace("\\\"", "\"").trim_matches([' ', ':', ';', '(', ')', ',', '"']).to_owned()
}

/// The messages of the errors of a file.
fn messages(text: &str) -> Vec<String> {
    let attributes = production(text).split("#[error(").skip(1);
    let messages = attributes.filter_map(|rest| {
        let rest = rest.trim_start().strip_prefix('"')?;
        // Up to the first quote that is not escaped.
        let mut end = 0;
        for (index, c) in rest.char_indices() {
            if c == '"' && !rest[..index].ends_with('\\') {
                end = index;
                break;
            }
        }
        Some(fixed(&rest[..end]))
    });
    messages.filter(|message| message.len() > 8).collect()
}

#[test]
fn every_reason_of_a_refusal_has_an_entry() {
    let page = page();
    let mut missing = Vec::new();
    for file in REASONS {
        for message in messages(&read(file)) {
            if !page.contains(&message) {
                missing.push(format!("{file}: {message}"));
            }
        }
    }
    assert!(missing.is_empty(), "not in docs/troubleshooting.md:\n{}", missing.join("\n"));
}

#[test]
fn every_condition_and_warning_has_an_entry() {
    let page = page();
    let names = constants(&read("crates/core/src/api/names/condition.rs"));
    let is_bad = |name: &str| {
        ["Degraded", "Failing", "Blocked", "Overridden", "Failed"]
            .iter()
            .any(|end| name.ends_with(end))
    };
    let mut wanted: Vec<String> =
        names.into_iter().map(|one| one.value).filter(|name| is_bad(name)).collect();
    for file in files("crates", &[".rs"]).iter().filter(|file| file.contains("/src/")) {
        let text = read(file);
        let text = production(&text);
        for call in [".warn(node, ", ".warn(&node, ", "Warning { reason: "] {
            wanted.extend(quoted_after(text, call).map(str::to_owned));
        }
    }
    wanted.sort();
    wanted.dedup();
    assert!(wanted.len() > 15, "{wanted:?}");
    let missing: Vec<_> =
        wanted.iter().filter(|name| !page.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "not in docs/troubleshooting.md: {missing:?}");
}

#[test]
fn the_fixed_part_of_a_message_is_found() {
    assert_eq!(fixed("new {a:?} is not {b}: because of this"), "because of this");
    assert_eq!(messages("#[error(\n \"say \\\"it\\\" loudly {x}\"\n)]"), ["say \"it\" loudly"]);
}
