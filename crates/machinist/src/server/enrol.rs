//! The registrar: takes requests for certificates, keeps them in the home, and signs what is granted.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use kube::{Api, Client};
use machinist_core::serve::ServeError;
use machinist_core::serve::enrol::{
    self, ENROLMENT_CA_SECRET, ENROLMENT_LABEL, EnrolmentFacts, EnrolmentRecord, EnrolmentState,
    EnrolmentStep, SECRET_PREFIX, SECRET_TYPE,
};
use machinist_hub::auth::certificates::{CertificateAuthority, PemKeyPair, SigningRequest};
use serde_json::json;
use tokio::task::JoinSet;

use crate::kubernetes::cache::Cache;

/// A machine fetches the sealed half at once; its certificate need not last.
const CERTIFICATE_LIFETIME_SECONDS: i64 = 3600;
/// The status of an object that is there already.
const CONFLICT: u16 = 409;
/// The names of the parts of a Secret with a certificate.
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";

/// What a machine is told.
#[derive(Debug)]
pub(super) enum EnrolmentReply {
    /// Its certificate, as PEM.
    Certificate(String),
    /// That somebody has to look at its request first.
    Pending,
}

/// One request for a certificate.
#[derive(Debug)]
pub(super) struct EnrolmentRequest<'a> {
    /// The pool that the machine says it is of.
    pub pool: &'a str,
    /// The request itself.
    pub request: &'a SigningRequest,
    /// The hash of its key.
    pub id: &'a str,
    /// What the machine calls itself.
    pub name: &'a str,
    /// Where it asks from.
    pub address: IpAddr,
    /// The id of the token that lets it in, if one does.
    pub token: Option<&'a str>,
}

/// Knows who is enrolled.
pub(super) struct EnrolmentRegistrar {
    ca: CertificateAuthority,
    store: EnrolmentStore,
}

/// Where it is kept who is enrolled.
enum EnrolmentStore {
    /// In a home.
    Api(Box<EnrolmentSecrets>),
    /// Nowhere but here: pools, and the hashes of keys.
    Memory(Mutex<BTreeSet<(String, String)>>),
}

impl fmt::Debug for EnrolmentRegistrar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registrar").finish_non_exhaustive()
    }
}

/// The requests that a home keeps.
struct EnrolmentSecrets {
    api: Api<Secret>,
    namespace: String,
    cache: Cache<Secret>,
}

impl EnrolmentRegistrar {
    /// One whose requests and CA are in a home; is ready when all have been seen once.
    pub(super) async fn with_api(
        client: Client,
        namespace: &str,
        tasks: &mut JoinSet<()>,
    ) -> Result<Self> {
        let api: Api<Secret> = Api::namespaced(client, namespace);
        let authority = authority(&api).await.context("the CA for enrolments")?;
        let known = Cache::default();
        let config = watcher::Config::default().labels(ENROLMENT_LABEL);
        tasks.spawn(known.clone().reflect(api.clone(), config, |_| {}));
        known.wait_until_ready().await;
        let book = EnrolmentSecrets { api, namespace: namespace.to_owned(), cache: known };
        Ok(Self { ca: authority, store: EnrolmentStore::Api(Box::new(book)) })
    }

    /// One without a home: only tokens let machines in, and a restart forgets them.
    pub(super) fn in_memory() -> Result<Self> {
        let pair = CertificateAuthority::generate("machine-config-server")?;
        Ok(Self {
            ca: CertificateAuthority::from_pem(&pair)?,
            store: EnrolmentStore::Memory(Mutex::default()),
        })
    }

    /// The CA that machines' certificates are from, as PEM.
    pub(super) fn ca_pem(&self) -> &str {
        self.ca.certificate()
    }

    /// The state that a key has for a pool. Its request may have been for another pool: then the answer is no.
    fn state(&self, id: &str, pool: &str) -> Option<EnrolmentState> {
        match &self.store {
            EnrolmentStore::Api(book) => {
                let record = book.find(id)?;
                Some(if record.pool == pool { record.state } else { EnrolmentState::Denied })
            }
            EnrolmentStore::Memory(granted) => {
                let granted = granted.lock().unwrap_or_else(PoisonError::into_inner);
                let is_granted = granted.contains(&(pool.to_owned(), id.to_owned()));
                is_granted.then_some(EnrolmentState::Approved)
            }
        }
    }

    /// Whether a key is let in: whoever is denied or forgotten later is out at once, certificate or not.
    pub(super) fn is_enrolled(&self, id: &str, pool: &str) -> bool {
        self.state(id, pool) == Some(EnrolmentState::Approved)
    }

    /// Looks at a request; `grant` takes down the use of its token.
    pub(super) async fn handle_request(
        &self,
        application: &EnrolmentRequest<'_>,
        grant: impl Future<Output = Result<(), ServeError>>,
    ) -> Result<EnrolmentReply, ServeError> {
        let EnrolmentRequest { pool, request, id, .. } = *application;
        let (user, group) = enrol::subject(pool, id);
        if request.user != user || request.groups != [group] || request.has_forbidden_extensions {
            return Err(ServeError::BadRequest(format!("its subject has to be {user}")));
        }
        let facts = EnrolmentFacts {
            state: self.state(id, pool),
            has_token: application.token.is_some(),
            can_wait: matches!(self.store, EnrolmentStore::Api(_)),
            waiting: match &self.store {
                EnrolmentStore::Api(book) => book.pending_count(),
                EnrolmentStore::Memory(_) => 0,
            },
        };
        match enrol::decide_enrolment(facts) {
            EnrolmentStep::Sign => {}
            EnrolmentStep::Approve => {
                grant.await?;
                self.store_state(application, EnrolmentState::Approved).await?;
            }
            EnrolmentStep::RecordPending => {
                self.store_state(application, EnrolmentState::Pending).await?;
                return Ok(EnrolmentReply::Pending);
            }
            EnrolmentStep::Wait => return Ok(EnrolmentReply::Pending),
            EnrolmentStep::Deny => return Err(ServeError::Forbidden("the enrolment was denied")),
            EnrolmentStep::TooManyPending => {
                return Err(ServeError::EnrolmentNotStored("too many wait already".to_owned()));
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

    async fn store_state(
        &self,
        application: &EnrolmentRequest<'_>,
        state: EnrolmentState,
    ) -> Result<(), ServeError> {
        let book = match &self.store {
            EnrolmentStore::Api(book) => book,
            EnrolmentStore::Memory(granted) => {
                let mut granted = granted.lock().unwrap_or_else(PoisonError::into_inner);
                granted.insert((application.pool.to_owned(), application.id.to_owned()));
                return Ok(());
            }
        };
        let record = EnrolmentRecord {
            id: application.id.to_owned(),
            pool: application.pool.to_owned(),
            name: application.name.to_owned(),
            address: application.address.to_canonical().to_string(),
            token: application.token.unwrap_or_default().to_owned(),
            state,
        };
        book.write(&record).await
    }
}

impl EnrolmentSecrets {
    fn find(&self, id: &str) -> Option<EnrolmentRecord> {
        let secret = self.cache.get_in(&self.namespace, &format!("{SECRET_PREFIX}{id}"))?;
        parse_record(&secret)
    }

    fn pending_count(&self) -> usize {
        let all = self.cache.all();
        let records = all.iter().filter_map(|secret| parse_record(secret));
        records.filter(|record| record.state == EnrolmentState::Pending).count()
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
                let Some(there) = self.api.get_opt(&name).await.map_err(failed)? else {
                    return Err(ServeError::EnrolmentNotStored("it comes and goes".to_owned()));
                };
                let known = parse_record(&there).filter(|known| known.pool == record.pool);
                if known.is_none_or(|known| known.state == EnrolmentState::Denied) {
                    return Err(ServeError::Forbidden("the enrolment was denied"));
                }
                // Another server was quicker; or it waits, and a token grants it now.
                if record.state != EnrolmentState::Approved {
                    return Ok(());
                }
                let patch = json!({
                    "metadata": {
                        "labels": {ENROLMENT_LABEL: record.state.as_str()},
                        "resourceVersion": there.metadata.resource_version,
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

/// The CA of a home; whoever comes first makes it.
async fn authority(api: &Api<Secret>) -> Result<CertificateAuthority> {
    for _ in 0..2 {
        if let Some(secret) = api.get_opt(ENROLMENT_CA_SECRET).await? {
            let part = |name: &str| -> Option<String> {
                let bytes = secret.data.as_ref()?.get(name)?;
                String::from_utf8(bytes.0.clone()).ok()
            };
            let (Some(certificate), Some(key)) = (part(CERTIFICATE), part(KEY)) else {
                bail!(
                    "the Secret {ENROLMENT_CA_SECRET} has no {CERTIFICATE} and {KEY}: delete it, and it is made anew"
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
            // Another server was quicker: its CA counts.
            Err(kube::Error::Api(status)) if status.code == CONFLICT => {}
            Err(error) => return Err(error.into()),
        }
    }
    bail!("the Secret {ENROLMENT_CA_SECRET} comes and goes")
}
