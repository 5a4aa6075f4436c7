//! The controller in figures, under the names of the real system where it has one.

use std::fmt;
use std::sync::Arc;

use machinist_core::api::MachineConfigPoolStatus;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::figures::{self, Source};

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Pool {
    pool: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Node {
    node: String,
}

type OfPool = Family<Pool, Gauge>;
type OfNode = Family<Node, Gauge>;

/// All figures. A clone counts into the same.
#[derive(Clone)]
pub(super) struct Metrics {
    inner: Arc<Inner>,
}

struct Inner {
    registry: Registry,
    machines: OfPool,
    updated: OfPool,
    degraded: OfPool,
    unavailable: OfPool,
    overridden: OfPool,
    drain_error: OfNode,
    pool_alert: OfNode,
    requests: Counter,
    leading: Gauge,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let mut of_pool = |name: &str, help: &str| {
            let family = OfPool::default();
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
            let family = OfNode::default();
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
        let inner = Inner {
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

impl Metrics {
    /// A request to the API.
    pub(super) fn count_request(&self) {
        self.inner.requests.inc();
    }

    /// Whether this controller leads.
    pub(super) fn leading(&self, is: bool) {
        self.inner.leading.set(i64::from(is));
    }

    /// What a pool says about itself.
    pub(super) fn pool(&self, pool: &str, status: &MachineConfigPoolStatus) {
        let label = Pool { pool: pool.to_owned() };
        let set = |family: &OfPool, count: Option<i32>| {
            family.get_or_create(&label).set(i64::from(count.unwrap_or_default()));
        };
        set(&self.inner.machines, status.machine_count);
        set(&self.inner.updated, status.updated_machine_count);
        set(&self.inner.degraded, status.degraded_machine_count);
        set(&self.inner.unavailable, status.unavailable_machine_count);
    }

    /// Whether an administrator chose a pool's OS image.
    pub(super) fn os_image_overridden(&self, pool: &str, is: bool) {
        let label = Pool { pool: pool.to_owned() };
        self.inner.overridden.get_or_create(&label).set(i64::from(is));
    }

    /// Whether the drain of a machine has been failing for long; none when it is over.
    pub(super) fn drain_error(&self, node: &str, value: Option<i64>) {
        let label = Node { node: node.to_owned() };
        match value {
            Some(value) => {
                self.inner.drain_error.get_or_create(&label).set(value);
            }
            None => {
                self.inner.drain_error.remove(&label);
            }
        }
    }

    /// The machines that a custom pool wants and `master` has.
    pub(super) fn kept_by_master(&self, nodes: &[&str]) {
        self.inner.pool_alert.clear();
        for node in nodes {
            let label = Node { node: (*node).to_owned() };
            self.inner.pool_alert.get_or_create(&label).set(1);
        }
    }

    /// All figures.
    pub(super) fn source(&self) -> Source {
        let inner = Arc::clone(&self.inner);
        Source::new(move |text| figures::write(&inner.registry, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_the_real_names() {
        let metrics = Metrics::default();
        let status = MachineConfigPoolStatus {
            machine_count: Some(3),
            ..MachineConfigPoolStatus::default()
        };
        metrics.pool("worker", &status);
        metrics.drain_error("n1", Some(1));
        let text = || figures::text(&[metrics.source()]);
        let found = text();
        assert!(found.contains("mco_machine_count{pool=\"worker\"} 3\n"), "{found}");
        assert!(found.contains("mcc_drain_err{node=\"n1\"} 1\n"), "{found}");
        metrics.drain_error("n1", None);
        assert!(!text().contains("n1"));
    }
}
