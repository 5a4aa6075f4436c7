//! `machinist operator`: deploys the other components into a Kubernetes cluster and maintains them.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use clap::Args;
use machinist_core::api::names::object;

use super::CommandOutcome;
use super::connection_args::ConnectionArgs;
use super::controller::identity;
use super::lease_args::LeaseArgs;
use super::log_args::LogArgs;
use super::metrics_args::MetricsSecurityArgs;
use super::signals::shutdown_signal;
use crate::metrics::MetricsOptions;
use crate::operator::{self, OperatorOptions};

/// Run the operator: it deploys controller, server and daemons into a Kubernetes cluster and maintains them
///
/// `kubectl apply -k deploy/` starts it. It writes the ControllerConfig, renews the server's
/// certificates, upgrades one component after the other to a new release, and reports their status on
/// the MachineConfiguration `cluster`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  machinist operator --kubeconfig ~/.kube/config --image localhost/machinist:0.1.0"
)]
pub(super) struct OperatorArgs {
    #[command(flatten)]
    connection: ConnectionArgs,

    /// The namespace of all components
    #[arg(long, value_name = "NAME", env = "POD_NAMESPACE", default_value = object::NAMESPACE)]
    namespace: String,

    /// The image that the components run [default: the image of the pod in $POD_NAME]
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,

    /// The pod that this process runs in
    #[arg(long, value_name = "NAME", env = "POD_NAME", hide = true)]
    pod_name: Option<String>,

    /// The release that is deployed, for status and metrics
    #[arg(long, value_name = "VERSION", env = "RELEASE_VERSION", default_value = env!("CARGO_PKG_VERSION"))]
    release_version: String,

    #[command(flatten)]
    lease: LeaseArgs,

    #[command(flatten)]
    log: LogArgs,

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
}

impl OperatorArgs {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        self.log.init();
        let options = OperatorOptions {
            namespace: self.namespace.clone(),
            image: self.image.clone(),
            pod: self.pod_name.clone(),
            release: self.release_version.clone(),
            election: self.lease.election(self.namespace.clone(), identity())?,
            metrics: Some(MetricsOptions {
                listen: self.metrics_listen,
                security: self.metrics_security.security(),
            }),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the async runtime")?;
        runtime.block_on(async {
            let client = self.connection.long_running_client().await?;
            let stop = shutdown_signal()?;
            operator::run(client, options, stop).await?;
            Ok(CommandOutcome::Done)
        })
    }
}
