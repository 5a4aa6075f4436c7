//! The annotation `machinist.dev/on-change`: what an administrator says that a change costs, on a MachineConfig for its
//! own files and units, or on a pool. Rendering collects the entries of a pool's objects; `disruption` decides by them.
//!
//! Reads and collects only. An entry is `[PATH|UNIT: ]none|reload UNIT|restart UNIT|run COMMAND|reboot`; entries are
//! separated by newlines or semicolons, and several for the same name follow one another.

mod rules;

use std::collections::BTreeMap;

use crate::api::names::annotation::machinist::ON_CHANGE;
use crate::api::operator::{DisruptionAction, DisruptionActionType as Type, ServiceReference};

pub use rules::{OnChangeRules, OwnRule, PoolRule};

/// The maximum length of the annotation.
const MAX_BYTES: usize = 16 << 10;
/// The maximum number of entries.
const MAX_ENTRIES: usize = 64;
/// The maximum number of words of a command.
const MAX_WORDS: usize = 64;
/// Characters that mean something to a shell, which does not run here.
const SHELL_CHARACTERS: &str = "\"'`$|&<>\\*?(){}";
/// The types of units.
const UNIT_TYPES: [&str; 9] =
    ["service", "socket", "target", "mount", "automount", "swap", "timer", "path", "slice"];

/// One entry of the annotation.
#[derive(Debug, Clone, PartialEq)]
pub struct OnChangeEntry {
    /// The file, directory or unit that the entry is for; `None` if it is for all.
    pub subject: Option<String>,
    /// The action.
    pub action: DisruptionAction,
}

/// Why the annotation cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OnChangeError {
    /// It is too long.
    #[error(
        "metadata.annotations: {ON_CHANGE}: {0} bytes or entries are too many (at most {MAX_ENTRIES} entries in {MAX_BYTES} bytes)"
    )]
    TooLong(usize),
    /// An entry cannot be read.
    #[error("metadata.annotations: {ON_CHANGE}: {entry:?}: {problem}")]
    Entry {
        /// The entry.
        entry: String,
        /// What is wrong, and what to write instead.
        problem: String,
    },
    /// The entries of all objects of a pool need too much space.
    #[error(
        "metadata.annotations: {ON_CHANGE}: the entries of all MachineConfigs need {0} bytes, which is too much for a rendered config: write fewer of them, or one on the pool"
    )]
    RulesTooLarge(usize),
}

fn wrong(entry: &str, problem: impl Into<String>) -> OnChangeError {
    let entry: String = entry.chars().take(200).collect();
    OnChangeError::Entry { entry, problem: problem.into() }
}

/// The value of the annotation, if there is one.
#[must_use]
pub fn annotation(annotations: Option<&BTreeMap<String, String>>) -> Option<&str> {
    annotations?.get(ON_CHANGE).map(String::as_str)
}

/// Reads the annotation.
///
/// # Errors
/// It is too long, or an entry cannot be read.
pub fn parse(text: &str) -> Result<Vec<OnChangeEntry>, OnChangeError> {
    if text.len() > MAX_BYTES {
        return Err(OnChangeError::TooLong(text.len()));
    }
    let lines = text.split(['\n', ';']).map(str::trim).filter(|line| !line.is_empty());
    let entries: Vec<OnChangeEntry> = lines.map(parse_entry).collect::<Result<_, _>>()?;
    match entries.len() {
        0 => Err(wrong(
            text,
            "no action: write one such as reload nginx.service, or remove the annotation",
        )),
        1..=MAX_ENTRIES => Ok(entries),
        count => Err(OnChangeError::TooLong(count)),
    }
}

fn parse_entry(entry: &str) -> Result<OnChangeEntry, OnChangeError> {
    let (first, rest) = entry.split_once(char::is_whitespace).unwrap_or((entry, ""));
    let (subject, action) = match first.strip_suffix(':') {
        Some(subject) => (Some(parse_subject(entry, subject)?), rest.trim()),
        None => (None, entry),
    };
    Ok(OnChangeEntry { subject, action: parse_action(entry, action)? })
}

fn parse_subject(entry: &str, subject: &str) -> Result<String, OnChangeError> {
    let is_root = subject == "/";
    let is_path = subject.starts_with('/')
        && crate::go::path::clean(subject) == subject.strip_suffix('/').unwrap_or(subject);
    if !is_root && !is_path && !is_unit_name(subject) {
        let problem = "before the colon stands the full path of a file or directory without //, . and .., or the name of a unit such as nginx.service";
        return Err(wrong(entry, problem));
    }
    Ok(subject.strip_suffix('/').filter(|rest| !rest.is_empty()).unwrap_or(subject).to_owned())
}

fn parse_action(entry: &str, text: &str) -> Result<DisruptionAction, OnChangeError> {
    let mut words = text.split_whitespace();
    let verb = words.next().unwrap_or_default();
    let words: Vec<String> = words.map(str::to_owned).collect();
    let plain = |type_| match words.is_empty() {
        true => Ok(DisruptionAction { type_, ..DisruptionAction::default() }),
        false => Err(wrong(entry, format!("nothing follows {verb}: separate entries with ;"))),
    };
    let unit = || match words.as_slice() {
        [unit] if is_unit_name(unit) => {
            Ok(Some(ServiceReference { service_name: unit.clone(), ..ServiceReference::default() }))
        }
        _ => Err(wrong(
            entry,
            format!("write {verb} and one unit with its suffix, such as {verb} nginx.service"),
        )),
    };
    match verb {
        "none" => plain(Type::None),
        "reboot" => plain(Type::Reboot),
        "reload" => {
            Ok(DisruptionAction { type_: Type::Reload, reload: unit()?, ..Default::default() })
        }
        "restart" => {
            Ok(DisruptionAction { type_: Type::Restart, restart: unit()?, ..Default::default() })
        }
        "run" => {
            check_command(entry, &words)?;
            Ok(DisruptionAction { type_: Type::Run, run: words, ..Default::default() })
        }
        _ => Err(wrong(entry, "write none, reload UNIT, restart UNIT, run COMMAND or reboot")),
    }
}

fn check_command(entry: &str, words: &[String]) -> Result<(), OnChangeError> {
    let Some(first) = words.first().filter(|first| first.starts_with('/')) else {
        return Err(wrong(
            entry,
            "write run and a command by its full path, such as run /usr/bin/update-ca-trust",
        ));
    };
    if words.len() > MAX_WORDS {
        return Err(wrong(
            entry,
            format!("at most {MAX_WORDS} words: put the command into a script"),
        ));
    }
    let is_shell = |c: char| SHELL_CHARACTERS.contains(c) || c.is_control();
    match words.iter().any(|word| word.contains(is_shell)) {
        true => Err(wrong(
            entry,
            format!(
                "no shell runs it, so quotes, variables and the like do not work: put {first} with them into a script, and run that"
            ),
        )),
        false => Ok(()),
    }
}

/// Whether this is the name of a unit, with its suffix.
#[must_use]
pub fn is_unit_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ":-_.\\@".contains(c);
    let (stem, kind) = name.rsplit_once('.').unwrap_or_default();
    !stem.is_empty() && UNIT_TYPES.contains(&kind) && name.len() < 256 && name.chars().all(is_plain)
}

#[cfg(test)]
mod tests;
