//! The render loop: renders the configs of all pools whenever a source changes.
//!
//! `core::render::reconcile` decides; this performs the writes and reports how they went.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use machinist_core::api::names::{annotation, object};
use machinist_core::api::{MachineConfig, MachineConfigPool};
use machinist_core::reconcile_check::ValidationOverrides;
use machinist_core::render::ImageSources;
use machinist_core::render::reconcile::{ReconcileError, RenderInputs, RenderPlan};
use machinist_core::rollout::RenderStatus;
use serde_json::json;
use tracing::Instrument as _;

use super::context::{Context, WriteError};
use super::debounce::Debounce;
use super::event_component;
use super::pin_image::pin_image;
use super::rendered_backup;
use super::resolve_tag::TagResolver;
use crate::kubernetes::reflectors::publish;

/// A burst of changes ends when there was none for this long...
const DEBOUNCE: Duration = Duration::from_millis(150);
/// ...but rendering never waits longer than this.
const MAX_WAIT: Duration = Duration::from_millis(700);
/// The wait after a failed write.
pub(super) const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The task under which failed writes are reported.
const TASK: &str = "write the rendered config";

/// The result of the last attempt, by pool.
pub(super) type RenderStatuses = BTreeMap<String, RenderStatus>;

/// The controller's version, in the objects that it creates.
pub(super) const VERSION: &str = concat!("machinist-", env!("CARGO_PKG_VERSION"));

/// Runs for ever.
pub(super) async fn run(context: Context) {
    let caches = &context.caches;
    let mut debounce = Debounce::new("render", &context.liveness, DEBOUNCE, MAX_WAIT);
    debounce.watch(caches.pools.subscribe());
    debounce.watch(caches.configs.subscribe());
    debounce.watch(caches.controller_configs.subscribe());
    debounce.watch(caches.os_image_streams.subscribe());
    caches.wait_until_ready().await;
    let (mut retry, tags) = (Some(RETRY_DELAY), TagResolver::default());
    loop {
        debounce.next(retry).await;
        retry = reconcile(&context, &tags).await;
    }
}

/// Renders all pools once. Returns when to render again even if nothing changes.
async fn reconcile(context: &Context, tags: &TagResolver) -> Option<Duration> {
    let caches = &context.caches;
    let configs = caches.configs.all();
    let configs: Vec<&MachineConfig> = configs.iter().map(AsRef::as_ref).collect();
    let (controller_config, streams) = (caches.controller_config(), caches.streams());
    let worker = caches.pools.get(object::POOL_WORKER);
    let system = ImageSources {
        controller_config: controller_config.as_deref(),
        streams: streams.as_deref(),
        worker: worker.as_deref(),
    };
    let mut statuses = RenderStatuses::new();
    let mut retry = None;
    for pool in caches.pools.all() {
        if pool.metadata.deletion_timestamp.is_some() {
            continue;
        }
        let inputs = RenderInputs {
            pool: &pool,
            machine_configs: &configs,
            system,
            version: VERSION,
            overrides: ValidationOverrides::default(),
        };
        let name = pool.name_any();
        let span = tracing::info_span!("render", pool = name, config = tracing::field::Empty);
        let status = match machinist_core::render::reconcile::reconcile(&inputs) {
            Ok(plan) => {
                span.record("config", plan.rendered.as_str());
                context.metrics.set_os_image_overridden(&name, plan.os_image_overridden);
                let (status, later) = carry_out(context, tags, &pool, plan).instrument(span).await;
                retry = earlier(retry, later);
                status
            }
            Err(error) => span.in_scope(|| report_failure(context, &pool, &error)),
        };
        statuses.insert(name, status);
    }
    publish(&context.render_statuses, statuses);
    retry
}

/// Performs the plan for one pool. Returns when to try again, if that is needed.
async fn carry_out(
    context: &Context,
    tags: &TagResolver,
    pool: &Arc<MachineConfigPool>,
    mut plan: RenderPlan,
) -> (RenderStatus, Option<Duration>) {
    let (status, later) = pin_image(context, tags, pool, &mut plan).await;
    if status != RenderStatus::Rendered {
        return (status, later);
    }
    match write_rendered(context, pool, plan).await {
        Ok(()) => {
            context.write_succeeded(TASK, pool.as_ref());
            (RenderStatus::Rendered, later)
        }
        Err(error) => {
            let retry = earlier(later, Some(RETRY_DELAY));
            (write_failure_status(context, pool, &error), retry)
        }
    }
}

/// The status of a pool whose config could not be written. One failed attempt leaves the pool's condition alone: an API
/// server that restarts is no problem of the pool.
fn write_failure_status(
    context: &Context,
    pool: &Arc<MachineConfigPool>,
    error: &WriteError,
) -> RenderStatus {
    if error.is_conflict() {
        return RenderStatus::Waiting;
    }
    let state = context.write_failed(TASK, event_component::RENDER, pool.as_ref(), error);
    if state.is_persistent() {
        let name = pool.name_any();
        RenderStatus::WriteFailed(format!(
            "Failed to store the rendered config of pool {name}: {error}"
        ))
    } else {
        RenderStatus::Waiting
    }
}

fn earlier(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    [one, other].into_iter().flatten().min()
}

fn report_failure(
    context: &Context,
    pool: &Arc<MachineConfigPool>,
    error: &ReconcileError,
) -> RenderStatus {
    let name = pool.name_any();
    match error {
        ReconcileError::EmptySelector => {
            let before = context.render_statuses.borrow().get(&name).cloned();
            if before != Some(RenderStatus::Waiting) {
                let message = error.to_string();
                context.events.report_event(
                    event_component::RENDER,
                    pool.as_ref(),
                    true,
                    "SelectingAll",
                    message,
                );
            }
            RenderStatus::Waiting
        }
        ReconcileError::NotYet(_) => RenderStatus::Waiting,
        ReconcileError::NothingToRender(_) => RenderStatus::NoSources(error.to_string()),
        _ => {
            RenderStatus::Failed(format!("Failed to render configuration for pool {name}: {error}"))
        }
    }
}

/// Writes what has to be written: first the config, then the pool that points at it.
async fn write_rendered(
    context: &Context,
    pool: &Arc<MachineConfigPool>,
    plan: RenderPlan,
) -> Result<(), WriteError> {
    let caches = &context.caches;
    let api: Api<MachineConfig> = Api::all(context.client.clone());
    let params = PostParams::default();
    if let Some(wanted) = plan.create {
        match context.write(api.create(&params, &wanted)).await {
            Ok(made) => {
                report_rendered(context, pool, &made, plan.annotated_by.as_deref());
                rendered_backup::back_up(context, &made).await?;
                caches.configs.upsert(made);
            }
            // It exists already; the watch brings it.
            Err(error) if error.is_conflict() => {}
            Err(error) => return Err(error),
        }
    }
    if let Some(wanted) = plan.repair {
        let name = wanted.name_any();
        let repaired = context.write(api.replace(&name, &params, &wanted)).await?;
        let message = format!("{name} was edited; made again from its sources");
        context.events.report_event(
            event_component::RENDER,
            pool.as_ref(),
            true,
            "RenderedConfigRepaired",
            message,
        );
        caches.configs.upsert(repaired);
    }
    let annotations: serde_json::Map<String, serde_json::Value> = [
        (annotation::machinist::ON_CHANGE_RULES, plan.set_on_change),
        (annotation::machinist::SOURCES, plan.set_sources.map(Some)),
        (annotation::machinist::PROFILE, plan.set_profile),
    ]
    .into_iter()
    .filter_map(|(key, value)| Some((key.to_owned(), json!(value?))))
    .collect();
    if !annotations.is_empty() {
        let patch = json!({"metadata": {"annotations": annotations}});
        let patch = Patch::Merge(&patch);
        let changed =
            context.write(api.patch(&plan.rendered, &PatchParams::default(), &patch)).await?;
        caches.configs.upsert(changed);
    }
    let mut patch = json!({});
    if let Some(configuration) = plan.set_configuration {
        patch["spec"] = json!({"configuration": {
            "name": configuration.name,
            "source": configuration.source,
        }});
    }
    if plan.end_rollback {
        let gone = [annotation::machinist::ROLLED_BACK_FROM, annotation::machinist::ROLLED_BACK_TO];
        patch["metadata"]["annotations"] =
            gone.iter().map(|key| ((*key).to_owned(), serde_json::Value::Null)).collect();
    }
    if patch.as_object().is_some_and(|patch| !patch.is_empty()) {
        patch["metadata"]["resourceVersion"] = json!(pool.resource_version());
        caches.pools.upsert(context.merge_patch(&pool.name_any(), &patch).await?);
    }
    Ok(())
}

fn report_rendered(
    context: &Context,
    pool: &Arc<MachineConfigPool>,
    made: &MachineConfig,
    annotated_by: Option<&str>,
) {
    let annotation = |key: &str| made.annotations().get(key).cloned().unwrap_or_default();
    let release = annotation(annotation::RELEASE_IMAGE_VERSION);
    let message = format!(
        "{} successfully generated (release version: {release}, controller version: {VERSION})",
        made.name_any()
    );
    let pool = pool.as_ref();
    context.events.report_event(
        event_component::RENDER,
        pool,
        false,
        "RenderedConfigGenerated",
        message,
    );
    if !annotation(annotation::OS_IMAGE_URL_OVERRIDDEN).is_empty() {
        let base = context.caches.controller_config();
        let was = base.and_then(|cc| cc.spec.os_image_url.clone()).unwrap_or_default();
        let is = made.spec.os_image_url.clone().unwrap_or_default();
        let via = annotated_by.map_or_else(
            || "machineconfig".to_owned(),
            |pool| format!("annotation {} of pool {pool}", annotation::machinist::OS_IMAGE),
        );
        let message = format!(
            "OSImageURL was overridden via {via} in {} (was: {was} is: {is})",
            made.name_any()
        );
        context.events.report_event(
            event_component::RENDER,
            made,
            false,
            "OSImageURLOverridden",
            message,
        );
    }
}
