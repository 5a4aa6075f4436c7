//! `machinist daemon`: the process that applies configs to a machine.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::{Args, Subcommand};
use machinist_core::drift::DriftPolicy;
use machinist_core::node::MachineMode;
use tokio_util::sync::CancellationToken;

use super::CommandOutcome;
use super::connection_args::ConnectionArgs;
use super::daemon_guard::DaemonGuardArgs;
use super::daemon_status::{DaemonPlanArgs, DaemonStatusArgs, DaemonWatchdogArgs};
use super::firstboot::FirstBootArgs;
use super::log_args::LogArgs;
use super::metrics_args::MetricsSecurityArgs;
use super::signals::shutdown_signal;
use crate::daemon::agent::{self, DaemonOptions, ExitReason, NodeRegistration};
use crate::daemon::join::identity_copy;
use crate::daemon::join::paths::JoinPaths;
use crate::liveness::Liveness;
use crate::metrics::MetricsOptions;
use crate::systemd_notify;
use crate::telemetry::RecentLog;

/// How often a daemon without a usable identity looks for one.
const IDENTITY_RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Run the daemon of this machine, or show its status
///
/// The daemon applies the config that its Node names: it computes the smallest change, applies it so
/// that a power loss at any moment does no harm, reloads, restarts or reboots what the change requires,
/// and reports status on the Node.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct DaemonArgs {
    #[command(subcommand)]
    command: Option<DaemonCommand>,

    #[command(flatten)]
    start: DaemonStartArgs,
}

#[derive(Debug, Subcommand)]
enum DaemonCommand {
    Start(DaemonStartArgs),
    Status(DaemonStatusArgs),
    Plan(DaemonPlanArgs),
    Watchdog(DaemonWatchdogArgs),
    Guard(DaemonGuardArgs),
}

impl DaemonArgs {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        match &self.command {
            None => self.start.run(),
            Some(DaemonCommand::Start(start)) => start.run(),
            Some(DaemonCommand::Status(status)) => status.run(),
            Some(DaemonCommand::Plan(plan)) => plan.run(),
            Some(DaemonCommand::Watchdog(watchdog)) => watchdog.run(),
            Some(DaemonCommand::Guard(guard)) => guard.run(),
        }
    }
}

/// Run the daemon; `machinist daemon` alone does the same
///
/// A service of the host works on /. A pod works on the root directory of the host, which must be
/// mounted: --root /rootfs. On a machine without a kubelet, --register makes the daemon maintain the Node.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  machinist daemon start --kubeconfig /var/lib/machinist/kubeconfig --node-name worker-1 --register"
)]
pub(super) struct DaemonStartArgs {
    #[command(flatten)]
    connection: ConnectionArgs,

    /// The name of this machine's Node [default: $NODE_NAME, else the host name]
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    node_name: Option<String>,

    /// The root directory of the machine
    #[arg(long, value_name = "DIR", default_value = "/", alias = "root-mount")]
    root: PathBuf,

    /// Serve /metrics, /healthz and /readyz on this address, such as 127.0.0.1:8797 [default: not served]
    #[arg(long, value_name = "ADDR:PORT", aliases = ["listen", "metrics-url"], help_heading = "Metrics")]
    metrics_listen: Option<SocketAddr>,

    #[command(flatten)]
    metrics_security: MetricsSecurityArgs,

    #[command(flatten)]
    log: LogArgs,

    /// Create and maintain the machine's Node, on a machine without a kubelet
    #[arg(long)]
    register: bool,

    /// What to do when managed files are changed by hand: report the drift, or heal it
    #[arg(long, value_name = "POLICY", default_value = "report")]
    drift: DriftPolicy,

    /// Whether the machine is changed if its Node does not say: enforce, or observe to only report what
    /// would change
    #[arg(long, value_name = "MODE", default_value = "enforce")]
    mode: MachineMode,

    /// Check the health of the kubelet every 30 seconds [default: true, unless --register]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    kubelet_healthz_enabled: Option<bool>,

    /// The health endpoint of the kubelet
    #[arg(long, value_name = "URL", default_value = "http://localhost:10248/healthz")]
    kubelet_healthz_endpoint: http::Uri,

    /// Apply the MachineConfig or Ignition config in this file, reboot the machine and exit, without an API
    /// server; the same as machinist firstboot --write -f FILE
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kubeconfig", "register"])]
    once_from: Option<PathBuf>,

    /// With --once-from: do not reboot the machine
    #[arg(long, requires = "once_from")]
    skip_reboot: bool,

    /// A label for the Node that --register creates (repeatable)
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_label, requires = "register")]
    label: Vec<(String, String)>,
}

pub(super) fn parse_label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("write KEY=VALUE; the value may be empty")?;
    Ok((key.to_owned(), value.to_owned()))
}

impl DaemonStartArgs {
    fn run(&self) -> Result<CommandOutcome> {
        if let Some(file) = &self.once_from {
            ensure!(
                !file.to_string_lossy().contains("://"),
                "--once-from {}: URLs are not supported: download the config and name the file",
                file.display()
            );
            let (file, root) = (file.clone(), self.root.clone());
            return FirstBootArgs::once_from(file, root, self.skip_reboot, self.log).run();
        }
        let log = self.log.init_recent_log();
        // One thread: an idle daemon must cost next to nothing.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the async runtime")?;
        let ended = runtime.block_on(async {
            let stop = CancellationToken::new();
            let (signal, stopped) = (shutdown_signal()?, stop.clone());
            tokio::spawn(async move {
                signal.await;
                stopped.cancel();
            });
            // On the only thread of the runtime: a step that blocks it for the whole timeout is stuck, too.
            let liveness = Liveness::default();
            let alive = liveness.clone();
            systemd_notify::start_watchdog(move || std::future::ready(alive.is_alive()));
            loop {
                let Some(client) = self.connect(&stop).await? else {
                    return Ok(CommandOutcome::Done);
                };
                let options = self.options(log.clone())?;
                match agent::run(client, options, liveness.clone(), stop.clone()).await? {
                    ExitReason::Stopped | ExitReason::Left | ExitReason::Upgraded => {
                        return Ok(CommandOutcome::Done);
                    }
                    ExitReason::CertificateRenewed => {}
                }
            }
        });
        // A download in progress must not delay the exit.
        runtime.shutdown_background();
        ended
    }

    /// The client; `None` if the process is asked to stop first. A machine whose own identity is missing or damaged uses
    /// its copy, or waits for a new one: a process that ends is no use to it.
    async fn connect(&self, stop: &CancellationToken) -> Result<Option<kube::Client>> {
        let own = JoinPaths::new(&self.root).kubeconfig();
        let mut reported = String::new();
        loop {
            let error = match self.connection.machine_client().await {
                Ok(client) => return Ok(Some(client)),
                Err(error) => error,
            };
            let may_wait = own.exists() || systemd_notify::is_service();
            if !self.connection.is_kubeconfig(&own) || !may_wait {
                return Err(error);
            }
            match identity_copy::restore(&self.root) {
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) => {
                    tracing::warn!(error = %format_args!("{error:#}"), "cannot restore the identity");
                }
            }
            let error = format!("{error:#}");
            if error != reported {
                tracing::error!(
                    error,
                    "the identity of this machine cannot be used: run machinist join again, with a token of machinist hub token --role bootstrap --replace NAME"
                );
                reported = error;
            }
            systemd_notify::ready();
            tokio::select! {
                () = stop.cancelled() => return Ok(None),
                () = tokio::time::sleep(IDENTITY_RETRY_INTERVAL) => {}
            }
        }
    }

    fn options(&self, log: RecentLog) -> Result<DaemonOptions> {
        let labels: BTreeMap<String, String> = self.label.iter().cloned().collect();
        let registration = NodeRegistration { labels, root: self.root.clone() };
        Ok(DaemonOptions {
            name: self.node_name.clone().map_or_else(host_name, Ok)?,
            root: self.root.clone(),
            metrics: self.metrics_listen.map(|listen| MetricsOptions {
                listen,
                security: self.metrics_security.security(),
            }),
            registration: self.register.then_some(registration),
            log,
            drift_policy: self.drift,
            mode: self.mode,
            kubelet_healthz: self
                .kubelet_healthz_enabled
                .unwrap_or(!self.register)
                .then(|| self.kubelet_healthz_endpoint.clone()),
            renews_certificate: self
                .connection
                .is_kubeconfig(&JoinPaths::new(&self.root).kubeconfig()),
        })
    }
}

/// The name of this host in lower case, as a kubelet registers it.
pub(super) fn host_name() -> Result<String> {
    let name = rustix::system::uname().nodename().to_string_lossy().to_lowercase();
    ensure!(!name.is_empty(), "this host has no name: set --node-name");
    Ok(name)
}
