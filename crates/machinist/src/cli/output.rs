//! Output: YAML and JSON to standard output, messages to standard error, colour where it is wanted.

use std::io::Write as _;

use anstyle::{AnsiColor, Style};
use anyhow::Result;
use clap::ValueEnum;
use serde::Serialize;

/// `-o` where there is a text for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum OutputFormat {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Things that came: green.
pub(super) const ADDED: Style = AnsiColor::Green.on_default();
/// Things that went: red.
pub(super) const REMOVED: Style = AnsiColor::Red.on_default();
/// Headings.
pub(super) const HEADING: Style = Style::new().bold();
/// Things of little weight.
pub(super) const DIMMED: Style = Style::new().dimmed();
/// Warnings.
pub(super) const WARNING: Style = AnsiColor::Yellow.on_default().bold();
/// Errors.
pub(super) const ERROR: Style = AnsiColor::Red.on_default().bold();

/// Writes text to standard output; colour is taken out where nobody sees it.
pub(super) fn print(text: &str) -> Result<()> {
    Ok(anstream::stdout().lock().write_all(text.as_bytes())?)
}

/// Writes a value as indented JSON.
pub(super) fn print_json(value: &impl Serialize) -> Result<()> {
    print(&format!("{}\n", serde_json::to_string_pretty(value)?))
}

/// Writes a value as YAML, in the form that Kubernetes' tools write.
pub(super) fn print_yaml(value: &impl Serialize) -> Result<()> {
    print(&machinist_core::go::yaml::to_go_yaml(&serde_json::to_value(value)?))
}

/// Rows in columns; the first row is the heading.
pub(super) fn format_columns<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> String {
    let widest = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; COLUMNS] = std::array::from_fn(|column| widest(column).unwrap_or_default());
    let line = |row: &[String; COLUMNS]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

/// Says something that is no result.
pub(super) fn print_note(message: &str) {
    let _ = writeln!(anstream::stderr(), "{message}");
}

/// Says that something went wrong.
pub(super) fn print_error(message: &str) {
    // Nothing is left to tell anyone if standard error is gone.
    let _ = writeln!(anstream::stderr(), "{ERROR}error:{ERROR:#} {message}");
}

/// Says that something is odd.
pub(super) fn print_warning(message: &str) {
    let _ = writeln!(anstream::stderr(), "{WARNING}warning:{WARNING:#} {message}");
}
