//! The render loop: whenever a source changes, the pools get their rendered configs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::api::PostParams;
use kube::{Api, ResourceExt as _};
use machinist_core::api::names::{annotation, object};
use machinist_core::api::{MachineConfig, MachineConfigPool};
use machinist_core::reconcile_check::ValidationOverrides;
use machinist_core::render::ImageSources;
use machinist_core::render::reconcile::{ReconcileError, RenderInputs, RenderPlan};
use serde_json::json;

use super::context::{Context, WriteError};
use super::debounce::Debounce;
use super::event_component;
use super::pin_image::pin_image;
use super::rendered_backup;
use super::resolve_tag::TagResolver;
use crate::kubernetes::reflectors::publish;

/// A burst of changes is over when nothing came for this long...
const DEBOUNCE: Duration = Duration::from_millis(150);
/// ...but nobody waits longer than this.
const MAX_WAIT: Duration = Duration::from_millis(700);
/// After a write that failed.
pub(super) const RETRY_DELAY: Duration = Duration::from_secs(1);

/// How the rendering of a pool went last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RenderStatus {
    /// The pool has its config.
    Rendered,
    /// Something else has to happen first.
    Waiting,
    /// There is nothing to render.
    NoSources(String),
    /// The sources are bad.
    Failed(String),
}

/// By the names of the pools.
pub(super) type RenderStatuses = BTreeMap<String, RenderStatus>;

/// What the controller calls itself in what it makes.
pub(super) const VERSION: &str = concat!("machinist-", env!("CARGO_PKG_VERSION"));

/// Renders for ever.
pub(super) async fn run(shell: Context) {
    let world = &shell.caches;
    let mut turns = Debounce::new(DEBOUNCE, MAX_WAIT);
    turns.watch(world.pools.subscribe());
    turns.watch(world.configs.subscribe());
    turns.watch(world.controller_configs.subscribe());
    turns.watch(world.os_image_streams.subscribe());
    world.wait_until_ready().await;
    let (mut again, pins) = (Some(RETRY_DELAY), TagResolver::default());
    loop {
        turns.next(again).await;
        again = reconcile(&shell, &pins).await;
    }
}

/// Renders all pools once; when it has to be looked at again by itself.
async fn reconcile(shell: &Context, pins: &TagResolver) -> Option<Duration> {
    let world = &shell.caches;
    let configs = world.configs.all();
    let configs: Vec<&MachineConfig> = configs.iter().map(AsRef::as_ref).collect();
    let (controller_config, streams) = (world.controller_config(), world.streams());
    let worker = world.pools.get(object::POOL_WORKER);
    let system = ImageSources {
        controller_config: controller_config.as_deref(),
        streams: streams.as_deref(),
        worker: worker.as_deref(),
    };
    let mut renders = RenderStatuses::new();
    let mut again = None;
    for pool in world.pools.all() {
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
        let render = match machinist_core::render::reconcile::reconcile(&inputs) {
            Ok(mut todo) => {
                let overridden = todo.os_image_overridden;
                shell.metrics.set_os_image_overridden(&pool.name_any(), overridden);
                let (pinned, later) = pin_image(shell, pins, &pool, &mut todo).await;
                again = earlier(again, later);
                match pinned {
                    RenderStatus::Rendered => {
                        if let Err(error) = write_rendered(shell, &pool, todo).await {
                            again = earlier(again, Some(RETRY_DELAY));
                            tracing::debug!(pool = pool.name_any(), %error, "cannot write what was rendered");
                        }
                        RenderStatus::Rendered
                    }
                    waits => waits,
                }
            }
            Err(error) => report_failure(shell, &pool, &error),
        };
        renders.insert(pool.name_any(), render);
    }
    publish(&shell.render_statuses, renders);
    again
}

fn earlier(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    [one, other].into_iter().flatten().min()
}

fn report_failure(
    shell: &Context,
    pool: &Arc<MachineConfigPool>,
    error: &ReconcileError,
) -> RenderStatus {
    let name = pool.name_any();
    match error {
        ReconcileError::EmptySelector => {
            let before = shell.render_statuses.borrow().get(&name).cloned();
            if before != Some(RenderStatus::Waiting) {
                let message = error.to_string();
                shell.events.report_event(
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

/// Writes what has to be written: first the config, then who points at it.
async fn write_rendered(
    shell: &Context,
    pool: &Arc<MachineConfigPool>,
    todo: RenderPlan,
) -> Result<(), WriteError> {
    let world = &shell.caches;
    let api: Api<MachineConfig> = Api::all(shell.client.clone());
    let params = PostParams::default();
    if let Some(wanted) = todo.create {
        match shell.write(api.create(&params, &wanted)).await {
            Ok(made) => {
                report_rendered(shell, pool, &made, todo.annotated_by.as_deref());
                rendered_backup::back_up(shell, &made).await?;
                world.configs.upsert(made);
            }
            // Somebody was quicker; the watch brings it.
            Err(error) if error.is_conflict() => {}
            Err(error) => return Err(error),
        }
    }
    if let Some(wanted) = todo.repair {
        let name = wanted.name_any();
        let repaired = shell.write(api.replace(&name, &params, &wanted)).await?;
        let message = format!("{name} was edited; made again from its sources");
        shell.events.report_event(
            event_component::RENDER,
            pool.as_ref(),
            true,
            "RenderedConfigRepaired",
            message,
        );
        world.configs.upsert(repaired);
    }
    let mut patch = json!({});
    if let Some(configuration) = todo.set_configuration {
        patch["spec"] = json!({"configuration": {
            "name": configuration.name,
            "source": configuration.source,
        }});
    }
    if todo.end_rollback {
        let gone = [annotation::machinist::ROLLED_BACK_FROM, annotation::machinist::ROLLED_BACK_TO];
        patch["metadata"]["annotations"] =
            gone.iter().map(|key| ((*key).to_owned(), serde_json::Value::Null)).collect();
    }
    if patch.as_object().is_some_and(|patch| !patch.is_empty()) {
        patch["metadata"]["resourceVersion"] = json!(pool.resource_version());
        world.pools.upsert(shell.merge_patch(&pool.name_any(), &patch).await?);
    }
    Ok(())
}

fn report_rendered(
    shell: &Context,
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
    shell.events.report_event(
        event_component::RENDER,
        pool,
        false,
        "RenderedConfigGenerated",
        message,
    );
    if !annotation(annotation::OS_IMAGE_URL_OVERRIDDEN).is_empty() {
        let base = shell.caches.controller_config();
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
        shell.events.report_event(
            event_component::RENDER,
            made,
            false,
            "OSImageURLOverridden",
            message,
        );
    }
}
