//! Starts a [`Hub`]: builds its kinds, writes the objects that every hub has, and runs the background loops.
//!
//! The only module that knows both the hub and its loops. Called by `machinist up` and by tests.

mod bootstrap_roles;
#[cfg(test)]
mod write_fault_tests;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{Instrument as _, info_span};

use crate::admission::Admission;
use crate::audit::AuditLog;
use crate::auth::authorizer::{Authorizer, PolicyRule};
use crate::auth::certificates::CertificateAuthority;
use crate::binaries::BinaryStore;
use crate::body::BodyReader;
use crate::definition_loop::DefinitionLoop;
use crate::failure_log::FailureLog;
use crate::hub::{Hub, HubInner, ViewerRedaction, new_server_metadata};
use crate::kind_registry::ResourceKind;
use crate::metrics::HubMetrics;
use crate::object;
use crate::object_limits::{MAX_DEPTH, measure};
use crate::quotas::{Quotas, WriteRates};
use crate::rbac::live::LiveRbac;
use crate::request_shares::RequestShares;
use crate::served_kinds::{AdmittedKind, LiveKinds};
use crate::store::{CommitError, Precondition, Store, StoreError, StoreOp};
use crate::stored_bytes::{DEFAULT_MAX_STORED_BYTES, StoredBytes};
use crate::unreadable_entries::UnreadableEntries;
use crate::write_order::WriteOrder;
use crate::{
    built_in, csr_ttl, definition_loop, event_ttl, garbage_collector, node_liveness,
    role_aggregation, signer,
};

/// What a hub needs besides its store.
#[derive(Debug, Default)]
pub struct HubConfig {
    /// The CustomResourceDefinitions of the kinds that are not built in, as JSON.
    pub crds: Vec<Value>,
    /// Authorization rules for these kinds.
    pub rules: Vec<PolicyRule>,
    /// Namespaces created at startup, besides the system namespaces.
    pub namespaces: Vec<String>,
    /// The audit log.
    pub audit: AuditLog,
    /// Where failures of the background loops are reported.
    pub failures: FailureLog,
    /// The CA that signs client certificates. Without it the hub signs no requests.
    pub ca: Option<CertificateAuthority>,
    /// Names that no machine may have: those of the system's components and of their leases.
    pub reserved_node_names: BTreeSet<String>,
    /// Group and resource of the kinds that viewers may not read, besides Secrets.
    pub hidden_from_viewers: Vec<(String, String)>,
    /// Kinds that viewers see without their contents.
    pub viewer_redactions: Vec<ViewerRedaction>,
    /// How fast machines, tokens and viewers may write.
    pub write_rates: WriteRates,
    /// What all objects may take together, before machines and tokens may not add to them. `None` means 1 GiB.
    pub max_stored_bytes: Option<u64>,
    /// The version that `/version` reports.
    pub version: String,
    /// Where binaries are stored that machines upgrade to. Without it none can be uploaded.
    pub binaries: Option<PathBuf>,
    /// Annotations of Nodes that machines may remove, and neither add nor change.
    pub protected_annotations: Vec<String>,
    /// How long a request waits for a future revision. `None` means 3 s, as in kube-apiserver.
    pub revision_wait: Option<Duration>,
}

/// How long kube-apiserver waits for a future revision.
const DEFAULT_REVISION_WAIT: Duration = Duration::from_secs(3);

/// Why the hub cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A CRD is invalid.
    #[error("cannot serve the CustomResourceDefinition {name}: {reason}")]
    InvalidDefinition {
        /// The name of the CustomResourceDefinition.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A required object could not be written.
    #[error("cannot write {key}")]
    Write {
        /// The object's key.
        key: String,
        /// Why.
        source: CommitError,
    },
}

/// The namespaces of every Kubernetes cluster.
const SYSTEM_NAMESPACES: &[&str] = &["default", "kube-node-lease", "kube-public", "kube-system"];

impl Hub {
    /// Starts a hub: writes the CRDs and namespaces, then runs the garbage collector, the
    /// certificate signer and the sweeps of Events and CSRs until [`Hub::stop`].
    ///
    /// # Errors
    /// A CRD is invalid, or the store rejects a required object.
    pub async fn start(store: Store, config: HubConfig) -> Result<Self, StartError> {
        let mut kinds = Vec::new();
        for kind in compiled_kinds(&config.crds)? {
            let admission =
                Admission::new(&kind).map_err(|reason| StartError::InvalidDefinition {
                    name: format!("{}.{}", kind.plural, kind.group),
                    reason,
                })?;
            kinds.push((Arc::new(kind), Arc::new(admission)) as AdmittedKind);
        }
        let unreadable = Arc::new(UnreadableEntries::scan(&store));
        if !unreadable.keys(&store, "").is_empty() {
            // The history has the same values; watches start again with a list, which skips them.
            store.compact(store.revision());
        }
        let rbac = LiveRbac::new(store.clone());
        let inner = HubInner {
            metrics: HubMetrics::new(store.clone(), Arc::clone(&unreadable)),
            store,
            kinds: LiveKinds::new(kinds),
            authorizer: Authorizer::new(config.rules),
            rbac,
            audit: config.audit,
            failures: config.failures,
            ca: config.ca,
            reserved_node_names: config.reserved_node_names,
            viewer_redactions: config.viewer_redactions,
            version: config.version,
            binaries: BinaryStore::new(config.binaries),
            protected_annotations: config.protected_annotations,
            revision_wait: config.revision_wait.unwrap_or(DEFAULT_REVISION_WAIT),
            body_reader: BodyReader::default(),
            unreadable,
            quotas: Quotas::new(config.write_rates),
            stored_bytes: StoredBytes::new(
                config.max_stored_bytes.unwrap_or(DEFAULT_MAX_STORED_BYTES),
            ),
            shares: RequestShares::default(),
            compression: Mutex::default(),
            write_order: WriteOrder::default(),
            token_uses: Mutex::default(),
            revocations: watch::Sender::default(),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
        };
        let hub = Self { inner: Arc::new(inner) };
        hub.write_crds(&config.crds).await?;
        let configured = config.namespaces.iter().map(String::as_str);
        for name in SYSTEM_NAMESPACES.iter().copied().chain(configured) {
            hub.ensure_object(&namespace_object(name)).await?;
        }
        bootstrap_roles::write(&hub, &config.hidden_from_viewers).await?;
        let mut definitions = DefinitionLoop::default();
        definitions.round(&hub).await; // what was created before the start is served from its first request on
        let task =
            definition_loop::run(hub.clone(), definitions).instrument(info_span!("definitions"));
        hub.inner.tasks.spawn(task);
        let task = garbage_collector::run(hub.clone()).instrument(info_span!("garbage_collector"));
        hub.inner.tasks.spawn(task);
        let task = role_aggregation::run(hub.clone()).instrument(info_span!("role_aggregation"));
        hub.inner.tasks.spawn(task);
        let task = signer::run(hub.clone()).instrument(info_span!("signer"));
        hub.inner.tasks.spawn(task);
        let task = event_ttl::run(hub.clone()).instrument(info_span!("event_ttl"));
        hub.inner.tasks.spawn(task);
        let task = csr_ttl::run(hub.clone()).instrument(info_span!("csr_ttl"));
        hub.inner.tasks.spawn(task);
        let task = node_liveness::run(hub.clone()).instrument(info_span!("node_liveness"));
        hub.inner.tasks.spawn(task);
        Ok(hub)
    }

    /// Creates an object unless one of that name exists.
    ///
    /// # Errors
    /// The store rejects it.
    pub async fn ensure_object(&self, object: &Value) -> Result<(), StartError> {
        let kinds = self.inner.kinds.read();
        let Some(kind) = kinds.kind_of(object) else {
            let name = object["kind"].as_str().unwrap_or_default().to_owned();
            return Err(StartError::InvalidDefinition {
                name,
                reason: "the hub does not serve this kind".into(),
            });
        };
        let namespace = object["metadata"]["namespace"].as_str();
        let key = object::storage_key(kind, namespace, object::metadata_str(object, "name"));
        if self.inner.store.get(&key).is_some() {
            return Ok(());
        }
        let mut object = object.clone();
        kinds.admission(kind).apply_defaults(&mut object);
        object::prepare_create(kind, &mut object, &new_server_metadata());
        self.put(key, &object, Precondition::Absent).await
    }

    /// Stores the CRDs as read-only objects. A newer version replaces those of an older one.
    async fn write_crds(&self, crds: &[Value]) -> Result<(), StartError> {
        for crd in crds {
            let Some(kind) = self.kind_of(crd) else { continue };
            let key = object::storage_key(&kind, None, object::metadata_str(crd, "name"));
            let old = self.inner.store.get(&key);
            let old = old.and_then(|entry| object::decode(&entry.value, entry.revision).ok());
            let mut new = crd.clone();
            object::prepare_create(&kind, &mut new, &new_server_metadata());
            new["status"] =
                established_status(crd, object::metadata_str(&new, "creationTimestamp"));
            if let Some(old) = &old {
                for field in ["uid", "creationTimestamp"] {
                    let kept = Some(old["metadata"][field].clone());
                    object::set_metadata_field(&mut new, field, kept);
                }
                let generation = old["metadata"]["generation"].as_i64().unwrap_or(1);
                let generation = generation + i64::from(old["spec"] != new["spec"]);
                object::set_metadata_field(&mut new, "generation", Some(generation.into()));
                new["status"] =
                    established_status(crd, object::metadata_str(old, "creationTimestamp"));
                if object::is_unchanged(old, &new) {
                    continue;
                }
            }
            match self.put(key, &new, Precondition::Any).await {
                // The kinds are compiled in; only what clients read about them stays old.
                Err(StartError::Write {
                    key,
                    source: CommitError::Store(error @ StoreError::DiskFull { .. }),
                }) if old.is_some() => {
                    tracing::warn!(key, %error, "cannot update a CustomResourceDefinition");
                }
                done => done?,
            }
        }
        Ok(())
    }

    async fn put(
        &self,
        key: String,
        object: &Value,
        expect: Precondition,
    ) -> Result<(), StartError> {
        let bad = |error: serde_json::Error| StartError::InvalidDefinition {
            name: object::metadata_str(object, "name").to_owned(),
            reason: error.to_string(),
        };
        let value = object::encode(object).map_err(bad)?;
        let op = StoreOp::Put { key: key.clone(), value, expect };
        match self.inner.store.commit(vec![op]).await {
            Ok(_) => Ok(()),
            Err(source) => Err(StartError::Write { key, source }),
        }
    }
}

/// The built-in kinds and those of our own definitions.
fn compiled_kinds(crds: &[Value]) -> Result<Vec<ResourceKind>, StartError> {
    let mut all = built_in::kinds();
    for crd in crds {
        measure(crd, MAX_DEPTH).map_err(|error| StartError::InvalidDefinition {
            name: object::metadata_str(crd, "name").to_owned(),
            reason: format!("it is {error}"),
        })?;
        let kinds = built_in::from_crd(crd);
        if kinds.is_empty() {
            return Err(StartError::InvalidDefinition {
                name: object::metadata_str(crd, "name").to_owned(),
                reason: "no version is served".to_owned(),
            });
        }
        all.extend(kinds);
    }
    Ok(all)
}

/// Returns a new Namespace object.
#[must_use]
pub fn namespace_object(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    })
}

/// Returns the status of a CRD that is served.
fn established_status(crd: &Value, since: &str) -> Value {
    let condition = |kind: &str, reason: &str, message: &str| {
        json!({
            "type": kind, "status": "True", "reason": reason, "message": message,
            "lastTransitionTime": since,
        })
    };
    let versions: Vec<&Value> = crd["spec"]["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|version| version["storage"] == true)
        .map(|version| &version["name"])
        .collect();
    json!({
        "acceptedNames": crd["spec"]["names"],
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
        "storedVersions": versions,
    })
}
