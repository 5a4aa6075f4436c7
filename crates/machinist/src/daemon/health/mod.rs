//! Performs the health checks of a config on the machine until all pass or the deadline is over.
//! `core::health` decides what follows. Called by `agent::health_gate`.
//!
//! | module | does |
//! |---|---|
//! | `checks` | one round of checks |
//! | `failed_config` | the record of the config that the machine rolled back from |

mod checks;
mod failed_config;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use kube::Client;
use machinist_core::api::MachineConfig;
use machinist_core::health::{
    self, FailedCheck, HEALTH_SPEC_PATH, HealthSpec, HealthState, HealthTiming,
};
use tokio::time::Instant;

use crate::manifests::{self, ManifestText};

#[allow(unused_imports, reason = "the loop of the daemon calls it")]
pub(crate) use failed_config::{read, remove, write};

/// The pause between two rounds.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The health checks of a config; `None` if it has none.
pub(crate) fn spec(config: &MachineConfig) -> Result<Option<HealthSpec>> {
    let Some(bytes) = health::health_spec_bytes(config)? else { return Ok(None) };
    let Ok(text) = String::from_utf8(bytes) else {
        bail!("{HEALTH_SPEC_PATH}: this is not text: write it as docs/health.md shows");
    };
    let documents =
        manifests::parse(&ManifestText { file: PathBuf::from(HEALTH_SPEC_PATH), text })?;
    let [document] = documents.as_slice() else {
        bail!("{HEALTH_SPEC_PATH}: {} documents in this file: write one", documents.len());
    };
    let spec: HealthSpec = document
        .try_typed()
        .map_err(|(field, problem)| anyhow::anyhow!("{HEALTH_SPEC_PATH}: {field}: {problem}"))?;
    spec.validate()?;
    Ok(Some(spec))
}

/// The machine to check.
#[derive(Clone, Copy)]
pub(crate) struct HealthTarget<'a> {
    /// The root of the machine.
    pub(crate) root: &'a Path,
    /// The client of the API server.
    pub(crate) client: Option<&'a Client>,
}

/// Waits until all checks pass; returns the failing one when the deadline is over.
pub(crate) async fn wait_until_healthy(
    spec: &HealthSpec,
    target: HealthTarget<'_>,
) -> Result<(), FailedCheck> {
    let begin = Instant::now();
    let mut healthy_since: Option<Instant> = None;
    loop {
        let left = spec.deadline.saturating_sub(begin.elapsed()).max(CHECK_INTERVAL);
        let round = checks::run_checks(spec, target, left).await;
        let healthy_for = healthy_since.map(|since| since.elapsed()).unwrap_or_default();
        let pause = match health::evaluate(
            spec,
            &round,
            HealthTiming { elapsed: begin.elapsed(), healthy_for },
        ) {
            HealthState::Healthy => return Ok(()),
            HealthState::Settling { left } => {
                healthy_since.get_or_insert_with(Instant::now);
                left
            }
            HealthState::NotYet { failing, left } => {
                healthy_since = None;
                tracing::info!(%failing, seconds_left = left.as_secs(), "not healthy yet");
                left
            }
            HealthState::Failed { failing } => return Err(failing),
        };
        tokio::time::sleep(pause.min(CHECK_INTERVAL)).await;
    }
}
