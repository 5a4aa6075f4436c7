//! Figures and health of a process: what every process serves at `/metrics`, `/healthz` and `/readyz`, in one place.
//!
//! A process has one page and one or more sources of figures: `machinist up` shows those of the hub, of the controller and of the
//! machine config server on one.

mod endpoint;

use std::fmt;
use std::sync::Arc;

use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::registry::Registry;

pub(crate) use endpoint::{MetricsEndpoint, ProcessHealth};

/// Something that has figures. A clone has the same.
#[derive(Clone)]
pub struct MetricsSource {
    write: Arc<dyn Fn(&mut String) + Send + Sync>,
}

impl fmt::Debug for MetricsSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").finish_non_exhaustive()
    }
}

impl MetricsSource {
    /// Whatever can write its figures, families and samples, to the end of a text.
    pub fn new(write: impl Fn(&mut String) + Send + Sync + 'static) -> Self {
        Self { write: Arc::new(write) }
    }
}

/// Writes what a registry holds to the end of a text.
pub(crate) fn append_registry(registry: &Registry, text: &mut String) {
    // Writing into a String does not fail.
    let _ = encode_registry(text, registry);
}

/// The figures of all sources as one text.
#[must_use]
pub fn render(sources: &[MetricsSource]) -> String {
    let mut text = String::new();
    for source in sources {
        (source.write)(&mut text);
    }
    // Writing into a String does not fail.
    let _ = encode_eof(&mut text);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::metrics::gauge::Gauge;

    #[test]
    fn several_sources_end_once() {
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
