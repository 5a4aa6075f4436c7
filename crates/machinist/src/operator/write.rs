//! The operator's writes: server-side apply, and only while it leads.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use http::Method;
use machinist_core::api::names::FIELD_MANAGER;
use serde_json::Value;
use tokio::time::timeout;

use crate::kubernetes::lease::Leadership;
use crate::kubernetes::request::{ACCEPT_JSON, ApiClient, MERGE_PATCH, status_code};

/// How long a write may take at most.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
const APPLY_PATCH: &str = "application/apply-patch+yaml";

/// Writes objects of the few kinds that the operator manages.
#[derive(Debug, Clone)]
pub(super) struct ApplyWriter {
    pub(super) client: ApiClient,
    pub(super) leadership: Leadership,
}

impl ApplyWriter {
    /// Applies an object. Fields that it does not name belong to others.
    pub(super) async fn apply(&self, object: &Value) -> Result<Value> {
        let path = format!("{}?fieldManager={FIELD_MANAGER}&force=true", path(object)?);
        self.send(Method::PATCH, &path, APPLY_PATCH, object)
            .await
            .with_context(|| format!("cannot apply {}", name(object)))
    }

    /// Creates an object unless it exists.
    pub(super) async fn create(&self, object: &Value) -> Result<()> {
        let path = path(object)?;
        let list = path.rsplit_once('/').map_or(path.as_str(), |(list, _)| list);
        match self.send(Method::POST, list, ACCEPT_JSON, object).await {
            Err(error) if status_code(&error) == Some(409) => Ok(()),
            response => {
                response.map(drop).with_context(|| format!("cannot create {}", name(object)))
            }
        }
    }

    /// Sends a POST that creates no object, such as a TokenRequest.
    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<Value> {
        self.send(Method::POST, path, ACCEPT_JSON, body).await
    }

    /// Deletes an object and its dependents.
    pub(super) async fn delete(&self, object: &Value) -> Result<()> {
        let options = serde_json::json!({"propagationPolicy": "Background"});
        match self.send(Method::DELETE, &path(object)?, ACCEPT_JSON, &options).await {
            Err(error) if status_code(&error) == Some(404) => Ok(()),
            response => {
                response.map(drop).with_context(|| format!("cannot remove {}", name(object)))
            }
        }
    }

    /// Sends a merge patch.
    pub(super) async fn merge(&self, path: &str, patch: &Value) -> Result<()> {
        self.send(Method::PATCH, path, MERGE_PATCH, patch).await.map(drop)
    }

    async fn send(&self, method: Method, path: &str, kind: &str, body: &Value) -> Result<Value> {
        ensure!(self.leadership.is_leading(), "this operator no longer leads");
        let writing = self.client.write(method, path, kind, body);
        let response = timeout(WRITE_TIMEOUT, writing)
            .await
            .map_err(|_| anyhow!("the API server did not respond in time"))?;
        Ok(response?.body)
    }
}

/// `Kind name`, for people.
fn name(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!("{} {}", text(&object["kind"]), text(&object["metadata"]["name"]))
}

/// The path of an object.
fn path(object: &Value) -> Result<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let plural = format!("{}s", kind.to_lowercase());
    let (name, namespace) =
        (text(&object["metadata"]["name"]), text(&object["metadata"]["namespace"]));
    // The error must not show the object: it may be a Secret.
    ensure!(
        !version.is_empty() && !kind.is_empty() && !name.is_empty(),
        "an object without apiVersion, kind or name: {version} {kind} {name}"
    );
    let root = if version.contains('/') { "/apis" } else { "/api" };
    let place =
        if namespace.is_empty() { String::new() } else { format!("/namespaces/{namespace}") };
    Ok(format!("{root}/{version}{place}/{plural}/{name}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths() {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a", "namespace": "n"}});
        assert_eq!(path(&secret).unwrap(), "/api/v1/namespaces/n/secrets/a");
        let config = json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "ControllerConfig", "metadata": {"name": "c"},
        });
        assert_eq!(
            path(&config).unwrap(),
            "/apis/machineconfiguration.openshift.io/v1/controllerconfigs/c"
        );
        assert!(path(&json!({})).is_err());
    }
}
