//! The health gate, carried out: the checks that a config brings are made on the machine until
//! everything holds or the time is up. What follows, `core::health` says.
//!
//! | file | does |
//! |---|---|
//! | `checks` | one round of checks |
//! | `memory` | the config that did the machine no good, on its disk |

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

/// So long is waited between two rounds.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// What has to hold on a machine that has a config; nothing where the config does not say.
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

/// A machine whose health is asked for.
#[derive(Clone, Copy)]
pub(crate) struct HealthTarget<'a> {
    /// The root of the machine.
    pub(crate) root: &'a Path,
    /// The home of the API.
    pub(crate) client: Option<&'a Client>,
}

/// Waits until everything holds; otherwise gives what does not when the time is up.
pub(crate) async fn wait_until_healthy(
    spec: &HealthSpec,
    patient: HealthTarget<'_>,
) -> Result<(), FailedCheck> {
    let begin = Instant::now();
    let mut well_since: Option<Instant> = None;
    loop {
        let left = spec.deadline.saturating_sub(begin.elapsed()).max(CHECK_INTERVAL);
        let round = checks::run_checks(spec, patient, left).await;
        let held = well_since.map(|since| since.elapsed()).unwrap_or_default();
        let pause = match health::evaluate(
            spec,
            &round,
            HealthTiming { elapsed: begin.elapsed(), healthy_for: held },
        ) {
            HealthState::Healthy => return Ok(()),
            HealthState::Settling { left } => {
                well_since.get_or_insert_with(Instant::now);
                left
            }
            HealthState::NotYet { failing, left } => {
                well_since = None;
                tracing::info!("health: not yet: {failing} ({}s left)", left.as_secs());
                left
            }
            HealthState::Failed { failing } => return Err(failing),
        };
        tokio::time::sleep(pause.min(CHECK_INTERVAL)).await;
    }
}
