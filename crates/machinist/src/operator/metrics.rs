//! The metrics of the operator.

use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use machinist_core::api::{Condition, find_condition};
use machinist_core::operator::conditions::{AVAILABLE, DEGRADED, PROGRESSING, UPGRADEABLE};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::metrics::{self, MetricsSource};

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct BuildLabels {
    version: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ConditionLabels {
    condition: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct TaskLabels {
    task: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct CertificateLabels {
    certificate: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct CredentialLabels {
    credential: &'static str,
}

/// All metrics. A clone shares them.
#[derive(Clone)]
pub(super) struct OperatorMetrics {
    inner: Arc<OperatorMetricsInner>,
}

struct OperatorMetricsInner {
    registry: Registry,
    conditions: Family<ConditionLabels, Gauge>,
    passes: Counter,
    failures: Family<TaskLabels, Counter>,
    last_success: Gauge,
    repairs: Counter,
    certificates: Family<CertificateLabels, Gauge>,
    credentials: Family<CredentialLabels, Gauge>,
}

impl fmt::Debug for OperatorMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl OperatorMetrics {
    /// The metrics of an operator that deploys a release.
    pub(super) fn new(release: &str) -> Self {
        let mut registry = Registry::default();
        let build = Family::<BuildLabels, Gauge>::default();
        build.get_or_create(&BuildLabels { version: release.to_owned() }).set(1);
        registry.register("machinist_operator_build_info", "The release that is deployed", build);
        let conditions = Family::default();
        let help = "Whether a condition of the system holds";
        registry.register("machinist_operator_condition", help, conditions.clone());
        let (passes, failures) = (Counter::default(), Family::default());
        registry.register("machinist_operator_syncs", "Passes over everything", passes.clone());
        let help = "Passes that failed, by what was being done";
        registry.register("machinist_operator_sync_errors", help, failures.clone());
        let (well, repairs) = (Gauge::default(), Counter::default());
        let help = "When the last pass without a failure ended, in seconds since 1970";
        registry.register("machinist_operator_last_sync_seconds", help, well.clone());
        let help = "What somebody had changed or deleted, and was put right";
        registry.register("machinist_operator_repairs", help, repairs.clone());
        let certificates = Family::default();
        let help = "When a certificate ends, in seconds since 1970";
        registry.register(
            "machinist_operator_certificate_expiry_seconds",
            help,
            certificates.clone(),
        );
        let credentials = Family::default();
        let help = "When a credential for new machines ends, in seconds since 1970";
        registry.register(
            "machinist_operator_credential_expiry_seconds",
            help,
            credentials.clone(),
        );
        let inner = OperatorMetricsInner {
            registry,
            conditions,
            passes,
            failures,
            last_success: well,
            repairs,
            certificates,
            credentials,
        };
        Self { inner: Arc::new(inner) }
    }

    /// A pass ended; it failed in a task, or it did not.
    pub(super) fn record_pass(&self, failed: Option<&'static str>) {
        self.inner.passes.inc();
        match failed {
            Some(task) => {
                self.inner.failures.get_or_create(&TaskLabels { task }).inc();
            }
            None => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                self.inner.last_success.set(i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
            }
        }
    }

    /// What somebody had changed was put right.
    pub(super) fn count_repair(&self) {
        self.inner.repairs.inc();
    }

    /// What is said about the system.
    pub(super) fn set_conditions(&self, conditions: &[Condition]) {
        for condition in [AVAILABLE, PROGRESSING, DEGRADED, UPGRADEABLE] {
            let holds = find_condition(conditions, condition).is_some_and(Condition::is_true);
            self.inner.conditions.get_or_create(&ConditionLabels { condition }).set(holds.into());
        }
    }

    /// When the certificates end, those that there are.
    pub(super) fn set_certificate_expirations(&self, ends: &[(&'static str, i64)]) {
        self.inner.certificates.clear();
        for (certificate, end) in ends {
            self.inner.certificates.get_or_create(&CertificateLabels { certificate }).set(*end);
        }
    }

    /// When the bootstrap token of new machines expires, if there is one.
    pub(super) fn set_token_expiration(&self, end: Option<i64>) {
        self.inner.credentials.clear();
        if let Some(end) = end {
            let credential = CredentialLabels { credential: "bootstrap-token" };
            self.inner.credentials.get_or_create(&credential).set(end);
        }
    }

    /// All of them go when this operator does not lead any more: what is old must not be taken for true.
    pub(super) fn clear(&self) {
        self.inner.conditions.clear();
        self.inner.certificates.clear();
        self.inner.credentials.clear();
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
    fn counts_are_served() {
        let metrics = OperatorMetrics::new("1.2");
        let text = || metrics::render(&[metrics.source()]);
        metrics.record_pass(Some("Settings"));
        assert!(text().contains("machinist_operator_last_sync_seconds 0\n"), "{}", text());
        metrics.record_pass(None);
        metrics.set_conditions(&[Condition {
            type_: DEGRADED.to_owned(),
            status: "True".to_owned(),
            ..Condition::default()
        }]);
        metrics.set_certificate_expirations(&[("server", 17)]);
        metrics.set_certificate_expirations(&[("ca", 18)]);
        metrics.set_token_expiration(Some(19));
        for line in [
            "machinist_operator_build_info{version=\"1.2\"} 1",
            "machinist_operator_syncs_total 2",
            "machinist_operator_sync_errors_total{task=\"Settings\"} 1",
            "machinist_operator_condition{condition=\"Degraded\"} 1",
            "machinist_operator_condition{condition=\"Available\"} 0",
            "machinist_operator_certificate_expiry_seconds{certificate=\"ca\"} 18",
            "machinist_operator_credential_expiry_seconds{credential=\"bootstrap-token\"} 19",
        ] {
            assert!(text().contains(&format!("{line}\n")), "{line}: {}", text());
        }
        assert!(!text().contains("server"), "{}", text());
        metrics.clear();
        assert!(!text().contains("Degraded"), "{}", text());
    }
}
