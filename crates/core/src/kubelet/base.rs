//! The kubelet configuration that a pool starts from: its template, the feature gates, and for
//! workers the latency profile.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::machine_config::KUBELET_CONF;
use crate::api::config;
use crate::api::names::object;
use crate::go::types::KUBELET;
use crate::go::{json, yaml};
use crate::template::{TemplateError, TemplateInputs, TemplateTree, render_file_of_role};

/// In nanoseconds.
const SECOND: i64 = 1_000_000_000;

/// The type of the file.
pub(super) const CONFIGURATION: &str = "KubeletConfiguration";

/// What the configuration of every pool starts from.
#[derive(Clone, Copy, Debug)]
pub struct KubeletSources<'a> {
    /// The templates.
    pub templates: &'a TemplateTree,
    /// What they are filled in with.
    pub inputs: TemplateInputs<'a>,
    /// The feature gates that are known, and whether they are on.
    pub gates: &'a BTreeMap<String, bool>,
    /// The settings of all machines of the cluster.
    pub node: Option<&'a config::Node>,
}

/// Why a pool has no configuration to start from.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BaseError {
    /// The templates cannot be filled in.
    #[error("could not generate the original Kubelet config ignition: {0}")]
    Template(#[from] TemplateError),
    /// No template makes the file.
    #[error(
        "could not generate old kubelet config: no template of the role {role} makes \
         /etc/kubernetes/kubelet.conf"
    )]
    NoFile {
        /// The role.
        role: String,
    },
    /// The file that the templates make is no kubelet configuration.
    #[error("could not deserialize the Kubelet source: {0}")]
    Content(String),
}

/// The configuration that a pool starts from, as [`json`] keeps it.
///
/// # Errors
/// The templates make no kubelet configuration for the pool.
pub fn base_configuration(sources: &KubeletSources<'_>, pool: &str) -> Result<Value, BaseError> {
    let file = render_file_of_role(sources.templates, &sources.inputs, pool, KUBELET_CONF)?
        .ok_or_else(|| BaseError::NoFile { role: pool.to_owned() })?;
    let text = String::from_utf8(file).map_err(|_| BaseError::Content("not UTF-8 text".into()))?;
    let value = yaml::parse(&text).map_err(|error| BaseError::Content(error.to_string()))?;
    let mut config = json::decode(&KUBELET, CONFIGURATION, &value)
        .map_err(|error| BaseError::Content(error.to_string()))?;
    set_gates(&mut config, sources.gates);
    let profile = sources.node.and_then(|node| node.spec.worker_latency_profile.as_deref());
    if pool == object::POOL_WORKER
        && let Some(seconds) = profile.and_then(status_update_seconds)
    {
        config["nodeStatusUpdateFrequency"] = (seconds * SECOND).into();
    }
    Ok(config)
}

fn set_gates(config: &mut Value, gates: &BTreeMap<String, bool>) {
    if gates.is_empty() {
        return;
    }
    if let Some(config) = config.as_object_mut() {
        let own = config.entry("featureGates").or_insert_with(|| Value::Object(Map::new()));
        if let Some(own) = own.as_object_mut() {
            own.extend(gates.iter().map(|(name, is_on)| (name.clone(), (*is_on).into())));
        }
    }
}

/// How often a kubelet says that it is well, in seconds, by a latency profile that there is.
pub(super) fn status_update_seconds(profile: &str) -> Option<i64> {
    match profile {
        "Default" => Some(10),
        "MediumUpdateAverageReaction" => Some(20),
        "LowUpdateSlowReaction" => Some(60),
        _ => None,
    }
}
