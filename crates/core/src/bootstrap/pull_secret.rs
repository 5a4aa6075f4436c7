//! Reads a pull secret from a file: a Kubernetes Secret, or the JSON in one.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// The type and the key of a pull secret.
const DOCKER_CONFIG: &str = "kubernetes.io/dockerconfigjson";
const DOCKER_CONFIG_KEY: &str = ".dockerconfigjson";

/// Why a file holds no pull secret. Its contents are never shown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PullSecretError {
    /// A Secret of another type.
    #[error(
        "type: expected secret type {DOCKER_CONFIG} found {0}; create it with `kubectl create secret docker-registry`"
    )]
    WrongType(String),
    /// A Secret without a pull secret.
    #[error(
        "data.{DOCKER_CONFIG_KEY}: missing; create it with `kubectl create secret docker-registry`"
    )]
    MissingKey,
    /// The value is not base64.
    #[error("data.{DOCKER_CONFIG_KEY}: not base64; use stringData for plain text")]
    Base64,
    /// Something else.
    #[error("neither a Secret of type {DOCKER_CONFIG} nor JSON with \"auths\"")]
    NotAPullSecret,
}

/// The pull secret in an object: a Secret, or the JSON with `auths` itself. `text` is the file that
/// it was read from; JSON that is not a Secret is returned unchanged.
///
/// # Errors
/// The object holds no pull secret.
pub fn pull_secret(object: &Value, text: &str) -> Result<Vec<u8>, PullSecretError> {
    if object.get("auths").is_some_and(Value::is_object) {
        return Ok(text.as_bytes().to_vec());
    }
    if object.get("kind").and_then(Value::as_str) != Some("Secret") {
        return Err(PullSecretError::NotAPullSecret);
    }
    let type_ = object.get("type").and_then(Value::as_str).unwrap_or("Opaque");
    if type_ != DOCKER_CONFIG {
        return Err(PullSecretError::WrongType(type_.to_owned()));
    }
    let held = |field: &str| object.get(field)?.get(DOCKER_CONFIG_KEY)?.as_str();
    if let Some(plain) = held("stringData") {
        return Ok(plain.as_bytes().to_vec());
    }
    let data = held("data").ok_or(PullSecretError::MissingKey)?;
    STANDARD.decode(data).map_err(|_| PullSecretError::Base64)
}
