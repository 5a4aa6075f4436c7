//! The kinds that the hub serves now: those that are compiled in, and those of definitions that clients created.
//!
//! A request takes one [`ServedKinds`] and keeps it to its end, so that a definition that changes meanwhile does not
//! change the rules halfway. Filled by [`crate::startup`] and [`crate::definition_loop`], read by everything that looks up
//! a kind.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::RwLock;
use serde_json::Value;
use tokio::sync::watch;

use crate::admission::Admission;
use crate::kind_registry::{KindRegistry, ResourceKind};

/// A kind and how its objects are admitted.
pub(crate) type AdmittedKind = (Arc<ResourceKind>, Arc<Admission>);

/// One set of kinds.
#[derive(Debug, Default)]
pub(crate) struct ServedKinds {
    pub(crate) registry: KindRegistry,
    admissions: HashMap<(String, String, String), Arc<Admission>>,
    pub(crate) openapi: OpenApiCache,
}

/// OpenAPI documents. They are large, so each is built on its first request and kept.
#[derive(Debug, Default)]
pub(crate) struct OpenApiCache {
    pub(crate) v2: OnceLock<OpenApiV2>,
    pub(crate) v3_index: OnceLock<Value>,
}

/// The OpenAPI 2 document in its encodings.
#[derive(Debug)]
pub(crate) struct OpenApiV2 {
    pub(crate) json: Bytes,
    pub(crate) protobuf: Bytes,
    /// Changes with the document; the same for both encodings, as in kube-apiserver.
    pub(crate) etag: String,
}

impl ServedKinds {
    fn new(kinds: impl Iterator<Item = AdmittedKind>) -> Self {
        let mut served = Self::default();
        for (kind, admission) in kinds {
            served.admissions.insert(key(&kind), admission);
            served.registry.add_shared(kind);
        }
        served
    }

    /// The admission of a kind.
    pub(crate) fn admission(&self, kind: &ResourceKind) -> &Admission {
        static NONE: Admission = Admission::disabled();
        self.admissions.get(&key(kind)).map_or(&NONE, AsRef::as_ref)
    }

    /// The kind of an object by its apiVersion and kind. A stored object may be of a version that is not served: any other
    /// version of its kind stands for it then.
    pub(crate) fn kind_of(&self, object: &Value) -> Option<&Arc<ResourceKind>> {
        let version = object["apiVersion"].as_str().unwrap_or_default();
        let name = object["kind"].as_str().unwrap_or_default();
        let exact =
            self.registry.kinds().find(|kind| kind.kind == name && kind.has_api_version(version));
        exact.or_else(|| {
            let (group, _) = version.split_once('/')?;
            let mut kinds = self.registry.kinds().filter(|kind| kind.defined.is_some());
            kinds.find(|kind| kind.kind == name && kind.group == group)
        })
    }
}

fn key(kind: &ResourceKind) -> (String, String, String) {
    (kind.group.clone(), kind.version.clone(), kind.plural.clone())
}

/// The current [`ServedKinds`].
#[derive(Debug)]
pub(crate) struct LiveKinds {
    base: Vec<AdmittedKind>,
    current: RwLock<Arc<ServedKinds>>,
    /// How often clients asked for a round of the loop that serves definitions, and how many of these are done.
    requested: watch::Sender<u64>,
    settled: watch::Sender<u64>,
}

impl LiveKinds {
    /// Serves the kinds that are compiled in.
    pub(crate) fn new(base: Vec<AdmittedKind>) -> Self {
        let served = ServedKinds::new(base.iter().cloned());
        let current = RwLock::new(Arc::new(served));
        let (requested, settled) = (watch::Sender::default(), watch::Sender::default());
        Self { base, current, requested, settled }
    }

    /// The kinds that are served now.
    pub(crate) fn read(&self) -> Arc<ServedKinds> {
        Arc::clone(&self.current.read())
    }

    /// The kinds that are compiled in.
    pub(crate) fn base(&self) -> impl Iterator<Item = &Arc<ResourceKind>> {
        self.base.iter().map(|(kind, _)| kind)
    }

    /// Serves these kinds besides those that are compiled in.
    pub(crate) fn replace(&self, defined: impl Iterator<Item = AdmittedKind>) {
        let served = ServedKinds::new(self.base.iter().cloned().chain(defined));
        *self.current.write() = Arc::new(served);
    }

    /// Sees each request for a round. A round that begins serves everything that was stored before.
    pub(crate) fn rounds(&self) -> watch::Receiver<u64> {
        self.requested.subscribe()
    }

    /// Records that a round is done, which began with this many requests.
    pub(crate) fn settle(&self, requests: u64) {
        self.settled.send_replace(requests);
    }

    /// Waits until all stored definitions are served, or the time is over.
    pub(crate) async fn wait_until_settled(&self, limit: Duration) {
        let mut settled = self.settled.subscribe();
        let mut own = 0;
        self.requested.send_modify(|requests| {
            *requests += 1;
            own = *requests;
        });
        let reached = settled.wait_for(|done| *done >= own);
        // The write is durable either way; it only takes effect a little later.
        let _ = tokio::time::timeout(limit, reached).await;
    }
}
