//! The enrolment registrar: stores certificate requests in the API server and signs approved ones.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::watcher;
use kube::{Api, Client};
use machinist_core::serve::ServeError;
use machinist_core::serve::enrol::{
    self, ENROLMENT_CA_SECRET, ENROLMENT_LABEL, EnrolmentFacts, EnrolmentRecord, EnrolmentState,
    EnrolmentStep, PendingRequest, PendingRequests, SECRET_PREFIX, SECRET_TYPE,
};
use machinist_hub::auth::certificates::{CertificateAuthority, PemKeyPair, SigningRequest};
use machinist_hub::failure_log::FailureLog;
use parking_lot::Mutex;
use serde_json::json;
use tokio::task::JoinSet;

use crate::kubernetes::cache::Cache;
use crate::kubernetes::error_text::error_text;

/// A machine fetches the sealed part at once, so its certificate can be short-lived.
const CERTIFICATE_LIFETIME_SECONDS: i64 = 3600;
/// The HTTP status for an object that already exists.
const CONFLICT: u16 = 409;
/// The HTTP status for an object that does not exist.
const NOT_FOUND: u16 = 404;
/// How often expired requests are removed.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(60);
/// The keys of a Secret with a certificate.
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";

/// The reply to a machine.
#[derive(Debug)]
pub(super) enum EnrolmentReply {
    /// Its certificate, as PEM.
    Certificate(String),
    /// An administrator must approve the request first.
    Pending,
}

/// One request for a certificate.
#[derive(Debug)]
pub(super) struct EnrolmentRequest<'a> {
    /// The pool that the machine claims.
    pub pool: &'a str,
    /// The certificate signing request.
    pub request: &'a SigningRequest,
    /// The hash of its key.
    pub id: &'a str,
    /// The name that the machine chose.
    pub name: &'a str,
    /// The address of the machine.
    pub address: IpAddr,
    /// The id of its valid token, if any.
    pub token: Option<&'a str>,
}

/// Stores which machines are enrolled, and signs their certificates.
pub(super) struct EnrolmentRegistrar {
    ca: CertificateAuthority,
    store: EnrolmentStore,
}

/// Where enrolments are stored.
enum EnrolmentStore {
    /// As Secrets in the API server.
    Api(Box<EnrolmentSecrets>),
    /// In memory: pools and hashes of keys.
    Memory(Mutex<BTreeSet<(String, String)>>),
}

impl fmt::Debug for EnrolmentRegistrar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnrolmentRegistrar").finish_non_exhaustive()
    }
}

/// Enrolments as Secrets. A clone shares them.
#[derive(Clone)]
struct EnrolmentSecrets {
    api: Api<Secret>,
    namespace: String,
    cache: Cache<Secret>,
    /// Held by the request that counts the waiting ones and adds itself.
    pending_lock: Arc<tokio::sync::Mutex<()>>,
}

impl EnrolmentRegistrar {
    /// A registrar with enrolments and CA in the API server. Returns when the cache is filled.
    pub(super) async fn with_api(
        client: Client,
        namespace: &str,
        tasks: &mut JoinSet<()>,
        failures: FailureLog,
    ) -> Result<Self> {
        let api: Api<Secret> = Api::namespaced(client, namespace);
        let authority = authority(&api).await.context("cannot load the CA for enrolments")?;
        let known = Cache::default();
        let config = watcher::Config::default().labels(ENROLMENT_LABEL);
        let reflect = known.clone().reflect(api.clone(), config, |_| {}, failures.clone());
        tasks.spawn(reflect);
        known.wait_until_ready().await;
        let secrets = EnrolmentSecrets {
            api,
            namespace: namespace.to_owned(),
            cache: known,
            pending_lock: Arc::default(),
        };
        tasks.spawn(secrets.clone().remove_expired(failures));
        Ok(Self { ca: authority, store: EnrolmentStore::Api(Box::new(secrets)) })
    }

    /// A registrar without an API server: only tokens enrol machines, and a restart forgets them.
    pub(super) fn in_memory() -> Result<Self> {
        let pair = CertificateAuthority::generate("machine-config-server")?;
        Ok(Self {
            ca: CertificateAuthority::from_pem(&pair)?,
            store: EnrolmentStore::Memory(Mutex::default()),
        })
    }

    /// The CA of the machines' certificates, as PEM.
    pub(super) fn ca_pem(&self) -> &str {
        self.ca.certificate()
    }

    /// The state of a key for a pool. A key that was enrolled for another pool is denied.
    fn state(&self, id: &str, pool: &str) -> Option<EnrolmentState> {
        match &self.store {
            EnrolmentStore::Api(secrets) => {
                let record = secrets.find(id)?;
                Some(if record.pool == pool { record.state } else { EnrolmentState::Denied })
            }
            EnrolmentStore::Memory(granted) => {
                let granted = granted.lock();
                let is_granted = granted.contains(&(pool.to_owned(), id.to_owned()));
                is_granted.then_some(EnrolmentState::Approved)
            }
        }
    }

    /// Whether a key is enrolled. Checked on every request: a machine that is denied later loses access at once, even
    /// with a valid certificate.
    pub(super) fn is_enrolled(&self, id: &str, pool: &str) -> bool {
        self.state(id, pool) == Some(EnrolmentState::Approved)
    }

    /// Handles a request; `grant` counts the use of its token.
    pub(super) async fn handle_request(
        &self,
        enrolment: &EnrolmentRequest<'_>,
        grant: impl Future<Output = Result<(), ServeError>>,
    ) -> Result<EnrolmentReply, ServeError> {
        let EnrolmentRequest { pool, request, id, .. } = *enrolment;
        let (user, group) = enrol::subject(pool, id);
        if request.user != user || request.groups != [group] || request.has_forbidden_extensions {
            return Err(ServeError::BadRequest(format!("the subject must be {user}")));
        }
        // One after the other: requests that arrive at once must not all see the same free place.
        let _guard = match &self.store {
            EnrolmentStore::Api(secrets) if self.needs_place(enrolment) => {
                Some(secrets.pending_lock.lock().await)
            }
            _ => None,
        };
        let pending = match &self.store {
            EnrolmentStore::Api(secrets) => secrets.pending(Timestamp::now().as_second()),
            EnrolmentStore::Memory(_) => PendingRequests::default(),
        };
        let facts = EnrolmentFacts {
            state: self.state(id, pool),
            has_token: enrolment.token.is_some(),
            can_wait: matches!(self.store, EnrolmentStore::Api(_)),
            waiting: pending.waiting.len(),
            waiting_here: pending.count_from(enrolment.address),
        };
        let step = enrol::decide_enrolment(facts);
        match step {
            EnrolmentStep::Sign => {}
            EnrolmentStep::Approve => {
                grant.await?;
                self.store_state(enrolment, EnrolmentState::Approved).await?;
            }
            EnrolmentStep::RecordPending | EnrolmentStep::ReplaceOldest => {
                if let (EnrolmentStep::ReplaceOldest, Some(oldest), EnrolmentStore::Api(secrets)) =
                    (step, pending.waiting.first(), &self.store)
                {
                    secrets
                        .remove(oldest)
                        .await
                        .map_err(|error| ServeError::EnrolmentNotStored(error.to_string()))?;
                }
                self.store_state(enrolment, EnrolmentState::Pending).await?;
                return Ok(EnrolmentReply::Pending);
            }
            EnrolmentStep::Wait => return Ok(EnrolmentReply::Pending),
            EnrolmentStep::Deny => return Err(ServeError::Forbidden("the enrolment was denied")),
            EnrolmentStep::TooManyPending => {
                return Err(ServeError::EnrolmentNotStored(
                    "too many enrolments from this address are pending".to_owned(),
                ));
            }
            EnrolmentStep::NeedsToken => {
                return Err(ServeError::Unauthorized(
                    "an enrolment needs a provisioning token here",
                ));
            }
        }
        let signed = self.ca.sign_request(request, CERTIFICATE_LIFETIME_SECONDS);
        signed
            .map(EnrolmentReply::Certificate)
            .map_err(|error| ServeError::BadRequest(error.to_string()))
    }

    /// Whether a request may become one more that waits.
    fn needs_place(&self, enrolment: &EnrolmentRequest<'_>) -> bool {
        enrolment.token.is_none() && self.state(enrolment.id, enrolment.pool).is_none()
    }

    async fn store_state(
        &self,
        enrolment: &EnrolmentRequest<'_>,
        state: EnrolmentState,
    ) -> Result<(), ServeError> {
        let secrets = match &self.store {
            EnrolmentStore::Api(secrets) => secrets,
            EnrolmentStore::Memory(granted) => {
                let mut granted = granted.lock();
                granted.insert((enrolment.pool.to_owned(), enrolment.id.to_owned()));
                return Ok(());
            }
        };
        let record = EnrolmentRecord {
            id: enrolment.id.to_owned(),
            pool: enrolment.pool.to_owned(),
            name: enrolment.name.to_owned(),
            address: enrolment.address.to_canonical().to_string(),
            token: enrolment.token.unwrap_or_default().to_owned(),
            state,
        };
        secrets.write(&record).await
    }
}

impl EnrolmentSecrets {
    fn find(&self, id: &str) -> Option<EnrolmentRecord> {
        let secret = self.cache.get_in(&self.namespace, &format!("{SECRET_PREFIX}{id}"))?;
        parse_record(&secret)
    }

    /// The requests that wait for approval.
    fn pending(&self, now: i64) -> PendingRequests {
        let request = |secret: &Secret| {
            let record = parse_record(secret)?;
            let since = secret.metadata.creation_timestamp.as_ref()?.0.as_second();
            let is_pending = record.state == EnrolmentState::Pending;
            is_pending.then_some(PendingRequest { id: record.id, address: record.address, since })
        };
        let all = self.cache.all();
        PendingRequests::new(all.iter().filter_map(|secret| request(secret)).collect(), now)
    }

    /// Removes a request, unless it changed meanwhile: an administrator may just have approved it.
    async fn remove(&self, request: &PendingRequest) -> Result<(), kube::Error> {
        let name = format!("{SECRET_PREFIX}{}", request.id);
        let Some(secret) = self.cache.get_in(&self.namespace, &name) else { return Ok(()) };
        let preconditions = Preconditions {
            uid: secret.metadata.uid.clone(),
            resource_version: secret.metadata.resource_version.clone(),
        };
        let parameters = DeleteParams::default().preconditions(preconditions);
        match self.api.delete(&name, &parameters).await {
            Ok(_) => self.cache.remove(&secret),
            // Removed or changed by someone else; the watch brings the new state.
            Err(kube::Error::Api(status)) if [NOT_FOUND, CONFLICT].contains(&status.code) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Removes requests that nobody approved in time.
    async fn remove_expired(self, failures: FailureLog) {
        const TASK: &str = "remove expired enrolments";
        loop {
            tokio::time::sleep(EXPIRY_INTERVAL).await;
            for request in self.pending(Timestamp::now().as_second()).expired {
                let removed = self.remove(&request).await;
                let removed = removed.map_err(|error| error_text(&error));
                if failures.record(TASK, "", removed).is_none() {
                    break;
                }
            }
        }
    }

    async fn write(&self, record: &EnrolmentRecord) -> Result<(), ServeError> {
        let failed = |error: kube::Error| ServeError::EnrolmentNotStored(error.to_string());
        let name = format!("{SECRET_PREFIX}{}", record.id);
        let mut secret = Secret {
            type_: Some(SECRET_TYPE.to_owned()),
            data: Some(record.to_secret_data()),
            ..Secret::default()
        };
        secret.metadata.name = Some(name.clone());
        secret.metadata.labels =
            Some([(ENROLMENT_LABEL.to_owned(), record.state.as_str().to_owned())].into());
        let written = match self.api.create(&PostParams::default(), &secret).await {
            Err(kube::Error::Api(status)) if status.code == CONFLICT => {
                let Some(existing) = self.api.get_opt(&name).await.map_err(failed)? else {
                    return Err(ServeError::EnrolmentNotStored(
                        "it was deleted at the same time".to_owned(),
                    ));
                };
                let known = parse_record(&existing).filter(|known| known.pool == record.pool);
                if known.is_none_or(|known| known.state == EnrolmentState::Denied) {
                    return Err(ServeError::Forbidden("the enrolment was denied"));
                }
                // Another server stored it first; or it is pending, and a token approves it now.
                if record.state != EnrolmentState::Approved {
                    return Ok(());
                }
                let patch = json!({
                    "metadata": {
                        "labels": {ENROLMENT_LABEL: record.state.as_str()},
                        "resourceVersion": existing.metadata.resource_version,
                    },
                    "data": secret.data,
                });
                self.api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await
            }
            written => written,
        };
        self.cache.upsert(written.map_err(failed)?);
        Ok(())
    }
}

fn parse_record(secret: &Secret) -> Option<EnrolmentRecord> {
    let label = secret.metadata.labels.as_ref()?.get(ENROLMENT_LABEL)?;
    EnrolmentRecord::from_secret(secret.metadata.name.as_deref()?, label, secret.data.as_ref()?)
}

/// Loads the CA. The first server creates it.
async fn authority(api: &Api<Secret>) -> Result<CertificateAuthority> {
    for _ in 0..2 {
        if let Some(secret) = api.get_opt(ENROLMENT_CA_SECRET).await? {
            let part = |name: &str| -> Option<String> {
                let bytes = secret.data.as_ref()?.get(name)?;
                String::from_utf8(bytes.0.clone()).ok()
            };
            let (Some(certificate), Some(key)) = (part(CERTIFICATE), part(KEY)) else {
                bail!(
                    "the Secret {ENROLMENT_CA_SECRET} has no {CERTIFICATE} and {KEY}: delete it, and the server creates a new one"
                );
            };
            return Ok(CertificateAuthority::from_pem(&PemKeyPair { certificate, key })?);
        }
        let pair = CertificateAuthority::generate("machine-config-server")?;
        let bytes = |text: String| ByteString(text.into_bytes());
        let data = [(CERTIFICATE, pair.certificate), (KEY, pair.key)];
        let data = data.map(|(name, text)| (name.to_owned(), bytes(text)));
        let mut secret = Secret {
            type_: Some("kubernetes.io/tls".to_owned()),
            data: Some(data.into()),
            ..Secret::default()
        };
        secret.metadata.name = Some(ENROLMENT_CA_SECRET.to_owned());
        match api.create(&PostParams::default(), &secret).await {
            Ok(_) => {}
            // Another server created the CA first: use that one.
            Err(kube::Error::Api(status)) if status.code == CONFLICT => {}
            Err(error) => return Err(error.into()),
        }
    }
    bail!("the Secret {ENROLMENT_CA_SECRET} is created and deleted repeatedly")
}
