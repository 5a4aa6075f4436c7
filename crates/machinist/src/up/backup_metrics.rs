//! The metrics of the daily backup. They exist only if it is switched on.

use std::sync::Arc;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::metrics::{MetricsSource, append_registry};

/// The metrics; a clone shares them.
#[derive(Debug, Clone, Default)]
pub(super) struct BackupMetrics {
    last_success: Gauge,
    failures: Counter,
}

impl BackupMetrics {
    pub(super) fn succeeded(&self, time: i64) {
        self.last_success.set(time);
    }

    pub(super) fn failed(&self) {
        self.failures.inc();
    }

    pub(super) fn source(&self) -> MetricsSource {
        let mut registry = Registry::default();
        let help = "Time of the newest verified backup, in seconds since 1970";
        let success = self.last_success.clone();
        registry.register("machinist_hub_backup_last_success_timestamp_seconds", help, success);
        let help = "Daily backups that failed";
        registry.register("machinist_hub_backup_failures", help, self.failures.clone());
        let registry = Arc::new(registry);
        MetricsSource::new(move |text| append_registry(&registry, text))
    }
}

#[cfg(test)]
impl BackupMetrics {
    pub(super) fn last_success(&self) -> i64 {
        self.last_success.get()
    }

    pub(super) fn failures(&self) -> u64 {
        self.failures.get()
    }
}
