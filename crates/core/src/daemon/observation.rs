//! What a machine in observe mode reports about its pool's config, as one line for its Node. The daemon
//! collects the facts and writes the text; the controller copies it into the pool's condition.

use std::fmt::Write as _;

use crate::node::MAX_OBSERVATION_CHARS;

/// How many paths are named.
const MAX_PATHS: usize = 5;
/// The maximum length of the text, in characters.
const MAX_CHARS: usize = MAX_OBSERVATION_CHARS;

/// What a config would do to a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Observation {
    /// The config.
    pub config: String,
    /// Why the machine would refuse it.
    pub refused: Option<String>,
    /// The paths that would change.
    pub paths: Vec<String>,
    /// What would change in the operating system.
    pub os_changes: Vec<String>,
    /// The actions after that, as text.
    pub actions: String,
    /// Whether the machine would be drained first.
    pub needs_drain: bool,
    /// Paths that differ from the config that the machine has now.
    pub drift: Vec<String>,
}

impl Observation {
    /// The text: what would change, and at what cost.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!("{} ", self.config);
        // Writing to a String cannot fail.
        let _ = match &self.refused {
            Some(refused) => write!(text, "would be refused: {refused}"),
            None if self.paths.is_empty() && self.os_changes.is_empty() => {
                write!(text, "would change nothing")
            }
            None => self.write_changes(&mut text),
        };
        if !self.drift.is_empty() {
            let _ = write!(text, "; drifted: {}", first(&self.drift));
        }
        text.chars().take(MAX_CHARS).collect()
    }

    fn write_changes(&self, text: &mut String) -> std::fmt::Result {
        let mut parts = self.os_changes.clone();
        match self.paths.len() {
            0 => {}
            1 => parts.push(first(&self.paths)),
            count => parts.push(format!("{count} paths ({})", first(&self.paths))),
        }
        write!(text, "would change {}", parts.join(", "))?;
        if !self.actions.is_empty() && self.actions != "None" {
            write!(text, "; then: {}", self.actions)?;
        }
        text.push_str(if self.needs_drain { "; with a drain" } else { "; without a drain" });
        Ok(())
    }
}

fn first(paths: &[String]) -> String {
    let shown = paths[..paths.len().min(MAX_PATHS)].join(", ");
    match paths.len().saturating_sub(MAX_PATHS) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_says_what_would_change_and_what_it_costs() {
        let paths = |count: usize| (0..count).map(|index| format!("/etc/{index}")).collect();
        let some = |paths: Vec<String>, actions: &str, needs_drain| Observation {
            config: "rendered-worker-1".to_owned(),
            paths,
            actions: actions.to_owned(),
            needs_drain,
            ..Observation::default()
        };
        let nothing = some(paths(0), "", false);
        let refused = Observation { refused: Some("no FIPS".to_owned()), ..nothing.clone() };
        let drifted = Observation { drift: vec!["/etc/motd".to_owned()], ..nothing.clone() };
        let os = Observation { os_changes: vec!["image a".to_owned()], ..some(paths(1), "", true) };
        for (found, expected) in [
            (nothing, "would change nothing"),
            (refused, "would be refused: no FIPS"),
            (drifted, "would change nothing; drifted: /etc/motd"),
            (some(paths(1), "None", false), "would change /etc/0; without a drain"),
            (os, "would change image a, /etc/0; with a drain"),
            (
                some(paths(7), "Reboot", true),
                "would change 7 paths (/etc/0, /etc/1, /etc/2, /etc/3, /etc/4 and 2 more); then: Reboot; with a drain",
            ),
        ] {
            assert_eq!(found.text(), format!("rendered-worker-1 {expected}"));
        }
        let long = Observation { refused: Some("ä".repeat(5000)), ..Observation::default() };
        assert_eq!(long.text().chars().count(), MAX_CHARS);
    }
}
