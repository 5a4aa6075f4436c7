//! The flags of leader election, for controller and operator.

use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;
use machinist_core::duration::parse_duration;

use crate::kubernetes::lease::ElectionConfig;

/// The lease. The defaults are those of MCO.
#[derive(Debug, Args)]
pub(super) struct LeaseArgs {
    /// After this long without a renewal, another process may take the lease
    #[arg(long, value_name = "DURATION", default_value = "137s", value_parser = parse_duration)]
    lease_duration: Duration,

    /// After this long without a renewal, this process stops leading
    #[arg(long, value_name = "DURATION", default_value = "107s", value_parser = parse_duration)]
    lease_renew_deadline: Duration,

    /// How often to try to acquire or renew the lease
    #[arg(long, value_name = "DURATION", default_value = "26s", value_parser = parse_duration)]
    lease_retry_period: Duration,
}

impl LeaseArgs {
    /// Settings of the election in a namespace, under an identity.
    pub(super) fn election(&self, namespace: String, identity: String) -> Result<ElectionConfig> {
        ensure!(
            self.lease_renew_deadline < self.lease_duration,
            "--lease-renew-deadline must be shorter than --lease-duration: one leader must stop before another starts"
        );
        ensure!(
            self.lease_retry_period < self.lease_renew_deadline,
            "--lease-retry-period must be shorter than --lease-renew-deadline"
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
