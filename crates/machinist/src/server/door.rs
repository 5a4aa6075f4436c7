//! Who gets an answer: the shell around `machinist_core::serve::access`.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header;
use http::request::Parts;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::runtime::watcher;
use kube::{Api, Client};
use machinist_core::serve::Refusal;
use machinist_core::serve::access::{self, LABEL, SECRET_PREFIX, Token, USES};
use machinist_core::serve::network::Network;
use machinist_core::serve::rate::Rate;
use serde_json::json;
use tokio::task::JoinSet;

use crate::home::cache::Cache;

/// Two servers may count at the same time; one of them then tries again, so often.
const TRIES: usize = 5;
/// The status of a write that came too late.
const CONFLICT: u16 = 409;

/// Who gets an answer.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// Whether a request needs a provisioning token.
    pub tokens: bool,
    /// Where requests may come from; nothing is everywhere.
    pub allowed: Vec<Network>,
    /// Where they may not.
    pub denied: Vec<Network>,
    /// How often a minute one address may ask.
    pub per_minute: Option<u32>,
}

/// What every request passes.
#[derive(Debug)]
pub(super) struct Door {
    access: Access,
    rate: Option<Mutex<Rate>>,
    start: Instant,
    tokens: Option<Tokens>,
}

impl Door {
    pub(super) fn new(access: Access, tokens: Option<Tokens>) -> Self {
        let rate = access.per_minute.map(|count| Mutex::new(Rate::new(count)));
        Self { access, rate, start: Instant::now(), tokens }
    }

    /// Lets a request in; gives the token that it came in with.
    pub(super) fn enter(
        &self,
        pool: &str,
        head: &Parts,
        address: IpAddr,
    ) -> Result<Option<Token>, Refusal> {
        access::check_address(address, &self.access.allowed, &self.access.denied)?;
        if let Some(rate) = &self.rate {
            let mut rate = rate.lock().unwrap_or_else(PoisonError::into_inner);
            if !rate.take(address, self.start.elapsed()) {
                return Err(Refusal::TooMany);
            }
        }
        if !self.access.tokens {
            return Ok(None);
        }
        let header = head.headers.get(header::AUTHORIZATION).and_then(|text| text.to_str().ok());
        let presented = access::presented(header, head.uri.query());
        let find = |id: &str| self.tokens.as_ref()?.find(id);
        access::admit(find, presented.as_deref(), pool, address, Timestamp::now()).map(Some)
    }

    /// Takes down that a token is used, where uses are counted. Nothing may be handed out before.
    pub(super) async fn record(&self, token: &Token) -> Result<(), Refusal> {
        match &self.tokens {
            Some(tokens) if token.max_uses.is_some() => tokens.count(&token.id).await,
            _ => Ok(()),
        }
    }
}

/// The tokens of a home.
#[derive(Clone)]
pub(super) struct Tokens {
    api: Api<Secret>,
    namespace: String,
    known: Cache<Secret>,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").finish_non_exhaustive()
    }
}

impl Tokens {
    /// Follows the tokens of a home; is over when all have been seen once.
    pub(super) async fn follow(client: Client, namespace: &str, tasks: &mut JoinSet<()>) -> Self {
        let api: Api<Secret> = Api::namespaced(client, namespace);
        let known = Cache::default();
        let config = watcher::Config::default().labels(LABEL);
        tasks.spawn(known.clone().follow(api.clone(), config, |_| {}));
        known.ready().await;
        Self { api, namespace: namespace.to_owned(), known }
    }

    fn find(&self, id: &str) -> Option<Token> {
        let name = format!("{SECRET_PREFIX}{id}");
        let secret = self.known.get_in(&self.namespace, &name)?;
        Token::read(&name, secret.data.as_ref()?)
    }

    async fn count(&self, id: &str) -> Result<(), Refusal> {
        let name = format!("{SECRET_PREFIX}{id}");
        let failed = |error: kube::Error| Refusal::Unrecorded(error.to_string());
        let used_up = || Refusal::Unauthorized("the provisioning token is used up");
        let secret = self.known.get_in(&self.namespace, &name);
        let mut secret = secret.map(|secret| secret.as_ref().clone());
        for _ in 0..TRIES {
            let known = match secret.take() {
                Some(secret) => secret,
                None => self.api.get_opt(&name).await.map_err(failed)?.ok_or_else(used_up)?,
            };
            let token = known.data.as_ref().and_then(|data| Token::read(&name, data));
            let token = token.filter(|token| !token.is_used_up()).ok_or_else(used_up)?;
            let patch = json!({
                "metadata": {"resourceVersion": known.metadata.resource_version},
                "data": {USES: STANDARD.encode((token.uses + 1).to_string())},
            });
            let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
            match self.api.patch(&name, &params, &patch).await {
                Ok(secret) => {
                    self.known.put(secret);
                    return Ok(());
                }
                // Somebody else has counted meanwhile.
                Err(kube::Error::Api(status)) if status.code == CONFLICT => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Err(Refusal::Unrecorded("others count all the time".to_owned()))
    }
}
