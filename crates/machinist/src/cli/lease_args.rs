//! How a process comes to lead, and how long it may without being heard of.

use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;
use machinist_core::duration::parse_duration;

use crate::kubernetes::lease::ElectionConfig;

/// The lease; the times are those of the original.
#[derive(Debug, Args)]
pub(super) struct LeaseArgs {
    /// How long the lease is valid without being renewed
    #[arg(long, value_name = "DURATION", default_value = "137s", value_parser = parse_duration)]
    lease_duration: Duration,

    /// How long to go on leading without having renewed it
    #[arg(long, value_name = "DURATION", default_value = "107s", value_parser = parse_duration)]
    lease_renew_deadline: Duration,

    /// How often to try to take or renew it
    #[arg(long, value_name = "DURATION", default_value = "26s", value_parser = parse_duration)]
    lease_retry_period: Duration,
}

impl LeaseArgs {
    /// The election in a namespace, under a name.
    pub(super) fn election(&self, namespace: String, identity: String) -> Result<ElectionConfig> {
        ensure!(
            self.lease_renew_deadline < self.lease_duration,
            "--lease-renew-deadline has to be shorter than --lease-duration: one must stop before another begins"
        );
        ensure!(
            self.lease_retry_period < self.lease_renew_deadline,
            "--lease-retry-period has to be shorter than --lease-renew-deadline"
        );
        Ok(ElectionConfig {
            namespace,
            identity,
            duration: self.lease_duration,
            renew_deadline: self.lease_renew_deadline,
            retry_period: self.lease_retry_period,
        })
    }
}
