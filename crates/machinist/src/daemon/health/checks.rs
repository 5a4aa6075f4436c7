//! Runs one round of checks, all of them in parallel.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use futures::future::join_all;
use kube::Client;
use machinist_core::health::{HealthCheck, HealthResults, HealthSpec};
use tokio::process::Command;
use tokio::time::timeout;

use super::super::systemd::{Systemd, TransientUnit};
use super::HealthTarget;
use crate::systemd_notify;

/// The timeout for a response of the API server.
const API_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs all checks; none takes longer than the time that is left.
pub(super) async fn run_checks(
    spec: &HealthSpec,
    target: HealthTarget<'_>,
    left: Duration,
) -> HealthResults {
    let systemd = Systemd::connect(target.root).await.map_err(|error| format!("{error:#}"));
    let systemd = match &systemd {
        Ok(Some(systemd)) => Ok(Some(systemd)),
        Ok(None) => Ok(None),
        Err(problem) => Err(problem.as_str()),
    };
    let checks = spec.checks();
    let made = checks.iter().enumerate().map(|(index, check)| async move {
        match check {
            HealthCheck::Unit { unit } => with_timeout(left, is_active(unit, systemd)).await,
            HealthCheck::Command { run, timeout } => {
                run_as_unit(index, run, (*timeout).min(left), systemd, target.root).await
            }
            HealthCheck::Api => {
                with_timeout(left.min(API_TIMEOUT), api_responds(target.client)).await
            }
        }
    });
    join_all(made).await
}

async fn with_timeout(
    limit: Duration,
    check: impl Future<Output = Result<(), String>>,
) -> Result<(), String> {
    let made = timeout(limit, check).await;
    made.unwrap_or_else(|_| Err(format!("no answer for {}s", limit.as_secs())))
}

type SystemdResult<'a> = Result<Option<&'a Systemd>, &'a str>;

async fn is_active(unit: &str, systemd: SystemdResult<'_>) -> Result<(), String> {
    let systemd = systemd?.ok_or("systemd does not run on this machine")?;
    match systemd.active_state(unit).await {
        Ok(state) if state == "active" || state == "reloading" => Ok(()),
        Ok(state) => Err(format!("is {state}: see \"systemctl status {unit}\"")),
        Err(error) => Err(format!("{error:#}")),
    }
}

/// Runs on the machine itself, even if this process is in a container: as a transient unit of its systemd.
async fn run_as_unit(
    index: usize,
    run: &[String],
    limit: Duration,
    systemd: SystemdResult<'_>,
    root: &Path,
) -> Result<(), String> {
    match systemd? {
        Some(systemd) => {
            let words: Vec<&str> = run.iter().map(String::as_str).collect();
            let unit = TransientUnit {
                name: &format!("machinist-health-{index}"),
                description: "machinist: a check of the machine's health",
                command: &words,
                ..TransientUnit::default()
            };
            systemd.run_and_wait(&unit, limit).await.map_err(|error| format!("{error:#}"))
        }
        None if root == Path::new("/") => run_directly(run, limit).await,
        None => Err("systemd does not run on this machine".to_owned()),
    }
}

/// Runs where systemd does not run.
pub(super) async fn run_directly(run: &[String], limit: Duration) -> Result<(), String> {
    let (command_name, arguments) = run.split_first().ok_or("no command")?;
    let mut command = Command::new(command_name);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    for name in systemd_notify::VARIABLES {
        command.env_remove(name);
    }
    let ended = timeout(limit, command.kill_on_drop(true).status()).await;
    match ended.map_err(|_| format!("it has not ended after {}s", limit.as_secs()))? {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("it ended with {status}")),
        Err(error) => Err(format!("it cannot be run: {error}")),
    }
}

async fn api_responds(client: Option<&Client>) -> Result<(), String> {
    let client = client.ok_or("this machine knows no API")?;
    client.apiserver_version().await.map(drop).map_err(|error| error.to_string())
}
