//! Rendered configs whose image is named by a tag get the image by its digest beside it.

use std::time::Duration;

use kube::Api;
use kube::api::PostParams;
use machinist_core::api::{MachineConfig, MachineConfigPool};
use machinist_core::render::pin_image::{ImagePin, plan_pin, set_pinned_image};
use machinist_core::render::reconcile::RenderPlan;

use super::events::Component;
use super::pin::{Known, Means, Pins};
use super::render::{RETRY, Render};
use super::shell::Shell;

/// After a registry that could not say which image a tag means.
const ASK_AGAIN: Duration = Duration::from_secs(15);

/// An image that is named by a tag is pinned before any machine may have it. Says whether the pool has to
/// wait for that, and when to look again.
pub(super) async fn pin_image(
    shell: &Shell,
    pins: &Pins,
    pool: &MachineConfigPool,
    todo: &mut RenderPlan,
) -> (Render, Option<Duration>) {
    let present = pool.spec.configuration.as_ref().and_then(|it| it.name.as_deref());
    let present = present.and_then(|name| shell.world.configs.get(name));
    let Some(new) = todo.create.as_mut() else {
        return (Render::Good, pin_later(shell, pins, &todo.rendered).await);
    };
    let tagged = match plan_pin(new, present.as_deref()) {
        ImagePin::NotNeeded => return (Render::Good, None),
        ImagePin::Reuse(image) => {
            set_pinned_image(new, image);
            return (Render::Good, None);
        }
        ImagePin::Resolve(tagged) => tagged,
    };
    match pins.find(&tagged, Means::of(shell).await) {
        Known::Digest(digest) => {
            set_pinned_image(new, tagged.by_digest(&digest));
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
    let ImagePin::Resolve(tagged) = plan_pin(&made, None) else { return None };
    let digest = match pins.find(&tagged, Means::of(shell).await) {
        Known::Digest(digest) => digest,
        Known::NotYet => return Some(RETRY),
        Known::Failed(_) => return Some(ASK_AGAIN),
    };
    let mut wanted = made.as_ref().clone();
    set_pinned_image(&mut wanted, tagged.by_digest(&digest));
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
