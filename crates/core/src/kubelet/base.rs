//! The kubelet configuration that a pool starts from: its template, the feature gates, and for
//! workers the latency profile.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::machine_config::KUBELET_CONF;
use super::settings_file::{BaseConfiguration, DROP_INS};
use crate::api::config;
use crate::api::names::object;
use crate::go::types::KUBELET;
use crate::go::{json, yaml};
use crate::template::{TemplateError, TemplateInputs, TemplateTree, render_file_of_role};

/// In nanoseconds.
const SECOND: i64 = 1_000_000_000;

/// The type of the file.
pub(super) const CONFIGURATION: &str = "KubeletConfiguration";

/// The sources of every pool's base configuration.
#[derive(Clone, Copy, Debug)]
pub struct KubeletSources<'a> {
    /// The templates.
    pub templates: &'a TemplateTree,
    /// The data for the templates.
    pub inputs: TemplateInputs<'a>,
    /// The known feature gates, and whether they are enabled.
    pub gates: &'a BTreeMap<String, bool>,
    /// The cluster's Node config.
    pub node: Option<&'a config::NodeConfig>,
}

/// Why a pool has no base configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BaseError {
    /// The templates cannot be rendered.
    #[error("could not generate the original Kubelet config ignition: {0}")]
    Template(#[from] TemplateError),
    /// No template generates the file.
    #[error(
        "could not generate old kubelet config: no template of the role {role} makes \
         /etc/kubernetes/kubelet.conf or a drop-in for it"
    )]
    NoFile {
        /// The role.
        role: String,
    },
    /// The generated file is not a kubelet configuration.
    #[error("could not deserialize the Kubelet source: {0}")]
    Content(String),
}

/// The base configuration of a pool.
///
/// # Errors
/// The templates generate no kubelet configuration for the pool.
pub fn base_configuration(
    sources: &KubeletSources<'_>,
    pool: &str,
) -> Result<BaseConfiguration, BaseError> {
    let parse = |file: Vec<u8>| {
        let text =
            String::from_utf8(file).map_err(|_| BaseError::Content("not UTF-8 text".into()))?;
        yaml::parse(&text).map_err(|error| BaseError::Content(error.to_string()))
    };
    let render = |path| render_file_of_role(sources.templates, &sources.inputs, pool, path);
    let Some(file) = render(KUBELET_CONF)? else {
        for path in DROP_INS {
            if let Some(file) = render(path)? {
                return Ok(BaseConfiguration::drop_in(path, &parse(file)?, sources, pool));
            }
        }
        return Err(BaseError::NoFile { role: pool.to_owned() });
    };
    let value = parse(file)?;
    let mut config = json::decode(&KUBELET, CONFIGURATION, &value)
        .map_err(|error| BaseError::Content(error.to_string()))?;
    set_gates(&mut config, sources.gates);
    let profile = sources.node.and_then(|node| node.spec.worker_latency_profile.as_deref());
    if pool == object::POOL_WORKER
        && let Some(seconds) = profile.and_then(status_update_seconds)
    {
        config["nodeStatusUpdateFrequency"] = (seconds * SECOND).into();
    }
    Ok(BaseConfiguration { path: KUBELET_CONF, config })
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

/// The interval of kubelet status updates in seconds, for a known latency profile.
pub(super) fn status_update_seconds(profile: &str) -> Option<i64> {
    match profile {
        "Default" => Some(10),
        "MediumUpdateAverageReaction" => Some(20),
        "LowUpdateSlowReaction" => Some(60),
        _ => None,
    }
}
