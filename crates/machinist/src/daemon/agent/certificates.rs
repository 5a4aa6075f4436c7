//! Certificates and secrets that the cluster keeps up to date beside the config: written as soon as
//! the ControllerConfig changes, in a paused pool too, and again after every change of the config. A
//! home without a ControllerConfig says nothing about them.

use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::api::ListParams;
use kube::runtime::watcher;
use kube::{Api, Client};
use machinist_core::api::ControllerConfig;
use machinist_core::api::names::object::CONTROLLER_CONFIG;
use machinist_core::certificates::{desired_files, resource_version, synced_annotations, trim};
use machinist_core::daemon::annotations;
use tokio::sync::watch;

use super::Agent;
use super::own_node::{has_status_code, with_timeout};
use crate::kubernetes::cache::Cache;

/// How long to wait before a home that has no such kind, or does not show it, is asked again.
const UNAVAILABLE_RETRY_DELAY: Duration = Duration::from_secs(600);
/// The same for one that does not answer.
const TIMEOUT_RETRY_DELAY: Duration = Duration::from_secs(2);

/// The ControllerConfig, and what has become of it on this machine.
#[derive(Debug)]
pub(super) struct ClusterCertificates {
    cache: Cache<ControllerConfig>,
    /// The version that is on the disk, and after how many changes of the config.
    on_disk: Option<(String, u64)>,
}

impl ClusterCertificates {
    /// With the work of following the ControllerConfig.
    pub(super) fn new(client: Client) -> (Self, impl Future<Output = ()>) {
        let cache = Cache::default();
        (Self { cache: cache.clone(), on_disk: None }, watch_controller_config(client, cache))
    }

    /// Wakes whoever waits when the ControllerConfig has changed.
    pub(super) fn subscribe(&self) -> watch::Receiver<u64> {
        self.cache.subscribe()
    }
}

/// Follows the ControllerConfig where there is that kind and the machine may read it.
async fn watch_controller_config(client: Client, cache: Cache<ControllerConfig>) {
    let api: Api<ControllerConfig> = Api::all(client);
    let one = format!("metadata.name={CONTROLLER_CONFIG}");
    let mut is_said = false;
    loop {
        let question = ListParams::default().fields(&one).limit(1);
        let pause = match with_timeout(api.list_metadata(&question)).await {
            Ok(_) => break,
            Err(error) if has_status_code(&error, 403) || has_status_code(&error, 404) => {
                if !is_said {
                    tracing::info!("there is no ControllerConfig to read here: {error:#}");
                }
                is_said = true;
                UNAVAILABLE_RETRY_DELAY
            }
            Err(_) => TIMEOUT_RETRY_DELAY,
        };
        tokio::time::sleep(pause).await;
    }
    cache.reflect(api, watcher::Config::default().fields(&one), trim).await;
}

impl Agent {
    /// Brings the certificates up to date, where that has not been done.
    pub(super) async fn refresh_certificates(&mut self) -> Result<()> {
        let Some(config) = self.certificates.cache.get(CONTROLLER_CONFIG) else { return Ok(()) };
        let Some(node) = self.own_node.get() else { return Ok(()) };
        let state = Some((resource_version(&config).to_owned(), self.disk.change_count()));
        let missing = annotations::changed_only(&node, synced_annotations(&config));
        if self.reboot_ordered || self.certificates.on_disk == state && missing.is_empty() {
            return Ok(());
        }
        let done = self.disk.refresh_cluster_files(desired_files(&config)?).await;
        for change in done.context("the cluster's certificates cannot be written")? {
            tracing::info!("{:?} {:?}", change.action, change.path);
        }
        self.own_node.annotate(missing).await?;
        let version = resource_version(&config);
        tracing::info!("Certificate was synced from controllerconfig resourceVersion {version}");
        self.certificates.on_disk = state;
        Ok(())
    }
}
