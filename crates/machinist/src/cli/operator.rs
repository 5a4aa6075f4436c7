//! `machinist operator`: deploys the other parts into a Kubernetes, and keeps them so.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use machinist_core::api::names::object;

use super::Outcome;
use super::controller::identity;
use super::home_args::HomeArgs;
use super::live::duration;
use super::signals::told_to_stop;
use crate::controller::leader::Election;
use crate::operator::{self, Options};
use crate::telemetry;

/// Run the operator: deploy controller, server and daemons into a Kubernetes, and keep them so
///
/// `kubectl apply -k deploy/` runs it. It writes the ControllerConfig, keeps the server's certificates,
/// brings a new release to the parts one after the other, and says on MachineConfiguration cluster how
/// they are.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  machinist operator --kubeconfig ~/.kube/config --image localhost/machinist:0.1.0"
)]
pub(super) struct Operator {
    #[command(flatten)]
    home: HomeArgs,

    /// The namespace of the system
    #[arg(long, value_name = "NAME", env = "POD_NAMESPACE", default_value = object::NAMESPACE)]
    namespace: String,

    /// The image that the parts run [default: that of the pod in $POD_NAME]
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,

    /// The pod that this process runs in
    #[arg(long, value_name = "NAME", env = "POD_NAME", hide = true)]
    pod_name: Option<String>,

    /// The release that is deployed
    #[arg(long, value_name = "VERSION", env = "RELEASE_VERSION", default_value = env!("CARGO_PKG_VERSION"))]
    release_version: String,

    /// How long the lease is valid without being renewed
    #[arg(long, value_name = "TIME", default_value = "137s", value_parser = duration::parse)]
    lease_duration: Duration,

    /// How long to go on leading without having renewed it
    #[arg(long, value_name = "TIME", default_value = "107s", value_parser = duration::parse)]
    lease_renew_deadline: Duration,

    /// How often to try to take or renew it
    #[arg(long, value_name = "TIME", default_value = "26s", value_parser = duration::parse)]
    lease_retry_period: Duration,
}

impl Operator {
    pub(super) fn run(&self) -> Result<Outcome> {
        telemetry::start_log();
        ensure!(
            self.lease_retry_period < self.lease_renew_deadline
                && self.lease_renew_deadline < self.lease_duration,
            "--lease-retry-period has to be shorter than --lease-renew-deadline, and that shorter than --lease-duration"
        );
        let options = Options {
            namespace: self.namespace.clone(),
            image: self.image.clone(),
            pod: self.pod_name.clone(),
            release: self.release_version.clone(),
            election: Election {
                namespace: self.namespace.clone(),
                identity: identity(),
                duration: self.lease_duration,
                renew_deadline: self.lease_renew_deadline,
                retry: self.lease_retry_period,
            },
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the runtime")?;
        runtime.block_on(async {
            let client = self.home.patient_client().await?;
            let stop = told_to_stop()?;
            operator::run(client, options, stop).await?;
            Ok(Outcome::Done)
        })
    }
}
