//! The [`Hub`]: a store and the kinds it serves, shared by the router and the background loops.
//!
//! It knows neither of them: [`crate::startup`] builds a hub and runs its loops.

mod authorization;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::audit::AuditLog;
use crate::auth::authorizer::Authorizer;
use crate::auth::certificates::CertificateAuthority;
use crate::binaries::BinaryStore;
use crate::body::BodyReader;
use crate::compression_budget::CompressionBudgets;
use crate::failure_log::FailureLog;
use crate::kind_registry::ResourceKind;
use crate::metrics::HubMetrics;
use crate::object::{self, ServerMetadata};
use crate::quotas::Quotas;
use crate::rbac::live::LiveRbac;
use crate::request_shares::RequestShares;
use crate::served_kinds::LiveKinds;
use crate::store::Store;
use crate::stored_bytes::StoredBytes;
use crate::unreadable_entries::UnreadableEntries;
use crate::write_order::WriteOrder;

/// An API server. A clone is the same hub.
#[derive(Debug, Clone)]
pub struct Hub {
    pub(crate) inner: Arc<HubInner>,
}

#[derive(Debug)]
pub(crate) struct HubInner {
    pub(crate) store: Store,
    pub(crate) kinds: LiveKinds,
    pub(crate) authorizer: Authorizer,
    pub(crate) rbac: LiveRbac,
    pub(crate) audit: AuditLog,
    pub(crate) metrics: HubMetrics,
    pub(crate) failures: FailureLog,
    pub(crate) ca: Option<CertificateAuthority>,
    pub(crate) reserved_node_names: BTreeSet<String>,
    pub(crate) viewer_redactions: Vec<ViewerRedaction>,
    pub(crate) version: String,
    pub(crate) binaries: BinaryStore,
    /// Annotations of Nodes that machines do not write.
    pub(crate) protected_annotations: Vec<String>,
    pub(crate) revision_wait: Duration,
    pub(crate) body_reader: BodyReader,
    pub(crate) unreadable: Arc<UnreadableEntries>,
    pub(crate) quotas: Quotas,
    pub(crate) stored_bytes: StoredBytes,
    pub(crate) shares: RequestShares,
    pub(crate) compression: Mutex<CompressionBudgets>,
    pub(crate) write_order: WriteOrder,
    /// When tokens were last used, by id, as far as it was written or is about to be.
    pub(crate) token_uses: Mutex<HashMap<String, i64>>,
    /// Changes when a token or a certificate was revoked, or a role changed: open watches then check their own.
    pub(crate) revocations: watch::Sender<()>,
    pub(crate) stop: CancellationToken,
    pub(crate) tasks: TaskTracker,
}

/// How those see the objects of a kind who may read its outline only.
#[derive(Debug, Clone)]
pub struct ViewerRedaction {
    /// API group.
    pub group: String,
    /// Resource.
    pub resource: String,
    /// Replaces the contents of an object.
    pub redact: fn(&mut Value),
}

impl Hub {
    /// Ends watches and tasks. The store stays open while someone holds a clone of it.
    pub async fn stop(&self) {
        self.inner.stop.cancel();
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.inner.store
    }

    /// The hub's metrics.
    #[must_use]
    pub fn metrics(&self) -> &HubMetrics {
        &self.inner.metrics
    }

    /// What fails right now in this process.
    #[must_use]
    pub fn failures(&self) -> &FailureLog {
        &self.inner.failures
    }

    /// A token that is cancelled when the hub stops.
    #[must_use]
    pub fn cancellation_token(&self) -> CancellationToken {
        self.inner.stop.clone()
    }

    /// Returns the kind of an object by its apiVersion and kind.
    #[must_use]
    pub fn kind_of(&self, object: &Value) -> Option<Arc<ResourceKind>> {
        self.inner.kinds.read().kind_of(object).cloned()
    }
}

impl HubInner {
    /// Makes open watches check whether their credential and their rights still count.
    pub(crate) fn recheck_credentials(&self) {
        self.revocations.send_replace(());
    }
}

/// Returns the metadata that only the server sets.
pub(crate) fn new_server_metadata() -> ServerMetadata {
    let suffix = object::name_suffix(*uuid::Uuid::new_v4().as_bytes());
    ServerMetadata { uid: uuid::Uuid::new_v4().to_string(), now: now_rfc3339(), suffix }
}

/// The current time in RFC 3339, in whole seconds.
pub(crate) fn now_rfc3339() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
