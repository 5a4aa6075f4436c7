//! The rules of object metadata: uid, generation, resourceVersion, timestamps and names.
//!
//! Pure functions on JSON values, called by the router's write handlers and the background tasks.
//! An object is stored without its resourceVersion and with its metadata first, so that the
//! resourceVersion (the revision of its entry) is inserted without decoding the object.

mod data_validation;
mod role_validation;
mod validation;

use bytes::{BufMut as _, Bytes, BytesMut};
use serde_json::{Map, Value};

use crate::event_conversion;
use crate::kind_registry::ResourceKind;
use crate::schema::FieldError;

pub use data_validation::validate_data;
pub use role_validation::validate_role;
pub use validation::validate_metadata;

/// The prefix of an encoded object.
const ENCODED_PREFIX: &[u8] = br#"{"metadata":{"#;

/// The metadata field for the revision.
const RESOURCE_VERSION: &str = "resourceVersion";

/// Encodes an object for the store: metadata first, no resourceVersion.
///
/// # Errors
/// Never for a JSON object.
pub fn encode(object: &Value) -> Result<Bytes, serde_json::Error> {
    let empty = Map::new();
    let fields = object.as_object().unwrap_or(&empty);
    let metadata = fields.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
    let mut out = BytesMut::with_capacity(1024).writer();
    out.get_mut().put_slice(ENCODED_PREFIX);
    let kept = |key: &str| !matches!(key, RESOURCE_VERSION | "selfLink");
    write_fields(&mut out, metadata.iter().filter(|(key, _)| kept(key)))?;
    out.get_mut().put_u8(b'}');
    let rest: Vec<_> = fields.iter().filter(|(key, _)| *key != "metadata").collect();
    if !rest.is_empty() {
        out.get_mut().put_u8(b',');
        write_fields(&mut out, rest.into_iter())?;
    }
    out.get_mut().put_u8(b'}');
    // Without spare capacity: objects stay in memory.
    Ok(Bytes::copy_from_slice(&out.into_inner()))
}

fn write_fields<'a>(
    out: &mut bytes::buf::Writer<BytesMut>,
    fields: impl Iterator<Item = (&'a String, &'a Value)>,
) -> Result<(), serde_json::Error> {
    for (index, (key, value)) in fields.enumerate() {
        if index > 0 {
            out.get_mut().put_u8(b',');
        }
        serde_json::to_writer(&mut *out, key)?;
        out.get_mut().put_u8(b':');
        serde_json::to_writer(&mut *out, value)?;
    }
    Ok(())
}

/// Appends a stored object with its resourceVersion, without decoding it.
pub fn write_with_revision(out: &mut BytesMut, stored: &[u8], revision: u64) {
    let Some(rest) = stored.strip_prefix(ENCODED_PREFIX) else {
        out.put_slice(stored);
        return;
    };
    out.put_slice(ENCODED_PREFIX);
    out.put_slice(format!("\"{RESOURCE_VERSION}\":\"{revision}\"").as_bytes());
    if !rest.starts_with(b"}") {
        out.put_u8(b',');
    }
    out.put_slice(rest);
}

/// Decodes a stored object with its resourceVersion.
///
/// # Errors
/// The bytes are not JSON: the store is damaged.
pub fn decode(stored: &[u8], revision: u64) -> Result<Value, serde_json::Error> {
    let mut object: Value = serde_json::from_slice(stored)?;
    object["metadata"][RESOURCE_VERSION] = revision.to_string().into();
    Ok(object)
}

/// A string field of the metadata; empty if it is missing.
#[must_use]
pub fn metadata_str<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// A list of strings in the metadata, such as the finalizers.
#[must_use]
pub fn finalizers(object: &Value) -> Vec<&str> {
    let list = object["metadata"]["finalizers"].as_array();
    list.into_iter().flatten().filter_map(Value::as_str).collect()
}

/// Whether the object is marked for deletion.
#[must_use]
pub fn is_deleting(object: &Value) -> bool {
    !metadata_str(object, "deletionTimestamp").is_empty()
}

/// Sets or removes a metadata field. Does nothing if the value is not an object.
pub fn set_metadata_field(object: &mut Value, field: &str, value: Option<Value>) {
    let Some(fields) = object.as_object_mut() else { return };
    let metadata = fields.entry("metadata").or_insert(Value::Null);
    if metadata.is_null() {
        *metadata = Value::Object(Map::new());
    }
    let Some(metadata) = metadata.as_object_mut() else { return };
    match value {
        Some(value) => metadata.insert(field.to_owned(), value),
        None => metadata.remove(field),
    };
}

/// Whether the kind counts generations. CRD kinds and definitions do; the other built-in kinds served here do not.
#[must_use]
pub fn has_generation(kind: &ResourceKind) -> bool {
    !kind.built_in || kind.kind == "CustomResourceDefinition"
}

/// The metadata that the server sets on a new object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerMetadata {
    /// The UID.
    pub uid: String,
    /// The current time in RFC 3339, in whole seconds.
    pub now: String,
    /// Suffix of a generated name, five letters.
    pub suffix: String,
}

/// Sets the metadata of a new object and removes fields that only the server may set.
pub fn prepare_create(kind: &ResourceKind, object: &mut Value, server: &ServerMetadata) {
    if kind.status_subresource
        && !keeps_status_on_create(kind)
        && let Some(fields) = object.as_object_mut()
    {
        fields.remove("status");
    }
    let prefix = metadata_str(object, "generateName");
    if metadata_str(object, "name").is_empty() && !prefix.is_empty() {
        let prefix: String = prefix.chars().take(63 - server.suffix.len()).collect();
        set_metadata_field(object, "name", Some(format!("{prefix}{}", server.suffix).into()));
    }
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", RESOURCE_VERSION] {
        set_metadata_field(object, field, None);
    }
    set_metadata_field(object, "uid", Some(server.uid.clone().into()));
    set_metadata_field(object, "creationTimestamp", Some(server.now.clone().into()));
    set_metadata_field(object, "generation", has_generation(kind).then(|| 1.into()));
}

/// Kubelets create their Node with its status.
fn keeps_status_on_create(kind: &ResourceKind) -> bool {
    kind.built_in
        && !matches!(kind.kind.as_str(), "CertificateSigningRequest" | "CustomResourceDefinition")
}

/// The part of an object that a write changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectPart {
    /// Everything but the status, if that is a subresource.
    Object,
    /// The status.
    Status,
}

/// Prepares an update: keeps the server's metadata and the part of the stored object that the write
/// does not change. [`update_generation`] runs later, after defaults and pruning.
pub fn prepare_update(kind: &ResourceKind, part: ObjectPart, old: &Value, new: &mut Value) {
    match part {
        ObjectPart::Object if kind.status_subresource => copy_field(old, new, "status"),
        ObjectPart::Object => {}
        ObjectPart::Status if kind.built_in => {
            copy_field(old, new, "spec");
        }
        ObjectPart::Status => {
            let status = new.get("status").cloned();
            let managers = new["metadata"].get("managedFields").cloned();
            *new = old.clone();
            set_metadata_field(new, "managedFields", managers);
            if let Some(fields) = new.as_object_mut() {
                match status {
                    Some(status) => fields.insert("status".into(), status),
                    None => fields.remove("status"),
                };
            }
        }
    }
    keep_immutable_metadata(old, new);
}

/// The metadata fields that no client can change.
fn keep_immutable_metadata(old: &Value, new: &mut Value) {
    for field in [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "name",
        "namespace",
        "generateName",
    ] {
        set_metadata_field(new, field, old["metadata"].get(field).cloned());
    }
    set_metadata_field(new, "selfLink", None);
}

fn copy_field(old: &Value, new: &mut Value, field: &str) {
    let Some(fields) = new.as_object_mut() else { return };
    match old.get(field) {
        Some(value) => fields.insert(field.into(), value.clone()),
        None => fields.remove(field),
    };
}

/// Increments the generation if the update changed anything but metadata and, where it is a
/// subresource, the status.
pub fn update_generation(kind: &ResourceKind, old: &Value, new: &mut Value) {
    if has_generation(kind) && generation_fields(kind, old) != generation_fields(kind, new) {
        let next = old["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
        set_metadata_field(new, "generation", Some(next.into()));
    }
}

fn generation_fields<'a>(kind: &ResourceKind, object: &'a Value) -> Vec<(&'a String, &'a Value)> {
    let fields = object.as_object().into_iter().flatten();
    let counts = |key: &str| key != "metadata" && !(kind.status_subresource && key == "status");
    fields.filter(|(key, _)| counts(key)).collect()
}

/// Whether two versions of an object are stored the same.
#[must_use]
pub fn is_unchanged(old: &Value, new: &Value) -> bool {
    match (encode(old), encode(new)) {
        (Ok(old), Ok(new)) => old == new,
        _ => false,
    }
}

/// Whether a PUT of the kind may omit the resourceVersion, as in kube-apiserver.
#[must_use]
pub fn allows_unconditional_update(kind: &ResourceKind) -> bool {
    kind.built_in && !matches!(kind.kind.as_str(), "Lease" | "CustomResourceDefinition")
}

/// Returns the errors in the metadata of an update.
#[must_use]
pub fn validate_metadata_update(old: &Value, new: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let before = finalizers(old);
    let added: Vec<&str> =
        finalizers(new).into_iter().filter(|name| !before.contains(name)).collect();
    if is_deleting(old) && !added.is_empty() {
        let list = added.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
        errors.push(FieldError::forbidden(
            "metadata.finalizers",
            format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{list}}}"
            ),
        ));
    }
    errors
}

/// The letters of generated names: no vowels, and none that looks like another.
const SUFFIX_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Makes a suffix of five letters from random bytes.
#[must_use]
pub fn name_suffix(random: [u8; 16]) -> String {
    random
        .iter()
        .take(5)
        .map(|byte| char::from(SUFFIX_ALPHABET[usize::from(*byte) % SUFFIX_ALPHABET.len()]))
        .collect()
}

/// The key of an object. Without a name it is the prefix of all objects of a kind (in a namespace).
#[must_use]
pub fn storage_key(kind: &ResourceKind, namespace: Option<&str>, name: &str) -> String {
    let core = kind.group.is_empty() || event_conversion::is_events_v1(kind);
    let group = if core { "core" } else { &kind.group };
    match namespace {
        _ if !kind.namespaced => format!("/{group}/{}/-/{name}", kind.plural),
        Some(namespace) => format!("/{group}/{}/{namespace}/{name}", kind.plural),
        None => format!("/{group}/{}/", kind.plural),
    }
}

#[cfg(test)]
mod tests;
