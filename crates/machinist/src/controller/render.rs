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
use machinist_core::render::reconcile::{ReconcileError, RenderInputs, RenderPlan, reconcile};
use serde_json::json;

use super::events::Component;
use super::history;
use super::pin::Pins;
use super::pinned::pin_image;
use super::shell::{Shell, WriteError};
use super::turn::Turns;

/// A burst of changes is over when nothing came for this long...
const QUIET: Duration = Duration::from_millis(150);
/// ...but nobody waits longer than this.
const PATIENCE: Duration = Duration::from_millis(700);
/// After a write that failed.
pub(super) const RETRY: Duration = Duration::from_secs(1);

/// How the rendering of a pool went last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Render {
    /// The pool has its config.
    Good,
    /// Something else has to happen first.
    NotYet,
    /// There is nothing to render.
    Nothing(String),
    /// The sources are bad.
    Bad(String),
}

/// By the names of the pools.
pub(super) type Renders = BTreeMap<String, Render>;

/// What the controller calls itself in what it makes.
pub(super) const VERSION: &str = concat!("machinist-", env!("CARGO_PKG_VERSION"));

/// Renders for ever.
pub(super) async fn run(shell: Shell) {
    let world = &shell.world;
    let mut turns = Turns::new(QUIET, PATIENCE);
    turns.after(world.pools.changes());
    turns.after(world.configs.changes());
    turns.after(world.controller_configs.changes());
    turns.after(world.os_image_streams.changes());
    world.ready().await;
    let (mut again, pins) = (Some(RETRY), Pins::default());
    loop {
        turns.next(again).await;
        again = pass(&shell, &pins).await;
    }
}

/// Renders all pools once; when it has to be looked at again by itself.
async fn pass(shell: &Shell, pins: &Pins) -> Option<Duration> {
    let world = &shell.world;
    let configs = world.configs.all();
    let configs: Vec<&MachineConfig> = configs.iter().map(AsRef::as_ref).collect();
    let (controller_config, streams) = (world.controller_config(), world.streams());
    let worker = world.pools.get(object::POOL_WORKER);
    let system = ImageSources {
        controller_config: controller_config.as_deref(),
        streams: streams.as_deref(),
        worker: worker.as_deref(),
    };
    let mut renders = Renders::new();
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
        let render = match reconcile(&inputs) {
            Ok(mut todo) => {
                let overridden = todo.os_image_overridden;
                shell.metrics.os_image_overridden(&pool.name_any(), overridden);
                let (pinned, later) = pin_image(shell, pins, &pool, &mut todo).await;
                again = sooner(again, later);
                match pinned {
                    Render::Good => {
                        if let Err(error) = perform(shell, &pool, todo).await {
                            again = sooner(again, Some(RETRY));
                            tracing::debug!(pool = pool.name_any(), %error, "cannot write what was rendered");
                        }
                        Render::Good
                    }
                    waits => waits,
                }
            }
            Err(error) => told(shell, &pool, &error),
        };
        renders.insert(pool.name_any(), render);
    }
    shell.renders.send_if_modified(|known| {
        let is_news = *known != renders;
        *known = renders;
        is_news
    });
    again
}

fn sooner(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    [one, other].into_iter().flatten().min()
}

fn told(shell: &Shell, pool: &Arc<MachineConfigPool>, error: &ReconcileError) -> Render {
    let name = pool.name_any();
    match error {
        ReconcileError::EmptySelector => {
            let before = shell.renders.borrow().get(&name).cloned();
            if before != Some(Render::NotYet) {
                let message = error.to_string();
                shell.events.report(
                    Component::Render,
                    pool.as_ref(),
                    true,
                    "SelectingAll",
                    message,
                );
            }
            Render::NotYet
        }
        ReconcileError::NotYet(_) => Render::NotYet,
        ReconcileError::NothingToRender(_) => Render::Nothing(error.to_string()),
        _ => Render::Bad(format!("Failed to render configuration for pool {name}: {error}")),
    }
}

/// Writes what has to be written: first the config, then who points at it.
async fn perform(
    shell: &Shell,
    pool: &Arc<MachineConfigPool>,
    todo: RenderPlan,
) -> Result<(), WriteError> {
    let world = &shell.world;
    let api: Api<MachineConfig> = Api::all(shell.client.clone());
    let params = PostParams::default();
    if let Some(wanted) = todo.create {
        match shell.write(api.create(&params, &wanted)).await {
            Ok(made) => {
                report_made(shell, pool, &made, todo.annotated_by.as_deref());
                history::keep(shell, &made).await?;
                world.configs.put(made);
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
        shell.events.report(
            Component::Render,
            pool.as_ref(),
            true,
            "RenderedConfigRepaired",
            message,
        );
        world.configs.put(repaired);
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
        world.pools.put(shell.merge(&pool.name_any(), &patch).await?);
    }
    Ok(())
}

fn report_made(
    shell: &Shell,
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
    shell.events.report(Component::Render, pool, false, "RenderedConfigGenerated", message);
    if !annotation(annotation::OS_IMAGE_URL_OVERRIDDEN).is_empty() {
        let base = shell.world.controller_config();
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
        shell.events.report(Component::Render, made, false, "OSImageURLOverridden", message);
    }
}
