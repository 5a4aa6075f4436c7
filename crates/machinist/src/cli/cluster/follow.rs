//! A snapshot that stays up to date: one watch for each kind that affects a rollout.

use std::time::Duration;

use anyhow::Result;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::session::ClusterSession;
use super::snapshot::{ClusterSnapshot, SnapshotKind};
use crate::kubernetes::ApiClient;
use crate::kubernetes::request::{ACCEPT_JSON, status_code};
use crate::kubernetes::watch::{ObjectWatch, WatchEvent, revision};

/// The kinds that affect a rollout.
const KINDS: [SnapshotKind; 5] = [
    SnapshotKind::Pool,
    SnapshotKind::Config,
    SnapshotKind::Node,
    SnapshotKind::MachineConfigNode,
    SnapshotKind::ControllerConfig,
];
/// Changes within this time are shown together.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// How often and how soon a failed request is retried.
const MAX_RETRIES: u32 = 60;
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// A change of one kind.
enum KindEvent {
    Listed(SnapshotKind, Vec<Value>),
    Applied(SnapshotKind, Value),
    Deleted(SnapshotKind, Value),
    /// The user may not read the kind.
    Hidden(SnapshotKind),
    Failed(anyhow::Error),
}

/// A snapshot that watches keep up to date.
pub(in crate::cli) struct SnapshotWatch {
    pub(in crate::cli) snapshot: ClusterSnapshot,
    receiver: mpsc::UnboundedReceiver<KindEvent>,
    /// Kinds whose first list has not arrived.
    not_listed: Vec<SnapshotKind>,
}

impl ClusterSession {
    /// Starts to watch all kinds that affect a rollout.
    pub(in crate::cli) fn watch_kind(&self) -> Result<SnapshotWatch> {
        self.needed(SnapshotKind::Pool)?;
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut missing = Vec::new();
        for kind in KINDS {
            let Some(resource) = self.kind(kind) else { continue };
            missing.push(kind);
            let path = resource.path(None, None);
            tokio::spawn(follow(self.client.clone(), path, kind, sender.clone()));
        }
        Ok(SnapshotWatch { snapshot: ClusterSnapshot::default(), receiver, not_listed: missing })
    }
}

impl SnapshotWatch {
    /// Waits for a change and the rest of its burst. The first call waits until all kinds are listed.
    ///
    /// # Errors
    /// The API server has not responded for a minute, or refuses.
    pub(in crate::cli) async fn next(&mut self) -> Result<()> {
        let Some(event) = self.receiver.recv().await else { return Ok(()) };
        self.handle_event(event)?;
        while !self.not_listed.is_empty() {
            let Some(event) = self.receiver.recv().await else { return Ok(()) };
            self.handle_event(event)?;
        }
        sleep(DEBOUNCE).await;
        while let Ok(Some(event)) = timeout(Duration::ZERO, self.receiver.recv()).await {
            self.handle_event(event)?;
        }
        Ok(())
    }

    /// Whether all kinds are listed.
    pub(in crate::cli) fn is_complete(&self) -> bool {
        self.not_listed.is_empty()
    }

    fn handle_event(&mut self, event: KindEvent) -> Result<()> {
        match event {
            KindEvent::Listed(kind, objects) => {
                self.not_listed.retain(|missing| *missing != kind);
                self.snapshot.replace(kind, &objects)
            }
            KindEvent::Applied(kind, object) => self.snapshot.update(kind, &object, false),
            KindEvent::Deleted(kind, object) => self.snapshot.update(kind, &object, true),
            KindEvent::Hidden(kind) => {
                self.not_listed.retain(|missing| *missing != kind);
                self.snapshot.hidden.push(kind);
                Ok(())
            }
            KindEvent::Failed(error) => Err(error),
        }
    }
}

/// Watches one kind until the receiver is gone. Retries while the API server is down.
async fn follow(
    client: ApiClient,
    path: String,
    kind: SnapshotKind,
    sender: mpsc::UnboundedSender<KindEvent>,
) {
    let mut failures = 0;
    while !sender.is_closed() {
        let Err(error) = list_and_watch(&client, &path, kind, &sender, &mut failures).await else {
            continue;
        };
        failures += 1;
        let is_needed = matches!(kind, SnapshotKind::Pool | SnapshotKind::Node);
        if status_code(&error) == Some(403) && !is_needed {
            let _ = sender.send(KindEvent::Hidden(kind));
            return;
        }
        let is_final = matches!(status_code(&error), Some(400..=409));
        if failures > MAX_RETRIES || is_final {
            // The receiver may be gone.
            let _ = sender.send(KindEvent::Failed(error));
            return;
        }
        sleep(RETRY_DELAY).await;
    }
}

/// Lists and watches until the resource version has expired.
async fn list_and_watch(
    client: &ApiClient,
    path: &str,
    kind: SnapshotKind,
    sender: &mpsc::UnboundedSender<KindEvent>,
    failures: &mut u32,
) -> Result<()> {
    let mut list = client.list_as(path, ACCEPT_JSON).await?;
    *failures = 0;
    let items = match list.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    };
    let _ = sender.send(KindEvent::Listed(kind, items));
    let start = revision(&list).unwrap_or_default().to_owned();
    let mut watch = ObjectWatch::new(client, path.to_owned(), ACCEPT_JSON, &start);
    while let Some(event) = watch.next().await? {
        let kind_event = match event {
            WatchEvent::Applied(object) => KindEvent::Applied(kind, object),
            WatchEvent::Deleted(object) => KindEvent::Deleted(kind, object),
            WatchEvent::Bookmark(_) => continue,
        };
        if sender.send(kind_event).is_err() {
            break;
        }
    }
    Ok(())
}
