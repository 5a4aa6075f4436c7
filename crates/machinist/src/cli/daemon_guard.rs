//! `machinist daemon guard`: what the boot guard of a host runs.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Args;

use super::CommandOutcome;
use super::log_args::LogArgs;
use crate::daemon::agent::boot_guard;

/// Return to the previous config if the kubelet does not run after the reboot into a new one;
/// machinist-guard.service runs this on hosts whose daemon is a pod
///
/// The daemon writes the service before it reboots such a host, and it is removed when the machine runs its
/// new config. The kubelet has 10 minutes, or the deadline of the config's health checks, which have to pass
/// too. Without a change to guard, nothing happens.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist daemon guard")]
pub(super) struct DaemonGuardArgs {
    /// The root directory of the machine
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,

    /// The health endpoint of the kubelet
    #[arg(long, value_name = "URL", default_value = "http://localhost:10248/healthz")]
    kubelet_healthz_endpoint: http::Uri,

    #[command(flatten)]
    log: LogArgs,
}

impl DaemonGuardArgs {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        self.log.init();
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build().context("cannot start the async runtime")?;
        runtime.block_on(boot_guard::run(&self.root, &self.kubelet_healthz_endpoint))?;
        Ok(CommandOutcome::Done)
    }
}
