//! The certificate signer: approves and signs the CSRs of machines, and signs CSRs that an
//! administrator approved.
//!
//! A background task of [`crate::Hub`]; [`crate::auth::csr`] makes the decisions.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::auth::certificates::{CertificateAuthority, CertificateInfo};
use crate::auth::csr::{CsrDecision, CsrFacts, apply_decision, decide, machine_name};
use crate::auth::machine::CertificateGrant;
use crate::auth::pool_names::takes_name;
use crate::auth::tokens::{self, TokenRecord};
use crate::hub::{Hub, now_rfc3339};
use crate::machines::{NODE_KEY_PREFIX, StoredMachine};
use crate::object;
use crate::store::{
    CommitError, Precondition, RevisionError, Store, StoreEntry, StoreEventKind, StoreOp,
    StoreWatch,
};

/// The task under which failed writes are reported.
const TASK: &str = "sign certificates";
/// How often a decision is repeated after conflicting writes of the token or the machine's record.
const MAX_ATTEMPTS: usize = 10;
/// Key prefix of pools in the store.
const POOL_PREFIX: &str = "/machineconfiguration.openshift.io/machineconfigpools/-/";
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
    for _ in 0..MAX_ATTEMPTS {
        let known = KnownFacts::read(hub, &object);
        let step = decide(&object, &known.facts(), &hub.inner.reserved_node_names);
        let Some(new) = apply_decision(&step, &object, ca, &now_rfc3339()) else { return };
        let Ok(value) = object::encode(&new) else { return };
        let expect = Precondition::Revision(entry.revision);
        let mut ops = vec![StoreOp::Put { key: entry.key.to_string(), value, expect }];
        // All or nothing: whoever sees the certificate can use it, and no token is used too often.
        ops.extend(known.ops(&step, &new));
        match hub.store().commit(ops).await {
            Ok(_) => {
                hub.failures().succeeded(TASK, "");
                hub.inner.recheck_credentials(); // a new certificate revokes earlier ones
                return log_decision(&step, object::metadata_str(&object, "name"));
            }
            // Another write of the CSR triggers another reconcile.
            Err(CommitError::Conflict { op: 0, .. }) => return,
            Err(CommitError::Conflict { .. }) => {}
            Err(error) => {
                hub.failures().failed(TASK, "", &error.to_string());
                return;
            }
        }
    }
}

/// What the store knows about the requester and the machine of a CSR.
struct KnownFacts {
    /// The bootstrap token of the request, with its key and revision.
    token: Option<(String, u64, TokenRecord)>,
    machine: Option<(String, StoredMachine)>,
    node_exists: bool,
    /// The pools that take the machine by its name.
    pools_by_name: BTreeSet<String>,
    /// When the request was made, by the hub's clock.
    requested_at: i64,
    now: i64,
}

impl KnownFacts {
    fn read(hub: &Hub, csr: &Value) -> Self {
        let (store, now) = (hub.store(), jiff::Timestamp::now().as_second());
        let id = csr["spec"]["username"].as_str().and_then(tokens::bootstrap_token_id);
        let token = id.and_then(|id| {
            let key = format!("{}{id}", tokens::TOKEN_KEY_PREFIX);
            let entry = store.get(&key)?;
            let record: TokenRecord = serde_json::from_slice(&entry.value).ok()?;
            (!record.is_expired(now)).then_some((key, entry.revision, record))
        });
        // The name comes from the request: only a valid one is used as a part of a key.
        let name = machine_name(csr).filter(|name| !name.is_empty() && !name.contains('/'));
        let node_exists = name
            .as_ref()
            .is_some_and(|name| store.get(&format!("{NODE_KEY_PREFIX}{name}")).is_some());
        let pools_by_name = name.as_ref().filter(|_| token.is_some());
        let pools_by_name = pools_by_name.map(|name| pools_by_name_of(store, name));
        let machine = name.map(|name| {
            let stored = StoredMachine::read(store, &name);
            (name, stored)
        });
        // Without a time, it counts as made before everything else.
        let requested_at = csr["metadata"]["creationTimestamp"]
            .as_str()
            .and_then(|time| time.parse::<jiff::Timestamp>().ok())
            .map_or(0, jiff::Timestamp::as_second);
        let pools_by_name = pools_by_name.unwrap_or_default();
        Self { token, machine, node_exists, pools_by_name, requested_at, now }
    }

    fn facts(&self) -> CsrFacts<'_> {
        let record = self.machine.as_ref().map(|(_, stored)| &stored.record);
        CsrFacts {
            token: self.token.as_ref().map(|(_, _, record)| record),
            node_exists: self.node_exists,
            has_live_certificate: record.is_some_and(|it| it.has_live_certificate(self.now)),
            roles: record.map(|record| record.roles.clone()).unwrap_or_default(),
            pools_by_name: self.pools_by_name.clone(),
            is_revoked_since: record
                .is_some_and(|record| !record.accepts_renewal_requested_at(self.requested_at)),
        }
    }

    /// The writes that belong to a signed certificate: the machine's record, and the use of the token.
    fn ops(&self, step: &CsrDecision, signed: &Value) -> Vec<StoreOp> {
        let (CsrDecision::ApproveAndSign(grant) | CsrDecision::Sign(Some(grant))) = step else {
            return Vec::new();
        };
        let Some(info) = certificate_info(signed) else { return Vec::new() };
        let mut ops = Vec::new();
        if let Some((name, stored)) = &self.machine {
            let new = stored.record.clone().after_signing(grant, info.not_before, info.not_after);
            ops.extend(stored.replace_with(name, &new));
        }
        // A request that an administrator approved is not a use of the token.
        let is_token_use = matches!(step, CsrDecision::ApproveAndSign(CertificateGrant::New(_)));
        if let Some((key, revision, record)) = self.token.as_ref().filter(|_| is_token_use) {
            let mut record = record.clone();
            if let Some(binding) = &mut record.bootstrap {
                binding.uses = binding.uses.saturating_add(1);
            }
            if let Ok(value) = serde_json::to_vec(&record) {
                let expect = Precondition::Revision(*revision);
                ops.push(StoreOp::Put { key: key.clone(), value: value.into(), expect });
            }
        }
        ops
    }
}

/// The pools that take a machine of this name.
fn pools_by_name_of(store: &Store, name: &str) -> BTreeSet<String> {
    let page = store.list(POOL_PREFIX, None, None);
    let pools = page.entries.iter().filter_map(|entry| {
        let pool = object::decode(&entry.value, entry.revision).ok()?;
        takes_name(&pool, name).then(|| object::metadata_str(&pool, "name").to_owned())
    });
    pools.collect()
}

/// The validity of the certificate in a signed CSR; `None` if signing failed.
fn certificate_info(csr: &Value) -> Option<CertificateInfo> {
    let pem = STANDARD.decode(csr["status"]["certificate"].as_str()?).ok()?;
    CertificateInfo::parse(std::str::from_utf8(&pem).ok()?).ok()
}

fn log_decision(step: &CsrDecision, name: &str) {
    match step {
        CsrDecision::Fail(reason) => tracing::warn!(name, reason, "CSR failed"),
        CsrDecision::Deny(reason) => tracing::warn!(name, reason, "CSR denied"),
        CsrDecision::Hold(reason) => tracing::warn!(name, reason, "CSR waits for approval"),
        _ => tracing::info!(name, "CSR signed"),
    }
}
