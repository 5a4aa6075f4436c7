//! The metrics of the controller, under MCO's names where it has one.

use std::fmt;
use std::sync::Arc;

use machinist_core::api::MachineConfigPoolStatus;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::metrics::{self, MetricsSource};

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PoolLabels {
    pool: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct NodeLabels {
    node: String,
}

type PoolGauge = Family<PoolLabels, Gauge>;
type NodeGauge = Family<NodeLabels, Gauge>;

/// All metrics. A clone shares them.
#[derive(Clone)]
pub(super) struct ControllerMetrics {
    inner: Arc<ControllerMetricsInner>,
}

struct ControllerMetricsInner {
    registry: Registry,
    machines: PoolGauge,
    updated: PoolGauge,
    degraded: PoolGauge,
    unavailable: PoolGauge,
    overridden: PoolGauge,
    drain_error: NodeGauge,
    pool_alert: NodeGauge,
    requests: Counter,
    leading: Gauge,
}

impl fmt::Debug for ControllerMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControllerMetrics").finish_non_exhaustive()
    }
}

impl Default for ControllerMetrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let mut of_pool = |name: &str, help: &str| {
            let family = PoolGauge::default();
            registry.register(name, help, family.clone());
            family
        };
        let machines = of_pool("mco_machine_count", "Machines of the pool");
        let updated = of_pool("mco_updated_machine_count", "Machines that are up to date");
        let degraded = of_pool("mco_degraded_machine_count", "Machines that could not be updated");
        let unavailable = of_pool("mco_unavailable_machine_count", "Machines that are away");
        let overridden =
            of_pool("os_image_url_override", "Whether a MachineConfig replaces the OS image");
        let mut of_node = |name: &str, help: &str| {
            let family = NodeGauge::default();
            registry.register(name, help, family.clone());
            family
        };
        let drain_error = of_node("mcc_drain_err", "Drains that have been failing for an hour");
        let pool_alert =
            of_node("mcc_pool_alert", "Machines that a custom pool wants and master has");
        let requests = Counter::default();
        registry.register("machinist_api_requests", "Requests to the API", requests.clone());
        let leading = Gauge::default();
        registry.register("machinist_leading", "Whether this controller leads", leading.clone());
        let inner = ControllerMetricsInner {
            registry,
            machines,
            updated,
            degraded,
            unavailable,
            overridden,
            drain_error,
            pool_alert,
            requests,
            leading,
        };
        Self { inner: Arc::new(inner) }
    }
}

impl ControllerMetrics {
    /// Counts a request to the API server.
    pub(super) fn count_request(&self) {
        self.inner.requests.inc();
    }

    /// Sets whether this controller leads.
    pub(super) fn set_leading(&self, is: bool) {
        self.inner.leading.set(i64::from(is));
    }

    /// Sets the machine counts of a pool.
    pub(super) fn set_pool(&self, pool: &str, status: &MachineConfigPoolStatus) {
        let label = PoolLabels { pool: pool.to_owned() };
        let set = |family: &PoolGauge, count: Option<i32>| {
            family.get_or_create(&label).set(i64::from(count.unwrap_or_default()));
        };
        set(&self.inner.machines, status.machine_count);
        set(&self.inner.updated, status.updated_machine_count);
        set(&self.inner.degraded, status.degraded_machine_count);
        set(&self.inner.unavailable, status.unavailable_machine_count);
    }

    /// Sets whether an administrator chose a pool's OS image.
    pub(super) fn set_os_image_overridden(&self, pool: &str, is: bool) {
        let label = PoolLabels { pool: pool.to_owned() };
        self.inner.overridden.get_or_create(&label).set(i64::from(is));
    }

    /// Sets whether the drain of a machine has been failing for long; none removes the metric.
    pub(super) fn set_drain_error(&self, node: &str, value: Option<i64>) {
        let label = NodeLabels { node: node.to_owned() };
        match value {
            Some(value) => {
                self.inner.drain_error.get_or_create(&label).set(value);
            }
            None => {
                self.inner.drain_error.remove(&label);
            }
        }
    }

    /// Sets the machines that a custom pool selects and `master` has.
    pub(super) fn set_pool_alerts(&self, nodes: &[&str]) {
        self.inner.pool_alert.clear();
        for node in nodes {
            let label = NodeLabels { node: (*node).to_owned() };
            self.inner.pool_alert.get_or_create(&label).set(1);
        }
    }

    /// The source for the endpoint.
    pub(super) fn source(&self) -> MetricsSource {
        let inner = Arc::clone(&self.inner);
        MetricsSource::new(move |text| metrics::append_registry(&inner.registry, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_have_the_names_of_mco() {
        let metrics = ControllerMetrics::default();
        let status = MachineConfigPoolStatus {
            machine_count: Some(3),
            ..MachineConfigPoolStatus::default()
        };
        metrics.set_pool("worker", &status);
        metrics.set_drain_error("n1", Some(1));
        let text = || metrics::render(&[metrics.source()]);
        let found = text();
        assert!(found.contains("mco_machine_count{pool=\"worker\"} 3\n"), "{found}");
        assert!(found.contains("mcc_drain_err{node=\"n1\"} 1\n"), "{found}");
        metrics.set_drain_error("n1", None);
        assert!(!text().contains("n1"));
    }
}
