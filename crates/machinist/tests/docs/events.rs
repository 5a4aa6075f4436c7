//! The table of events lists exactly the events in the code.

use crate::docs::markdown::rows;
use crate::docs::source::production;
use crate::docs::{files, read};
use std::collections::BTreeSet;

const PAGE: &str = "docs/reference/events.md";

/// The calls that report an event, and what makes one for later.
const CALLS: [&str; 9] = [
    ".report_event(",
    ".report_once(",
    ".record(",
    ".event(",
    ".warn(",
    ".warn_once(",
    "Warning { reason: ",
    "OperatorEvent::normal(",
    "OperatorEvent::warning(",
];

/// The reasons of the table; several may share a row.
fn documented() -> BTreeSet<String> {
    let rows = rows(&read(PAGE)).into_iter().filter(|row| row.len() == 4);
    let names = rows.flat_map(|row| {
        let words = row[0].split('`').skip(1).step_by(2);
        words.map(str::to_owned).collect::<Vec<_>>()
    });
    names.collect()
}

/// The first word in camel case between quotes, before a statement ends.
fn reason(rest: &str) -> Option<String> {
    let statement = rest.split(';').next().unwrap_or_default();
    let mut texts = statement.split('"').skip(1).step_by(2);
    let is_reason = |text: &&str| {
        text.len() > 3
            && text.starts_with(|c: char| c.is_ascii_uppercase())
            && text.chars().all(|c| c.is_ascii_alphanumeric())
    };
    texts.find(is_reason).map(str::to_owned)
}

#[test]
fn the_table_of_events_is_up_to_date() {
    let documented = documented();
    let (mut reported, mut all) = (BTreeSet::new(), String::new());
    for file in files("crates", &[".rs"]).iter().filter(|file| {
        file.starts_with("crates/core/src/") || file.starts_with("crates/machinist/src/")
    }) {
        let text = read(file);
        let text = production(&text);
        for call in CALLS {
            reported.extend(text.split(call).skip(1).filter_map(reason));
        }
        all.push_str(text);
    }
    assert!(reported.len() > 30, "{reported:?}");
    let missing: Vec<_> = reported.difference(&documented).collect();
    assert!(missing.is_empty(), "not in {PAGE}: {missing:?}");
    let gone: Vec<_> =
        documented.iter().filter(|name| !all.contains(&format!("\"{name}\""))).collect();
    assert!(gone.is_empty(), "in {PAGE}, and not in the code: {gone:?}");
}
