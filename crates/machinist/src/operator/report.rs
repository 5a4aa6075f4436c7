//! Reports the state of the system: conditions on MachineConfiguration `cluster`, and a ClusterOperator if the kind is served.

use std::sync::atomic::Ordering;

use anyhow::{Context as _, Result};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use machinist_core::api::names::object;
use machinist_core::api::{Condition, MachineConfigPool};
use machinist_core::disruption::policy_status;
use machinist_core::operator::conditions::{
    OperatorSnapshot, cluster_operator_status, conditions, is_rolled_out,
};
use machinist_core::operator::events::{OperatorEvent, ReleaseChange, condition_events};
use serde_json::{Value, json};

use super::caches::get_optional;
use super::reconcile::{Operator, ReconcileReport};
use crate::kubernetes::events::EventComponent;

/// The operator's own kind.
pub(super) const MACHINE_CONFIGURATIONS_PATH: &str =
    "/apis/operator.openshift.io/v1/machineconfigurations";
const CONFIG_API_PATH: &str = "/apis/config.openshift.io/v1";
const CLUSTER_OPERATOR: &str = "machine-config";
/// The name under which the operator reports events.
const EVENT_COMPONENT: EventComponent = EventComponent("machineconfigoperator");

impl Operator {
    /// Writes the result of a pass, unless the status says it already.
    pub(super) async fn write_status(&self, owner: &Value, done: &ReconcileReport) -> Result<()> {
        // It was just deleted; the watch starts another pass.
        let Some(own) = self.caches.machine_configurations.get(object::CLUSTER) else {
            return Ok(());
        };
        let pools = self.caches.pools.all();
        let pools: Vec<&MachineConfigPool> = pools.iter().map(AsRef::as_ref).collect();
        let facts = OperatorSnapshot {
            release: &self.release,
            previous_release: done.previous_release.as_deref(),
            components: &done.components,
            failure: done.failure.as_ref(),
            pools: &pools,
            remark: done.note,
        };
        let status = own.status.clone().unwrap_or_default();
        let before = status.conditions.clone().unwrap_or_default();
        let after = conditions(&before, &facts, &Time(Timestamp::now()));
        self.reporters.metrics.set_conditions(&after);
        let generation = own.metadata.generation;
        let policy = policy_status(&own);
        if after != before
            || status.observed_generation != generation
            || status.node_disruption_policy_status.as_ref() != Some(&policy)
        {
            let patch = json!({
                "metadata": {"resourceVersion": own.metadata.resource_version},
                "status": {
                    "conditions": after,
                    "observedGeneration": generation,
                    "nodeDisruptionPolicyStatus": policy,
                },
            });
            let path = format!("{MACHINE_CONFIGURATIONS_PATH}/{}/status", object::CLUSTER);
            let about =
                || format!("cannot write the status of MachineConfiguration {}", object::CLUSTER);
            self.writer.merge(&path, &patch).await.with_context(about)?;
            let release = ReleaseChange {
                from: done.previous_release.as_deref(),
                to: &self.release,
                is_reported: self.release_reported.swap(true, Ordering::Relaxed),
            };
            for event in condition_events(&before, &after, release) {
                self.report_event(&event);
            }
        }
        let arrived =
            is_rolled_out(&after, &facts).then_some((self.release.as_str(), self.image.as_str()));
        self.write_cluster_operator_status(owner, &after, arrived).await
    }

    /// An event about the operator's own object.
    pub(super) fn report_event(&self, event: &OperatorEvent) {
        let Some(own) = self.caches.machine_configurations.get(object::CLUSTER) else { return };
        let OperatorEvent { reason, warning, message } = event;
        self.reporters.events.report_event(
            EVENT_COMPONENT,
            &*own,
            *warning,
            reason,
            message.as_str(),
        );
    }

    /// Records a failed status write: the condition cannot report it.
    pub(super) fn report_write_failure(&self, error: &str) {
        if let Some(own) = self.caches.machine_configurations.get(object::CLUSTER) {
            let message = format!("cannot write the operator status: {error}");
            self.reporters.events.record(EVENT_COMPONENT, &*own, true, "WriteFailed", &message);
        }
    }

    async fn write_cluster_operator_status(
        &self,
        owner: &Value,
        conditions: &[Condition],
        arrived: Option<(&str, &str)>,
    ) -> Result<()> {
        let kinds = get_optional(&self.writer.client, CONFIG_API_PATH).await?;
        let kinds = kinds["resources"].as_array().cloned().unwrap_or_default();
        if !kinds.iter().any(|kind| kind["name"] == "clusteroperators") {
            return Ok(());
        }
        let path = format!("{CONFIG_API_PATH}/clusteroperators/{CLUSTER_OPERATOR}");
        let mut found = get_optional(&self.writer.client, &path).await?;
        if found.is_null() {
            let object = json!({
                "apiVersion": "config.openshift.io/v1", "kind": "ClusterOperator",
                "metadata": {"name": CLUSTER_OPERATOR, "ownerReferences": owner}, "spec": {},
            });
            self.writer.create(&object).await?;
            found = get_optional(&self.writer.client, &path).await?;
        }
        let status = cluster_operator_status(&found, conditions, arrived, &self.namespace);
        let is_same = |field: &str| found["status"][field] == status[field];
        if ["conditions", "versions", "relatedObjects"].into_iter().all(is_same) {
            return Ok(());
        }
        let patch = json!({"status": status});
        let about = || format!("cannot write the status of ClusterOperator {CLUSTER_OPERATOR}");
        self.writer.merge(&format!("{path}/status"), &patch).await.with_context(about)
    }
}
