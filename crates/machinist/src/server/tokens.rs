//! Provisioning tokens: Secrets of the API server, or a file before an API server exists.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use kube::runtime::watcher;
use kube::{Api, Client};
use machinist_core::serve::ServeError;
use machinist_core::serve::provisioning_token::{
    ProvisioningToken, SECRET_PREFIX, TOKEN_LABEL, USES,
};
use machinist_hub::failure_log::FailureLog;
use serde_json::json;
use tokio::task::JoinSet;

use super::token_file::TokenFile;
use crate::kubernetes::cache::Cache;

/// How often a count is retried after a conflict with another server.
const MAX_CONFLICT_RETRIES: usize = 5;
/// The HTTP status of a conflicting write.
const CONFLICT: u16 = 409;

/// Where tokens are stored.
#[derive(Debug, Clone)]
pub(super) enum TokenStore {
    Api(Box<ApiTokens>),
    File(TokenFile),
}

impl TokenStore {
    /// Finds a token by its id.
    pub(super) fn find(&self, id: &str) -> Option<ProvisioningToken> {
        match self {
            Self::Api(tokens) => tokens.find(id),
            Self::File(file) => file.find(id),
        }
    }

    /// Counts one more use of a token.
    pub(super) async fn count_use(&self, id: &str) -> Result<(), ServeError> {
        match self {
            Self::Api(tokens) => tokens.count_use(id).await,
            Self::File(file) => file.count_use(id).await,
        }
    }
}

/// The tokens of the API server.
#[derive(Clone)]
pub(super) struct ApiTokens {
    api: Api<Secret>,
    namespace: String,
    cache: Cache<Secret>,
}

impl fmt::Debug for ApiTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiTokens").finish_non_exhaustive()
    }
}

impl ApiTokens {
    /// Watches the tokens. Returns when the cache is filled.
    pub(super) async fn start_watch(
        client: Client,
        namespace: &str,
        tasks: &mut JoinSet<()>,
        failures: FailureLog,
    ) -> Self {
        let api: Api<Secret> = Api::namespaced(client, namespace);
        let known = Cache::default();
        let config = watcher::Config::default().labels(TOKEN_LABEL);
        tasks.spawn(known.clone().reflect(api.clone(), config, |_| {}, failures));
        known.wait_until_ready().await;
        Self { api, namespace: namespace.to_owned(), cache: known }
    }

    fn find(&self, id: &str) -> Option<ProvisioningToken> {
        let name = format!("{SECRET_PREFIX}{id}");
        let secret = self.cache.get_in(&self.namespace, &name)?;
        ProvisioningToken::from_secret(&name, secret.data.as_ref()?)
    }

    async fn count_use(&self, id: &str) -> Result<(), ServeError> {
        let name = format!("{SECRET_PREFIX}{id}");
        let failed = |error: kube::Error| ServeError::TokenUseNotRecorded(error.to_string());
        let secret = self.cache.get_in(&self.namespace, &name);
        let mut secret = secret.map(|secret| secret.as_ref().clone());
        for _ in 0..MAX_CONFLICT_RETRIES {
            let known = match secret.take() {
                Some(secret) => secret,
                None => self.api.get_opt(&name).await.map_err(failed)?.ok_or_else(token_used_up)?,
            };
            let token =
                known.data.as_ref().and_then(|data| ProvisioningToken::from_secret(&name, data));
            let token = token.filter(|token| !token.is_exhausted()).ok_or_else(token_used_up)?;
            let patch = json!({
                "metadata": {"resourceVersion": known.metadata.resource_version},
                "data": {USES: STANDARD.encode((token.uses + 1).to_string())},
            });
            let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
            match self.api.patch(&name, &params, &patch).await {
                Ok(secret) => {
                    self.cache.upsert(secret);
                    return Ok(());
                }
                // Another server counted at the same time.
                Err(kube::Error::Api(status)) if status.code == CONFLICT => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Err(ServeError::TokenUseNotRecorded("too many conflicts with other servers".to_owned()))
    }
}

/// The error for a token without remaining uses.
pub(super) fn token_used_up() -> ServeError {
    ServeError::Unauthorized("the provisioning token has no uses left")
}
