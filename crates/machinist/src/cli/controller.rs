//! `machinist controller`: the controller against a home that runs elsewhere.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use machinist_core::api::names::object;
use tokio::signal::unix::{SignalKind, signal};

use super::Outcome;
use super::home_args::HomeArgs;
use super::live::duration;
use crate::controller::leader::Election;
use crate::controller::{self, Options};
use crate::telemetry;

/// Run the controller: render pools, roll configs out, drain machines, report
///
/// Two or three may run against the same home; the one that holds the lease acts. `machinist up` has
/// one inside.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist controller --kubeconfig ~/.kube/config")]
pub(super) struct Controller {
    #[command(flatten)]
    home: HomeArgs,

    /// The namespace of the system's own objects
    #[arg(long, value_name = "NAME", default_value = object::NAMESPACE)]
    namespace: String,

    /// The namespace of the lease [default: that of the system's own objects]
    #[arg(long, value_name = "NAME")]
    resourcelock_namespace: Option<String>,

    /// The name of this controller in the lease [default: host name and process]
    #[arg(long, value_name = "NAME")]
    identity: Option<String>,

    /// How long the lease is valid without being renewed
    #[arg(long, value_name = "TIME", default_value = "137s", value_parser = duration::parse)]
    lease_duration: Duration,

    /// How long to go on leading without having renewed it
    #[arg(long, value_name = "TIME", default_value = "107s", value_parser = duration::parse)]
    lease_renew_deadline: Duration,

    /// How often to try to take or renew it
    #[arg(long, value_name = "TIME", default_value = "26s", value_parser = duration::parse)]
    lease_retry_period: Duration,

    /// Where /metrics, /healthz and /readyz are served
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8797")]
    metrics_listen_address: SocketAddr,
}

impl Controller {
    pub(super) fn run(&self) -> Result<Outcome> {
        telemetry::start_log();
        let options = self.options()?;
        let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
        runtime.block_on(async {
            let client = self.home.patient_client().await?;
            let mut terminate = signal(SignalKind::terminate())?;
            let mut interrupt = signal(SignalKind::interrupt())?;
            let stop = async {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
            };
            controller::run(client, options, stop).await?;
            Ok(Outcome::Done)
        })
    }

    fn options(&self) -> Result<Options> {
        ensure!(
            self.lease_renew_deadline < self.lease_duration,
            "--lease-renew-deadline has to be shorter than --lease-duration: a controller must stop before another begins"
        );
        ensure!(
            self.lease_retry_period < self.lease_renew_deadline,
            "--lease-retry-period has to be shorter than --lease-renew-deadline"
        );
        let namespace = self.resourcelock_namespace.as_ref().unwrap_or(&self.namespace);
        let identity = self.identity.clone().unwrap_or_else(identity);
        Ok(Options {
            namespace: self.namespace.clone(),
            election: Election {
                namespace: namespace.clone(),
                identity,
                duration: self.lease_duration,
                renew_deadline: self.lease_renew_deadline,
                retry: self.lease_retry_period,
            },
            metrics_listen: Some(self.metrics_listen_address),
        })
    }
}

/// A name that no other controller has, also not one that runs on this machine after a restart.
fn identity() -> String {
    let system = rustix::system::uname();
    let host = system.nodename().to_string_lossy().into_owned();
    let start = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let start = start.unwrap_or_default().as_millis();
    format!("{host}_{}_{start:x}", std::process::id())
}
