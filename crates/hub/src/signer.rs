//! The signer: approves and signs the requests of machines, signs what an administrator approved.

use crate::auth::certificates::Ca;
use crate::auth::csr::{Step, carry_out, decide};
use crate::hub::{Hub, now};
use crate::object;
use crate::store::{Entry, EventKind, Expect, Op, TooOld, Watch};

/// Where signing requests are.
const REQUESTS: &str = "/certificates.k8s.io/certificatesigningrequests/-/";

/// Runs until the hub stops.
pub(crate) async fn run(hub: Hub) {
    let Some(ca) = &hub.inner.ca else { return };
    let stop = hub.stopping();
    loop {
        let follow = async {
            let mut watch = begin(&hub, ca).await?;
            loop {
                let event = watch.next().await?;
                if event.kind == EventKind::Put {
                    look(&hub, ca, &event.entry).await;
                }
            }
        };
        let ended: Result<(), TooOld> = tokio::select! {
            () = stop.cancelled() => return,
            ended = follow => ended,
        };
        match ended {
            Ok(()) | Err(TooOld::Closed) => return,
            Err(error) => tracing::warn!(%error, "signer starts again"),
        }
    }
}

async fn begin(hub: &Hub, ca: &Ca) -> Result<Watch, TooOld> {
    let page = hub.store().list(REQUESTS, None, None);
    let watch = hub.store().watch(REQUESTS, page.revision)?;
    for entry in &page.entries {
        look(hub, ca, entry).await;
    }
    Ok(watch)
}

async fn look(hub: &Hub, ca: &Ca, entry: &Entry) {
    let Ok(object) = object::decode(&entry.value, entry.revision) else { return };
    let step = decide(&object);
    let Some(new) = carry_out(&step, &object, ca, &now()) else { return };
    let Ok(value) = object::encode(&new) else { return };
    let expect = Expect::Revision(entry.revision);
    let op = Op::Put { key: entry.key.to_string(), value, expect };
    match hub.store().commit(vec![op]).await {
        Ok(_) => report(&step, object::meta(&object, "name")),
        // Somebody else wrote it: that write brings us back.
        Err(error) => tracing::debug!(%error, "signer was too late"),
    }
}

fn report(step: &Step, name: &str) {
    match step {
        Step::Fail(reason) => tracing::warn!(name, reason, "signing request failed"),
        _ => tracing::info!(name, "certificate signed"),
    }
}
