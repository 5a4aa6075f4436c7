//! The objects that a rollout is about, kept in step with the home: one watch for each kind.

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

/// What a rollout is about.
const KINDS: [SnapshotKind; 5] = [
    SnapshotKind::Pool,
    SnapshotKind::Config,
    SnapshotKind::Node,
    SnapshotKind::MachineConfigNode,
    SnapshotKind::ControllerConfig,
];
/// Changes within this time are shown together.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// How often and after how long a home that does not answer is asked again.
const MAX_RETRIES: u32 = 60;
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// What came from the home.
enum KindEvent {
    Listed(SnapshotKind, Vec<Value>),
    Applied(SnapshotKind, Value),
    Deleted(SnapshotKind, Value),
    Failed(anyhow::Error),
}

/// A world that follows the home.
pub(in crate::cli) struct SnapshotWatch {
    pub(in crate::cli) snapshot: ClusterSnapshot,
    receiver: mpsc::UnboundedReceiver<KindEvent>,
    /// Kinds that have not been seen yet.
    not_listed: Vec<SnapshotKind>,
}

impl ClusterSession {
    /// Follows what a rollout is about from now on.
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
    /// Waits until something has changed, and for the rest of the burst. The first time, until
    /// everything has been seen.
    ///
    /// # Errors
    /// The home has not answered for a minute, or refuses.
    pub(in crate::cli) async fn next(&mut self) -> Result<()> {
        let Some(news) = self.receiver.recv().await else { return Ok(()) };
        self.handle_event(news)?;
        while !self.not_listed.is_empty() {
            let Some(news) = self.receiver.recv().await else { return Ok(()) };
            self.handle_event(news)?;
        }
        sleep(DEBOUNCE).await;
        while let Ok(Some(news)) = timeout(Duration::ZERO, self.receiver.recv()).await {
            self.handle_event(news)?;
        }
        Ok(())
    }

    fn handle_event(&mut self, news: KindEvent) -> Result<()> {
        match news {
            KindEvent::Listed(kind, objects) => {
                self.not_listed.retain(|missing| *missing != kind);
                self.snapshot.replace(kind, &objects)
            }
            KindEvent::Applied(kind, object) => self.snapshot.update(kind, &object, false),
            KindEvent::Deleted(kind, object) => self.snapshot.update(kind, &object, true),
            KindEvent::Failed(error) => Err(error),
        }
    }
}

/// Follows one kind until nobody listens. A home that is away for a moment is waited for.
async fn follow(
    home: ApiClient,
    path: String,
    kind: SnapshotKind,
    sender: mpsc::UnboundedSender<KindEvent>,
) {
    let mut failures = 0;
    while !sender.is_closed() {
        let Err(error) = list_and_watch(&home, &path, kind, &sender, &mut failures).await else {
            continue;
        };
        failures += 1;
        let is_final = matches!(status_code(&error), Some(400..=409));
        if failures > MAX_RETRIES || is_final {
            // Nobody may listen any more.
            let _ = sender.send(KindEvent::Failed(error));
            return;
        }
        sleep(RETRY_DELAY).await;
    }
}

/// Lists and watches until the revision is too old.
async fn list_and_watch(
    home: &ApiClient,
    path: &str,
    kind: SnapshotKind,
    sender: &mpsc::UnboundedSender<KindEvent>,
    failures: &mut u32,
) -> Result<()> {
    let mut list = home.list_as(path, ACCEPT_JSON).await?;
    *failures = 0;
    let items = match list.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) => items,
        _ => Vec::new(),
    };
    let _ = sender.send(KindEvent::Listed(kind, items));
    let start = revision(&list).unwrap_or_default().to_owned();
    let mut watch = ObjectWatch::new(home, path.to_owned(), ACCEPT_JSON, &start);
    while let Some(event) = watch.next().await? {
        let news = match event {
            WatchEvent::Applied(object) => KindEvent::Applied(kind, object),
            WatchEvent::Deleted(object) => KindEvent::Deleted(kind, object),
            WatchEvent::Bookmark(_) => continue,
        };
        if sender.send(news).is_err() {
            break;
        }
    }
    Ok(())
}
