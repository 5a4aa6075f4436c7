//! The settings in the ConfigMap `machinist-settings`: what no object of the API has a place for.

use std::collections::BTreeMap;

use serde_json::Value;

use super::ACCESS_NAMESPACE;
use crate::api::names::object;
use crate::drift::DriftPolicy;
use crate::go::duration;
use crate::serve::provisioning_token::looks_like_token;
use crate::user_data::endpoint::host_name;

/// How many controllers there may be.
const REPLICA_RANGE: std::ops::RangeInclusive<u32> = 1..=5;

/// What an administrator chose. [`Settings::default`] is what holds where nothing is said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorSettings {
    /// Where machines reach the API; found out where it is not said.
    pub api_server_url: Option<String>,
    /// Where machines reach the machine config server; on the API's host where it is not said.
    pub server_url: Option<String>,
    /// Further names and addresses in the server's certificate.
    pub server_names: Vec<String>,
    /// Whether there is a machine config server.
    pub server: bool,
    /// The templates that every machine's config starts from.
    pub profile: TemplateProfile,
    /// How many controllers there are; one of them leads.
    pub controller_replicas: u32,
    /// What daemons do about changes by hand.
    pub drift: DriftPolicy,
    /// The namespace of the Secrets with pointer configs; that of the system where it is not said.
    pub user_data_namespace: Option<String>,
    /// How many seconds machines know a new CA before it is used.
    pub certificate_overlap: i64,
    /// The address of the cluster's DNS service, for the templates.
    pub cluster_dns_ip: Option<String>,
    /// The Secret with the provisioning token of pointer configs; without one everyone is answered.
    pub server_token: Option<String>,
    /// Whether machines complete their first boot with the program that the server hands out.
    pub first_boot: bool,
    /// Whether the secrets in configs are for enrolled machines alone.
    pub sealed: bool,
}

/// The key of the token in the Secret that `serverToken` names.
pub const TOKEN_KEY: &str = "token";

/// Templates that come with Machinist.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TemplateProfile {
    /// None: machines get what people write, and nothing else.
    #[default]
    None,
    /// Next to nothing: role, proxy, certificates.
    Machine,
    /// The kubelet and the container runtime too, for machines that are installed by us.
    Kubernetes,
}

impl TemplateProfile {
    /// The word in flags and settings.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Machine => "machine",
            Self::Kubernetes => "kubernetes",
        }
    }
}

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
            user_data_namespace: None,
            certificate_overlap: 24 * 60 * 60,
            cluster_dns_ip: None,
            server_token: None,
            first_boot: false,
            sealed: false,
        }
    }
}

/// A setting that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("ConfigMap {}: data.{key}: {problem}", super::SETTINGS_CONFIG_MAP)]
pub struct OperatorSettingsError {
    /// The key.
    pub key: String,
    /// What is wrong, and what to write instead.
    pub problem: String,
}

impl OperatorSettings {
    /// Reads the data of the ConfigMap.
    ///
    /// # Errors
    /// A key is unknown or its value is none.
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

    /// Whether the server needs to see provisioning tokens or enrolments.
    #[must_use]
    pub fn needs_access(&self) -> bool {
        self.server_token.is_some() || self.sealed
    }

    /// What is wrong with the Secret that `serverToken` names, given that Secret, or null where there is none.
    ///
    /// # Errors
    /// It is not there, or holds no token.
    pub fn check_token(&self, secret: &Value) -> Result<(), OperatorSettingsError> {
        let Some(name) = &self.server_token else { return Ok(()) };
        let fault = match (secret.is_null(), secret["data"][TOKEN_KEY].as_str()) {
            (true, _) => format!("there is no Secret {name}"),
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
                // What it is is not said: it may be a token, and this is read by many.
                if !is_name || looks_like_token(value) {
                    return Err(
                        "this is no name of a Secret: name the Secret that holds the token, never the token itself; if it was one, revoke it with machinist token revoke"
                            .to_owned(),
                    );
                }
                self.server_token = Some(value.to_owned());
            }
            "firstBoot" if value == "join" => {
                return Err(
                    "in a Kubernetes the kubelet makes the Node and the daemon is a pod, so machines do not join by themselves: write true; for machines of a hub there is machinist server start --first-boot-join"
                        .to_owned(),
                );
            }
            "firstBoot" => self.first_boot = yes_or_no(value)?,
            "sealed" => self.sealed = yes_or_no(value)?,
            "profile" => {
                let all =
                    [TemplateProfile::None, TemplateProfile::Machine, TemplateProfile::Kubernetes];
                self.profile = one_of(value, &all.map(|profile| (profile.as_str(), profile)))?;
            }
            "controllerReplicas" => {
                let count = value.parse().ok().filter(|count| REPLICA_RANGE.contains(count));
                let wrong = || format!("{value:?} is no number from 1 to {}", REPLICA_RANGE.end());
                self.controller_replicas = count.ok_or_else(wrong)?;
            }
            "drift" => {
                self.drift =
                    one_of(value, &[("report", DriftPolicy::Report), ("heal", DriftPolicy::Heal)])?;
            }
            "userDataNamespace" => self.user_data_namespace = Some(value.to_owned()),
            "certificateOverlap" => {
                let nanoseconds = duration::parse(value).filter(|time| *time >= 0);
                let wrong = || format!("{value:?} is no duration; write 24h or 90m");
                self.certificate_overlap = nanoseconds.ok_or_else(wrong)? / 1_000_000_000;
            }
            "clusterDNSIP" => self.cluster_dns_ip = Some(value.to_owned()),
            _ => {
                return Err(
                    "there is no such setting; see docs/install-kubernetes.md for all".to_owned()
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
    format!("{value:?} is no address; write https://HOST:{port}")
}

fn yes_or_no(value: &str) -> Result<bool, String> {
    one_of(value, &[("true", true), ("false", false)])
}

fn one_of<T: Copy>(value: &str, all: &[(&str, T)]) -> Result<T, String> {
    let found = all.iter().find(|(word, _)| *word == value).map(|(_, meant)| *meant);
    found.ok_or_else(|| {
        let words: Vec<&str> = all.iter().map(|(word, _)| *word).collect();
        format!("{value:?} is none of {}", words.join(", "))
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
    fn what_is_not_said_has_a_default() {
        assert_eq!(OperatorSettings::read(&BTreeMap::new()).unwrap(), OperatorSettings::default());
        assert_eq!(read("server", " ").unwrap(), OperatorSettings::default());
    }

    #[test]
    fn values() {
        assert!(!read("server", "false").unwrap().server);
        assert_eq!(read("profile", "machine").unwrap().profile, TemplateProfile::Machine);
        assert_eq!(read("controllerReplicas", "3").unwrap().controller_replicas, 3);
        assert_eq!(read("certificateOverlap", "90m").unwrap().certificate_overlap, 5400);
        assert_eq!(read("serverNames", "a, b\nc").unwrap().server_names, ["a", "b", "c"]);
        let url = read("apiServerURL", "https://api.example.com:6443/").unwrap().api_server_url;
        assert_eq!(url.as_deref(), Some("https://api.example.com:6443"));
        assert_eq!(read("drift", "heal").unwrap().drift, DriftPolicy::Heal);
        let token = read("serverToken", "pointer-token").unwrap();
        assert!(token.server_token.as_deref() == Some("pointer-token") && token.needs_access());
        let sealed = read("sealed", "true").unwrap();
        assert!(sealed.sealed && sealed.needs_access());
        let first_boot = read("firstBoot", "true").unwrap();
        assert!(first_boot.first_boot && !first_boot.needs_access());
    }

    #[test]
    fn a_token_in_the_place_of_its_secret_is_not_repeated() {
        let token = crate::serve::provisioning_token::generate_token([7; 32]).text;
        for value in [token.as_str(), "Bearer abcdef.x"] {
            let error = read("serverToken", value).unwrap_err();
            assert!(error.contains("never the token itself"), "{error}");
            assert!(!error.contains(value), "{error}");
        }
    }

    #[test]
    fn the_secret_of_the_token_has_to_be_there() {
        let settings = read("serverToken", "pointer").unwrap();
        for (secret, fault) in [
            (Value::Null, Some("there is no Secret pointer: machinist token create --all-pools")),
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
    fn bad_ones_are_named_with_their_remedy() {
        for (key, value, words) in [
            ("apiServerURL", "api:6443", "write https://HOST:6443"),
            ("serverURL", "http://a", "write https://HOST:22623"),
            ("server", "maybe", "none of true, false"),
            ("profile", "openshift", "none of none, machine, kubernetes"),
            ("controllerReplicas", "0", "from 1 to 5"),
            ("certificateOverlap", "soon", "write 24h"),
            ("replicas", "2", "no such setting"),
            ("firstBoot", "join", "machinist server start --first-boot-join"),
            ("firstBoot", "yes", "none of true, false"),
            ("sealed", "yes", "none of true, false"),
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
