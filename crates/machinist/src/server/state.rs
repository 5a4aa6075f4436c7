//! Responses from the API server: watches fill caches, and every change rebuilds the affected responses.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher;
use kube::{Api, Client};
use machinist_core::api::names::object;
use machinist_core::api::{
    ControllerConfig, MachineConfig, MachineConfigPool, MachineOSBuild, MachineOSConfig,
};
use machinist_core::serve::enrol::SealingConfig;
use machinist_core::serve::seal::AnnotatedPaths;
use machinist_core::serve::{
    ConfigHalf, ConfigRequest, ServeError, ServeMode, kubeconfig, select_config,
};
use machinist_hub::failure_log::FailureLog;
use parking_lot::RwLock;
use tokio::task::JoinSet;
use tracing::Instrument as _;

use super::image_registry::ImageRegistryNames;
use super::metrics::ServerMetrics;
use super::responses::{PoolResponses, ResponseInputs, ServeResult};
use super::{ApiAccess, FILE_POLL_INTERVAL, ServerOptions};
use crate::kubernetes::cache::{Cache, strip_managed_fields};
use crate::kubernetes::reflectors::{
    AnyCache, Reflectors, changes_of, merge_changes, wait_until_ready,
};
use crate::liveness::Liveness;

/// The ConfigMap with the CA of the API server.
const KUBECONFIG_DATA: &str = "kubeconfig-data";
/// How long to wait for kinds that an API server may not serve.
const OPTIONAL_KIND_TIMEOUT: Duration = Duration::from_secs(3);

/// After this long a rebuild is stuck: it reads a few files, and asks the API server for the names of its registry.
const REBUILD_LIMIT: Duration = Duration::from_secs(600);

type PoolTable = BTreeMap<String, ServeResult<Arc<PoolResponses>>>;

/// The caches, and the responses of each pool. A clone shares them.
#[derive(Clone)]
pub(super) struct ServerState {
    client: Client,
    options: ServerOptions,
    pools: Cache<MachineConfigPool>,
    configs: Cache<MachineConfig>,
    controller_configs: Cache<ControllerConfig>,
    os_configs: Cache<MachineOSConfig>,
    os_builds: Cache<MachineOSBuild>,
    config_maps: Cache<ConfigMap>,
    image_registry: ImageRegistryNames,
    table: Arc<RwLock<Arc<PoolTable>>>,
}

impl fmt::Debug for ServerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerState").field("options", &self.options).finish_non_exhaustive()
    }
}

impl ServerState {
    pub(super) fn new(client: Client, options: ServerOptions) -> Self {
        Self {
            image_registry: ImageRegistryNames::new(client.clone()),
            client,
            options,
            pools: Cache::default(),
            configs: Cache::default(),
            controller_configs: Cache::default(),
            os_configs: Cache::default(),
            os_builds: Cache::default(),
            config_maps: Cache::default(),
            table: Arc::default(),
        }
    }

    /// The responses for a pool.
    pub(super) fn pool(&self, name: &str) -> ServeResult<Arc<PoolResponses>> {
        let table = self.table();
        match table.get(name) {
            Some(outcome) => outcome.clone(),
            None => Err(Arc::new(ServeError::UnknownPool(name.chars().take(100).collect()))),
        }
    }

    fn table(&self) -> Arc<PoolTable> {
        Arc::clone(&self.table.read())
    }

    /// Starts the watches and returns when all caches are filled. The watches end with the tasks.
    pub(super) async fn start(
        &self,
        tasks: &mut JoinSet<()>,
        metrics: ServerMetrics,
        failures: FailureLog,
        liveness: &Liveness,
    ) {
        let mut reflectors = Reflectors::new(self.client.clone(), failures, tasks);
        reflectors.watch_all(&self.pools);
        reflectors.watch_all(&self.configs);
        reflectors.watch_all(&self.controller_configs);
        reflectors.watch_optional(&self.os_configs);
        reflectors.watch_optional(&self.os_builds);
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), &self.options.namespace);
        let named = watcher::Config::default().fields(&format!("metadata.name={KUBECONFIG_DATA}"));
        reflectors.watch(&self.config_maps, maps, named, strip_managed_fields);
        let required: [&dyn AnyCache; 4] =
            [&self.pools, &self.configs, &self.controller_configs, &self.config_maps];
        wait_until_ready(changes_of(&required)).await;
        // A server without the right to read images still has to serve configs.
        let optional = wait_until_ready(changes_of(&[&self.os_configs, &self.os_builds]));
        let _ = tokio::time::timeout(OPTIONAL_KIND_TIMEOUT, optional).await;
        self.rebuild(&metrics).await;
        tasks.spawn(self.clone().run(metrics, liveness.clone()));
    }

    /// Rebuilds the responses after each change.
    async fn run(self, metrics: ServerMetrics, liveness: Liveness) {
        let mut changes = merge_changes(changes_of(&[
            &self.pools,
            &self.configs,
            &self.controller_configs,
            &self.config_maps,
            &self.os_configs,
            &self.os_builds,
        ]));
        loop {
            // Files have no watch, so they are read again even if no object changes.
            let _ = tokio::time::timeout(FILE_POLL_INTERVAL, changes.changed()).await;
            let pass = liveness.begin("rebuild responses", REBUILD_LIMIT);
            self.rebuild(&metrics).instrument(tracing::info_span!("rebuild")).await;
            drop(pass);
        }
    }

    async fn rebuild(&self, metrics: &ServerMetrics) {
        let old = self.table();
        let kubeconfig = self.kubeconfig().await.map(Arc::new).map_err(Arc::new);
        let mut new = PoolTable::new();
        let mut changed = old.len() != self.pools.all().len();
        for pool in self.pools.all() {
            let Some(name) = pool.metadata.name.clone() else { continue };
            let known = old.get(&name).and_then(|known| known.as_ref().ok());
            let outcome = match self.inputs(&pool, &kubeconfig).await {
                Ok(inputs) => Ok(match known.filter(|known| known.inputs.is_unchanged(&inputs)) {
                    Some(known) => Arc::clone(known),
                    None => {
                        changed = true;
                        Arc::new(PoolResponses::new(inputs))
                    }
                }),
                Err(refusal) => {
                    changed |= known.is_some();
                    Err(refusal)
                }
            };
            new.insert(name, outcome);
        }
        if changed {
            metrics.record_change();
            self.prerender(&old, &new);
        }
        *self.table.write() = Arc::new(new);
    }

    /// Builds the responses that were requested before, so that no machine waits for them.
    fn prerender(&self, old: &PoolTable, new: &PoolTable) {
        for (name, outcome) in new {
            let (Ok(responses), Some(Ok(before))) = (outcome, old.get(name)) else { continue };
            if Arc::ptr_eq(responses, before) {
                continue;
            }
            let (responses, versions) = (Arc::clone(responses), before.versions());
            tokio::spawn(async move {
                for version in versions {
                    let request =
                        ConfigRequest { version, etcd_index: None, half: ConfigHalf::Public };
                    let _ = responses.response(&request).await;
                }
            });
        }
    }

    async fn inputs(
        &self,
        pool: &MachineConfigPool,
        kubeconfig: &ServeResult<Arc<Vec<u8>>>,
    ) -> ServeResult<ResponseInputs> {
        let name = pool.metadata.name.clone().unwrap_or_default();
        let Some(config) = select_config::config_name(pool) else {
            return Err(Arc::new(ServeError::NotRendered(name)));
        };
        let Some(machine_config) = self.configs.get(config) else {
            let config = config.to_owned();
            return Err(Arc::new(ServeError::ConfigMissing { pool: name, config }));
        };
        let controller_config = self.controller_configs.get(object::CONTROLLER_CONFIG);
        if controller_config.is_none() && !self.options.controller_config_optional {
            return Err(Arc::new(ServeError::NoControllerConfig));
        }
        Ok(ResponseInputs {
            machine_config,
            controller_config,
            kubeconfig: kubeconfig.clone()?,
            image: self.image(pool, config).await,
            certificates: Arc::default(),
            mode: ServeMode::Cluster,
            sealing: self.sealing(pool, config).map(Arc::new),
            first_boot: self.options.binary.as_ref().map(|binary| binary.first_boot(&name)),
        })
    }

    /// How the config of a pool is sealed. Annotations of its MachineConfigs name paths that everyone may read.
    fn sealing(&self, pool: &MachineConfigPool, config: &str) -> Option<SealingConfig> {
        let enrolment = self.options.enrolment.as_ref()?;
        let configurations = [pool.spec.configuration.as_ref()]
            .into_iter()
            .chain([pool.status.as_ref().and_then(|status| status.configuration.as_ref())]);
        let sources = configurations.flatten().filter_map(|it| it.source.as_deref()).flatten();
        let sources = sources.filter_map(|source| source.name.as_deref());
        let configs: Vec<Arc<MachineConfig>> =
            sources.chain([config]).filter_map(|name| self.configs.get(name)).collect();
        let all = configs.iter().map(|config| config.metadata.annotations.as_ref());
        let all = all.chain([pool.metadata.annotations.as_ref()]);
        let paths = AnnotatedPaths::from_annotations(all);
        let pool = pool.metadata.name.clone().unwrap_or_default();
        Some(enrolment.sealing(pool, paths))
    }

    /// The image that was built for a pool, if a new machine can pull it.
    async fn image(&self, pool: &MachineConfigPool, config: &str) -> Option<String> {
        let (os_configs, builds) = (self.os_configs.all(), self.os_builds.all());
        let os_configs = os_configs.iter().map(Arc::as_ref);
        let image =
            select_config::built_image(pool, config, os_configs, builds.iter().map(Arc::as_ref))?;
        let hosts = self.image_registry.hosts().await?;
        (!select_config::is_internal(image, &hosts)).then(|| image.to_owned())
    }

    /// The kubeconfig of new machines.
    async fn kubeconfig(&self) -> Result<Vec<u8>, ServeError> {
        match &self.options.api_access {
            ApiAccess::Static { api_server, authority, token } => {
                let token = match token {
                    Some(file) => Some(read_token(file).await?),
                    None => None,
                };
                let token = token.as_deref().map(str::trim);
                Ok(kubeconfig::bootstrap_kubeconfig(api_server, authority.as_bytes(), token).into())
            }
            ApiAccess::Files { api_server, directory } => {
                let token = read_token(&directory.join("token")).await?;
                // A file that was written with a shell ends with a newline.
                let token = token.trim_end();
                let authority = match self.api_ca() {
                    Some(authority) => authority,
                    None => read(&directory.join("ca.crt")).await?,
                };
                Ok(kubeconfig::bootstrap_kubeconfig(api_server, &authority, Some(token)).into())
            }
        }
    }

    /// The CA of the API server, if the cluster publishes it.
    fn api_ca(&self) -> Option<Vec<u8>> {
        let map = self.config_maps.get_in(&self.options.namespace, KUBECONFIG_DATA)?;
        map.binary_data.as_ref()?.get("ca-bundle.crt").map(|bytes| bytes.0.clone())
    }
}

async fn read_token(path: &Path) -> Result<String, ServeError> {
    let token = String::from_utf8(read(path).await?);
    token.map_err(|_| ServeError::Kubeconfig("the token is not UTF-8 text".into()))
}

async fn read(path: &Path) -> Result<Vec<u8>, ServeError> {
    let bytes = tokio::fs::read(path).await;
    bytes.map_err(|error| {
        ServeError::Kubeconfig(format!("failed to read {}: {error}", path.display()))
    })
}
