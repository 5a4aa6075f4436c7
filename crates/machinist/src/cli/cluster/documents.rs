//! The objects of an API server as documents: commands that read manifests with `-f` ask it without `-f`.

use std::path::PathBuf;

use anyhow::Result;
use serde_json::Value;

use super::session::{ClusterSession, SessionArgs};
use crate::kubernetes::ServedResource;
use crate::kubernetes::request::ACCEPT_JSON;
use crate::manifests::{self, ManifestDocument, ManifestOrigin};

/// The groups of the kinds that configs are rendered and generated from.
const GROUPS: [&str; 3] =
    ["machineconfiguration.openshift.io", "config.openshift.io", "operator.openshift.io"];
/// Kinds of these groups of which there is one for each machine or build: nothing is rendered from them.
const REPORTS: [&str; 3] = ["MachineConfigNode", "MachineOSBuild", "MachineOSConfig"];

/// The documents in files or, without files, the objects of the API server.
///
/// # Errors
/// The files cannot be read, or the API server does not answer.
pub(in crate::cli) fn read_documents(
    files: &[PathBuf],
    session: &SessionArgs,
) -> Result<Vec<ManifestDocument>> {
    if !files.is_empty() {
        return manifests::read(files);
    }
    super::block_on(async { session.connect().await?.documents().await })
}

impl ClusterSession {
    /// The objects that MachineConfigs are generated from.
    pub(in crate::cli) async fn documents(&self) -> Result<Vec<ManifestDocument>> {
        let is_source = |resource: &&ServedResource| {
            GROUPS.contains(&resource.group.as_str()) && !REPORTS.contains(&resource.kind.as_str())
        };
        let mut documents = Vec::new();
        for resource in self.resources.0.iter().filter(is_source) {
            let mut list = self.client.list_as(&resource.path(None, None), ACCEPT_JSON).await?;
            let Some(Value::Array(items)) = list.get_mut("items").map(Value::take) else {
                continue;
            };
            for (index, mut value) in items.into_iter().enumerate() {
                if let Some(object) = value.as_object_mut() {
                    // Lists leave out what is the same for all items.
                    object.insert("apiVersion".to_owned(), resource.api_version().into());
                    object.insert("kind".to_owned(), resource.kind.clone().into());
                }
                let file = PathBuf::from(format!("the API server, {}", resource.plural));
                let origin = ManifestOrigin { file, document: 1, item: Some(index + 1) };
                documents.push(ManifestDocument { origin, value });
            }
        }
        Ok(documents)
    }
}
