//! Redacts objects before they leave the cluster: removes the contents of all files and units that are not
//! listed as public ([`crate::secrets::is_public_file`]), and everything else that is or may be a secret.
//!
//! A placeholder with the size and a digest remains, so that two configs can still be
//! distinguished. The digest is keyed, so that a short password cannot be found by trying all of
//! them.

mod outline;

pub use outline::outline_machine_config;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::ignition::contents;
use crate::ignition::schema::Resource;
use crate::secrets::{is_public_file, is_secret_file};

/// The largest file that is inspected; larger ones are redacted.
const MAX_FILE_BYTES: u64 = 16 << 20;
/// Annotations in which kubectl and others store whole objects.
const OBJECT_COPY_ANNOTATIONS: [&str; 2] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    "machinist.dev/last-applied-configuration",
];
/// Parts of field names whose values are secrets.
const SECRET_FIELDS: [&str; 8] = [
    "password",
    "passwd",
    "token",
    "secret",
    "privatekey",
    "client-key",
    "credential",
    "cloudproviderconfig",
];
/// A world-readable mode, so that only the text decides.
const WORLD_READABLE: Option<i64> = Some(0o644);

/// Removes secrets from objects.
#[derive(Clone)]
pub struct Redactor {
    key: Vec<u8>,
}

impl std::fmt::Debug for Redactor {
    /// Hides the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redactor").finish_non_exhaustive()
    }
}

impl Redactor {
    /// A redactor whose digests can only be computed with the key.
    pub fn new(key: impl Into<Vec<u8>>) -> Self {
        Self { key: key.into() }
    }

    /// The placeholder of a secret.
    #[must_use]
    pub fn placeholder(&self, bytes: &[u8]) -> String {
        let mut digest = Sha256::new();
        digest.update((self.key.len() as u64).to_be_bytes());
        digest.update(&self.key);
        digest.update(bytes);
        let digest = crate::hex::hex(&digest.finalize()[..8]);
        format!("<removed: {} bytes, digest {digest}>", bytes.len())
    }

    /// Redacts an API object.
    pub fn redact_object(&self, object: &mut Value) {
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
            if let Some(notes) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
                OBJECT_COPY_ANNOTATIONS.iter().for_each(|key| drop(notes.remove(*key)));
            }
        }
        match object.get("kind").and_then(Value::as_str).unwrap_or_default() {
            "Secret" => {
                for field in ["data", "stringData"] {
                    if let Some(data) = object.get_mut(field) {
                        self.redact_all_strings(data);
                    }
                }
            }
            // A container file may copy secrets into an image.
            "MachineOSConfig" => {
                for file in items(object, "/spec/containerFile") {
                    file.get_mut("content").into_iter().for_each(|it| self.redact_all_strings(it));
                }
            }
            "MachineConfig" => {
                if let Some(config) = object.pointer_mut("/spec/config") {
                    self.redact_ignition(config);
                }
            }
            _ => {}
        }
        self.redact_value("", object);
    }

    /// Redacts log lines that contain something like a secret.
    #[must_use]
    pub fn redact_log(&self, text: &str) -> String {
        let line = |line: &str| match is_secret_text(line) {
            true => self.placeholder(line.as_bytes()),
            false => without_credentials(line),
        };
        text.lines().map(|it| line(it) + "\n").collect()
    }

    /// Redacts an Ignition config of any version.
    fn redact_ignition(&self, config: &mut Value) {
        for file in items(config, "/storage/files") {
            let path = text(file, "path");
            let mode = file.get("mode").and_then(Value::as_i64);
            if let Some(resource) = file.get_mut("contents") {
                self.redact_resource(resource, &path, mode);
            }
            items(file, "/append").iter_mut().for_each(|it| self.redact_resource(it, &path, mode));
        }
        for device in items(config, "/storage/luks") {
            if let Some(key) = device.get_mut("keyFile") {
                self.redact_all_strings(key);
            }
        }
        // Complete configs inside the config.
        for place in ["/ignition/config/merge", "/ignition/config/append"] {
            items(config, place).iter_mut().for_each(|inner| self.redact_all_strings(inner));
        }
        if let Some(inner) = config.pointer_mut("/ignition/config/replace") {
            self.redact_all_strings(inner);
        }
        for units in ["/systemd/units", "/networkd/units"] {
            for unit in items(config, units) {
                self.redact_unit(unit);
                items(unit, "/dropins").iter_mut().for_each(|dropin| self.redact_unit(dropin));
            }
        }
    }

    /// Redacts the contents of a file, unless everyone may read them.
    fn redact_resource(&self, resource: &mut Value, path: &str, mode: Option<i64>) {
        let Some(source) = resource.get("source").and_then(Value::as_str).map(str::to_owned) else {
            return;
        };
        if !source.starts_with("data:") {
            resource["source"] = without_query(&source).into();
            return;
        }
        let known = Resource {
            source: Some(source.clone()),
            compression: resource.get("compression").and_then(Value::as_str).map(str::to_owned),
            ..Resource::default()
        };
        let decoded = contents::decode(&known, MAX_FILE_BYTES).ok();
        let is_public = decoded.as_ref().is_some_and(|bytes| is_public_file(path, mode, bytes));
        if !is_public {
            resource["source"] =
                self.placeholder(decoded.as_deref().unwrap_or(source.as_bytes())).into();
        }
    }

    /// Redacts the text of a unit or of a drop-in: environments and command lines hold secrets.
    fn redact_unit(&self, unit: &mut Value) {
        if let Some(contents) = unit.get_mut("contents") {
            self.redact_all_strings(contents);
        }
    }

    /// Redacts all strings below a value.
    fn redact_all_strings(&self, value: &mut Value) {
        match value {
            Value::String(text) if is_placeholder(text) => {}
            Value::String(text) => *text = self.placeholder(text.as_bytes()),
            Value::Array(items) => items.iter_mut().for_each(|item| self.redact_all_strings(item)),
            Value::Object(fields) => {
                fields.values_mut().for_each(|field| self.redact_all_strings(field));
            }
            _ => {}
        }
    }

    /// Redacts everything below a value that looks like a secret, by its field name or by its text.
    fn redact_value(&self, field: &str, value: &mut Value) {
        match value {
            Value::String(text) if is_placeholder(text) => {}
            Value::String(text)
                if !text.is_empty() && (is_secret_field(field) || is_secret_text(text)) =>
            {
                *text = self.placeholder(text.as_bytes());
            }
            Value::String(text) => *text = without_credentials(text),
            Value::Array(items) if field == "httpHeaders" || field == "env" => {
                let values = items.iter_mut().filter_map(|item| item.get_mut("value"));
                values.for_each(|value| self.redact_all_strings(value));
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.redact_value(field, item)),
            Value::Object(fields) => {
                fields.iter_mut().for_each(|(name, value)| self.redact_value(name, value));
            }
            _ => {}
        }
    }
}

fn items<'a>(value: &'a mut Value, pointer: &str) -> &'a mut [Value] {
    value.pointer_mut(pointer).and_then(Value::as_array_mut).map_or(&mut [], Vec::as_mut_slice)
}

fn text(value: &Value, field: &str) -> String {
    value.get(field).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Whether a text is a placeholder.
fn is_placeholder(text: &str) -> bool {
    let inner = text.strip_prefix("<removed: ").and_then(|rest| rest.strip_suffix('>'));
    let parts = inner.and_then(|inner| inner.split_once(" bytes, digest "));
    parts.is_some_and(|(size, digest)| {
        size.bytes().all(|byte| byte.is_ascii_digit())
            && digest.len() == 16
            && digest.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

fn is_secret_field(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name == "auth" || SECRET_FIELDS.iter().any(|part| name.contains(part))
}

/// Whether a text contains a key or the like, also as base64 or in a data URL.
fn is_secret_text(text: &str) -> bool {
    let is_secret = |bytes: &[u8]| is_secret_file("", WORLD_READABLE, bytes);
    let resource = || Resource { source: Some(text.to_owned()), ..Resource::default() };
    is_secret(text.as_bytes())
        || STANDARD.decode(text.trim()).is_ok_and(|bytes| is_secret(&bytes))
        || (text.starts_with("data:")
            && contents::decode(&resource(), MAX_FILE_BYTES).is_ok_and(|bytes| is_secret(&bytes)))
}

/// A URL without user information and query.
fn without_query(url: &str) -> String {
    let end = url.find(['?', '#']).unwrap_or(url.len());
    let rest = if end < url.len() { "?<removed>" } else { "" };
    without_credentials(&url[..end]) + rest
}

/// A text whose URLs have no user information.
fn without_credentials(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        out.push_str(before);
        let end = after
            .find(|c: char| c.is_whitespace() || matches!(c, '/' | '"' | '\'' | '<'))
            .unwrap_or(after.len());
        rest = after;
        if let Some(login) = after[..end].rfind('@') {
            out.push_str("<removed>");
            rest = &after[login..];
        }
    }
    out + rest
}

#[cfg(test)]
#[path = "redact/tests.rs"]
mod tests;
