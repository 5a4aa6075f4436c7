//! The render loop: whenever a source changes, the pools get their rendered configs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kube::api::PostParams;
use kube::{Api, ResourceExt as _};
use machinist_core::api::names::{annotation, object};
use machinist_core::api::{MachineConfig, MachineConfigPool};
use machinist_core::reconcile_check::Overrides;
use machinist_core::render::System;
use machinist_core::render::pin::{Pin, pin, set_pinned};
use machinist_core::render::sync::{Inputs, Sync, SyncError, sync};
use serde_json::json;

use super::events::Component;
use super::history;
use super::pin::{Known, Means, Pins};
use super::shell::{Shell, WriteError};
use super::turn::Turns;

/// A burst of changes is over when nothing came for this long...
const QUIET: Duration = Duration::from_millis(150);
/// ...but nobody waits longer than this.
const PATIENCE: Duration = Duration::from_millis(700);
/// After a write that failed.
const RETRY: Duration = Duration::from_secs(1);
/// After a registry that could not say which image a tag means.
const ASK_AGAIN: Duration = Duration::from_secs(15);

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
    let system = System {
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
        let inputs = Inputs {
            pool: &pool,
            machine_configs: &configs,
            system,
            version: VERSION,
            overrides: Overrides::default(),
        };
        let render = match sync(&inputs) {
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

/// An image that is named by a tag is pinned before any machine may have it. Says whether the pool has to
/// wait for that, and when to look again.
async fn pin_image(
    shell: &Shell,
    pins: &Pins,
    pool: &MachineConfigPool,
    todo: &mut Sync,
) -> (Render, Option<Duration>) {
    let present = pool.spec.configuration.as_ref().and_then(|it| it.name.as_deref());
    let present = present.and_then(|name| shell.world.configs.get(name));
    let Some(new) = todo.create.as_mut() else {
        return (Render::Good, pin_later(shell, pins, &todo.rendered).await);
    };
    let tagged = match pin(new, present.as_deref()) {
        Pin::Needless => return (Render::Good, None),
        Pin::As(image) => {
            set_pinned(new, image);
            return (Render::Good, None);
        }
        Pin::Ask(tagged) => tagged,
    };
    match pins.find(&tagged, Means::of(shell).await) {
        Known::Digest(digest) => {
            set_pinned(new, tagged.by_digest(&digest));
            (Render::Good, None)
        }
        Known::NotYet => (Render::NotYet, Some(RETRY)),
        // Nobody waits for a registry that does not answer: the original would not ask it. A host that
        // unpacks images itself takes none without a digest.
        Known::Failed(why) => {
            let image = new.spec.os_image_url.clone().unwrap_or_default();
            let message = format!(
                "osImageURL {image}: cannot find out which image the tag means: {why}; machines may get different ones: name the image by its digest"
            );
            shell.events.report(Component::Render, pool, true, "OSImageNotPinned", message);
            (Render::Good, Some(ASK_AGAIN))
        }
    }
}

/// Pins the image of a config that was made when the registry could not say which it is. Says when to look
/// again, if that is still so.
async fn pin_later(shell: &Shell, pins: &Pins, rendered: &str) -> Option<Duration> {
    let made = shell.world.configs.get(rendered)?;
    let Pin::Ask(tagged) = pin(&made, None) else { return None };
    let digest = match pins.find(&tagged, Means::of(shell).await) {
        Known::Digest(digest) => digest,
        Known::NotYet => return Some(RETRY),
        Known::Failed(_) => return Some(ASK_AGAIN),
    };
    let mut wanted = made.as_ref().clone();
    set_pinned(&mut wanted, tagged.by_digest(&digest));
    let api: Api<MachineConfig> = Api::all(shell.client.clone());
    match shell.write(api.replace(rendered, &PostParams::default(), &wanted)).await {
        Ok(written) => {
            shell.world.configs.put(written);
            None
        }
        Err(error) => {
            tracing::debug!(rendered, %error, "cannot write which image the tag means");
            Some(RETRY)
        }
    }
}

fn told(shell: &Shell, pool: &Arc<MachineConfigPool>, error: &SyncError) -> Render {
    let name = pool.name_any();
    match error {
        SyncError::SelectsAll => {
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
        SyncError::NotYet(_) => Render::NotYet,
        SyncError::Nothing(_) => Render::Nothing(error.to_string()),
        _ => Render::Bad(format!("Failed to render configuration for pool {name}: {error}")),
    }
}

/// Writes what has to be written: first the config, then who points at it.
async fn perform(
    shell: &Shell,
    pool: &Arc<MachineConfigPool>,
    todo: Sync,
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
    if let Some(configuration) = todo.point {
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
