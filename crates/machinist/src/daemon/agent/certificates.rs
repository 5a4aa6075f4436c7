//! Certificates and secrets that the cluster keeps up to date next to the config. They are written when
//! the ControllerConfig changes, in a paused pool too, and again after every update. An API server
//! without a ControllerConfig has none.

use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::api::ListParams;
use kube::runtime::watcher;
use kube::{Api, Client};
use machinist_core::api::ControllerConfig;
use machinist_core::api::names::object::CONTROLLER_CONFIG;
use machinist_core::certificates::{desired_files, resource_version, synced_annotations, trim};
use machinist_core::daemon::annotations;
use machinist_hub::failure_log::FailureLog;
use tokio::sync::watch;

use super::Agent;
use super::own_node::{has_status_code, with_timeout};
use crate::kubernetes::cache::Cache;

/// The pause after the API server has no ControllerConfig, or does not let the machine read it.
const UNAVAILABLE_RETRY_DELAY: Duration = Duration::from_secs(600);
/// The pause after a request that failed otherwise.
const TIMEOUT_RETRY_DELAY: Duration = Duration::from_secs(2);

/// The ControllerConfig, and which version of it is on this machine.
#[derive(Debug)]
pub(super) struct ClusterCertificates {
    cache: Cache<ControllerConfig>,
    /// The version on disk, and the change count of the disk when it was written.
    on_disk: Option<(String, u64)>,
}

impl ClusterCertificates {
    /// Returns the certificates and the task that watches the ControllerConfig.
    pub(super) fn new(client: Client, failures: FailureLog) -> (Self, impl Future<Output = ()>) {
        let cache = Cache::default();
        let watch = watch_controller_config(client, cache.clone(), failures);
        (Self { cache, on_disk: None }, watch)
    }

    /// Notifies about changes of the ControllerConfig.
    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.cache.subscribe()
    }
}

/// Watches the ControllerConfig, once it exists and the machine may read it.
async fn watch_controller_config(
    client: Client,
    cache: Cache<ControllerConfig>,
    failures: FailureLog,
) {
    const TASK: &str = "read the ControllerConfig";
    let api: Api<ControllerConfig> = Api::all(client);
    let selector = format!("metadata.name={CONTROLLER_CONFIG}");
    let mut is_reported = false;
    loop {
        let params = ListParams::default().fields(&selector).limit(1);
        let pause = match with_timeout(api.list_metadata(&params)).await {
            Ok(_) => {
                failures.succeeded(TASK, "");
                break;
            }
            Err(error) if has_status_code(&error, 403) || has_status_code(&error, 404) => {
                if !is_reported {
                    let error = format_args!("{error:#}");
                    tracing::info!(%error, "no ControllerConfig: certificates are not managed");
                }
                is_reported = true;
                // An API server without one is no failure.
                failures.succeeded(TASK, "");
                UNAVAILABLE_RETRY_DELAY
            }
            Err(error) => {
                failures.failed(TASK, "", &format!("{error:#}"));
                TIMEOUT_RETRY_DELAY
            }
        };
        tokio::time::sleep(pause).await;
    }
    cache.reflect(api, watcher::Config::default().fields(&selector), trim, failures).await;
}

impl Agent {
    /// Writes the certificates if they are not up to date.
    pub(super) async fn refresh_certificates(&mut self) -> Result<()> {
        let Some(config) = self.certificates.cache.get(CONTROLLER_CONFIG) else { return Ok(()) };
        let Some(node) = self.own_node.get() else { return Ok(()) };
        let state = Some((resource_version(&config).to_owned(), self.disk.change_count()));
        let missing = annotations::changed_only(&node, synced_annotations(&config));
        if self.session.is_reboot_ordered
            || self.certificates.on_disk == state && missing.is_empty()
        {
            return Ok(());
        }
        let changes = self.disk.refresh_cluster_files(desired_files(&config)?).await;
        for change in changes.context("cannot write the cluster's certificates")? {
            tracing::info!(action = change.action.name(), path = change.path, "changed the disk");
        }
        self.own_node.annotate(missing).await?;
        let version = resource_version(&config);
        // MCO's literal line.
        tracing::info!("Certificate was synced from controllerconfig resourceVersion {version}");
        self.certificates.on_disk = state;
        Ok(())
    }
}
