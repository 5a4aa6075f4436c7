//! Keeps a hub's MachineConfiguration `cluster`: it exists, and its status has the node disruption policy in effect.
//!
//! MCO's daemon waits for both before it changes a machine. On Kubernetes the operator does this, and the controller may
//! not; so this loop runs only in `machinist up`.

use std::time::Duration;

use kube::api::PostParams;
use kube::runtime::watcher;
use kube::{Api, ResourceExt as _};
use machinist_core::api::names::object;
use machinist_core::api::operator::MachineConfiguration;
use machinist_core::disruption::policy_status;
use serde_json::json;
use tokio::task::JoinSet;
use tracing::Instrument as _;

use super::context::{Context, WriteError};
use super::debounce::Debounce;
use super::event_component;
use crate::kubernetes::cache::{Cache, strip_managed_fields};
use crate::kubernetes::reflectors::wait_until_ready;

/// A burst of changes ends when there was none for this long...
const DEBOUNCE: Duration = Duration::from_millis(50);
/// ...but a pass never waits longer than this.
const MAX_WAIT: Duration = Duration::from_millis(300);
/// The wait after a failed write.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// The task under which failed writes are reported.
const TASK: &str = "write the MachineConfiguration";

/// Runs for ever.
pub(super) async fn run(context: Context) {
    let cache: Cache<MachineConfiguration> = Cache::default();
    let mut debounce = Debounce::new("disruption policy", &context.liveness, DEBOUNCE, MAX_WAIT);
    debounce.watch(cache.subscribe());
    let mut watches = JoinSet::new();
    let api = Api::all(context.client.clone());
    let (all, failures) = (watcher::Config::default(), context.failures.clone());
    watches.spawn(cache.clone().reflect(api, all, strip_managed_fields, failures));
    wait_until_ready(vec![cache.subscribe()]).await;
    let mut is_retry = true;
    loop {
        debounce.next(is_retry.then_some(RETRY_DELAY)).await;
        let span = tracing::info_span!("disruption_policy", name = object::CLUSTER);
        is_retry = match reconcile(&context, &cache).instrument(span).await {
            Ok(()) => {
                context.failures.succeeded(TASK, object::CLUSTER);
                false
            }
            // The watch brings the newer object, and another pass with it.
            Err(error) if error.is_conflict() => false,
            Err(WriteError::NotLeading) => true,
            Err(error) => {
                match cache.get(object::CLUSTER) {
                    Some(found) => {
                        let component = event_component::DISRUPTION_POLICY;
                        context.write_failed(TASK, component, found.as_ref(), &error);
                    }
                    // There is no object yet that an event could be about.
                    None => {
                        context.failures.failed(TASK, object::CLUSTER, &error.to_string());
                    }
                }
                true
            }
        };
    }
}

async fn reconcile(
    context: &Context,
    cache: &Cache<MachineConfiguration>,
) -> Result<(), WriteError> {
    let Some(found) = cache.get(object::CLUSTER) else {
        let api: Api<MachineConfiguration> = Api::all(context.client.clone());
        let mut wanted = MachineConfiguration::new(object::CLUSTER, Default::default());
        wanted.spec.management_state = Some("Managed".to_owned());
        let created = context.write(api.create(&PostParams::default(), &wanted)).await?;
        cache.upsert(created);
        return Ok(());
    };
    let status = found.status.clone().unwrap_or_default();
    let policy = policy_status(&found);
    let generation = found.metadata.generation;
    if status.observed_generation == generation
        && status.node_disruption_policy_status.as_ref() == Some(&policy)
    {
        return Ok(());
    }
    let patch = json!({
        "metadata": {"resourceVersion": found.resource_version()},
        "status": {"observedGeneration": generation, "nodeDisruptionPolicyStatus": policy},
    });
    cache.upsert(context.merge_patch_status(object::CLUSTER, &patch).await?);
    Ok(())
}
