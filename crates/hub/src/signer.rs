//! The certificate signer: approves and signs the CSRs of machines, and signs CSRs that an
//! administrator approved.
//!
//! A background task of [`crate::Hub`]; [`crate::auth::csr`] makes the decisions.

use crate::auth::certificates::CertificateAuthority;
use crate::auth::csr::{CsrDecision, apply_decision, decide};
use crate::hub::{Hub, now_rfc3339};
use crate::object;
use crate::store::{Precondition, RevisionError, StoreEntry, StoreEventKind, StoreOp, StoreWatch};

/// Key prefix of CSRs in the store.
const CSR_PREFIX: &str = "/certificates.k8s.io/certificatesigningrequests/-/";

/// Runs until the hub stops.
pub(crate) async fn run(hub: Hub) {
    let Some(ca) = &hub.inner.ca else { return };
    let stop = hub.cancellation_token();
    loop {
        let follow = async {
            let mut watch = list_and_watch(&hub, ca).await?;
            loop {
                let event = watch.next().await?;
                if event.kind == StoreEventKind::Put {
                    reconcile(&hub, ca, &event.entry).await;
                }
            }
        };
        let ended: Result<(), RevisionError> = tokio::select! {
            () = stop.cancelled() => return,
            ended = follow => ended,
        };
        match ended {
            Ok(()) | Err(RevisionError::Closed) => return,
            Err(error) => tracing::warn!(%error, "signer lost its watch and lists again"),
        }
    }
}

async fn list_and_watch(hub: &Hub, ca: &CertificateAuthority) -> Result<StoreWatch, RevisionError> {
    let page = hub.store().list(CSR_PREFIX, None, None);
    let watch = hub.store().watch(CSR_PREFIX, page.revision)?;
    for entry in &page.entries {
        reconcile(hub, ca, entry).await;
    }
    Ok(watch)
}

async fn reconcile(hub: &Hub, ca: &CertificateAuthority, entry: &StoreEntry) {
    let Ok(object) = object::decode(&entry.value, entry.revision) else { return };
    let step = decide(&object);
    let Some(new) = apply_decision(&step, &object, ca, &now_rfc3339()) else { return };
    let Ok(value) = object::encode(&new) else { return };
    let expect = Precondition::Revision(entry.revision);
    let op = StoreOp::Put { key: entry.key.to_string(), value, expect };
    match hub.store().commit(vec![op]).await {
        Ok(_) => log_decision(&step, object::metadata_str(&object, "name")),
        // On a conflict the other write triggers another reconcile.
        Err(error) => tracing::debug!(%error, "signer write failed"),
    }
}

fn log_decision(step: &CsrDecision, name: &str) {
    match step {
        CsrDecision::Fail(reason) => tracing::warn!(name, reason, "CSR failed"),
        _ => tracing::info!(name, "CSR signed"),
    }
}
