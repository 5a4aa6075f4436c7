//! The file that a pool's kubelets read their settings from: a complete configuration on machines that Machinist
//! installs, and a drop-in beside that of the installer on nodes of kubeadm, k3s and RKE2. A drop-in has only what
//! somebody wrote, and the kubelet takes everything else from the installer's files.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::base::{CONFIGURATION, KubeletSources, status_update_seconds};
use super::check::{KubeletConfigError, unknown_fields};
use super::machine_config::{KUBELET_CONF, check_cgroups, set_text};
use crate::api::names::object;
use crate::api::{KubeletConfig, MachineConfig};
use crate::generated_config::{GeneratedConfig, GeneratedFile, machine_config};
use crate::go::types::KUBELET;
use crate::go::yaml::to_go_yaml;
use crate::go::{json, yaml};
use crate::template::decoded_file;
use crate::tls_profile::tls_parameters;

/// The drop-ins of the built-in profiles. `templates/` has the same paths; a test compares.
pub(super) const DROP_INS: [&str; 3] = [
    "/etc/kubernetes/kubelet.conf.d/50-machinist.conf",
    "/var/lib/rancher/k3s/agent/etc/kubelet.conf.d/50-machinist.conf",
    "/var/lib/rancher/rke2/agent/etc/kubelet.conf.d/50-machinist.conf",
];

/// The settings that a pool's kubelets start from.
#[derive(Debug, Clone, PartialEq)]
pub struct BaseConfiguration {
    /// The file.
    pub path: &'static str,
    /// The settings: of a complete file in the form that [`crate::go::json`] decodes to, of a drop-in as they are
    /// written.
    pub config: Value,
}

impl BaseConfiguration {
    /// Whether the file has only what differs from the installer's.
    #[must_use]
    pub fn is_drop_in(&self) -> bool {
        self.path != KUBELET_CONF
    }

    /// The drop-in of a pool: that of its template, the feature gates, and for workers the latency profile.
    pub(super) fn drop_in(
        path: &'static str,
        template: &Value,
        sources: &KubeletSources<'_>,
        pool: &str,
    ) -> Self {
        let mut config = template.clone();
        if !sources.gates.is_empty() {
            let gates: &BTreeMap<String, bool> = sources.gates;
            config["featureGates"] = json!(gates);
        }
        let profile = sources.node.and_then(|node| node.spec.worker_latency_profile.as_deref());
        if pool == object::POOL_WORKER
            && let Some(seconds) = profile.and_then(status_update_seconds)
        {
            config["nodeStatusUpdateFrequency"] = format!("{seconds}s").into();
        }
        Self { path, config }
    }

    /// The settings as a file.
    pub(super) fn to_file(&self) -> GeneratedFile {
        if self.is_drop_in() {
            return GeneratedFile::new(self.path, to_go_yaml(&self.config));
        }
        super::machine_config::kubelet_conf(&self.config)
    }

    /// The settings in the form that [`crate::go::json`] decodes to.
    pub(super) fn decoded(&self) -> Option<Value> {
        match self.is_drop_in() {
            true => json::decode(&KUBELET, CONFIGURATION, &self.config).ok(),
            false => Some(self.config.clone()),
        }
    }
}

/// The decoded settings in a generated MachineConfig.
pub(super) fn settings_of(machine_config: &MachineConfig) -> Option<Value> {
    let file = [KUBELET_CONF].iter().chain(&DROP_INS);
    let text = file.into_iter().find_map(|path| decoded_file(machine_config, path))?;
    let text = String::from_utf8(text).ok()?;
    json::decode(&KUBELET, CONFIGURATION, &yaml::parse(&text).ok()?).ok()
}

/// The MachineConfig that a KubeletConfig generates for a pool with a drop-in.
pub(super) fn generate_drop_in(
    config: &KubeletConfig,
    pool: &str,
    name: &str,
    base: &BaseConfiguration,
) -> Result<GeneratedConfig, KubeletConfigError> {
    if config.spec.auto_sizing_reserved == Some(true) {
        return Err(KubeletConfigError::new(
            "spec.autoSizingReserved",
            "the installer of these nodes starts the kubelet, which cannot compute its reservation"
                .to_owned(),
            "remove the field and set kubeletConfig.systemReserved",
        ));
    }
    let mut merged = base.config.clone();
    if let Some(profile) = &config.spec.tls_security_profile {
        let spoken = tls_parameters(Some(profile));
        set_text(&mut merged, "tlsMinVersion", &spoken.min_version);
        if !spoken.cipher_suites.is_empty() {
            merged["tlsCipherSuites"] = spoken.cipher_suites.into();
        }
    }
    let written = config.spec.kubelet_config.as_ref().and_then(Value::as_object);
    if let Some(merged) = merged.as_object_mut() {
        merged.extend(written.cloned().unwrap_or_default());
    }
    if let Some(level) = config.spec.log_level {
        let mut logging =
            merged.get("logging").and_then(Value::as_object).cloned().unwrap_or_else(Map::new);
        logging.insert("verbosity".to_owned(), level.into());
        merged["logging"] = logging.into();
    }
    check_cgroups(&merged)?;
    let file = BaseConfiguration { path: base.path, config: merged }.to_file();
    let object = config.metadata.name.as_deref().unwrap_or_default();
    Ok(GeneratedConfig {
        machine_config: machine_config(name, pool, &[file]),
        from: vec![format!("KubeletConfig {object}")],
        warnings: unknown_fields(config),
    })
}
