//! The watch log: every version of every node and pool, in the order of the API server.

use crate::runtime;
use anyhow::{Context, Result, anyhow};
use futures::StreamExt as _;
use kube::Api;
use kube::api::{DynamicObject, ListParams, WatchEvent, WatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// One version of one object.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LogEntry {
    /// Milliseconds since the log began.
    pub at: u64,
    /// The resource version, which orders all entries.
    pub version: u64,
    /// `Node` or `MachineConfigPool`.
    pub kind: String,
    /// The object's name.
    pub name: String,
    /// Whether the object was deleted.
    pub deleted: bool,
    /// The object.
    pub object: Value,
}

/// A finished log.
#[derive(Debug, Clone, Default)]
pub struct RecordedLog {
    /// The entries in order.
    pub entries: Vec<LogEntry>,
    /// Why the log is incomplete, if it is.
    pub gap: Option<String>,
}

impl RecordedLog {
    /// Sorts entries by their resource version.
    pub fn new(mut entries: Vec<LogEntry>) -> Self {
        entries.sort_by_key(|entry| entry.version);
        Self { entries, gap: None }
    }

    /// Writes the log to a file, one entry per line.
    pub fn write(&self, path: &Path) -> Result<()> {
        let lines: Result<Vec<_>, _> = self.entries.iter().map(serde_json::to_string).collect();
        fs::write(path, lines?.join("\n")).with_context(|| format!("write {}", path.display()))
    }

    /// Reads a log that [`RecordedLog::write`] has written.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        let entries: Result<Vec<_>, _> = text.lines().map(serde_json::from_str).collect();
        Ok(Self::new(entries?))
    }
}

/// A log that is still recording.
#[derive(Debug)]
pub struct WatchLog {
    log: Arc<Mutex<RecordedLog>>,
    tasks: Vec<JoinHandle<()>>,
}

impl WatchLog {
    /// Starts to record nodes and pools. The CRD of the pools must exist.
    pub fn start(client: &kube::Client) -> Result<Self> {
        let log = Arc::new(Mutex::new(RecordedLog::default()));
        let start = Instant::now();
        let pools =
            GroupVersionKind::gvk("machineconfiguration.openshift.io", "v1", "MachineConfigPool");
        let kinds = [
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("", "v1", "Node"), "nodes"),
            ApiResource::from_gvk_with_plural(&pools, "machineconfigpools"),
        ];
        let mut tasks = Vec::new();
        for kind in kinds {
            let api = Api::<DynamicObject>::all_with(client.clone(), &kind);
            let recorder = LogRecorder { kind: kind.kind, log: Arc::clone(&log), start };
            let list = crate::block_on(api.list(&ListParams::default()))
                .with_context(|| format!("list {}", recorder.kind))?;
            for object in list.items {
                recorder.add(object, false);
            }
            let version = list.metadata.resource_version.unwrap_or_default();
            tasks.push(runtime().spawn(recorder.watch(api, version)));
        }
        Ok(Self { log, tasks })
    }

    /// The number of entries so far.
    pub fn len(&self) -> usize {
        lock(&self.log).entries.len()
    }

    /// Whether nothing has been recorded yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Stops the recording. A log with a gap proves nothing, so a gap is an error.
    pub fn stop(self) -> Result<RecordedLog> {
        for task in &self.tasks {
            task.abort();
        }
        let log = lock(&self.log).clone();
        match log.gap {
            Some(gap) => Err(anyhow!("the watch log has a gap: {gap}")),
            None => Ok(RecordedLog::new(log.entries)),
        }
    }
}

struct LogRecorder {
    kind: String,
    log: Arc<Mutex<RecordedLog>>,
    start: Instant,
}

impl LogRecorder {
    fn add(&self, object: DynamicObject, deleted: bool) -> String {
        let version = object.metadata.resource_version.clone().unwrap_or_default();
        let entry = LogEntry {
            at: u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX),
            version: version.parse().unwrap_or(0),
            kind: self.kind.clone(),
            name: object.metadata.name.clone().unwrap_or_default(),
            deleted,
            object: serde_json::to_value(object).unwrap_or_default(),
        };
        lock(&self.log).entries.push(entry);
        version
    }

    async fn watch(self, api: Api<DynamicObject>, mut version: String) {
        let params = WatchParams::default().timeout(280);
        loop {
            let stream = match api.watch(&params, &version).await {
                Ok(stream) => stream,
                Err(kube::Error::Api(status)) if status.code == 410 => {
                    return self.record_gap(&status.message);
                }
                // The server is down. The watch resumes when it is back.
                Err(_) => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let mut stream = std::pin::pin!(stream);
            while let Some(event) = stream.next().await {
                match event {
                    Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                        version = self.add(object, false);
                    }
                    Ok(WatchEvent::Deleted(object)) => version = self.add(object, true),
                    Ok(WatchEvent::Bookmark(mark)) => version = mark.metadata.resource_version,
                    Ok(WatchEvent::Error(status)) => return self.record_gap(&status.message),
                    // The connection ended. The next watch resumes from the last version.
                    Err(_) => break,
                }
            }
        }
    }

    fn record_gap(&self, why: &str) {
        lock(&self.log).gap = Some(format!("{}: {why}", self.kind));
    }
}

fn lock(log: &Mutex<RecordedLog>) -> MutexGuard<'_, RecordedLog> {
    log.lock()
}
