//! Log lines are a constant message with fields. Only the lines that tools know from MCO are put together.

use crate::docs::source::production;
use crate::docs::{files, read};

const MACROS: [&str; 5] = ["error!(", "warn!(", "info!(", "debug!(", "trace!("];
/// Lines of MCO that tools and MCO's own tests look for; here and there with parts that a variable holds.
const LINES_OF_MCO: [&str; 17] = [
    "Certificate was synced from controllerconfig resourceVersion {version}",
    "Checking Reconcilable for config {from} to {to}",
    "Drain calculated for node disruption: {needs_drain} for config {to}",
    "In desired state MachineConfig: {config}{image}",
    "Marking {state} due to: {reason}",
    "Node has Desired Config {}, skipping reboot",
    "Node has Desired Config {config}, skipping reboot",
    "Node {name} is queued for a reboot, skipping sync.",
    "Performing post config change action: {name} for config {config}",
    "Running {command_name} {words:?}",
    "Starting update from {from} to {to}",
    "initiating reboot: {reason}",
    "{message}",
    "{note}",
    "{service} service reloaded successfully!",
    "{service} service restarted successfully!",
    "{warning}",
];

/// The last text in the arguments of a macro: the message. `arguments` begins behind the parenthesis.
fn message(arguments: &str) -> Option<&str> {
    let (mut depth, mut last, mut position) = (1, None, 0);
    while depth > 0 {
        let rest = arguments.get(position..)?;
        match rest.chars().next()? {
            '"' => {
                let text = &rest[1..];
                let escaped =
                    |at: usize| text[..at].chars().rev().take_while(|c| *c == '\\').count() % 2;
                let mut ends = text.match_indices('"').map(|(at, _)| at);
                let end = ends.find(|at| escaped(*at) == 0)?;
                last = Some(&text[..end]);
                position += end + 1;
            }
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        position += arguments[position..].chars().next()?.len_utf8();
    }
    last
}

/// The messages that are put together, each with the number of its line.
fn assembled(source: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (start, name) in MACROS.iter().flat_map(|name| source.match_indices(name)) {
        let Some(text) = message(&source[start + name.len()..]) else { continue };
        if text.replace("{{", "").contains('{') {
            found.push((source[..start].matches('\n').count() + 1, text));
        }
    }
    found
}

#[test]
fn messages_are_found() {
    for (line, expected) in [
        ("info!(node, \"a message\");", vec![]),
        ("info!(error = %format_args!(\"{error:#}\"), \"a \\\"message\\\"\");", vec![]),
        ("info!(node, \"about {node}\");", vec![(1, "about {node}")]),
        ("\nwarn!(\n\"about {}\",\nnode.name(),\n);", vec![(2, "about {}")]),
    ] {
        assert_eq!(assembled(line), expected, "{line}");
    }
}

#[test]
fn log_lines_are_constant() {
    let mut found = Vec::new();
    for directory in ["crates/core/src", "crates/hub/src", "crates/machinist/src"] {
        for file in files(directory, &[".rs"]) {
            let text = read(&file);
            let others = assembled(production(&text)).into_iter();
            let others = others.filter(|(_, message)| !LINES_OF_MCO.contains(message));
            found.extend(others.map(|(line, message)| format!("{file}:{line}: {message}")));
        }
    }
    assert!(found.is_empty(), "log a constant message with fields: {found:#?}");
}
