//! The user-data loop: every pool has a Secret with the pointer config of its machines, and it is as it should be.

mod files;

use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::runtime::watcher;
use kube::{Api, ResourceExt as _};
use machinist_core::api::MachineConfigPool;
use machinist_core::user_data::{ServerEndpoint, secret};
use tokio::sync::watch;

use super::context::{Context, WriteError};
use super::debounce::Debounce;
use crate::kubernetes::cache::{Cache, strip_managed_fields};
pub use files::EndpointFiles;

/// Changes within this time are answered together.
const DEBOUNCE: Duration = Duration::from_millis(50);
const MAX_WAIT: Duration = Duration::from_millis(500);
/// After something that did not work.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// Where machines are pointed at, and where the Secrets are.
#[derive(Debug, Clone)]
pub struct UserData {
    /// The namespace of the Secrets.
    pub namespace: String,
    /// Where machines ask; it may change, with the server's certificate or its token.
    pub endpoint: watch::Receiver<ServerEndpoint>,
}

/// Keeps the Secrets for ever.
pub(super) async fn run(shell: Context, user_data: UserData) {
    let api: Api<Secret> = Api::namespaced(shell.client.clone(), &user_data.namespace);
    let secrets: Cache<Secret> = Cache::default();
    // All of the namespace: one that lost its label is to be seen, too.
    let following =
        secrets.clone().reflect(api.clone(), watcher::Config::default(), strip_managed_fields);
    let keeping = async {
        shell.caches.pools.wait_until_ready().await;
        secrets.wait_until_ready().await;
        let mut turns = Debounce::new(DEBOUNCE, MAX_WAIT);
        turns.watch(shell.caches.pools.subscribe());
        turns.watch(secrets.subscribe());
        turns.watch(user_data.endpoint.clone());
        let mut again = Some(Duration::ZERO);
        loop {
            turns.next(again).await;
            let pass = UserDataPass { shell: &shell, api: &api, secrets: &secrets };
            let endpoint = user_data.endpoint.borrow().clone();
            again = (!pass.reconcile(&user_data.namespace, &endpoint).await).then_some(RETRY_DELAY);
        }
    };
    tokio::join!(following, keeping);
}

struct UserDataPass<'a> {
    shell: &'a Context,
    api: &'a Api<Secret>,
    secrets: &'a Cache<Secret>,
}

impl UserDataPass<'_> {
    /// Looks at all pools once; says whether all is well.
    async fn reconcile(&self, namespace: &str, endpoint: &ServerEndpoint) -> bool {
        let pools = self.shell.caches.pools.all();
        let mut well = true;
        for pool in &pools {
            if pool.metadata.deletion_timestamp.is_none() {
                well &= self.ensure_secret(namespace, endpoint, pool).await;
            }
        }
        for secret in self.secrets.all() {
            if secret::is_orphan(&secret, pools.iter().map(AsRef::as_ref)) {
                well &= self.remove_secret(&secret).await;
            }
        }
        well
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
            Some(_) => self.shell.write(self.api.replace(&name, &parameters, &desired)).await,
            None => self.shell.write(self.api.create(&parameters, &desired)).await,
        };
        match written {
            Ok(mut written) => {
                strip_managed_fields(&mut written);
                self.secrets.upsert(written);
                tracing::info!(secret = name, pool = pool.name_any(), "pointer config written");
                true
            }
            Err(error) => self.log_failure(&name, &error),
        }
    }

    async fn remove_secret(&self, secret: &Secret) -> bool {
        let (name, uid) = (secret.name_any(), secret.uid());
        let preconditions = Some(Preconditions { uid, ..Preconditions::default() });
        let parameters = DeleteParams { preconditions, ..DeleteParams::default() };
        match self.shell.write(self.api.delete(&name, &parameters)).await {
            Ok(_) => true,
            Err(error) if error.is_not_found() => true,
            Err(error) => self.log_failure(&name, &error),
        }
    }

    fn log_failure(&self, name: &str, error: &WriteError) -> bool {
        // What we know is old: the watch brings the newer one, and another turn with it.
        if !error.is_conflict() {
            tracing::warn!(secret = name, %error, "cannot keep the pointer config");
        }
        false
    }
}
