//! The metrics of the daemon, under MCO's names.

use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::metrics::{self, MetricsSource};

/// The maximum length of a label with a reason.
const MAX_REASON_LENGTH: usize = 120;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StateLabels {
    state: String,
    reason: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct UpdateLabels {
    config: String,
    err: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct HostLabels {
    os: String,
    version: String,
}

/// All metrics. Clones share them.
#[derive(Clone)]
pub(super) struct DaemonMetrics {
    inner: Arc<DaemonMetricsInner>,
}

struct DaemonMetricsInner {
    registry: Registry,
    state: Family<StateLabels, Gauge>,
    updated: Family<UpdateLabels, Gauge>,
    host: Family<HostLabels, Gauge>,
    drift: Gauge,
    kubelet: Gauge,
    reboots_failed: Counter,
    pivot_errors: Gauge,
}

impl fmt::Debug for DaemonMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Default for DaemonMetrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let (state, updated, host) = (Family::default(), Family::default(), Family::default());
        let (drift, kubelet) = (Gauge::default(), Gauge::default());
        let reboots_failed = Counter::default();
        registry.register("mcd_state", "State of the machine, since when", state.clone());
        registry.register("mcd_update_state", "The last update, since when", updated.clone());
        registry.register("mcd_host_os_and_version", "The system of the machine", host.clone());
        registry.register("mcd_config_drift", "When drift was seen; 0 is none", drift.clone());
        let help = "How often in a row the kubelet did not answer";
        registry.register("mcd_kubelet_state", help, kubelet.clone());
        let help = "Restarts that could not be ordered";
        registry.register("mcd_reboots_failed", help, reboots_failed.clone());
        let pivot_errors = Gauge::default();
        let help = "Changes of the operating system that failed since the last that did not";
        registry.register("mcd_pivot_errors_total", help, pivot_errors.clone());
        let inner = DaemonMetricsInner {
            registry,
            state,
            updated,
            host,
            drift,
            kubelet,
            reboots_failed,
            pivot_errors,
        };
        Self { inner: Arc::new(inner) }
    }
}

fn unix_time() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

impl DaemonMetrics {
    /// The state of the machine, and the reason.
    pub(super) fn set_state(&self, state: &str, reason: &str) {
        let reason = reason.chars().take(MAX_REASON_LENGTH).collect();
        let label = StateLabels { state: state.to_owned(), reason };
        if self.inner.state.get(&label).is_some() {
            return;
        }
        self.inner.state.clear();
        self.inner.state.get_or_create(&label).set(unix_time());
    }

    /// The current config, or why it could not be applied.
    pub(super) fn set_updated(&self, config: &str, error: &str) {
        let label = UpdateLabels { config: config.to_owned(), err: error.to_owned() };
        if self.inner.updated.get(&label).is_some() {
            return;
        }
        self.inner.updated.clear();
        self.inner.updated.get_or_create(&label).set(unix_time());
    }

    /// Whether the disk has drifted.
    pub(super) fn set_drift(&self, is: bool) {
        self.inner.drift.set(if is { unix_time() } else { 0 });
    }

    /// How many probes of the kubelet failed in a row.
    pub(super) fn set_kubelet_failures(&self, failures: u32) {
        self.inner.kubelet.set(failures.into());
    }

    /// A reboot could not be ordered.
    pub(super) fn count_failed_reboot(&self) {
        self.inner.reboots_failed.inc();
    }

    /// Whether the last change of the operating system failed.
    pub(super) fn set_pivot_failed(&self, is: bool) {
        if is {
            self.inner.pivot_errors.inc();
        } else {
            self.inner.pivot_errors.set(0);
        }
    }

    /// The operating system of the machine.
    pub(super) fn set_host(&self, root: &Path) {
        let text = ["etc/os-release", "usr/lib/os-release"]
            .iter()
            .find_map(|path| fs::read_to_string(root.join(path)).ok())
            .unwrap_or_default();
        let field = |name: &str| {
            let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
            value.unwrap_or_default().trim_matches('"').to_owned()
        };
        let label = HostLabels { os: field("ID").to_uppercase(), version: field("VERSION_ID") };
        self.inner.host.get_or_create(&label).set(1);
    }

    /// All metrics.
    pub(super) fn source(&self) -> MetricsSource {
        let inner = Arc::clone(&self.inner);
        MetricsSource::new(move |text| metrics::append_registry(&inner.registry, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_have_mco_names() {
        let metrics = DaemonMetrics::default();
        metrics.set_state("Degraded", "why");
        metrics.set_state("Done", "");
        metrics.set_updated("rendered-a", "");
        metrics.set_drift(false);
        metrics.count_failed_reboot();
        let text = metrics::render(&[metrics.source()]);
        assert!(text.contains("mcd_state{state=\"Done\",reason=\"\"} "), "{text}");
        assert!(!text.contains("Degraded"), "{text}");
        assert!(text.contains("mcd_update_state{config=\"rendered-a\",err=\"\"} "), "{text}");
        assert!(text.contains("mcd_reboots_failed_total 1"), "{text}");
        assert!(text.contains("mcd_config_drift 0"), "{text}");
        metrics.set_kubelet_failures(3);
        assert!(metrics::render(&[metrics.source()]).contains("mcd_kubelet_state 3"));
    }
}
