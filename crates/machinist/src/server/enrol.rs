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
use machinist_hub::auth::certificates::{Ca, Pair, Request};
use serde_json::json;
use tokio::task::JoinSet;

use crate::home::cache::Cache;

/// A machine fetches the sealed half at once; its certificate need not last.
const SECONDS: i64 = 3600;
/// The status of an object that is there already.
const CONFLICT: u16 = 409;
/// The names of the parts of a Secret with a certificate.
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";

/// What a machine is told.
#[derive(Debug)]
pub(super) enum Told {
    /// Its certificate, as PEM.
    Certificate(String),
    /// That somebody has to look at its request first.
    Wait,
}

/// One request for a certificate.
#[derive(Debug)]
pub(super) struct Application<'a> {
    /// The pool that the machine says it is of.
    pub pool: &'a str,
    /// The request itself.
    pub request: &'a Request,
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
pub(super) struct Registrar {
    authority: Ca,
    keeper: Keeper,
}

/// Where it is kept who is enrolled.
enum Keeper {
    /// In a home.
    Home(Box<Book>),
    /// Nowhere but here: pools, and the hashes of keys.
    Memory(Mutex<BTreeSet<(String, String)>>),
}

impl fmt::Debug for Registrar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registrar").finish_non_exhaustive()
    }
}

/// The requests that a home keeps.
struct Book {
    api: Api<Secret>,
    namespace: String,
    known: Cache<Secret>,
}

impl Registrar {
    /// One whose requests and CA are in a home; is ready when all have been seen once.
    pub(super) async fn of_home(
        client: Client,
        namespace: &str,
        tasks: &mut JoinSet<()>,
    ) -> Result<Self> {
        let api: Api<Secret> = Api::namespaced(client, namespace);
        let authority = authority(&api).await.context("the CA for enrolments")?;
        let known = Cache::default();
        let config = watcher::Config::default().labels(ENROLMENT_LABEL);
        tasks.spawn(known.clone().follow(api.clone(), config, |_| {}));
        known.ready().await;
        let book = Book { api, namespace: namespace.to_owned(), known };
        Ok(Self { authority, keeper: Keeper::Home(Box::new(book)) })
    }

    /// One without a home: only tokens let machines in, and a restart forgets them.
    pub(super) fn alone() -> Result<Self> {
        let pair = Ca::make("machine-config-server")?;
        Ok(Self { authority: Ca::load(&pair)?, keeper: Keeper::Memory(Mutex::default()) })
    }

    /// The CA that machines' certificates are from, as PEM.
    pub(super) fn authority(&self) -> &str {
        self.authority.certificate()
    }

    /// The state that a key has for a pool. Its request may have been for another pool: then the answer is no.
    fn state(&self, id: &str, pool: &str) -> Option<EnrolmentState> {
        match &self.keeper {
            Keeper::Home(book) => {
                let record = book.find(id)?;
                Some(if record.pool == pool { record.state } else { EnrolmentState::Denied })
            }
            Keeper::Memory(granted) => {
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
    pub(super) async fn apply(
        &self,
        application: &Application<'_>,
        grant: impl Future<Output = Result<(), ServeError>>,
    ) -> Result<Told, ServeError> {
        let Application { pool, request, id, .. } = *application;
        let (user, group) = enrol::subject(pool, id);
        if request.user != user || request.groups != [group] || request.wants_more {
            return Err(ServeError::BadRequest(format!("its subject has to be {user}")));
        }
        let facts = EnrolmentFacts {
            state: self.state(id, pool),
            has_token: application.token.is_some(),
            can_wait: matches!(self.keeper, Keeper::Home(_)),
            waiting: match &self.keeper {
                Keeper::Home(book) => book.waiting(),
                Keeper::Memory(_) => 0,
            },
        };
        match enrol::decide_enrolment(facts) {
            EnrolmentStep::Sign => {}
            EnrolmentStep::Approve => {
                grant.await?;
                self.keep(application, EnrolmentState::Approved).await?;
            }
            EnrolmentStep::RecordPending => {
                self.keep(application, EnrolmentState::Pending).await?;
                return Ok(Told::Wait);
            }
            EnrolmentStep::Wait => return Ok(Told::Wait),
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
        let signed = self.authority.sign(request, SECONDS);
        signed.map(Told::Certificate).map_err(|error| ServeError::BadRequest(error.to_string()))
    }

    async fn keep(
        &self,
        application: &Application<'_>,
        state: EnrolmentState,
    ) -> Result<(), ServeError> {
        let book = match &self.keeper {
            Keeper::Home(book) => book,
            Keeper::Memory(granted) => {
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

impl Book {
    fn find(&self, id: &str) -> Option<EnrolmentRecord> {
        let secret = self.known.get_in(&self.namespace, &format!("{SECRET_PREFIX}{id}"))?;
        read(&secret)
    }

    fn waiting(&self) -> usize {
        let all = self.known.all();
        let records = all.iter().filter_map(|secret| read(secret));
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
                let known = read(&there).filter(|known| known.pool == record.pool);
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
        self.known.put(written.map_err(failed)?);
        Ok(())
    }
}

fn read(secret: &Secret) -> Option<EnrolmentRecord> {
    let label = secret.metadata.labels.as_ref()?.get(ENROLMENT_LABEL)?;
    EnrolmentRecord::from_secret(secret.metadata.name.as_deref()?, label, secret.data.as_ref()?)
}

/// The CA of a home; whoever comes first makes it.
async fn authority(api: &Api<Secret>) -> Result<Ca> {
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
            return Ok(Ca::load(&Pair { certificate, key })?);
        }
        let pair = Ca::make("machine-config-server")?;
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
