//! The user-data loop: keeps a Secret with the pointer config of every pool. `core::user_data` decides what it holds.

mod files;

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::runtime::watcher;
use kube::{Api, ResourceExt as _};
use machinist_core::api::MachineConfigPool;
use machinist_core::user_data::{ServerEndpoint, secret};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::Instrument as _;

use super::context::Context;
use super::debounce::Debounce;
use super::event_component;
use crate::kubernetes::cache::{Cache, strip_managed_fields};
use crate::kubernetes::reflectors::Reflectors;
pub use files::EndpointFiles;

/// A burst of changes ends when there was none for this long...
const DEBOUNCE: Duration = Duration::from_millis(50);
/// ...but a pass never waits longer than this.
const MAX_WAIT: Duration = Duration::from_millis(500);
/// The tasks under which failed writes are reported.
const WRITE: &str = "write the pointer config Secret";
const REMOVE: &str = "remove the orphaned pointer config Secret";
/// The wait after a failed write.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// Where machines fetch their configs, and where the Secrets are.
#[derive(Debug, Clone)]
pub struct UserData {
    /// The namespace of the Secrets.
    pub namespace: String,
    /// The machine config server. It changes with the server's certificate or its token.
    pub endpoint: watch::Receiver<ServerEndpoint>,
}

/// Runs for ever.
pub(super) async fn run(context: Context, user_data: UserData) {
    let api: Api<Secret> = Api::namespaced(context.client.clone(), &user_data.namespace);
    let secrets: Cache<Secret> = Cache::default();
    // All Secrets of the namespace: one that lost its label has to be found as well.
    let mut tasks = JoinSet::new();
    let mut reflectors =
        Reflectors::new(context.client.clone(), context.failures.clone(), &mut tasks);
    let config = watcher::Config::default();
    reflectors.watch(&secrets, api.clone(), config, strip_managed_fields);
    context.caches.pools.wait_until_ready().await;
    secrets.wait_until_ready().await;
    let mut debounce = Debounce::new("user data", &context.liveness, DEBOUNCE, MAX_WAIT);
    debounce.watch(context.caches.pools.subscribe());
    debounce.watch(secrets.subscribe());
    debounce.watch(user_data.endpoint.clone());
    let mut retry = Some(Duration::ZERO);
    loop {
        debounce.next(retry).await;
        let pass = UserDataPass { context: &context, api: &api, secrets: &secrets };
        let endpoint = user_data.endpoint.borrow().clone();
        let all_well = pass.reconcile(&user_data.namespace, &endpoint).await;
        retry = (!all_well).then_some(RETRY_DELAY);
    }
}

struct UserDataPass<'a> {
    context: &'a Context,
    api: &'a Api<Secret>,
    secrets: &'a Cache<Secret>,
}

impl UserDataPass<'_> {
    /// Looks at all pools once. Returns whether all writes succeeded.
    async fn reconcile(&self, namespace: &str, endpoint: &ServerEndpoint) -> bool {
        let pools = self.context.caches.pools.all();
        let mut all_well = true;
        for pool in &pools {
            if pool.metadata.deletion_timestamp.is_none() {
                let span = tracing::info_span!("user_data", pool = pool.name_any());
                let ensured = self.ensure_secret(namespace, endpoint, pool);
                all_well &= ensured.instrument(span).await;
            }
        }
        for secret in self.secrets.all() {
            if secret::is_orphan(&secret, pools.iter().map(AsRef::as_ref)) {
                let span = tracing::info_span!("user_data", secret = secret.name_any());
                all_well &= self.remove_secret(&secret).instrument(span).await;
            }
        }
        all_well
    }

    async fn ensure_secret(
        &self,
        namespace: &str,
        endpoint: &ServerEndpoint,
        pool: &MachineConfigPool,
    ) -> bool {
        let name = secret::secret_name(&pool.name_any());
        let present = self.secrets.get_in(namespace, &name);
        let Some(desired) = secret::desired_secret(pool, endpoint, present.as_deref()) else {
            return true;
        };
        let parameters = PostParams::default();
        let written = match present {
            Some(_) => self.context.write(self.api.replace(&name, &parameters, &desired)).await,
            None => self.context.write(self.api.create(&parameters, &desired)).await,
        };
        match written {
            Ok(mut written) => {
                strip_managed_fields(&mut written);
                self.secrets.upsert(written);
                self.context.write_succeeded(WRITE, pool);
                tracing::info!(secret = name, pool = pool.name_any(), "wrote the pointer config");
                true
            }
            Err(error) => {
                // After a conflict the watch brings the newer Secret, and another pass with it.
                if !error.is_conflict() {
                    self.context.write_failed(WRITE, event_component::USER_DATA, pool, &error);
                }
                false
            }
        }
    }

    async fn remove_secret(&self, secret: &Secret) -> bool {
        let (name, uid) = (secret.name_any(), secret.uid());
        let preconditions = Some(Preconditions { uid, ..Preconditions::default() });
        let parameters = DeleteParams { preconditions, ..DeleteParams::default() };
        match self.context.write(self.api.delete(&name, &parameters)).await {
            Err(error) if !error.is_not_found() => {
                self.context.write_failed(REMOVE, event_component::USER_DATA, secret, &error);
                false
            }
            Ok(_) | Err(_) => {
                self.context.write_succeeded(REMOVE, secret);
                true
            }
        }
    }
}
