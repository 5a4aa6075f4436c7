//! Reports on sources and pools what is generated from them, each thing once.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::core::{ClusterResourceScope, NamespaceResourceScope};
use kube::{Api, Resource, ResourceExt as _};
use machinist_core::api::Condition;
use machinist_core::api::names::condition::settings::FAILURE;
use machinist_core::container_runtime::ScopeConflict;
use machinist_core::generate::policy_status::{PendingReason, pending_conditions};
use machinist_core::generated_config::GenerateError;
use machinist_core::generated_config::status::conditions;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::super::context::Context;
use super::super::event_component;
use super::AllNotes;
use crate::kubernetes::cache::Cache;

/// The event reason for an invalid source.
const REASON_INVALID_SOURCE: &str = "InvalidSource";
/// MCO's event reason for a change that it refuses.
const REASON_ACTION_PROHIBITED: &str = "ActionProhibited";
/// The task under which failed status writes are reported.
const WRITE_STATUS: &str = "write the status";

/// What was reported, so that it is not reported again.
#[derive(Debug, Default)]
pub(super) struct Reported {
    /// The fingerprint of the inputs of the last registries pass, and its problem.
    pub(super) registries: Option<(u64, Option<GenerateError>)>,
    /// The last warning of each object.
    warned: BTreeMap<String, String>,
    /// The last status written to each object. Some CRDs of these kinds drop parts of it, so the object cannot be compared.
    written: BTreeMap<String, Value>,
    /// The last list of overridden files of each pool.
    overridden: BTreeMap<String, Vec<String>>,
}

impl Reported {
    /// Warns about an object, once.
    pub(super) fn warn<K: Resource<DynamicType = ()>>(
        &mut self,
        context: &Context,
        object: &K,
        problem: &GenerateError,
    ) {
        self.warn_once(context, object, REASON_INVALID_SOURCE, Some(problem.to_string()));
    }

    /// Warns once that a change is refused; without a message the warning is over.
    pub(super) fn warn_prohibited<K: Resource<DynamicType = ()>>(
        &mut self,
        context: &Context,
        object: &K,
        message: Option<String>,
    ) {
        self.warn_once(context, object, REASON_ACTION_PROHIBITED, message);
    }

    fn warn_once<K: Resource<DynamicType = ()>>(
        &mut self,
        context: &Context,
        object: &K,
        reason: &'static str,
        message: Option<String>,
    ) {
        let key = format!("{}/{:?}", K::kind(&()), object.meta().uid);
        let Some(message) = message else {
            self.warned.remove(&key);
            return;
        };
        if self.warned.get(&key) != Some(&message) {
            context.events.report_event(
                event_component::GENERATE,
                object,
                true,
                reason,
                message.clone(),
            );
            self.warned.insert(key, message);
        }
    }

    /// Warns pools once about files that a hand-written MachineConfig writes as well.
    pub(super) fn warn_overridden(&mut self, context: &Context, notes: &AllNotes) {
        self.overridden.retain(|pool, _| notes.contains_key(pool));
        for (name, notes) in notes {
            if self.overridden.get(name) == Some(&notes.overridden) {
                continue;
            }
            if let Some(pool) =
                context.caches.pools.get(name).filter(|_| !notes.overridden.is_empty())
            {
                let (pool, message) = (pool.as_ref(), notes.overridden.join("; "));
                context.events.report_event(
                    event_component::GENERATE,
                    pool,
                    true,
                    "GeneratedOverridden",
                    message,
                );
            }
            self.overridden.insert(name.clone(), notes.overridden.clone());
        }
    }

    /// Writes the status of mirrors, registries and image policies. A failed write must not stop generating.
    pub(super) async fn write_image_statuses(
        &mut self,
        context: &Context,
        problem: Option<&GenerateError>,
        conflicts: &[ScopeConflict],
    ) {
        let kinds = &context.caches.generate;
        self.write_setting_statuses(context, &kinds.images, problem).await;
        self.write_setting_statuses(context, &kinds.content_source_policies, problem).await;
        self.write_setting_statuses(context, &kinds.digest_mirror_sets, problem).await;
        self.write_setting_statuses(context, &kinds.tag_mirror_sets, problem).await;
        for object in kinds.cluster_image_policies.all() {
            let problem = problem.filter(|problem| problem.is_about(object.as_ref()));
            if let Some(problem) = problem {
                self.warn(context, object.as_ref(), problem);
            }
            let pending = problem.map(invalid_policy);
            let status = object.status.as_ref().and_then(|status| status.conditions.as_deref());
            if let Some(status) = pending_status(status, pending, object.meta().generation) {
                self.write_cluster_status(
                    context,
                    &kinds.cluster_image_policies,
                    object.as_ref(),
                    status,
                )
                .await;
            }
        }
        for object in kinds.image_policies.all() {
            let problem = problem.filter(|problem| problem.is_about(object.as_ref()));
            if let Some(problem) = problem {
                self.warn(context, object.as_ref(), problem);
            }
            let conflict = conflicts.iter().find(|conflict| {
                conflict.name == object.name_any()
                    && Some(&conflict.namespace) == object.namespace().as_ref()
            });
            let pending = problem.map(invalid_policy).or_else(|| {
                conflict.map(|conflict| PendingReason {
                    reason: ScopeConflict::REASON,
                    message: conflict.message(),
                })
            });
            let status = object.status.as_ref().and_then(|status| status.conditions.as_deref());
            if let Some(status) = pending_status(status, pending, object.meta().generation) {
                self.write_namespaced_status(
                    context,
                    &kinds.image_policies,
                    object.as_ref(),
                    status,
                )
                .await;
            }
        }
    }

    /// Writes the status of objects with `Success` and `Failure` conditions: of the one that the problem is about, and of
    /// those that had a problem before.
    async fn write_setting_statuses<K>(
        &mut self,
        context: &Context,
        cache: &Cache<K>,
        problem: Option<&GenerateError>,
    ) where
        K: Resource<DynamicType = (), Scope = ClusterResourceScope> + CacheObject,
    {
        for object in cache.all() {
            let problem = problem.filter(|problem| problem.is_about(object.as_ref()));
            if let Some(problem) = problem {
                self.warn(context, object.as_ref(), problem);
            }
            let status = serde_json::to_value(object.as_ref()).unwrap_or_default();
            let before = status.pointer("/status/conditions").cloned().unwrap_or_default();
            let before: Vec<Condition> = serde_json::from_value(before).unwrap_or_default();
            let failed = before.last().is_some_and(|last| last.type_ == FAILURE);
            if problem.is_none() && !failed {
                continue;
            }
            let after =
                conditions(&before, problem.map_or(Ok(()), Err), &[], &Time(Timestamp::now()));
            if after != before {
                let status = json!({"conditions": after});
                self.write_cluster_status(context, cache, object.as_ref(), status).await;
            }
        }
    }

    async fn write_cluster_status<K>(
        &mut self,
        context: &Context,
        cache: &Cache<K>,
        object: &K,
        status: Value,
    ) where
        K: Resource<DynamicType = (), Scope = ClusterResourceScope> + CacheObject,
    {
        self.write_status(context, cache, Api::all(context.client.clone()), object, status).await;
    }

    async fn write_namespaced_status<K>(
        &mut self,
        context: &Context,
        cache: &Cache<K>,
        object: &K,
        status: Value,
    ) where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + CacheObject,
    {
        let namespace = object.namespace().unwrap_or_default();
        let api = Api::namespaced(context.client.clone(), &namespace);
        self.write_status(context, cache, api, object, status).await;
    }

    async fn write_status<K>(
        &mut self,
        context: &Context,
        cache: &Cache<K>,
        api: Api<K>,
        object: &K,
        status: Value,
    ) where
        K: Resource<DynamicType = ()> + CacheObject,
    {
        let key = format!("{}/{:?}", K::kind(&()), object.meta().uid);
        let without_times = without_timestamps(&status);
        if self.written.get(&key) == Some(&without_times) {
            return;
        }
        let patch = Patch::Merge(json!({"status": status}));
        let name = object.name_any();
        match context.write(api.patch_status(&name, &PatchParams::default(), &patch)).await {
            Ok(written) => {
                context.write_succeeded(WRITE_STATUS, object);
                self.written.insert(key, without_times);
                cache.upsert(written);
            }
            Err(error) => {
                let component = event_component::GENERATE;
                context.write_failed(WRITE_STATUS, component, object, &error);
            }
        }
    }
}

/// A kind whose status can be written.
pub(super) trait CacheObject:
    Clone + fmt::Debug + DeserializeOwned + serde::Serialize + Send + Sync + 'static
{
}
impl<K: Clone + fmt::Debug + DeserializeOwned + serde::Serialize + Send + Sync + 'static>
    CacheObject for K
{
}

/// A status without its times.
fn without_timestamps(status: &Value) -> Value {
    let mut status = status.clone();
    for condition in status["conditions"].as_array_mut().into_iter().flatten() {
        condition["lastTransitionTime"] = Value::Null;
    }
    status
}

fn invalid_policy(problem: &GenerateError) -> PendingReason {
    PendingReason { reason: "InvalidPolicy", message: problem.to_string() }
}

/// The status patch of an image policy, if it needs one. Null removes the conditions.
fn pending_status(
    before: Option<&[Condition]>,
    pending: Option<PendingReason>,
    generation: Option<i64>,
) -> Option<Value> {
    let now = Time(Timestamp::now());
    let conditions = pending_conditions(before.unwrap_or_default(), pending, generation, &now)?;
    Some(json!({"conditions": (!conditions.is_empty()).then_some(conditions)}))
}
