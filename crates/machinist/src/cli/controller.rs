//! `machinist controller`: the controller, for an API server that runs elsewhere.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use clap::Args;
use machinist_core::api::names::object;
use machinist_core::user_data::secret;
use machinist_hub::failure_log::FailureLog;
use tokio::sync::watch;

use super::CommandOutcome;
use super::connection_args::ConnectionArgs;
use super::lease_args::LeaseArgs;
use super::log_args::LogArgs;
use super::metrics_args::MetricsSecurityArgs;
use super::signals::shutdown_signal;
use super::template_args::TemplateArgs;
use crate::controller::{self, ControllerOptions, EndpointFiles, UserData};
use crate::kubernetes::connect::server_address;
use crate::liveness::Liveness;
use crate::metrics::{MetricsOptions, ProcessHealth};
use crate::systemd_notify;

/// Run the controller: it renders pools, rolls configs out, drains machines and reports status
///
/// Several controllers may run against one API server; only the one that holds the lease acts.
/// `machinist up` includes a controller.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist controller --kubeconfig ~/.kube/config")]
pub(super) struct ControllerArgs {
    #[command(flatten)]
    connection: ConnectionArgs,

    /// The namespace of Machinist's own objects
    #[arg(long, value_name = "NAME", default_value = object::NAMESPACE)]
    namespace: String,

    /// The namespace of the lease [default: that of Machinist's own objects]
    #[arg(long, value_name = "NAME")]
    resourcelock_namespace: Option<String>,

    /// The identity of this controller in the lease [default: host name and process]
    #[arg(long, value_name = "NAME")]
    identity: Option<String>,

    #[command(flatten)]
    lease: LeaseArgs,

    #[command(flatten)]
    log: LogArgs,

    #[command(flatten)]
    templates: TemplateArgs,

    /// Give no machine a config, withdraw drains that have not ended, and uncordon. The operator sets this before it
    /// removes the controller
    #[arg(long)]
    release_machines: bool,

    /// Serve /metrics, /healthz and /readyz on this address
    #[arg(
        long,
        alias = "metrics-listen-address",
        value_name = "ADDR:PORT",
        default_value = "127.0.0.1:8797",
        help_heading = "Metrics"
    )]
    metrics_listen: SocketAddr,

    #[command(flatten)]
    metrics_security: MetricsSecurityArgs,

    /// The URL at which machines reach the machine config server, such as https://host:22623. For every
    /// pool, the controller then writes the Secret POOL-user-data-managed with the pointer config
    #[arg(long, value_name = "URL", help_heading = "User data")]
    server_url: Option<String>,

    /// The CA certificates of the machine config server; the file is read again when it changes
    #[arg(long, value_name = "FILE", requires = "server_url", help_heading = "User data")]
    server_ca_file: Option<PathBuf>,

    /// A file with the provisioning token for the pointer configs; it is read again when it changes
    #[arg(long, value_name = "FILE", requires = "server_url", help_heading = "User data")]
    server_token_file: Option<PathBuf>,

    /// The namespace of the user-data Secrets
    #[arg(long, value_name = "NAME", default_value = secret::NAMESPACE, help_heading = "User data")]
    user_data_namespace: String,
}

impl ControllerArgs {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        self.log.init();
        let mut options = self.options()?;
        let runtime = tokio::runtime::Runtime::new().context("cannot start the async runtime")?;
        runtime.block_on(async {
            options.user_data = self.user_data(options.failures.clone())?;
            let client = self.connection.long_running_client().await?;
            let stop = shutdown_signal()?;
            let mut health = options.health.subscribe();
            tokio::spawn(async move {
                // A controller that waits for the lease is ready, too: it takes over when it gets it.
                let is_ready = |health: &ProcessHealth| *health != ProcessHealth::Starting;
                if health.wait_for(is_ready).await.is_ok() {
                    systemd_notify::ready();
                }
            });
            let liveness = options.liveness.clone();
            systemd_notify::start_watchdog(move || std::future::ready(liveness.is_alive()));
            controller::run(client, options, stop).await?;
            Ok(CommandOutcome::Done)
        })
    }

    fn options(&self) -> Result<ControllerOptions> {
        let namespace = self.resourcelock_namespace.as_ref().unwrap_or(&self.namespace);
        let identity = self.identity.clone().unwrap_or_else(identity);
        Ok(ControllerOptions {
            namespace: self.namespace.clone(),
            templates: Arc::new(self.templates.read()?),
            election: self.lease.election(namespace.clone(), identity)?,
            releases_machines: self.release_machines,
            keeps_disruption_policy: false,
            metrics: Some(MetricsOptions {
                listen: self.metrics_listen,
                security: self.metrics_security.security(),
            }),
            extra_metrics: Vec::new(),
            user_data: None,
            failures: FailureLog::default().of_server(server_address()),
            liveness: Liveness::default(),
            health: watch::Sender::default(),
        })
    }

    fn user_data(&self, failures: FailureLog) -> Result<Option<UserData>> {
        let Some(url) = self.server_url.clone() else { return Ok(None) };
        let files = EndpointFiles {
            url,
            ca: self.server_ca_file.clone(),
            token: self.server_token_file.clone(),
        };
        let endpoint = files.watch(failures)?;
        Ok(Some(UserData { namespace: self.user_data_namespace.clone(), endpoint }))
    }
}

/// An identity that is unique, even after a restart on the same host.
pub(super) fn identity() -> String {
    let system = rustix::system::uname();
    let host = system.nodename().to_string_lossy().into_owned();
    let start = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let start = start.unwrap_or_default().as_millis();
    format!("{host}_{}_{start:x}", std::process::id())
}
