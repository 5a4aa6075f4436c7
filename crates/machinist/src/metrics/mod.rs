//! Metrics and health of a process, served at `/metrics`, `/healthz` and `/readyz`.
//!
//! A process has one endpoint and one or more sources of metrics: `machinist up` serves those of the hub, the controller and
//! the machine config server together.
//!
//! | module | does |
//! |---|---|
//! | `security` | what the flags ask for, and the certificate |
//! | `endpoint` | starts the endpoint of a process |
//! | `serve` | the port: TLS and limits |
//! | `handler` | one request |
//! | `token_reviewer` | asks the API server who may read metrics |

mod endpoint;
mod handler;
mod security;
mod serve;
mod token_reviewer;

use std::fmt;
use std::sync::Arc;

use machinist_hub::metrics::to_prometheus_text;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::registry::Registry;

pub(crate) use endpoint::{MetricsEndpoint, ProcessHealth, Readiness};
pub use security::{MetricsCertificate, MetricsOptions, MetricsSecurity};

/// Something that has metrics. A clone shares them.
#[derive(Clone)]
pub struct MetricsSource {
    write: Arc<dyn Fn(&mut String) + Send + Sync>,
}

impl fmt::Debug for MetricsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetricsSource").finish_non_exhaustive()
    }
}

impl MetricsSource {
    /// `write` appends metric families and their samples to a text.
    pub fn new(write: impl Fn(&mut String) + Send + Sync + 'static) -> Self {
        Self { write: Arc::new(write) }
    }
}

/// Appends the metrics of a registry to a text.
pub(crate) fn append_registry(registry: &Registry, text: &mut String) {
    // Writing to a String cannot fail.
    let _ = encode_registry(text, registry);
}

/// The metrics of all sources as one text.
#[must_use]
pub fn render(sources: &[MetricsSource]) -> String {
    let mut text = String::new();
    for source in sources {
        (source.write)(&mut text);
    }
    // Writing to a String cannot fail.
    let _ = encode_eof(&mut text);
    to_prometheus_text(&text)
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod render_tests {
    use super::*;
    use prometheus_client::metrics::gauge::Gauge;

    #[test]
    fn several_sources_share_one_end_marker() {
        let source = |name: &'static str| {
            let mut registry = Registry::default();
            registry.register(name, "Help", Gauge::<i64>::default());
            MetricsSource::new(move |text| append_registry(&registry, text))
        };
        let text = render(&[source("a"), source("b")]);
        assert!(text.contains("\na 0\n") && text.contains("\nb 0\n"), "{text}");
        assert_eq!(text.matches("# EOF\n").count(), 1, "{text}");
        assert!(text.ends_with("# EOF\n"), "{text}");
    }
}
