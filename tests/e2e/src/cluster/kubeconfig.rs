//! Kubeconfig files: server address, CA and client certificate.

use crate::pki::TestCa;
use anyhow::{Context, Result};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::json;
use std::fs;
use std::path::Path;

/// Writes a kubeconfig for a user in groups.
pub(super) fn write(
    path: &Path,
    url: &str,
    authority: &TestCa,
    user: &str,
    groups: &[&str],
) -> Result<()> {
    let text = text(url, authority, user, groups)?;
    fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

/// The text of a kubeconfig for a user in groups.
pub(super) fn text(url: &str, authority: &TestCa, user: &str, groups: &[&str]) -> Result<String> {
    let identity = authority.issue(user, groups, &[])?;
    let data = |pem: &str| BASE64_STANDARD.encode(pem);
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "testkit", "cluster": {
            "server": url,
            "certificate-authority-data": data(authority.certificate()),
        }}],
        "users": [{"name": user, "user": {
            "client-certificate-data": data(&identity.certificate),
            "client-key-data": data(&identity.key),
        }}],
        "contexts": [{"name": "testkit", "context": {"cluster": "testkit", "user": user}}],
        "current-context": "testkit",
    });
    Ok(serde_json::to_string_pretty(&config)?)
}
