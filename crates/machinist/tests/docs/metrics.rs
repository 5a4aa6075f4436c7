//! The table of metrics lists exactly the metrics in the code.

use crate::docs::markdown::rows;
use crate::docs::source::{production, quoted_after};
use crate::docs::{files, read};
use std::collections::BTreeMap;

const PAGE: &str = "docs/reference/metrics.md";

/// The metrics of the table, with their types.
pub(crate) fn documented() -> BTreeMap<String, String> {
    let rows = rows(&read(PAGE)).into_iter().filter(|row| row.len() == 5);
    let name = |cell: &str| Some(cell.strip_prefix('`')?.strip_suffix('`')?.to_owned());
    rows.filter_map(|row| Some((name(&row[0])?, row[1].clone()))).collect()
}

/// The metrics that the code registers: with the name of a family, or by a helper that takes it.
fn registered() -> Vec<String> {
    let mut found = Vec::new();
    for file in files("crates", &[".rs"]).iter().filter(|file| file.contains("/src/")) {
        let text = read(file);
        let text = production(&text);
        if !text.contains("prometheus_client") {
            continue;
        }
        for call in [".register(", "of_pool(", "of_node("] {
            found.extend(quoted_after(text, call).map(str::to_owned));
        }
    }
    found.sort();
    found
}

#[test]
fn the_table_of_metrics_is_up_to_date() {
    let mut documented: Vec<String> = documented()
        .into_iter()
        .map(|(name, kind)| match kind.as_str() {
            // Counters are served with this suffix.
            "counter" => name.strip_suffix("_total").unwrap_or("a counter ends with _total").into(),
            "gauge" | "histogram" => name,
            other => panic!("{name}: {other}: neither counter nor gauge nor histogram"),
        })
        .collect();
    documented.sort();
    let registered = registered();
    assert!(registered.len() > 10, "{registered:?}");
    assert_eq!(documented, registered, "left: {PAGE}; right: the code");
}
