//! What objects and pools are told about what is generated from them, each thing once.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::core::{ClusterResourceScope, NamespaceResourceScope};
use kube::{Api, Resource, ResourceExt as _};
use machinist_core::api::names::condition::settings::{FAILURE, PENDING};
use machinist_core::api::{Condition, Nullable};
use machinist_core::container_runtime::ScopeConflict;
use machinist_core::generated_config::GenerateError;
use machinist_core::generated_config::status::conditions;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::super::context::Context;
use super::super::event_component;
use super::AllNotes;
use crate::kubernetes::cache::Cache;

/// One word for problems with an object.
const REASON_INVALID_SOURCE: &str = "InvalidSource";
/// The real system's word for a step that it does not take.
const REASON_ACTION_PROHIBITED: &str = "ActionProhibited";

/// What was said, so that it is not said again.
#[derive(Debug, Default)]
pub(super) struct Reported {
    /// What the registries were last made from, and what was wrong.
    pub(super) registries: Option<(u64, Option<GenerateError>)>,
    /// By the object.
    warned: BTreeMap<String, String>,
    /// By the object: what was written into its status. Some definitions of these kinds keep nothing
    /// of it.
    written: BTreeMap<String, Value>,
    /// By the pool.
    overridden: BTreeMap<String, Vec<String>>,
}

impl Reported {
    /// Warns about an object, once.
    pub(super) fn warn<K: Resource<DynamicType = ()>>(
        &mut self,
        shell: &Context,
        object: &K,
        problem: &GenerateError,
    ) {
        self.warn_once(shell, object, REASON_INVALID_SOURCE, Some(problem.to_string()));
    }

    /// Says that what an object asks for is not done, once; and forgets it when it is over.
    pub(super) fn warn_prohibited<K: Resource<DynamicType = ()>>(
        &mut self,
        shell: &Context,
        object: &K,
        message: Option<String>,
    ) {
        self.warn_once(shell, object, REASON_ACTION_PROHIBITED, message);
    }

    fn warn_once<K: Resource<DynamicType = ()>>(
        &mut self,
        shell: &Context,
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
            shell.events.report_event(
                event_component::GENERATE,
                object,
                true,
                reason,
                message.clone(),
            );
            self.warned.insert(key, message);
        }
    }

    /// Warns pools about files that somebody else writes as well, once.
    pub(super) fn warn_overridden(&mut self, shell: &Context, notes: &AllNotes) {
        self.overridden.retain(|pool, _| notes.contains_key(pool));
        for (name, notes) in notes {
            if self.overridden.get(name) == Some(&notes.overridden) {
                continue;
            }
            if let Some(pool) =
                shell.caches.pools.get(name).filter(|_| !notes.overridden.is_empty())
            {
                let (pool, message) = (pool.as_ref(), notes.overridden.join("; "));
                shell.events.report_event(
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

    /// Tells the objects about images how it went. A failure to tell must not keep anybody from
    /// generating.
    pub(super) async fn write_image_statuses(
        &mut self,
        shell: &Context,
        problem: Option<&GenerateError>,
        conflicts: &[ScopeConflict],
    ) {
        let kinds = &shell.caches.generate;
        self.write_setting_statuses(shell, &kinds.images, problem).await;
        self.write_setting_statuses(shell, &kinds.content_source_policies, problem).await;
        self.write_setting_statuses(shell, &kinds.digest_mirror_sets, problem).await;
        self.write_setting_statuses(shell, &kinds.tag_mirror_sets, problem).await;
        for object in kinds.cluster_image_policies.all() {
            let problem = problem.filter(|problem| is_about(object.as_ref(), problem));
            if let Some(problem) = problem {
                self.warn(shell, object.as_ref(), problem);
            }
            let said = problem.map(|problem| ("InvalidPolicy", problem.to_string()));
            let status = object.status.as_ref().and_then(|status| status.conditions.as_deref());
            if let Some(status) = pending_status(status, said, object.meta().generation) {
                self.write_cluster_status(
                    shell,
                    &kinds.cluster_image_policies,
                    object.as_ref(),
                    status,
                )
                .await;
            }
        }
        for object in kinds.image_policies.all() {
            let problem = problem.filter(|problem| is_about(object.as_ref(), problem));
            if let Some(problem) = problem {
                self.warn(shell, object.as_ref(), problem);
            }
            let conflict = conflicts.iter().find(|conflict| {
                conflict.name == object.name_any()
                    && Some(&conflict.namespace) == object.namespace().as_ref()
            });
            let said = problem
                .map(|problem| ("InvalidPolicy", problem.to_string()))
                .or_else(|| conflict.map(|it| (ScopeConflict::REASON, it.message())));
            let status = object.status.as_ref().and_then(|status| status.conditions.as_deref());
            if let Some(status) = pending_status(status, said, object.meta().generation) {
                self.write_namespaced_status(shell, &kinds.image_policies, object.as_ref(), status)
                    .await;
            }
        }
    }

    /// Tells objects with a list of `Success` and `Failure`: the one that the problem is about, and
    /// those that had one before.
    async fn write_setting_statuses<K>(
        &mut self,
        shell: &Context,
        cache: &Cache<K>,
        problem: Option<&GenerateError>,
    ) where
        K: Resource<DynamicType = (), Scope = ClusterResourceScope> + CacheObject,
    {
        for object in cache.all() {
            let problem = problem.filter(|problem| is_about(object.as_ref(), problem));
            if let Some(problem) = problem {
                self.warn(shell, object.as_ref(), problem);
            }
            let status = serde_json::to_value(object.as_ref()).unwrap_or_default();
            let before = status.pointer("/status/conditions").cloned().unwrap_or_default();
            let before: Vec<Condition> = serde_json::from_value(before).unwrap_or_default();
            let failed = before.last().is_some_and(|last| last.type_ == FAILURE);
            if problem.is_none() && !failed {
                continue;
            }
            let after = conditions(&before, problem.map_or(Ok(()), Err), &Time(Timestamp::now()));
            if after != before {
                let status = json!({"conditions": after});
                self.write_cluster_status(shell, cache, object.as_ref(), status).await;
            }
        }
    }

    async fn write_cluster_status<K>(
        &mut self,
        shell: &Context,
        cache: &Cache<K>,
        object: &K,
        status: Value,
    ) where
        K: Resource<DynamicType = (), Scope = ClusterResourceScope> + CacheObject,
    {
        self.write_status(shell, cache, Api::all(shell.client.clone()), object, status).await;
    }

    async fn write_namespaced_status<K>(
        &mut self,
        shell: &Context,
        cache: &Cache<K>,
        object: &K,
        status: Value,
    ) where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + CacheObject,
    {
        let namespace = object.namespace().unwrap_or_default();
        let api = Api::namespaced(shell.client.clone(), &namespace);
        self.write_status(shell, cache, api, object, status).await;
    }

    async fn write_status<K>(
        &mut self,
        shell: &Context,
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
        match shell.write(api.patch_status(&name, &PatchParams::default(), &patch)).await {
            Ok(written) => {
                self.written.insert(key, without_times);
                cache.upsert(written);
            }
            Err(error) => tracing::debug!(name, %error, "cannot write the status"),
        }
    }
}

/// What a cache can keep.
pub(super) trait CacheObject:
    Clone + fmt::Debug + DeserializeOwned + serde::Serialize + Send + Sync + 'static
{
}
impl<K: Clone + fmt::Debug + DeserializeOwned + serde::Serialize + Send + Sync + 'static>
    CacheObject for K
{
}

/// What a status says, whenever it was said.
fn without_timestamps(status: &Value) -> Value {
    let mut status = status.clone();
    for condition in status["conditions"].as_array_mut().into_iter().flatten() {
        condition["lastTransitionTime"] = Value::Null;
    }
    status
}

/// Whether a problem is about an object.
fn is_about<K: Resource<DynamicType = ()>>(object: &K, problem: &GenerateError) -> bool {
    let (kind, name) = (K::kind(&()), object.name_any());
    match object.namespace() {
        Some(namespace) => problem.object == format!("{kind} {namespace}/{name}"),
        None => problem.object == format!("{kind} {name}"),
    }
}

/// The status of an image policy that is not, or not wholly, in effect; none where it says so already,
/// and an empty one where that is over.
fn pending_status(
    before: Option<&[Condition]>,
    said: Option<(&str, String)>,
    generation: Option<i64>,
) -> Option<Value> {
    let before = before.unwrap_or_default();
    let ours = before.iter().find(|condition| condition.type_ == PENDING);
    let Some((reason, message)) = said else {
        return ours.map(|_| json!({"conditions": null}));
    };
    let says_it = |condition: &Condition| {
        condition.message.as_deref() == Some(&message)
            && condition.reason.as_deref() == Some(reason)
            && condition.observed_generation == generation
    };
    if ours.is_some_and(says_it) {
        return None;
    }
    let condition = Condition {
        type_: PENDING.to_owned(),
        status: "False".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message),
        observed_generation: generation,
        last_transition_time: Nullable::Set(Time(Timestamp::now())),
        ..Condition::default()
    };
    Some(json!({"conditions": [condition]}))
}
