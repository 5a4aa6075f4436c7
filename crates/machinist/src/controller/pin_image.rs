//! Rendered configs whose image is named by a tag get the image by its digest beside it.

use std::time::Duration;

use kube::Api;
use kube::api::PostParams;
use machinist_core::api::{MachineConfig, MachineConfigPool};
use machinist_core::render::pin_image::{ImagePin, plan_pin, set_pinned_image};
use machinist_core::render::reconcile::RenderPlan;

use super::context::Context;
use super::event_component;
use super::render::{RETRY_DELAY, RenderStatus};
use super::resolve_tag::{RegistryAuth, TagResolution, TagResolver};

/// After a registry that could not say which image a tag means.
const REGISTRY_RETRY_DELAY: Duration = Duration::from_secs(15);

/// An image that is named by a tag is pinned before any machine may have it. Says whether the pool has to
/// wait for that, and when to look again.
pub(super) async fn pin_image(
    shell: &Context,
    pins: &TagResolver,
    pool: &MachineConfigPool,
    todo: &mut RenderPlan,
) -> (RenderStatus, Option<Duration>) {
    let present = pool.spec.configuration.as_ref().and_then(|it| it.name.as_deref());
    let present = present.and_then(|name| shell.caches.configs.get(name));
    let Some(new) = todo.create.as_mut() else {
        return (RenderStatus::Rendered, pin_later(shell, pins, &todo.rendered).await);
    };
    let tagged = match plan_pin(new, present.as_deref()) {
        ImagePin::NotNeeded => return (RenderStatus::Rendered, None),
        ImagePin::Reuse(image) => {
            set_pinned_image(new, image);
            return (RenderStatus::Rendered, None);
        }
        ImagePin::Resolve(tagged) => tagged,
    };
    match pins.resolve(&tagged, RegistryAuth::from_cluster(shell).await) {
        TagResolution::Resolved(digest) => {
            set_pinned_image(new, tagged.by_digest(&digest));
            (RenderStatus::Rendered, None)
        }
        TagResolution::Resolving => (RenderStatus::Waiting, Some(RETRY_DELAY)),
        // Nobody waits for a registry that does not answer: the original would not ask it. A host that
        // unpacks images itself takes none without a digest.
        TagResolution::Failed(why) => {
            let image = new.spec.os_image_url.clone().unwrap_or_default();
            let message = format!(
                "osImageURL {image}: cannot find out which image the tag means: {why}; machines may get different ones: name the image by its digest"
            );
            shell.events.report_event(
                event_component::RENDER,
                pool,
                true,
                "OSImageNotPinned",
                message,
            );
            (RenderStatus::Rendered, Some(REGISTRY_RETRY_DELAY))
        }
    }
}

/// Pins the image of a config that was made when the registry could not say which it is. Says when to look
/// again, if that is still so.
async fn pin_later(shell: &Context, pins: &TagResolver, rendered: &str) -> Option<Duration> {
    let made = shell.caches.configs.get(rendered)?;
    let ImagePin::Resolve(tagged) = plan_pin(&made, None) else { return None };
    let digest = match pins.resolve(&tagged, RegistryAuth::from_cluster(shell).await) {
        TagResolution::Resolved(digest) => digest,
        TagResolution::Resolving => return Some(RETRY_DELAY),
        TagResolution::Failed(_) => return Some(REGISTRY_RETRY_DELAY),
    };
    let mut wanted = made.as_ref().clone();
    set_pinned_image(&mut wanted, tagged.by_digest(&digest));
    let api: Api<MachineConfig> = Api::all(shell.client.clone());
    match shell.write(api.replace(rendered, &PostParams::default(), &wanted)).await {
        Ok(written) => {
            shell.caches.configs.upsert(written);
            None
        }
        Err(error) => {
            tracing::debug!(rendered, %error, "cannot write which image the tag means");
            Some(RETRY_DELAY)
        }
    }
}
