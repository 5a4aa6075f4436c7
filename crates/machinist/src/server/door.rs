//! Who gets an answer: the shell around `machinist_core::serve::access`.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use http::header;
use http::request::Parts;
use k8s_openapi::jiff::Timestamp;
use machinist_core::serve::ServeError;
use machinist_core::serve::network::IpNetwork;
use machinist_core::serve::provisioning_token::{self, ProvisioningToken};
use machinist_core::serve::rate_limit::RateLimiter;

use super::tokens::Tokens;

/// Who gets an answer.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// Whether a request needs a provisioning token.
    pub tokens: bool,
    /// Where requests may come from; nothing is everywhere.
    pub allowed: Vec<IpNetwork>,
    /// Where they may not.
    pub denied: Vec<IpNetwork>,
    /// How often a minute one address may ask.
    pub per_minute: Option<u32>,
    /// How many connections to a port one address may have.
    pub connections: Option<usize>,
}

/// What every request passes.
#[derive(Debug)]
pub(super) struct Door {
    access: Access,
    rate: Option<Mutex<RateLimiter>>,
    start: Instant,
    tokens: Option<Tokens>,
}

impl Door {
    pub(super) fn new(access: Access, tokens: Option<Tokens>) -> Self {
        let rate = access.per_minute.map(|count| Mutex::new(RateLimiter::new(count)));
        Self { access, rate, start: Instant::now(), tokens }
    }

    /// Lets a request in; gives the token that it came in with.
    pub(super) fn enter(
        &self,
        pool: &str,
        head: &Parts,
        address: IpAddr,
    ) -> Result<Option<ProvisioningToken>, ServeError> {
        self.knock(address)?;
        match self.access.tokens {
            true => self.admit(pool, head, address).map(Some),
            false => Ok(None),
        }
    }

    /// Whether an address may ask at all, and may ask now.
    pub(super) fn knock(&self, address: IpAddr) -> Result<(), ServeError> {
        provisioning_token::check_address(address, &self.access.allowed, &self.access.denied)?;
        if let Some(rate) = &self.rate {
            let mut rate = rate.lock().unwrap_or_else(PoisonError::into_inner);
            if !rate.try_acquire(address, self.start.elapsed()) {
                return Err(ServeError::TooManyRequests);
            }
        }
        Ok(())
    }

    /// The token of a request that must have one.
    pub(super) fn admit(
        &self,
        pool: &str,
        head: &Parts,
        address: IpAddr,
    ) -> Result<ProvisioningToken, ServeError> {
        let header = head.headers.get(header::AUTHORIZATION).and_then(|text| text.to_str().ok());
        let presented = provisioning_token::token_from_request(header, head.uri.query());
        let find = |id: &str| self.tokens.as_ref()?.find(id);
        provisioning_token::authorize(find, presented.as_deref(), pool, address, Timestamp::now())
    }

    /// Takes down that a token is used, where uses are counted. Nothing may be handed out before.
    pub(super) async fn record(&self, token: &ProvisioningToken) -> Result<(), ServeError> {
        match &self.tokens {
            Some(tokens) if token.max_uses.is_some() => tokens.count(&token.id).await,
            _ => Ok(()),
        }
    }
}
