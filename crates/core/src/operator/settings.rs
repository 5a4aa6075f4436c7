//! The settings in the ConfigMap `machinist-settings`, for which no API object has a field.

use std::collections::BTreeMap;

use serde_json::Value;

use super::ACCESS_NAMESPACE;
use crate::api::names::object;
use crate::drift::DriftPolicy;
use crate::go::duration;
use crate::node::MachineMode;
use crate::profile::TemplateProfile;
use crate::serve::provisioning_token::looks_like_token;
use crate::user_data::endpoint::host_name;

/// The allowed number of controllers.
const REPLICA_RANGE: std::ops::RangeInclusive<u32> = 1..=5;
/// The allowed lifetime of a bootstrap token, in seconds. A machine must be able to boot within half of it.
const TOKEN_LIFETIME_RANGE: std::ops::RangeInclusive<i64> = 2 * 3600..=720 * 3600;

/// The administrator's settings. [`OperatorSettings::default`] applies if nothing is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorSettings {
    /// The API server's URL for machines; detected if it is not set.
    pub api_server_url: Option<String>,
    /// The URL of the machine config server; on the API server's host if it is not set.
    pub server_url: Option<String>,
    /// Additional names and addresses in the server's certificate.
    pub server_names: Vec<String>,
    /// Whether there is a machine config server.
    pub server: bool,
    /// The base templates of every machine's config.
    pub profile: TemplateProfile,
    /// The number of controllers; one of them is the leader.
    pub controller_replicas: u32,
    /// What daemons do about drift.
    pub drift: DriftPolicy,
    /// Whether machines are changed or only observed, if neither their Node nor their pool says.
    pub mode: MachineMode,
    /// The namespace of the Secrets with pointer configs; Machinist's namespace if it is not set.
    pub user_data_namespace: Option<String>,
    /// How many seconds machines have a new CA before it is used.
    pub certificate_overlap: i64,
    /// How many seconds a bootstrap token of new machines is valid.
    pub bootstrap_token_lifetime: i64,
    /// The address of the cluster's DNS service, for the templates.
    pub cluster_dns_ip: Option<String>,
    /// The Secret with the provisioning token of pointer configs; without one, all requests are
    /// served.
    pub server_token: Option<String>,
    /// Whether machines complete their first boot with the binary that the server provides.
    pub first_boot: bool,
    /// Whether secrets in configs are sealed for enrolled machines.
    pub sealed: bool,
}

/// The key of the token in the Secret that `serverToken` refers to.
pub const TOKEN_KEY: &str = "token";

impl Default for OperatorSettings {
    fn default() -> Self {
        Self {
            api_server_url: None,
            server_url: None,
            server_names: Vec::new(),
            server: true,
            profile: TemplateProfile::None,
            controller_replicas: 2,
            drift: DriftPolicy::default(),
            mode: MachineMode::default(),
            user_data_namespace: None,
            certificate_overlap: 24 * 60 * 60,
            bootstrap_token_lifetime: 48 * 60 * 60,
            cluster_dns_ip: None,
            server_token: None,
            first_boot: false,
            sealed: false,
        }
    }
}

/// An invalid setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("ConfigMap {}: data.{key}: {problem}", super::SETTINGS_CONFIG_MAP)]
pub struct OperatorSettingsError {
    /// The key.
    pub key: String,
    /// The problem and the remedy.
    pub problem: String,
}

impl OperatorSettings {
    /// Parses the data of the ConfigMap.
    ///
    /// # Errors
    /// A key is unknown, or its value is invalid.
    pub fn read(data: &BTreeMap<String, String>) -> Result<Self, OperatorSettingsError> {
        let mut settings = Self::default();
        for (key, value) in data {
            let value = value.trim();
            if value.is_empty() {
                continue;
            }
            let error = |problem: String| OperatorSettingsError { key: key.clone(), problem };
            settings.set(key, value).map_err(error)?;
        }
        Ok(settings)
    }

    /// Whether the server needs access to provisioning tokens or enrolments.
    #[must_use]
    pub fn needs_access(&self) -> bool {
        self.server_token.is_some() || self.sealed
    }

    /// Checks the Secret that `serverToken` refers to; null if it does not exist.
    ///
    /// # Errors
    /// The Secret does not exist, or holds no token.
    pub fn check_token(&self, secret: &Value) -> Result<(), OperatorSettingsError> {
        let Some(name) = &self.server_token else { return Ok(()) };
        let fault = match (secret.is_null(), secret["data"][TOKEN_KEY].as_str()) {
            (true, _) => format!("Secret {name} does not exist"),
            (false, None | Some("")) => format!("Secret {name} has no key {TOKEN_KEY}"),
            (false, Some(_)) => return Ok(()),
        };
        let problem = format!(
            "{fault}: machinist token create --all-pools --namespace {ACCESS_NAMESPACE} >token && \
             kubectl -n {} create secret generic {name} --from-file={TOKEN_KEY}=token",
            object::NAMESPACE
        );
        Err(OperatorSettingsError { key: "serverToken".to_owned(), problem })
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), String> {
        let text = || Some(value.trim_end_matches('/').to_owned());
        match key {
            "apiServerURL" => {
                self.api_server_url = text().filter(|url| is_https(url));
                self.api_server_url
                    .as_ref()
                    .map(drop)
                    .ok_or_else(|| invalid_url_message(value, 6443))?;
            }
            "serverURL" => {
                self.server_url = text().filter(|url| is_https(url));
                self.server_url
                    .as_ref()
                    .map(drop)
                    .ok_or_else(|| invalid_url_message(value, 22623))?;
            }
            "serverNames" => {
                let names = value.split([',', ' ', '\n']).filter(|name| !name.is_empty());
                self.server_names = names.map(str::to_owned).collect();
            }
            "server" => self.server = yes_or_no(value)?,
            "serverToken" => {
                let is_name = value.bytes().all(|byte| {
                    byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte)
                });
                // The value is not repeated: it may be a token, and many people can read this
                // message.
                if !is_name || looks_like_token(value) {
                    return Err(
                        "not the name of a Secret: set the name of the Secret that holds the token, never the token itself; if it was a token, revoke it with machinist token revoke"
                            .to_owned(),
                    );
                }
                self.server_token = Some(value.to_owned());
            }
            "firstBoot" if value == "join" => {
                return Err(
                    "in a Kubernetes cluster the kubelet creates the Node and the daemon is a pod, so machines do not join by themselves: use true; for machines of a hub use machinist server start --first-boot-join"
                        .to_owned(),
                );
            }
            "firstBoot" => self.first_boot = yes_or_no(value)?,
            "sealed" => self.sealed = yes_or_no(value)?,
            "profile" => {
                let all = TemplateProfile::ALL.map(|profile| (profile.as_str(), profile));
                self.profile = one_of(value, &all)?;
            }
            "controllerReplicas" => {
                let count = value.parse().ok().filter(|count| REPLICA_RANGE.contains(count));
                let wrong =
                    || format!("{value:?} is not a number from 1 to {}", REPLICA_RANGE.end());
                self.controller_replicas = count.ok_or_else(wrong)?;
            }
            "mode" => {
                let modes = [MachineMode::Enforce, MachineMode::Observe];
                let modes = modes.map(|mode| (mode.to_string(), mode));
                self.mode =
                    one_of(value, &modes.each_ref().map(|(name, mode)| (name.as_str(), *mode)))?;
            }
            "drift" => {
                self.drift =
                    one_of(value, &[("report", DriftPolicy::Report), ("heal", DriftPolicy::Heal)])?;
            }
            "userDataNamespace" => self.user_data_namespace = Some(value.to_owned()),
            "certificateOverlap" => {
                let nanoseconds = duration::parse(value).filter(|time| *time >= 0);
                let wrong = || format!("{value:?} is not a duration; use 24h or 90m");
                self.certificate_overlap = nanoseconds.ok_or_else(wrong)? / 1_000_000_000;
            }
            "bootstrapTokenLifetime" => {
                let seconds = duration::parse(value).map(|time| time / 1_000_000_000);
                let seconds = seconds.filter(|time| TOKEN_LIFETIME_RANGE.contains(time));
                let wrong = || format!("{value:?} is not a duration from 2h to 720h; use 48h");
                self.bootstrap_token_lifetime = seconds.ok_or_else(wrong)?;
            }
            "clusterDNSIP" => self.cluster_dns_ip = Some(value.to_owned()),
            _ => {
                return Err(
                    "unknown setting; docs/install-kubernetes.md lists all settings".to_owned()
                );
            }
        }
        Ok(())
    }
}

fn is_https(url: &str) -> bool {
    url.starts_with("https://") && !url.contains(char::is_whitespace) && host_name(url).is_some()
}

fn invalid_url_message(value: &str, port: u16) -> String {
    format!("{value:?} is not an HTTPS URL; use https://HOST:{port}")
}

fn yes_or_no(value: &str) -> Result<bool, String> {
    one_of(value, &[("true", true), ("false", false)])
}

fn one_of<T: Copy>(value: &str, all: &[(&str, T)]) -> Result<T, String> {
    let found = all.iter().find(|(word, _)| *word == value).map(|(_, meant)| *meant);
    found.ok_or_else(|| {
        let words: Vec<&str> = all.iter().map(|(word, _)| *word).collect();
        format!("{value:?} is not one of {}", words.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(key: &str, value: &str) -> Result<OperatorSettings, String> {
        let data = [(key.to_owned(), value.to_owned())].into();
        OperatorSettings::read(&data).map_err(|error| error.to_string())
    }

    #[test]
    fn every_setting_has_a_default() {
        assert_eq!(OperatorSettings::read(&BTreeMap::new()).unwrap(), OperatorSettings::default());
        assert_eq!(read("server", " ").unwrap(), OperatorSettings::default());
    }

    #[test]
    fn valid_values_are_parsed() {
        assert!(!read("server", "false").unwrap().server);
        assert_eq!(read("profile", "machine").unwrap().profile, TemplateProfile::Machine);
        assert_eq!(read("profile", "kubeadm").unwrap().profile, TemplateProfile::Kubeadm);
        assert_eq!(read("controllerReplicas", "3").unwrap().controller_replicas, 3);
        assert_eq!(read("certificateOverlap", "90m").unwrap().certificate_overlap, 5400);
        let lifetime = read("bootstrapTokenLifetime", "2h").unwrap().bootstrap_token_lifetime;
        assert_eq!(lifetime, 7200);
        assert_eq!(read("serverNames", "a, b\nc").unwrap().server_names, ["a", "b", "c"]);
        let url = read("apiServerURL", "https://api.example.com:6443/").unwrap().api_server_url;
        assert_eq!(url.as_deref(), Some("https://api.example.com:6443"));
        assert_eq!(read("mode", "observe").unwrap().mode, MachineMode::Observe);
        assert_eq!(read("drift", "heal").unwrap().drift, DriftPolicy::Heal);
        let token = read("serverToken", "pointer-token").unwrap();
        assert!(token.server_token.as_deref() == Some("pointer-token") && token.needs_access());
        let sealed = read("sealed", "true").unwrap();
        assert!(sealed.sealed && sealed.needs_access());
        let first_boot = read("firstBoot", "true").unwrap();
        assert!(first_boot.first_boot && !first_boot.needs_access());
    }

    #[test]
    fn a_token_instead_of_its_secret_is_not_repeated() {
        let token = crate::serve::provisioning_token::generate_token([7; 32]).text;
        for value in [token.as_str(), "Bearer abcdef.x"] {
            let error = read("serverToken", value).unwrap_err();
            assert!(error.contains("never the token itself"), "{error}");
            assert!(!error.contains(value), "{error}");
        }
    }

    #[test]
    fn the_secret_of_the_token_must_exist() {
        let settings = read("serverToken", "pointer").unwrap();
        for (secret, fault) in [
            (
                Value::Null,
                Some("Secret pointer does not exist: machinist token create --all-pools"),
            ),
            (json!({"data": {"other": "eA=="}}), Some("Secret pointer has no key token: ")),
            (json!({"data": {"token": ""}}), Some("Secret pointer has no key token: ")),
            (json!({"data": {"token": "eA=="}}), None),
        ] {
            let found = settings.check_token(&secret).err().map(|error| error.to_string());
            let expected = fault
                .map(|fault| format!("ConfigMap machinist-settings: data.serverToken: {fault}"));
            match (&found, expected) {
                (Some(found), Some(expected)) => assert!(found.starts_with(&expected), "{found}"),
                (found, expected) => assert_eq!(*found, expected),
            }
        }
        assert_eq!(OperatorSettings::default().check_token(&Value::Null), Ok(()));
    }

    #[test]
    fn invalid_values_are_reported_with_their_remedy() {
        for (key, value, words) in [
            ("apiServerURL", "api:6443", "use https://HOST:6443"),
            ("serverURL", "http://a", "use https://HOST:22623"),
            ("server", "maybe", "not one of true, false"),
            ("profile", "openshift", "not one of none, machine, kubernetes, kubeadm, k3s, rke2"),
            ("controllerReplicas", "0", "from 1 to 5"),
            ("certificateOverlap", "soon", "use 24h"),
            ("bootstrapTokenLifetime", "10m", "from 2h to 720h"),
            ("bootstrapTokenLifetime", "721h", "from 2h to 720h"),
            ("bootstrapTokenLifetime", "never", "use 48h"),
            ("replicas", "2", "unknown setting"),
            ("firstBoot", "join", "machinist server start --first-boot-join"),
            ("firstBoot", "yes", "not one of true, false"),
            ("sealed", "yes", "not one of true, false"),
        ] {
            let error = read(key, value).unwrap_err();
            assert!(error.contains(words), "{error}");
            assert!(
                error.starts_with(&format!("ConfigMap machinist-settings: data.{key}: ")),
                "{error}"
            );
        }
    }
}
