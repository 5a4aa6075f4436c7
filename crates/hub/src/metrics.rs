//! Prometheus metrics of the hub: requests, watches and the store.
//!
//! Label values come from fixed sets (verbs and status codes), never from requests, so that clients
//! cannot create series. Updated by the router; machinist serves the text.

use std::collections::HashSet;
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

use crate::store::{Store, duration_histogram};
use crate::unreadable_entries::UnreadableEntries;

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

/// All metrics of a hub. A clone updates the same metrics.
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
    unreadable: Gauge,
    unreadable_entries: Arc<UnreadableEntries>,
}

impl fmt::Debug for HubMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HubMetrics").finish_non_exhaustive()
    }
}

impl HubMetrics {
    /// Creates the metrics of a hub on a store.
    pub(crate) fn new(store: Store, unreadable_entries: Arc<UnreadableEntries>) -> Self {
        let mut registry = Registry::default();
        let (requests, refused) = (Family::default(), Family::default());
        registry.register("machinist_hub_requests", "Requests to the API", requests.clone());
        let seconds = Family::new_with_constructor(duration_histogram as fn() -> Histogram);
        let help = "Time until the response started";
        registry.register("machinist_hub_request_seconds", help, seconds.clone());
        let help = "Requests that failed authentication, authorization or a quota";
        registry.register("machinist_hub_refused", help, refused.clone());
        let watches = Gauge::default();
        registry.register("machinist_hub_watches", "Open watches", watches.clone());
        let help = "Time until a transaction was durable, including its wait in the queue";
        registry.register("machinist_hub_commit_seconds", help, store.commit_duration().clone());
        let (objects, bytes, file) = (Gauge::default(), Gauge::default(), Gauge::default());
        let (revision, writable) = (Gauge::default(), Gauge::default());
        registry.register("machinist_hub_store_objects", "Objects in the store", objects.clone());
        registry.register(
            "machinist_hub_store_bytes",
            "Size of the stored objects in memory",
            bytes.clone(),
        );
        let help = "Size of the data file, including history and free pages";
        registry.register("machinist_hub_store_file_bytes", help, file.clone());
        let help = "Revision of the newest transaction";
        registry.register("machinist_hub_store_revision", help, revision.clone());
        let help = "Whether the last write to the disk succeeded";
        registry.register("machinist_hub_store_writable", help, writable.clone());
        let unreadable = Gauge::default();
        let help = "Stored objects that cannot be decoded";
        registry.register("machinist_hub_store_unreadable_objects", help, unreadable.clone());
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
            unreadable,
            unreadable_entries,
        };
        Self { inner: Arc::new(inner) }
    }

    /// Records a completed request.
    pub(crate) fn observe_request(&self, verb: &'static str, code: u16, took: Duration) {
        self.inner.requests.get_or_create(&HubRequestLabels { verb, code }).inc();
        self.inner.request_duration.get_or_create(&VerbLabels { verb }).observe(took.as_secs_f64());
        let reason = match code {
            401 => "unauthenticated",
            403 => "forbidden",
            429 => "throttled",
            _ => return,
        };
        self.inner.rejected.get_or_create(&ReasonLabels { reason }).inc();
    }

    /// Counts a watch as open until the returned guard is dropped.
    pub(crate) fn watch_opened(&self) -> OpenWatch {
        self.inner.watches.inc();
        OpenWatch(self.inner.watches.clone())
    }

    /// Appends all metrics in the Prometheus text format, without the final `# EOF`.
    pub fn encode(&self, text: &mut String) {
        let inner = &self.inner;
        let usage = inner.store.usage();
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        inner.objects.set(number(usage.objects));
        inner.bytes.set(number(usage.bytes));
        inner.file_bytes.set(number(usage.file_bytes));
        inner.revision.set(number(inner.store.revision()));
        inner.writable.set(inner.store.is_writable().into());
        let unreadable = inner.unreadable_entries.keys(&inner.store, "").len();
        inner.unreadable.set(number(unreadable as u64));
        // Writing to a String cannot fail.
        let _ = encode_registry(text, &inner.registry);
    }
}

/// The Prometheus text format of metrics in the OpenMetrics format: there a counter is declared without the `_total` of
/// its samples, and the Prometheus format takes those for another metric.
#[must_use]
pub fn to_prometheus_text(metrics: &str) -> String {
    let declared = |line: &str| line.strip_prefix("# TYPE ").map(ToOwned::to_owned);
    let counters: HashSet<String> = metrics
        .lines()
        .filter_map(declared)
        .filter_map(|line| line.strip_suffix(" counter").map(ToOwned::to_owned))
        .collect();
    let mut out = String::with_capacity(metrics.len() + counters.len() * 16);
    for line in metrics.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some(word @ ("HELP" | "TYPE")), Some(name), rest)
                if counters.contains(name) =>
            {
                out.push_str(&format!("# {word} {name}_total {}", rest.unwrap_or_default()));
            }
            _ => out.push_str(line),
        }
        out.push('\n');
    }
    out
}

/// Counts an open watch until it is dropped.
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

    #[test]
    fn counters_are_declared_under_the_name_of_their_samples() {
        let text = "# HELP a All of it.\n# TYPE a counter\na_total 1\n# HELP b B.\n# TYPE b gauge\nb 2\n# EOF\n";
        let expected = "# HELP a_total All of it.\n# TYPE a_total counter\na_total 1\n# HELP b B.\n# TYPE b gauge\nb 2\n# EOF\n";
        assert_eq!(to_prometheus_text(text), expected);
        assert_eq!(to_prometheus_text(""), "");
    }

    #[tokio::test]
    async fn requests_and_watches_are_counted() {
        let store = Store::in_memory(StoreOptions::default());
        let metrics = HubMetrics::new(store.clone(), Arc::default());
        let put = StoreOp::Put {
            key: "/a".into(),
            value: b"abc".to_vec().into(),
            expect: Precondition::Absent,
        };
        store.commit(vec![put]).await.unwrap();
        metrics.observe_request("get", 200, Duration::from_millis(2));
        metrics.observe_request("list", 403, Duration::ZERO);
        let open = metrics.watch_opened();
        let text = || {
            let mut text = String::new();
            metrics.encode(&mut text);
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
            "machinist_hub_store_unreadable_objects 0",
        ] {
            assert!(text().contains(&format!("{line}\n")), "{line}: {}", text());
        }
        drop(open);
        assert!(text().contains("machinist_hub_watches 0\n"));
    }
}
