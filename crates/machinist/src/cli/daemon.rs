//! `machinist daemon`: what runs on a machine.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use clap::{Args, Subcommand};
use machinist_core::drift::DriftPolicy;
use tokio_util::sync::CancellationToken;

use super::CommandOutcome;
use super::connection_args::ConnectionArgs;
use super::daemon_status::{DaemonPlanArgs, DaemonStatusArgs};
use super::firstboot::FirstBootArgs;
use super::log_args::LogArgs;
use super::signals::shutdown_signal;
use crate::daemon::agent::{self, DaemonOptions, ExitReason, NodeRegistration};
use crate::daemon::join::paths::JoinPaths;
use crate::systemd_notify;

/// Run the daemon of this machine, and ask what it is doing
///
/// It takes the config that its Node asks for, works out the smallest change, applies it so that a
/// power cut at any instant does no harm, restarts or reloads what has to be, and reports.
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
}

impl DaemonArgs {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        match &self.command {
            None => self.start.run(),
            Some(DaemonCommand::Start(start)) => start.run(),
            Some(DaemonCommand::Status(status)) => status.run(),
            Some(DaemonCommand::Plan(plan)) => plan.run(),
        }
    }
}

/// Run the daemon; `machinist daemon` alone does the same
///
/// As a service of a host it works on /. In a pod it works on the host's root, which has to be
/// mounted: --root-mount /rootfs. Without a kubelet, --register keeps the Node of the machine.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  machinist daemon start --kubeconfig /var/lib/machinist/kubeconfig --node-name worker-1 --register"
)]
pub(super) struct DaemonStartArgs {
    #[command(flatten)]
    connection: ConnectionArgs,

    /// The name of the machine's Node [default: $NODE_NAME, else the name of the host]
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    node_name: Option<String>,

    /// The root of the machine
    #[arg(long, value_name = "DIR", default_value = "/", alias = "root-mount")]
    root: PathBuf,

    /// Where /metrics and /healthz are served, such as 127.0.0.1:8797 [default: nowhere]
    #[arg(long, value_name = "ADDR:PORT", aliases = ["listen", "metrics-url"])]
    metrics_listen: Option<SocketAddr>,

    #[command(flatten)]
    log: LogArgs,

    /// Keep the machine's Node: there is no kubelet that does
    #[arg(long)]
    register: bool,

    /// What happens when somebody changes by hand what the config manages: report or heal
    #[arg(long, value_name = "POLICY", default_value = "report")]
    drift: DriftPolicy,

    /// Whether the kubelet is asked every half minute if it is well [default: yes, unless --register]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    kubelet_healthz_enabled: Option<bool>,

    /// Where the kubelet says that it is well
    #[arg(long, value_name = "URL", default_value = "http://localhost:10248/healthz")]
    kubelet_healthz_endpoint: http::Uri,

    /// Bring the machine to the MachineConfig or Ignition config in this file, restart it, and end, without
    /// an API: the same as machinist firstboot --write -f FILE
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kubeconfig", "register"])]
    once_from: Option<PathBuf>,

    /// With --once-from: do not restart the machine
    #[arg(long, requires = "once_from")]
    skip_reboot: bool,

    /// A label of a Node that is made (repeatable)
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_label, requires = "register")]
    label: Vec<(String, String)>,
}

pub(super) fn parse_label(text: &str) -> Result<(String, String), String> {
    let (key, value) =
        text.split_once('=').ok_or("a label is KEY=VALUE; the value may be empty")?;
    Ok((key.to_owned(), value.to_owned()))
}

impl DaemonStartArgs {
    fn run(&self) -> Result<CommandOutcome> {
        if let Some(file) = &self.once_from {
            ensure!(
                !file.to_string_lossy().contains("://"),
                "--once-from {}: it is not fetched from elsewhere: fetch it, and name the file",
                file.display()
            );
            let (file, root) = (file.clone(), self.root.clone());
            return FirstBootArgs::once_from(file, root, self.skip_reboot).run();
        }
        self.log.init();
        // One thread: a daemon that does nothing must cost nothing.
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the runtime")?;
        let ended = runtime.block_on(async {
            let stop = CancellationToken::new();
            let (told, waiting) = (shutdown_signal()?, stop.clone());
            tokio::spawn(async move {
                told.await;
                waiting.cancel();
            });
            // On the only thread of the runtime: a step that blocks it for the whole timeout is stuck.
            systemd_notify::start_watchdog(|| std::future::ready(true));
            loop {
                let client = self.connection.long_running_client().await?;
                match agent::run(client, self.options()?, stop.clone()).await? {
                    ExitReason::Stopped => return Ok(CommandOutcome::Done),
                    ExitReason::CertificateRenewed => {}
                }
            }
        });
        // A download that nobody waits for any more must not keep the process.
        runtime.shutdown_background();
        ended
    }

    fn options(&self) -> Result<DaemonOptions> {
        let labels: BTreeMap<String, String> = self.label.iter().cloned().collect();
        let registration = NodeRegistration { labels, root: self.root.clone() };
        Ok(DaemonOptions {
            name: self.node_name.clone().map_or_else(host_name, Ok)?,
            root: self.root.clone(),
            metrics_listen: self.metrics_listen,
            registration: self.register.then_some(registration),
            drift_policy: self.drift,
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

/// The name of this host, as a kubelet would take it.
pub(super) fn host_name() -> Result<String> {
    let name = rustix::system::uname().nodename().to_string_lossy().to_lowercase();
    ensure!(!name.is_empty(), "this host has no name: give --node-name");
    Ok(name)
}
