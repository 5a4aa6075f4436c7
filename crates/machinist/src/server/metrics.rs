//! Prometheus metrics of the machine config server.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::metrics::{self, MetricsSource};

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ServerRequestLabels {
    pool: String,
    version: String,
    status: u16,
}

/// All metrics. A clone shares them.
#[derive(Clone)]
pub struct ServerMetrics {
    inner: Arc<ServerMetricsInner>,
}

struct ServerMetricsInner {
    registry: Registry,
    requests: Family<ServerRequestLabels, Counter>,
    bytes: Family<ServerRequestLabels, Counter>,
    seconds: Family<ServerRequestLabels, Histogram, fn() -> Histogram>,
    last_change: Gauge,
}

impl fmt::Debug for ServerMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerMetrics").finish_non_exhaustive()
    }
}

impl Default for ServerMetrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let requests = Family::default();
        registry.register("machinist_server_requests", "Responses sent", requests.clone());
        let bytes = Family::default();
        registry.register("machinist_server_sent_bytes", "Bytes of those responses", bytes.clone());
        let histogram: fn() -> Histogram = || Histogram::new([0.0001, 0.001, 0.01, 0.1, 1.0, 10.0]);
        let seconds = Family::new_with_constructor(histogram);
        let help = "How long it took to prepare a response";
        registry.register("machinist_server_duration_seconds", help, seconds.clone());
        let changed = Gauge::default();
        let help = "When an input of the responses last changed, in seconds since 1970";
        registry.register("machinist_server_changed_seconds", help, changed.clone());
        Self {
            inner: Arc::new(ServerMetricsInner {
                registry,
                requests,
                bytes,
                seconds,
                last_change: changed,
            }),
        }
    }
}

impl ServerMetrics {
    /// Records a response. `pool` is an existing pool or empty: names from clients must not create label values.
    pub(super) fn record_response(
        &self,
        pool: &str,
        version: &str,
        status: u16,
        size: usize,
        took: Duration,
    ) {
        let label =
            ServerRequestLabels { pool: pool.to_owned(), version: version.to_owned(), status };
        self.inner.requests.get_or_create(&label).inc();
        let size = u64::try_from(size).unwrap_or(u64::MAX);
        self.inner.bytes.get_or_create(&label).inc_by(size);
        self.inner.seconds.get_or_create(&label).observe(took.as_secs_f64());
    }

    /// Records that an input of the responses has changed.
    pub(super) fn record_change(&self) {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let now = now.map_or(0, |time| time.as_secs());
        self.inner.last_change.set(i64::try_from(now).unwrap_or(i64::MAX));
    }

    /// A source for the metrics endpoint.
    #[must_use]
    pub fn source(&self) -> MetricsSource {
        let inner = Arc::clone(&self.inner);
        MetricsSource::new(move |text| metrics::append_registry(&inner.registry, text))
    }
}
