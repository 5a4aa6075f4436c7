//! `machinist diff --live`: what differs on the disk of a machine, as its daemon finds it.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::Result;
use machinist_core::drift::{LiveChange, LiveDiff};
use machinist_core::machine_report::LIVE_DIFF;

use super::ask_machine::{Question, ask};
use super::cluster::session::SessionArgs;
use super::diff::{show_digests, show_lines, show_value};
use super::once::printable;
use super::output::{DIMMED, HEADING, OutputFormat};
use super::{CommandOutcome, cluster, output};

/// Shows what differs on a machine.
pub(super) fn run(
    session: &SessionArgs,
    node: &str,
    max_wait: Duration,
    format: OutputFormat,
) -> Result<CommandOutcome> {
    let found: LiveDiff = cluster::block_on(async {
        let session = session.connect().await?;
        let question = Question { node, report: LIVE_DIFF, after: None, follow: false, max_wait };
        ask(&session, question).await
    })?;
    match format {
        OutputFormat::Json => output::print_json(&found)?,
        OutputFormat::Text => output::print(&text(node, &found))?,
    }
    let is_equal = found.changes.is_empty() && found.left_out == 0;
    Ok(if is_equal { CommandOutcome::Done } else { CommandOutcome::Refused })
}

fn text(node: &str, found: &LiveDiff) -> String {
    let config = printable(&found.config);
    if found.changes.is_empty() && found.left_out == 0 {
        return format!("{node} has what {config} says.\n");
    }
    let mut text = format!("{DIMMED}- as {config} says  + as it is on {node}{DIMMED:#}\n");
    for change in &found.changes {
        show_change(&mut text, change);
    }
    if found.left_out > 0 {
        let _ = writeln!(text, "… {} more paths differ; `machinist status {node}`", found.left_out);
    }
    let degrades = found.changes.iter().any(|change| change.degrades) || found.left_out > 0;
    if degrades {
        let _ = writeln!(text, "`machinist heal {node}` restores what the config says.");
    } else {
        text.push_str("These differences do not degrade the machine.\n");
    }
    text
}

fn show_change(text: &mut String, change: &LiveChange) {
    let path = printable(&change.path);
    let _ = writeln!(text, "{HEADING}~ {path}{HEADING:#}");
    for (name, value) in &change.fields {
        let shown = |value: &Option<String>| value.as_deref().map(printable);
        let (old, new) = (shown(&value.old), shown(&value.new));
        show_value(text, "    ", &printable(name), old.as_deref(), new.as_deref());
    }
    if let Some(contents) = &change.contents {
        show_digests(text, contents);
    }
    show_lines(text, &change.lines);
    if change.truncated {
        text.push_str("    …\n");
    }
    if change.fields.is_empty() && change.contents.is_none() && change.lines.is_empty() {
        let _ = writeln!(text, "    {}", printable(&change.message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn show(changes: &serde_json::Value, left_out: usize) -> String {
        let found = json!({"config": "rendered-worker-1", "changes": changes, "leftOut": left_out});
        let text = text("w1", &serde_json::from_value(found).unwrap());
        anstream::adapter::strip_str(&text).to_string()
    }

    #[test]
    fn the_text_says_what_is_where_and_what_to_do() {
        assert_eq!(show(&json!([]), 0), "w1 has what rendered-worker-1 says.\n");
        let change = json!({
            "path": "/etc/motd", "message": "content mismatch", "degrades": true,
            "fields": {"mode": {"old": "0644", "new": "0666"}},
            "lines": [{"kind": "removed", "text": "one"}, {"kind": "added", "text": "by \u{1b}[2Jhand"}],
        });
        let secret = json!({
            "path": "/etc/a.key", "message": "content mismatch", "degrades": true,
            "contents": {"old": {"shown": "secret"}, "new": {"shown": "secret"}},
        });
        let unit = json!({"path": "a.service", "message": "unit \"a.service\" expected", "degrades": true});
        assert_eq!(
            show(&json!([change, secret, unit]), 2),
            "- as rendered-worker-1 says  + as it is on w1\n\
             ~ /etc/motd\n    ~ mode: 0644 → 0666\n    -one\n    +by \u{fffd}[2Jhand\n\
             ~ /etc/a.key\n    contents: (secret) → (secret)\n\
             ~ a.service\n    unit \"a.service\" expected\n\
             … 2 more paths differ; `machinist status w1`\n\
             `machinist heal w1` restores what the config says.\n"
        );
        let owner = json!({"path": "/etc/a", "message": "owner mismatch", "degrades": false});
        assert!(
            show(&json!([owner]), 0).ends_with("These differences do not degrade the machine.\n")
        );
    }
}
