//! Printing: results to standard output, messages to standard error, colour only on terminals.

use std::io::Write as _;

use anstyle::{AnsiColor, Style};
use anyhow::Result;
use clap::ValueEnum;
use serde::Serialize;

/// `-o` of commands that print text or JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum OutputFormat {
    /// Text for people
    Text,
    /// JSON for scripts
    Json,
}

/// Additions.
pub(super) const ADDED: Style = AnsiColor::Green.on_default();
/// Removals.
pub(super) const REMOVED: Style = AnsiColor::Red.on_default();
/// Headings.
pub(super) const HEADING: Style = Style::new().bold();
/// Secondary information.
pub(super) const DIMMED: Style = Style::new().dimmed();
/// Warnings.
pub(super) const WARNING: Style = AnsiColor::Yellow.on_default().bold();
/// Errors.
pub(super) const ERROR: Style = AnsiColor::Red.on_default().bold();

/// Writes text to standard output, without colour where it is not a terminal.
pub(super) fn print(text: &str) -> Result<()> {
    Ok(anstream::stdout().lock().write_all(text.as_bytes())?)
}

/// Writes progress to standard output. The work matters more than its messages: unlike [`print`], it
/// ignores a full disk and a closed pipe.
pub(super) fn print_progress(text: &str) {
    let _ = anstream::stdout().lock().write_all(text.as_bytes());
}

/// Writes a value as indented JSON.
pub(super) fn print_json(value: &impl Serialize) -> Result<()> {
    print(&format!("{}\n", serde_json::to_string_pretty(value)?))
}

/// Writes a value as YAML, formatted as kubectl does.
pub(super) fn print_yaml(value: &impl Serialize) -> Result<()> {
    print(&machinist_core::go::yaml::to_go_yaml(&serde_json::to_value(value)?))
}

/// The widest column. Longer cells are not aligned: one machine must not spoil the table, and a formatter panics at 65,536.
const MAX_COLUMN_WIDTH: usize = 100;

/// Aligns rows in columns; the first row is the heading. Control characters are replaced: machines write some of the
/// cells, and a terminal would obey them.
pub(super) fn format_columns<const COLUMNS: usize>(rows: &[[String; COLUMNS]]) -> String {
    let widest = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; COLUMNS] =
        std::array::from_fn(|column| widest(column).unwrap_or_default().min(MAX_COLUMN_WIDTH));
    let line = |row: &[String; COLUMNS]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| {
            let cell = cell.replace(char::is_control, "\u{fffd}");
            format!("{cell:width$}")
        });
        format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

/// Prints a message that is not a result, to standard error.
pub(super) fn print_note(message: &str) {
    let _ = writeln!(anstream::stderr(), "{message}");
}

/// Prints an error.
pub(super) fn print_error(message: &str) {
    // A closed standard error cannot be reported anywhere.
    let _ = writeln!(anstream::stderr(), "{ERROR}error:{ERROR:#} {message}");
}

/// Prints a warning.
pub(super) fn print_warning(message: &str) {
    let _ = writeln!(anstream::stderr(), "{WARNING}warning:{WARNING:#} {message}");
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may panic")]
mod tests {
    use super::*;

    #[test]
    fn what_a_machine_writes_harms_no_table() {
        let row = |a: &str, b: &str| [a.to_owned(), b.to_owned()];
        let long = "x".repeat(250_000);
        let text =
            format_columns(&[row("NAME", "REASON"), row(&long, "\u{1b}[2J\r\n"), row("b", "c")]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[1].len() > long.len() && !text.contains('\u{1b}'));
        assert_eq!(lines[2], format!("b{}  c", " ".repeat(99)));
    }
}
