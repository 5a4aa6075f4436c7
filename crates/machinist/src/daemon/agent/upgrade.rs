//! Upgrades this daemon to the binary that its Node asks for. Runs beside the reconcile loop; the daemon ends between two
//! steps of it, and systemd starts the new one. `core::daemon::upgrade` decides.
//!
//! Nothing begins before this daemon is stored as the last good one, which the watchdog puts back if the new one does not
//! come up.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use machinist_core::api::names::annotation::machinist::{DAEMON, UPGRADE};
use machinist_core::daemon::annotations::NodeAnnotationPatch;
use machinist_core::daemon::upgrade::{
    UpgradeRecord, UpgradeStep, cannot_upgrade, check_candidate, upgrade_step,
};
use machinist_core::hex::hex;
use machinist_core::node::{DaemonReport, MAX_UPGRADE_REASON_CHARS, NodeView, UpgradeRequest};
use machinist_core::os::manifest::image_architecture;
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::super::upgrade;
use super::own_node::OwnNode;
use super::report::Reporter;
use super::{DaemonExit, ExitReason};
use crate::durable_file::{self, PartFile};
use crate::kubernetes::bounded_responses::ResponseLimit;

/// How long the next part of a binary may take.
const PART_TIMEOUT: Duration = Duration::from_secs(60);
/// The pauses after failures that may pass, such as a hub that restarts. After the last one the request has failed.
const RETRY_PAUSES: [Duration; 5] = [
    Duration::from_secs(1),
    Duration::from_secs(5),
    Duration::from_secs(20),
    Duration::from_secs(60),
    Duration::from_secs(180),
];
/// How often the report is refreshed without a change of the Node.
const REFRESH_INTERVAL: Duration = Duration::from_secs(300);
/// The space on the disk that a new binary leaves free.
const RESERVED_SPACE: u64 = 64 << 20;
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Why a binary did not take the place of this one.
enum InstallError {
    /// Another attempt may succeed.
    Retry(anyhow::Error),
    /// No other attempt is made.
    Final(String),
}

fn retry(error: impl Into<anyhow::Error>) -> InstallError {
    InstallError::Retry(error.into())
}

/// Upgrades this daemon.
pub(super) struct Upgrades {
    pub(super) client: Client,
    pub(super) own_node: OwnNode,
    pub(super) reporter: Reporter,
    pub(super) root: PathBuf,
    pub(super) exit: DaemonExit,
    /// Whether this daemon is stored as the last good one.
    pub(super) is_good: watch::Receiver<bool>,
}

/// This process.
struct OwnBinary {
    sha256: String,
    since: Time,
}

impl Upgrades {
    pub(super) async fn run(mut self) {
        if self.is_good.wait_for(|is_good| *is_good).await.is_err() {
            return;
        }
        let own = match self.settle().await {
            Ok(own) => own,
            Err(error) => {
                tracing::warn!(error = %format_args!("{error:#}"), "this daemon cannot upgrade itself");
                return;
            }
        };
        let mut changes = self.own_node.subscribe();
        let (mut failures, mut asked, mut seen) = (0, None, None);
        loop {
            changes.borrow_and_update();
            let mut pause = None;
            if let Some(node) = self.own_node.get() {
                let view = NodeView(&node);
                let request = view.annotation(UPGRADE).map(str::to_owned);
                if asked.as_ref() != Some(&request) {
                    // Another request has attempts of its own.
                    (failures, asked) = (0, Some(request.clone()));
                }
                let now = (request, view.is_done(), view.held().is_some());
                if seen.as_ref() != Some(&now) {
                    match self.step(&node, &own, failures).await {
                        Ok(()) => seen = Some(now),
                        Err(error) => {
                            let error = format_args!("{error:#}");
                            tracing::warn!(%error, "cannot upgrade this daemon now");
                            pause = RETRY_PAUSES.get(failures).or(RETRY_PAUSES.last()).copied();
                            failures += 1;
                        }
                    }
                }
            }
            if let Some(pause) = pause {
                sleep(pause).await;
                continue;
            }
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                // Whether this daemon can upgrade itself may have changed.
                () = sleep(REFRESH_INTERVAL) => seen = None,
            }
        }
    }

    /// Finds out which binary runs, and reports how the last upgrade ended.
    async fn settle(&self) -> Result<OwnBinary> {
        let hash = || upgrade::sha256_of(Path::new("/proc/self/exe"));
        let sha256 =
            tokio::task::spawn_blocking(hash).await?.context("cannot read the own binary")?;
        let own = OwnBinary { sha256, since: Time(Timestamp::now()) };
        let record = upgrade::read_record(&self.root);
        if let Some(record) = record.filter(|record| record.request.sha256 == own.sha256) {
            let message = format!(
                "the daemon runs {VERSION} (sha256 {}) now, instead of sha256 {}",
                own.sha256, record.from_sha256
            );
            tracing::info!(message, "upgraded this daemon");
            if let Some(node) = self.own_node.get() {
                self.reporter.event(&node, "DaemonUpgraded", message);
            }
            upgrade::remove_record(&self.root)?;
        }
        Ok(own)
    }

    async fn step(&self, node: &Arc<Node>, own: &OwnBinary, failures: usize) -> Result<()> {
        let (root, view) = (&self.root, NodeView(node));
        let cannot = cannot_upgrade(&upgrade::installed(root));
        let record = upgrade::read_record(root);
        self.report(node, own, cannot.clone(), record.as_ref()).await?;
        let (request, reason) =
            match upgrade_step(view, &own.sha256, cannot.as_deref(), record.as_ref()) {
                UpgradeStep::Nothing | UpgradeStep::Wait => return Ok(()),
                UpgradeStep::Fail { request, reason } => (request, reason),
                UpgradeStep::Install(request) => match self.install(&request, own).await {
                    Ok(()) => return Ok(()),
                    Err(InstallError::Retry(error)) if failures < RETRY_PAUSES.len() => {
                        return Err(error);
                    }
                    Err(InstallError::Retry(error)) => (request, format!("{error:#}")),
                    Err(InstallError::Final(reason)) => (request, reason),
                },
            };
        let attempts = record.filter(|record| record.request.id == request.id);
        let failed = UpgradeRecord {
            attempts: attempts.map_or(0, |record| record.attempts),
            request,
            from_sha256: own.sha256.clone(),
            checks: 0,
            came_up: false,
            failed: Some(reason.chars().take(MAX_UPGRADE_REASON_CHARS).collect()),
        };
        upgrade::write_record(root, &failed)?;
        self.report(node, own, cannot, Some(&failed)).await
    }

    /// Writes to the Node what runs here, and a failure with an event.
    async fn report(
        &self,
        node: &Arc<Node>,
        own: &OwnBinary,
        cannot_upgrade: Option<String>,
        record: Option<&UpgradeRecord>,
    ) -> Result<()> {
        let failed = record.and_then(UpgradeRecord::failure);
        let known = DaemonReport::of(NodeView(node)).and_then(|report| report.failed);
        if let Some(failed) = failed.as_ref().filter(|failed| known.as_ref() != Some(failed)) {
            tracing::warn!(reason = failed.reason, "the upgrade of this daemon failed");
            self.reporter.warn(node, "DaemonUpgradeFailed", failed.reason.as_str());
        }
        let report = DaemonReport {
            version: VERSION.to_owned(),
            sha256: own.sha256.clone(),
            since: own.since.clone(),
            architecture: image_architecture(std::env::consts::ARCH).to_owned(),
            cannot_upgrade,
            failed,
        };
        let text = serde_json::to_string(&report)?;
        self.own_node
            .annotate(NodeAnnotationPatch::from([(DAEMON.to_owned(), Some(text))]))
            .await?;
        Ok(())
    }

    /// Fetches the binary, checks it, and puts it in the place of this one.
    async fn install(&self, request: &UpgradeRequest, own: &OwnBinary) -> Result<(), InstallError> {
        let binary = upgrade::service_binary(&self.root)
            .context("the binary of the service is not this one any more")
            .map_err(retry)?;
        let candidate = upgrade::candidate_path(&binary);
        let fetched = self.fetch(request, &candidate).await;
        let checked = match fetched {
            Ok(()) => self.check(request, &candidate).await,
            Err(error) => Err(error),
        };
        if let Err(error) = checked {
            // What a power cut leaves is replaced by the next attempt.
            let _ = durable_file::remove(&candidate);
            return Err(error);
        }
        let Some(node) = self.own_node.get() else { return Ok(()) };
        let view = NodeView(&node);
        let asked = view.annotation(UPGRADE).map(UpgradeRequest::parse);
        if asked != Some(Ok(request.clone())) || !view.is_done() || view.held().is_some() {
            let _ = durable_file::remove(&candidate);
            return Err(retry(anyhow!("the machine has got something else to do")));
        }
        let (root, sha256, wanted) = (self.root.clone(), own.sha256.clone(), request.clone());
        let replaced =
            tokio::task::spawn_blocking(move || upgrade::replace(&root, &binary, &wanted, &sha256));
        replaced.await.map_err(retry)?.map_err(InstallError::Retry)?;
        let message = format!("the daemon ends, and starts again as sha256 {}", request.sha256);
        tracing::info!(message, "upgrading this daemon");
        self.reporter.event(&node, "DaemonUpgrading", message);
        self.exit.end(ExitReason::Upgraded);
        Ok(())
    }

    /// Fetches a binary to a path. What is there afterwards has the digest of the request, and is synced.
    async fn fetch(&self, request: &UpgradeRequest, path: &Path) -> Result<(), InstallError> {
        let directory = path.parent().unwrap_or(path);
        let space = rustix::fs::statvfs(directory).map_err(retry)?;
        if space.f_bavail.saturating_mul(space.f_frsize) < request.size + RESERVED_SPACE {
            return Err(retry(anyhow!("{}: the disk is too full", directory.display())));
        }
        let path_of = format!("/machinist/v1/binaries/{}", request.sha256);
        // One byte more is enough to see that there are too many.
        let limit = ResponseLimit::of_bytes(request.size.saturating_add(1));
        let asked = http::Request::get(path_of).extension(limit);
        let asked = asked.body(Body::empty()).map_err(retry)?;
        let response = timeout(PART_TIMEOUT, self.client.send(asked)).await.map_err(retry)?;
        let response = response.context("cannot reach the hub").map_err(InstallError::Retry)?;
        match response.status().as_u16() {
            200 => {}
            404 => {
                return Err(InstallError::Final(
                    "the API server does not have the binary: it is no hub, or has dropped it; run `machinist upgrade` again".to_owned(),
                ));
            }
            code @ (401 | 403) => {
                return Err(InstallError::Final(format!(
                    "the hub refused to send the binary ({code})"
                )));
            }
            code => return Err(retry(anyhow!("the hub responded with {code}"))),
        }
        let mut part = PartFile::begin(path, 0o755).map_err(retry)?;
        let (mut body, mut hash, mut size) = (response.into_body(), Sha256::new(), 0_u64);
        while let Some(frame) = timeout(PART_TIMEOUT, body.frame()).await.map_err(retry)? {
            let Ok(data) = frame.map_err(retry)?.into_data() else { continue };
            size += data.len() as u64;
            if size > request.size {
                return Err(InstallError::Final(format!(
                    "the hub sent more than the {} bytes of the binary",
                    request.size
                )));
            }
            hash.update(&data);
            part.write_all(&data).map_err(retry)?;
        }
        if size < request.size {
            return Err(retry(anyhow!(
                "the transfer ended after {size} of {} bytes",
                request.size
            )));
        }
        let found = hex(&hash.finalize());
        if found != request.sha256 {
            return Err(InstallError::Final(format!(
                "what the hub sent has the SHA-256 digest {found}, and not {}",
                request.sha256
            )));
        }
        let synced = tokio::task::spawn_blocking(move || {
            part.sync()?;
            part.rename()
        });
        synced.await.map_err(retry)?.map_err(retry)
    }

    /// Checks that a binary runs on this machine, and may take the place of this one.
    async fn check(&self, request: &UpgradeRequest, path: &Path) -> Result<(), InstallError> {
        let output = upgrade::version_of(path).await;
        let output = output.map_err(|error| InstallError::Final(format!("{error:#}")))?;
        let version = check_candidate(&output, VERSION, request.allow_downgrade);
        let version = version.map_err(InstallError::Final)?;
        tracing::info!(version, sha256 = request.sha256, "fetched a new daemon");
        Ok(())
    }
}
