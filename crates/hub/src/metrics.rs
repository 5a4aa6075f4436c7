//! The hub in figures: who asks what and how fast it is answered, and how the store is.
//!
//! Labels are words of our own: whatever is asked, there are not more of them than verbs and codes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode_registry;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::store::Store;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct HubRequestLabels {
    verb: &'static str,
    code: u16,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct VerbLabels {
    verb: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

/// All figures of a hub. A clone counts into the same.
#[derive(Clone)]
pub struct HubMetrics {
    inner: Arc<MetricsInner>,
}

struct MetricsInner {
    registry: Registry,
    store: Store,
    requests: Family<HubRequestLabels, Counter>,
    request_duration: Family<VerbLabels, Histogram, fn() -> Histogram>,
    rejected: Family<ReasonLabels, Counter>,
    watches: Gauge,
    objects: Gauge,
    bytes: Gauge,
    file_bytes: Gauge,
    revision: Gauge,
    writable: Gauge,
}

impl fmt::Debug for HubMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Figures").finish_non_exhaustive()
    }
}

/// From a tenth of a millisecond, an answer out of memory, to ten seconds.
pub(crate) fn duration_histogram() -> Histogram {
    Histogram::new([0.0001, 0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0])
}

impl HubMetrics {
    /// The figures of a hub over a store.
    pub(crate) fn new(store: Store) -> Self {
        let mut registry = Registry::default();
        let (requests, refused) = (Family::default(), Family::default());
        registry.register("machinist_hub_requests", "Requests to the API", requests.clone());
        let seconds = Family::new_with_constructor(duration_histogram as fn() -> Histogram);
        let help = "How long it took to have an answer; for a watch, to begin it";
        registry.register("machinist_hub_request_seconds", help, seconds.clone());
        let help =
            "Requests of those who did not prove who they are, or may not do what they ask for";
        registry.register("machinist_hub_refused", help, refused.clone());
        let watches = Gauge::default();
        registry.register("machinist_hub_watches", "Watches that are open", watches.clone());
        let help = "How long a transaction took to be durable, waiting for its turn included";
        registry.register("machinist_hub_commit_seconds", help, store.commit_duration().clone());
        let (objects, bytes, file) = (Gauge::default(), Gauge::default(), Gauge::default());
        let (revision, writable) = (Gauge::default(), Gauge::default());
        registry.register("machinist_hub_store_objects", "Objects in the store", objects.clone());
        registry.register("machinist_hub_store_bytes", "Their size in memory", bytes.clone());
        let help = "The size of the data file, history and free pages included";
        registry.register("machinist_hub_store_file_bytes", help, file.clone());
        let help = "The revision of the newest transaction";
        registry.register("machinist_hub_store_revision", help, revision.clone());
        let help = "Whether the last write to the disk worked";
        registry.register("machinist_hub_store_writable", help, writable.clone());
        let inner = MetricsInner {
            registry,
            store,
            requests,
            request_duration: seconds,
            rejected: refused,
            watches,
            objects,
            bytes,
            file_bytes: file,
            revision,
            writable,
        };
        Self { inner: Arc::new(inner) }
    }

    /// A request was answered.
    pub(crate) fn observe_request(&self, verb: &'static str, code: u16, took: Duration) {
        self.inner.requests.get_or_create(&HubRequestLabels { verb, code }).inc();
        self.inner.request_duration.get_or_create(&VerbLabels { verb }).observe(took.as_secs_f64());
        let reason = match code {
            401 => "unauthenticated",
            403 => "forbidden",
            _ => return,
        };
        self.inner.rejected.get_or_create(&ReasonLabels { reason }).inc();
    }

    /// A watch begins; it is open until what is given back is dropped.
    pub(crate) fn watch_opened(&self) -> OpenWatch {
        self.inner.watches.inc();
        OpenWatch(self.inner.watches.clone())
    }

    /// Writes all figures to the end of a text, in the format of Prometheus, without the line that ends it.
    pub fn encode(&self, text: &mut String) {
        let inner = &self.inner;
        let usage = inner.store.usage();
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        inner.objects.set(number(usage.objects));
        inner.bytes.set(number(usage.bytes));
        inner.file_bytes.set(number(usage.file_bytes));
        inner.revision.set(number(inner.store.revision()));
        inner.writable.set(inner.store.is_writable().into());
        // Writing into a String does not fail.
        let _ = encode_registry(text, &inner.registry);
    }
}

/// A watch that is open.
pub(crate) struct OpenWatch(Gauge);

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Precondition, StoreOp, StoreOptions};

    #[tokio::test]
    async fn what_happens_is_counted() {
        let store = Store::in_memory(StoreOptions::default());
        let figures = HubMetrics::new(store.clone());
        let put = StoreOp::Put {
            key: "/a".into(),
            value: b"abc".to_vec().into(),
            expect: Precondition::Absent,
        };
        store.commit(vec![put]).await.unwrap();
        figures.observe_request("get", 200, Duration::from_millis(2));
        figures.observe_request("list", 403, Duration::ZERO);
        let open = figures.watch_opened();
        let text = || {
            let mut text = String::new();
            figures.encode(&mut text);
            text
        };
        for line in [
            "machinist_hub_requests_total{verb=\"get\",code=\"200\"} 1",
            "machinist_hub_refused_total{reason=\"forbidden\"} 1",
            "machinist_hub_request_seconds_bucket{le=\"0.005\",verb=\"get\"} 1",
            "machinist_hub_watches 1",
            "machinist_hub_commit_seconds_count 1",
            "machinist_hub_store_objects 1",
            "machinist_hub_store_bytes 5",
            "machinist_hub_store_file_bytes 0",
            "machinist_hub_store_revision 2",
            "machinist_hub_store_writable 1",
        ] {
            assert!(text().contains(&format!("{line}\n")), "{line}: {}", text());
        }
        drop(open);
        assert!(text().contains("machinist_hub_watches 0\n"));
    }
}
