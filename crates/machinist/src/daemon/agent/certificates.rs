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
use super::node::{refused_with, within};
use crate::home::cache::Cache;

/// How long to wait before a home that has no such kind, or does not show it, is asked again.
const REFUSED: Duration = Duration::from_secs(600);
/// The same for one that does not answer.
const SILENT: Duration = Duration::from_secs(2);

/// The ControllerConfig, and what has become of it on this machine.
#[derive(Debug)]
pub(super) struct Certificates {
    cache: Cache<ControllerConfig>,
    /// The version that is on the disk, and after how many changes of the config.
    on_disk: Option<(String, u64)>,
}

impl Certificates {
    /// With the work of following the ControllerConfig.
    pub(super) fn new(client: Client) -> (Self, impl Future<Output = ()>) {
        let cache = Cache::default();
        (Self { cache: cache.clone(), on_disk: None }, follow(client, cache))
    }

    /// Wakes whoever waits when the ControllerConfig has changed.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.cache.changes()
    }
}

/// Follows the ControllerConfig where there is that kind and the machine may read it.
async fn follow(client: Client, cache: Cache<ControllerConfig>) {
    let api: Api<ControllerConfig> = Api::all(client);
    let one = format!("metadata.name={CONTROLLER_CONFIG}");
    let mut is_said = false;
    loop {
        let question = ListParams::default().fields(&one).limit(1);
        let pause = match within(api.list_metadata(&question)).await {
            Ok(_) => break,
            Err(error) if refused_with(&error, 403) || refused_with(&error, 404) => {
                if !is_said {
                    tracing::info!("there is no ControllerConfig to read here: {error:#}");
                }
                is_said = true;
                REFUSED
            }
            Err(_) => SILENT,
        };
        tokio::time::sleep(pause).await;
    }
    cache.follow(api, watcher::Config::default().fields(&one), trim).await;
}

impl Agent {
    /// Brings the certificates up to date, where that has not been done.
    pub(super) async fn refresh(&mut self) -> Result<()> {
        let Some(config) = self.certificates.cache.get(CONTROLLER_CONFIG) else { return Ok(()) };
        let Some(node) = self.own.get() else { return Ok(()) };
        let state = Some((resource_version(&config).to_owned(), self.disk.changes()));
        let missing = annotations::changed_only(&node, synced_annotations(&config));
        if self.goes_down || self.certificates.on_disk == state && missing.is_empty() {
            return Ok(());
        }
        let done = self.disk.refresh(desired_files(&config)?).await;
        for change in done.context("the cluster's certificates cannot be written")? {
            tracing::info!("{:?} {:?}", change.action, change.path);
        }
        self.own.annotate(missing).await?;
        let version = resource_version(&config);
        tracing::info!("Certificate was synced from controllerconfig resourceVersion {version}");
        self.certificates.on_disk = state;
        Ok(())
    }
}
