//! A transient unit for one command.

use std::time::Duration;

use zbus::Variant;

/// The properties of a unit, by systemd's names.
pub(super) type UnitProperties = Vec<(&'static str, Variant<'static>)>;

/// Auxiliary units: none.
pub(super) const NO_AUX_UNITS: &[(&str, Vec<(&str, Variant<'static>)>)] = &[];

/// The signal that no process can ignore.
const SIGKILL: i32 = 9;

/// A command to run as a transient unit.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TransientUnit<'a> {
    /// The name of the unit.
    pub(crate) name: &'a str,
    /// Its description, for people.
    pub(crate) description: &'a str,
    /// The command, by its full path, and its arguments.
    pub(crate) command: &'a [&'a str],
    /// A directory below `/run` that it needs and that stays.
    pub(crate) runtime_directory: Option<&'a str>,
    /// Units that have to run for it.
    pub(crate) requires: &'a [&'a str],
    /// Units that have to be started before it.
    pub(crate) after: &'a [&'a str],
}

impl TransientUnit<'_> {
    /// The properties of a unit that ends with its command.
    pub(super) fn oneshot_properties(&self, limit: Duration) -> UnitProperties {
        let mut properties = self.properties();
        let limit = u64::try_from(limit.as_micros()).unwrap_or(u64::MAX);
        properties.push(("Type", Variant::from("oneshot".to_owned())));
        properties.push(("TimeoutStartUSec", Variant::from(limit)));
        // The command is over when its process is: what it has left behind must not delay its end, nor make it a failure.
        properties.push(("KillSignal", Variant::from(SIGKILL)));
        properties
    }

    /// The properties of the unit.
    pub(super) fn properties(&self) -> UnitProperties {
        let owned = |list: &[&str]| -> Vec<String> { list.iter().map(|&s| s.to_owned()).collect() };
        let command_name = self.command.first().copied().unwrap_or_default().to_owned();
        // The last part: a failure of the command is a failure of the unit.
        let command = (command_name, owned(self.command), false);
        let mut properties = vec![
            ("Description", Variant::from(self.description.to_owned())),
            ("ExecStart", Variant::from(vec![command])),
            // A failed unit is unloaded too, so that its name is free for the next one.
            ("CollectMode", Variant::from("inactive-or-failed".to_owned())),
        ];
        if let Some(directory) = self.runtime_directory {
            properties.push(("RuntimeDirectory", Variant::from(owned(&[directory]))));
            properties.push(("RuntimeDirectoryPreserve", Variant::from("yes".to_owned())));
        }
        for (name, units) in [("Requires", self.requires), ("After", self.after)] {
            if !units.is_empty() {
                properties.push((name, Variant::from(owned(units))));
            }
        }
        properties
    }
}
