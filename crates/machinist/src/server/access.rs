//! Access control: applies `machinist_core::serve::provisioning_token` to requests.

use std::net::IpAddr;
use std::time::Instant;

use http::header;
use http::request::Parts;
use k8s_openapi::jiff::Timestamp;
use machinist_core::serve::ServeError;
use machinist_core::serve::network::IpNetwork;
use machinist_core::serve::provisioning_token::{self, ProvisioningToken};
use machinist_core::serve::rate_limit::RateLimiter;
use parking_lot::Mutex;

use super::tokens::TokenStore;

/// Who may send requests.
#[derive(Debug, Clone, Default)]
pub struct AccessOptions {
    /// Whether a request needs a provisioning token.
    pub require_token: bool,
    /// Networks that requests may come from; empty means all.
    pub allowed: Vec<IpNetwork>,
    /// Networks that requests may not come from.
    pub denied: Vec<IpNetwork>,
    /// The number of requests per minute from one address.
    pub max_requests_per_minute: Option<u32>,
    /// The number of connections from one address to a port.
    pub max_connections: Option<usize>,
}

/// Checks every request.
#[derive(Debug)]
pub(super) struct AccessControl {
    options: AccessOptions,
    rate: Option<Mutex<RateLimiter>>,
    started: Instant,
    tokens: Option<TokenStore>,
}

impl AccessControl {
    pub(super) fn new(access: AccessOptions, tokens: Option<TokenStore>) -> Self {
        let rate = access.max_requests_per_minute.map(|count| Mutex::new(RateLimiter::new(count)));
        Self { options: access, rate, started: Instant::now(), tokens }
    }

    /// Accepts or rejects a request; returns its token.
    pub(super) fn authorize(
        &self,
        pool: &str,
        head: &Parts,
        address: IpAddr,
    ) -> Result<Option<ProvisioningToken>, ServeError> {
        self.check_address(address)?;
        match self.options.require_token {
            true => self.authenticate(pool, head, address).map(Some),
            false => Ok(None),
        }
    }

    /// Checks the networks and the rate limit for an address.
    pub(super) fn check_address(&self, address: IpAddr) -> Result<(), ServeError> {
        provisioning_token::check_address(address, &self.options.allowed, &self.options.denied)?;
        if let Some(rate) = &self.rate {
            let mut rate = rate.lock();
            if !rate.try_acquire(address, self.started.elapsed()) {
                return Err(ServeError::TooManyRequests);
            }
        }
        Ok(())
    }

    /// The valid token of a request that must have one.
    pub(super) fn authenticate(
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

    /// Counts the use of a token with limited uses. Must succeed before anything is sent.
    pub(super) async fn count_use(&self, token: &ProvisioningToken) -> Result<(), ServeError> {
        match &self.tokens {
            Some(tokens) if token.max_uses.is_some() => tokens.count_use(&token.id).await,
            _ => Ok(()),
        }
    }
}
