//! What `heal`, `hold`, `release` and `reboot` share: one machine, and annotations on its Node that ask
//! its daemon or the controller for something.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use http::Method;
use k8s_openapi::api::core::v1::Node;
use machinist_core::node::NodeView;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::cluster::session::ClusterSession;
use super::cluster::snapshot::{SnapshotKind, deserialize};
use crate::kubernetes::request::{MERGE_PATCH, status_code, with_query};

/// How often a write is retried after a conflict with another writer.
const MAX_CONFLICT_RETRIES: usize = 5;

/// What becomes of a request.
pub(super) enum RequestDecision<T> {
    /// These annotations are written; `null` removes one.
    Write(Value, T),
    /// Nothing is written.
    Refuse(T),
}

/// Reads a machine and writes annotations to it. `decide` sees the machine that is written: the write fails
/// and is decided again if someone else has changed it meanwhile.
pub(super) async fn request<T>(
    session: &ClusterSession,
    name: &str,
    mut decide: impl AsyncFnMut(&Node) -> Result<RequestDecision<T>>,
) -> Result<T> {
    let path = session.needed(SnapshotKind::Node)?.path(None, Some(name));
    let write = with_query(&path, &[("fieldManager", "machinist")]);
    let mut tries = 0;
    loop {
        tries += 1;
        let object =
            session.client.get(&path).await.map_err(|error| match status_code(&error) {
                Some(404) => anyhow!("Node {name} does not exist: `machinist status` lists all"),
                _ => error,
            })?;
        let node: Node = deserialize(SnapshotKind::Node, &object)?;
        let (annotations, result) = match decide(&node).await? {
            RequestDecision::Refuse(result) => return Ok(result),
            RequestDecision::Write(annotations, result) => (annotations, result),
        };
        let patch = json!({"metadata": {
            "resourceVersion": node.metadata.resource_version, "annotations": annotations,
        }});
        match session.client.write(Method::PATCH, &write, MERGE_PATCH, &patch).await {
            Err(error) if tries < MAX_CONFLICT_RETRIES && status_code(&error) == Some(409) => {}
            Err(error) => return Err(error),
            Ok(_) => return Ok(result),
        }
    }
}

/// Waits until the daemon of a machine has done what an annotation asks for. `check` returns the result.
pub(super) async fn wait_for_daemon<T>(
    session: &ClusterSession,
    name: &str,
    max_wait: Duration,
    mut check: impl FnMut(NodeView<'_>) -> Option<T>,
) -> Result<T> {
    let resource = session.needed(SnapshotKind::Node)?;
    let seen = session.client.until(resource, None, name, |object| match object {
        None => Some(Err(anyhow!("Node {name} was deleted"))),
        Some(object) => match deserialize::<Node>(SnapshotKind::Node, object) {
            Ok(node) => check(NodeView(&node)).map(Ok),
            Err(error) => Some(Err(error)),
        },
    });
    let answer = timeout(max_wait, seen).await.with_context(|| {
        format!(
            "the daemon of {name} has not answered in {} s: see `machinist status {name}`, and on the machine `journalctl -u machinist-daemon`",
            max_wait.as_secs()
        )
    })?;
    answer?
}
