//! Pins images: a rendered config that names its OS image by a tag also gets the digest. Called by the render loop.

use std::time::Duration;

use kube::Api;
use kube::api::PostParams;
use machinist_core::api::{MachineConfig, MachineConfigPool};
use machinist_core::render::pin_image::{ImagePin, plan_pin, set_pinned_image};
use machinist_core::render::reconcile::RenderPlan;
use machinist_core::rollout::RenderStatus;

use super::context::Context;
use super::event_component;
use super::render::RETRY_DELAY;
use super::resolve_tag::{RegistryAuth, TagResolution, TagResolver};

/// The task under which failed writes are reported.
const TASK: &str = "write the pinned image";
/// The wait after a registry did not resolve a tag.
const REGISTRY_RETRY_DELAY: Duration = Duration::from_secs(15);

/// Pins an image before any machine gets it. Returns whether the pool has to wait for that, and when to try again.
pub(super) async fn pin_image(
    context: &Context,
    tags: &TagResolver,
    pool: &MachineConfigPool,
    plan: &mut RenderPlan,
) -> (RenderStatus, Option<Duration>) {
    let present = pool.spec.configuration.as_ref().and_then(|it| it.name.as_deref());
    let present = present.and_then(|name| context.caches.configs.get(name));
    let Some(new) = plan.create.as_mut() else {
        return (RenderStatus::Rendered, pin_later(context, tags, &plan.rendered).await);
    };
    let tagged = match plan_pin(new, present.as_deref()) {
        ImagePin::NotNeeded => return (RenderStatus::Rendered, None),
        ImagePin::Reuse(image) => {
            set_pinned_image(new, image);
            return (RenderStatus::Rendered, None);
        }
        ImagePin::Resolve(tagged) => tagged,
    };
    match tags.resolve(&tagged, RegistryAuth::from_cluster(context).await, &context.failures) {
        TagResolution::Resolved(digest) => {
            set_pinned_image(new, tagged.by_digest(&digest));
            (RenderStatus::Rendered, None)
        }
        TagResolution::Resolving => (RenderStatus::Waiting, Some(RETRY_DELAY)),
        // A registry that does not respond must not block the pool: MCO does not ask it. A host that unpacks images itself
        // rejects an image without a digest.
        TagResolution::Failed(why) => {
            let image = new.spec.os_image_url.clone().unwrap_or_default();
            let message = format!(
                "osImageURL {image}: cannot find out which image the tag means: {why}; machines may get different ones: name the image by its digest"
            );
            context.events.report_event(
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

/// Pins the image of a config that was rendered while the registry did not resolve its tag. Returns when to try again, if
/// it still does not.
async fn pin_later(context: &Context, tags: &TagResolver, rendered: &str) -> Option<Duration> {
    let made = context.caches.configs.get(rendered)?;
    let ImagePin::Resolve(tagged) = plan_pin(&made, None) else { return None };
    let digest =
        match tags.resolve(&tagged, RegistryAuth::from_cluster(context).await, &context.failures) {
            TagResolution::Resolved(digest) => digest,
            TagResolution::Resolving => return Some(RETRY_DELAY),
            TagResolution::Failed(_) => return Some(REGISTRY_RETRY_DELAY),
        };
    let mut wanted = made.as_ref().clone();
    set_pinned_image(&mut wanted, tagged.by_digest(&digest));
    let api: Api<MachineConfig> = Api::all(context.client.clone());
    match context.write(api.replace(rendered, &PostParams::default(), &wanted)).await {
        Ok(written) => {
            context.write_succeeded(TASK, made.as_ref());
            context.caches.configs.upsert(written);
            None
        }
        Err(error) => {
            if !error.is_conflict() {
                context.write_failed(TASK, event_component::RENDER, made.as_ref(), &error);
            }
            Some(RETRY_DELAY)
        }
    }
}
