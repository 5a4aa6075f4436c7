//! `machinist up`: hub, controller and machine config server in one process, with one data directory.
//!
//! | module | is |
//! |---|---|
//! | [`pki`] | the CA and the certificates, created on the first start and renewed |
//! | [`kubeconfig`] | the kubeconfig that clients find the hub with |
//! | `config_server` | the embedded machine config server |
//! | `daily_backup`, `backup_metrics` | backups that are taken every day, and their metrics |
//! | `embedded_controller` | the controller in the same process, or only its metrics |
//! | [`initial_objects`] | the objects of a new hub: pools, roles, namespaces |

mod backup_metrics;
mod config_server;
mod daily_backup;
mod embedded_controller;
pub mod initial_objects;
pub mod kubeconfig;
pub mod pki;
#[cfg(test)]
mod rights_tests;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use machinist_core::template::TemplateTree;
use machinist_core::user_data::secret;
use machinist_hub::audit::AuditLog;
use machinist_hub::auth::certificates::CertificateAuthority;
use machinist_hub::failure_log::FailureLog;
use machinist_hub::server::{HubServer, HubServingCertificate};
use machinist_hub::store::{self, Store};
use machinist_hub::{Hub, HubConfig, machines_with_certificates};
use rustix::process::{Resource, getrlimit, setrlimit};
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::backup::restore;
use crate::controller::{EndpointFiles, UserData};
use crate::data_dir::DataDirectory;
use crate::listen;
use crate::liveness::Liveness;
use crate::metrics::{MetricsCertificate, MetricsOptions, MetricsSource};
use crate::server::{ListenAddresses, ServerMetrics};
use crate::serving_certificate::ServingCertificate;
use crate::systemd_notify;
use backup_metrics::BackupMetrics;
pub use daily_backup::DailyBackupConfig;
use pki::Pki;

/// How often certificates are checked for renewal. Often, because the clock may jump: a certificate that has become
/// invalid locks out everybody.
const CERTIFICATE_CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Raises the limit of open files to the maximum: every connection needs one.
pub(crate) fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "cannot raise the limit of open files");
    }
}

/// The metrics of the hub.
fn hub_metrics(hub: &Hub) -> MetricsSource {
    let hub_metrics = hub.metrics().clone();
    MetricsSource::new(move |text| hub_metrics.encode(text))
}

/// The configuration of `machinist up`.
#[derive(Debug, Clone)]
pub struct UpConfig {
    /// The data directory.
    pub directory: DataDirectory,
    /// The listen address of the API.
    pub api_listen: SocketAddr,
    /// Additional names for the server's certificate.
    pub sans: Vec<String>,
    /// The number of changes that the store keeps for watches, if not the default.
    pub history: Option<usize>,
    /// The templates that the base MachineConfigs are generated from.
    pub templates: Arc<TemplateTree>,
    /// The listen address of the machine config server with TLS, if any.
    pub server_listen: Option<SocketAddr>,
    /// The listen address of the machine config server without TLS, if any.
    pub server_insecure_listen: Option<SocketAddr>,
    /// Whether machines without a provisioning token get configs.
    pub server_anonymous: bool,
    /// The file with the provisioning token for pointer configs, if any.
    pub server_token_file: Option<PathBuf>,
    /// The URL at which machines reach the machine config server, if configs are sealed.
    pub server_sealed: Option<String>,
    /// Where all metrics are served, if at all.
    pub metrics: Option<MetricsOptions>,
    /// The URL at which machines download the binary that completes their first boot, if any.
    pub server_first_boot: Option<String>,
    /// The file with the token that new machines join with, if they join by themselves.
    pub server_join_token_file: Option<PathBuf>,
    /// The daily backup, if it is switched on.
    pub daily_backup: Option<DailyBackupConfig>,
    /// Whether a hub whose machines trust a lost CA may make a new one.
    pub new_ca: bool,
    /// Whether another process is the controller.
    pub no_controller: bool,
}

impl UpConfig {
    /// The names in the server's certificate.
    fn certificate_names(&self, address: SocketAddr) -> Vec<String> {
        let mut names = pki::names(address, &self.sans);
        let server = self.server_listen.filter(|server| !pki::is_unspecified(server.ip()));
        names.extend(server.map(|server| server.ip().to_string()));
        names.sort();
        names.dedup();
        names
    }

    /// The URL at which machines reach a listen address. If that is unspecified, the first `--san` replaces it.
    fn api_url(&self, address: SocketAddr) -> String {
        match self.sans.first().filter(|_| pki::is_unspecified(address.ip())) {
            Some(name) if name.contains(':') => format!("https://[{name}]:{}", address.port()),
            Some(name) => format!("https://{name}:{}", address.port()),
            None => kubeconfig::url(address),
        }
    }
}

/// The target of pointer configs, if the server listens with TLS.
fn user_data(
    config: &UpConfig,
    listening: ListenAddresses,
    failures: FailureLog,
) -> Result<Option<UserData>> {
    let Some(address) = listening.secure else { return Ok(None) };
    let files = EndpointFiles {
        url: config.api_url(address),
        ca: Some(config.directory.ca()),
        token: config.server_token_file.clone(),
    };
    let endpoint = files.watch(failures)?;
    Ok(Some(UserData { namespace: secret::NAMESPACE.to_owned(), endpoint }))
}

/// A running hub.
#[derive(Debug)]
pub struct RunningSystem {
    hub: Hub,
    store: Store,
    config: UpConfig,
    pki: Pki,
    certificate: HubServingCertificate,
    server: tokio::task::JoinHandle<()>,
    controller: tokio::task::JoinHandle<()>,
    config_server: Option<tokio::task::JoinHandle<Result<()>>>,
    config_server_certificate: ServingCertificate,
    daily_backup: Option<tokio::task::JoinHandle<()>>,
    /// Whether the loops of the controller and the server make progress.
    liveness: Liveness,
    stopping: CancellationToken,
    terminate: Signal,
    interrupt: Signal,
    /// The listen address of the API.
    pub address: SocketAddr,
    /// The listen addresses of the machine config server.
    pub listening: ListenAddresses,
    /// Whether this start created the data directory.
    pub is_new: bool,
}

/// What the hub serves, and who signs for it.
fn hub_config(config: &UpConfig, ca: CertificateAuthority) -> Result<HubConfig> {
    let (audit, failures) = (config.directory.audit(), FailureLog::default());
    Ok(HubConfig {
        crds: initial_objects::crd_objects()?,
        rules: initial_objects::machine_rules(),
        namespaces: initial_objects::namespaces(),
        audit: AuditLog::to_file(&audit)
            .with_context(|| format!("cannot write {}", audit.display()))?
            .reporting_to(failures.clone()),
        failures,
        ca: Some(ca),
        hidden_from_viewers: initial_objects::hidden_from_viewers(),
        viewer_redactions: initial_objects::viewer_redactions(),
        reserved_node_names: initial_objects::reserved_node_names(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        binaries: Some(config.directory.binaries()),
        protected_annotations: initial_objects::protected_annotations(),
        ..HubConfig::default()
    })
}

impl RunningSystem {
    /// Starts all components.
    ///
    /// # Errors
    /// The data directory or an address cannot be used.
    pub async fn start(config: UpConfig) -> Result<Self> {
        // Signals are caught first, so that a stop during the start is clean, too.
        let terminate = signal(SignalKind::terminate())?;
        let interrupt = signal(SignalKind::interrupt())?;
        raise_file_limit();
        restore::check_complete(&config.directory)?;
        let is_new = config.directory.create()?;
        let defaults = store::StoreOptions::default();
        let history = config.history.unwrap_or(defaults.history);
        let options = store::StoreOptions { history, ..defaults };
        let store = Store::open(&config.directory.store(), options)?;
        if !config.new_ca {
            let now = pki::now_seconds();
            pki::check_not_lost(&config.directory, &machines_with_certificates(&store, now))?;
        }
        let listener = TcpListener::bind(config.api_listen)
            .await
            .with_context(|| format!("cannot listen on {}", config.api_listen))?;
        let address = listener.local_addr()?;
        let pki = Pki::open(&config.directory, &config.certificate_names(address))?;
        let ca = CertificateAuthority::from_pem(&pki.ca)?;
        let hub_config = hub_config(&config, ca)?;
        let hub = Hub::start(store.clone(), hub_config).await?;
        for object in initial_objects::objects() {
            hub.ensure_object(&object).await?;
        }
        let certificate = HubServingCertificate::new(&pki.server)?;
        let server = HubServer::new(&certificate, &pki.ca.certificate)?;
        let server = server.reporting_to(hub.failures().clone());
        let server = tokio::spawn(server.run(listener, hub.router(), hub.cancellation_token()));
        kubeconfig::write(&config.directory, address, &pki)?;
        let stopping = CancellationToken::new();
        let config_server_certificate =
            ServingCertificate::new(&config_server::to_pem_pair(&pki.server))?;
        let serves_configs =
            config.server_listen.is_some() || config.server_insecure_listen.is_some();
        let (mut listening, mut config_server) = (ListenAddresses::default(), None);
        let (metrics, liveness) = (ServerMetrics::default(), Liveness::default());
        if serves_configs {
            let (authority, certificate) = (&pki.ca.certificate, &config_server_certificate);
            let started = config_server::start(
                &hub,
                &config,
                address,
                authority,
                certificate,
                (&metrics, &liveness),
                &stopping,
            )
            .await?;
            (listening, config_server) = (started.0, Some(started.1));
        }
        let user_data = user_data(&config, listening, hub.failures().clone())?;
        let metrics_options = config.metrics.clone().map(|mut serve| {
            if matches!(serve.security.certificate, MetricsCertificate::SelfSigned) {
                // Clients that trust the hub's CA can then verify this endpoint, too.
                let shared = config_server_certificate.clone();
                serve.security.certificate = MetricsCertificate::Shared(shared);
            }
            serve
        });
        if let Some(serve) = &metrics_options {
            // Checked here, because an error in the controller would only be a log line.
            listen::bind(serve.listen, "--metrics-listen").await?;
        }
        let mut extra_metrics = vec![hub_metrics(&hub)];
        extra_metrics.extend(serves_configs.then(|| metrics.source()));
        let daily_backup = config.daily_backup.clone().map(|backup| {
            let metrics = BackupMetrics::default();
            extra_metrics.push(metrics.source());
            let (hub, data, stop) = (hub.clone(), config.directory.clone(), stopping.clone());
            tokio::spawn(daily_backup::run(hub, data, backup, metrics, stop))
        });
        let templates = Arc::clone(&config.templates);
        let stop = stopping.clone();
        let controller = if config.no_controller {
            tracing::info!("no controller is started: another one has to drive the pools");
            let (hub, serve) = (hub.clone(), metrics_options);
            tokio::spawn(embedded_controller::serve_metrics_only(hub, serve, extra_metrics, stop))
        } else {
            let (hub, serve) = (hub.clone(), metrics_options);
            tokio::spawn(embedded_controller::run(
                hub,
                templates,
                user_data,
                serve,
                extra_metrics,
                liveness.clone(),
                stop,
            ))
        };
        Ok(Self {
            hub,
            store,
            config,
            pki,
            certificate,
            server,
            controller,
            config_server,
            config_server_certificate,
            daily_backup,
            liveness,
            stopping,
            terminate,
            interrupt,
            address,
            listening,
            is_new,
        })
    }

    /// The hub, for other components in the same process.
    #[must_use]
    pub fn hub(&self) -> &Hub {
        &self.hub
    }

    /// Runs until a stop signal arrives, and renews certificates.
    ///
    /// # Errors
    /// None at present.
    pub async fn run(&mut self) -> Result<()> {
        self.notify_systemd();
        let mut tick = tokio::time::interval(CERTIFICATE_CHECK_INTERVAL);
        tick.tick().await;
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return Ok(()),
                _ = self.interrupt.recv() => return Ok(()),
                _ = tick.tick() => {
                    let renewed = self.renew_certificates();
                    self.hub.failures().record("renew certificates", "", renewed);
                }
            }
        }
    }

    /// Reports readiness, since the API is served, and feeds the watchdog while the store can be read, the API is served
    /// and no loop is stuck. Readiness does not wait for the controller: a hub whose controller has trouble still has to answer.
    fn notify_systemd(&self) {
        systemd_notify::ready();
        let (store, server) = (self.store.clone(), self.server.abort_handle());
        let (stopping, liveness) = (self.stopping.clone(), self.liveness.clone());
        systemd_notify::start_watchdog(move || {
            let store = store.clone();
            // While the hub stops, the API ends before the process does.
            let is_served = !server.is_finished() || stopping.is_cancelled();
            let is_alive = liveness.is_alive();
            async move {
                let read = tokio::task::spawn_blocking(move || drop(store.list("", None, Some(1))));
                read.await.is_ok() && is_served && is_alive
            }
        });
    }

    fn renew_certificates(&mut self) -> Result<()> {
        let names = self.config.certificate_names(self.address);
        let pki = Pki::open(&self.config.directory, &names)?;
        if pki.server.certificate != self.pki.server.certificate {
            self.certificate.replace(&pki.server)?;
            self.config_server_certificate.replace(&config_server::to_pem_pair(&pki.server))?;
            tracing::info!("server certificate renewed");
        }
        if pki.admin.certificate != self.pki.admin.certificate {
            kubeconfig::write(&self.config.directory, self.address, &pki)?;
            tracing::info!("administrator certificate renewed");
        }
        self.pki = pki;
        Ok(())
    }

    /// Stops: ends watches, finishes running requests and closes the store.
    pub async fn stop(self) {
        // The controller releases its lease while the API still works.
        self.stopping.cancel();
        let _ = self.controller.await;
        if let Some(config_server) = self.config_server {
            let _ = config_server.await;
        }
        if let Some(daily_backup) = self.daily_backup {
            // A backup that is being written ends early, because the hub stops to send it.
            self.hub.cancellation_token().cancel();
            let _ = daily_backup.await;
        }
        self.hub.stop().await;
        let _ = self.server.await;
        self.store.close().await;
    }
}
