//! The health checks in the file of a config.

use std::time::Duration;

use serde::{Deserialize, Deserializer, de};

use super::HealthCheck;
use crate::api::MachineConfig;
use crate::duration::parse_duration;
use crate::ignition::{self, contents};

/// The path of the file in a config.
pub const HEALTH_SPEC_PATH: &str = "/etc/machinist/health.yaml";

/// The maximum size of the file.
const MAX_SPEC_BYTES: u64 = 1 << 20;
/// The default deadline.
const DEFAULT_DEADLINE: Duration = Duration::from_secs(5 * 60);
/// The default settling time.
const DEFAULT_STABLE: Duration = Duration::from_secs(10);
/// The default timeout of a command.
const DEFAULT_COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

/// The health checks of a config.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct HealthSpec {
    /// How long a machine may take to become healthy.
    #[serde(default = "deadline", deserialize_with = "read_duration")]
    pub deadline: Duration,
    /// How long all checks have to pass before the machine counts as healthy: some services are active for a
    /// moment before they fail.
    #[serde(default = "stable", deserialize_with = "read_duration")]
    pub stable: Duration,
    /// Units that have to be active.
    #[serde(default)]
    pub units: Vec<String>,
    /// Commands that have to exit with 0.
    #[serde(default)]
    pub commands: Vec<HealthCommand>,
    /// Whether the API server has to be reachable.
    #[serde(default)]
    pub api: bool,
}

/// A command that has to exit with 0.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct HealthCommand {
    /// The command, by its full path, and its arguments.
    pub run: Vec<String>,
    /// Its timeout.
    #[serde(default = "timeout", deserialize_with = "read_duration")]
    pub timeout: Duration,
}

/// Why the file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HealthSpecError {
    /// The file cannot be read.
    #[error("{HEALTH_SPEC_PATH}: {0}: correct the file in its MachineConfig")]
    Unreadable(String),
    /// The value of a field is invalid.
    #[error("{HEALTH_SPEC_PATH}: {field}: {problem}")]
    Field {
        /// The field.
        field: String,
        /// What is wrong, and what to write instead.
        problem: &'static str,
    },
}

impl HealthSpec {
    /// Checks the values.
    pub fn validate(&self) -> Result<(), HealthSpecError> {
        let wrong =
            |field: &str, problem| Err(HealthSpecError::Field { field: field.to_owned(), problem });
        if self.deadline.is_zero() {
            return wrong("deadline", "no time at all: write a time such as 5m");
        }
        if self.checks().is_empty() {
            return wrong("units", "nothing is checked: name units or commands, or set api: true");
        }
        if self.units.iter().any(|unit| !is_unit_name(unit)) {
            return wrong("units", "not the name of a unit: write one such as kubelet.service");
        }
        for (index, command) in self.commands.iter().enumerate() {
            let field = format!("commands[{index}].run");
            let executable = command.run.first().map_or("", String::as_str);
            if !executable.starts_with('/') || command.run.iter().any(|word| word.contains('\0')) {
                let problem = "not a command: write its full path, then its arguments";
                return Err(HealthSpecError::Field { field, problem });
            }
            if command.timeout.is_zero() {
                let field = format!("commands[{index}].timeout");
                let problem = "no time at all: write a time such as 30s";
                return Err(HealthSpecError::Field { field, problem });
            }
        }
        Ok(())
    }

    /// All checks, in the order in which they are reported.
    #[must_use]
    pub fn checks(&self) -> Vec<HealthCheck> {
        let units = self.units.iter().map(|unit| HealthCheck::Unit { unit: unit.clone() });
        let commands = self.commands.iter().map(|command| HealthCheck::Command {
            run: command.run.clone(),
            timeout: command.timeout,
        });
        units.chain(commands).chain(self.api.then_some(HealthCheck::Api)).collect()
    }
}

fn is_unit_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || ":-_.\\@".contains(c);
    let (stem, kind) = name.rsplit_once('.').unwrap_or_default();
    !stem.is_empty() && !kind.is_empty() && name.len() < 256 && name.chars().all(is_plain)
}

/// The bytes of the file in a config, if there is one.
pub fn health_spec_bytes(config: &MachineConfig) -> Result<Option<Vec<u8>>, HealthSpecError> {
    let Some(raw) = config.spec.config.as_ref().filter(|raw| !raw.is_null()) else {
        return Ok(None);
    };
    let unreadable = |problem: String| HealthSpecError::Unreadable(problem);
    let (ignition, _) =
        ignition::parse_and_upgrade(raw).map_err(|error| unreadable(error.to_string()))?;
    let file = ignition.storage.files.iter().find(|file| file.path == HEALTH_SPEC_PATH);
    let bytes = file.map(|file| contents::decode(&file.contents, MAX_SPEC_BYTES)).transpose();
    bytes.map_err(|error| unreadable(error.to_string()))
}

fn deadline() -> Duration {
    DEFAULT_DEADLINE
}

fn stable() -> Duration {
    DEFAULT_STABLE
}

fn timeout() -> Duration {
    DEFAULT_COMMAND_TIMEOUT
}

fn read_duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse_duration(&text).map_err(|problem| {
        de::Error::custom(format!("{problem}: write a time such as 90s, 5m or 1h30m"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::from_ignition;
    use serde_json::{Value, json};

    fn read(value: Value) -> Result<HealthSpec, String> {
        let spec: HealthSpec = serde_json::from_value(value).map_err(|error| error.to_string())?;
        spec.validate().map_err(|error| error.to_string())?;
        Ok(spec)
    }

    #[test]
    fn the_checks_are_read() {
        let spec = read(json!({
            "deadline": "2m", "units": ["kubelet.service"], "api": true,
            "commands": [{"run": ["/bin/check", "-q"]}, {"run": ["/bin/slow"], "timeout": "5m"}]
        }));
        let spec = spec.unwrap();
        assert_eq!(spec.deadline, Duration::from_secs(120));
        let checks: Vec<String> = spec.checks().iter().map(ToString::to_string).collect();
        assert_eq!(
            checks,
            ["unit kubelet.service", "command /bin/check -q", "command /bin/slow", "API"]
        );
        assert_eq!(
            (spec.commands[0].timeout, spec.stable),
            (DEFAULT_COMMAND_TIMEOUT, DEFAULT_STABLE)
        );
        assert_eq!(read(json!({"units": ["a.service"]})).unwrap().deadline, DEFAULT_DEADLINE);
    }

    #[test]
    fn invalid_values_are_refused_with_their_field() {
        for (value, expected) in [
            (json!({}), "units: nothing is checked"),
            (json!({"unit": ["a.service"]}), "unknown field `unit`"),
            (json!({"units": ["kubelet"]}), "units: not the name of a unit"),
            (json!({"units": ["a b.service"]}), "units: not the name of a unit"),
            (json!({"api": true, "deadline": "5"}), "5 has no unit: write a time such as 90s"),
            (json!({"api": true, "deadline": "0s"}), "deadline: no time at all"),
            (json!({"commands": [{"run": ["check"]}]}), "commands[0].run: not a command"),
            (json!({"commands": [{"run": []}]}), "commands[0].run: not a command"),
            (json!({"commands": [{"run": ["/x"], "timeout": "0s"}]}), "commands[0].timeout"),
        ] {
            let error = read(value.clone()).unwrap_err();
            assert!(error.contains(expected), "{value}: {error}");
        }
    }

    #[test]
    fn a_config_may_contain_the_file() {
        let config = |files: Value| {
            from_ignition(json!({"ignition": {"version": "3.5.0"}, "storage": {"files": files}}))
        };
        let carries = config(
            json!([{"path": HEALTH_SPEC_PATH, "contents": {"source": "data:,api:%20true"}}]),
        );
        assert_eq!(health_spec_bytes(&carries), Ok(Some(b"api: true".to_vec())));
        assert_eq!(health_spec_bytes(&config(json!([{"path": "/etc/x"}]))), Ok(None));
        assert_eq!(health_spec_bytes(&MachineConfig::default()), Ok(None));
        let remote =
            config(json!([{"path": HEALTH_SPEC_PATH, "contents": {"source": "https://x/y"}}]));
        assert!(health_spec_bytes(&remote).unwrap_err().to_string().starts_with(HEALTH_SPEC_PATH));
    }
}
