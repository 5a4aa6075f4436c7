//! Admission: defaults, pruning, validation and metadata checks of written objects.
//!
//! Pure: object in, object or [`ApiError`] out. A CRD kind is checked by its structural schema, a
//! built-in kind by a round trip through its `k8s-openapi` type. Called by the router's create,
//! update and patch handlers.

mod metadata;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, Node, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::Arc;

use crate::definition;
use crate::field_management::FieldManagement;
use crate::kind_registry::ResourceKind;
use crate::object::{self, ObjectPart};
use crate::object_limits::{MAX_FINDINGS, shorten};
use crate::request::FieldValidation;
use crate::scale;
use crate::schema::{self, Schema};
use crate::status::ApiError;

/// Decodes an object as its type and encodes it again, which drops unknown fields.
type RoundTrip = fn(&Value) -> Result<Value, String>;

/// The admission of one kind.
#[derive(Debug, Default)]
pub struct Admission {
    schema: Option<Arc<Schema>>,
    round_trip: Option<RoundTrip>,
    field_management: Option<FieldManagement>,
}

impl Admission {
    /// Admits every object unchanged.
    #[must_use]
    pub const fn disabled() -> Self {
        Self { schema: None, round_trip: None, field_management: None }
    }

    /// Compiles the admission of a kind.
    ///
    /// # Errors
    /// The kind's schema is invalid; the text says why.
    pub fn new(kind: &ResourceKind) -> Result<Self, String> {
        let schema = match &kind.schema {
            Some(schema) if !kind.built_in => {
                Some(Arc::new(Schema::compile(schema).map_err(|error| error.to_string())?))
            }
            _ => None,
        };
        Ok(Self::with_schema(kind, schema))
    }

    /// The admission of a kind whose schema is compiled already.
    #[must_use]
    pub fn with_schema(kind: &ResourceKind, schema: Option<Arc<Schema>>) -> Self {
        Self {
            schema,
            round_trip: if kind.built_in { round_trip_of(kind) } else { None },
            field_management: FieldManagement::new(kind),
        }
    }

    /// The field management of the kind; `None` for kinds that nobody writes.
    #[must_use]
    pub fn field_management(&self) -> Option<&FieldManagement> {
        self.field_management.as_ref()
    }

    /// Fills in defaults.
    pub fn apply_defaults(&self, object: &mut Value) {
        if let Some(schema) = &self.schema {
            schema.apply_defaults(object);
        }
    }

    /// Fills in defaults without dropping nulls first: what an applier gave up becomes null, and may have to be there.
    pub fn apply_defaults_keeping_nulls(&self, object: &mut Value) {
        if let Some(schema) = &self.schema {
            schema.apply_defaults_keeping_nulls(object);
        }
    }

    /// Drops unknown fields and returns their paths.
    ///
    /// # Errors
    /// 400: a field has the wrong type.
    pub fn prune(&self, kind: &ResourceKind, object: &mut Value) -> Result<Vec<String>, ApiError> {
        let mut unknown = metadata::prune(kind, object)?;
        if let Some(round_trip) = self.round_trip {
            let new = round_trip(object).map_err(|reason| decode_error(kind, &reason))?;
            collect_dropped_fields("", object, &new, &mut unknown);
            *object = keep_type_and_metadata(object, new);
        }
        if let Some(schema) = &self.schema {
            unknown.extend(schema.prune(object));
        }
        unknown.sort();
        unknown.dedup();
        Ok(unknown)
    }

    /// Writes whole floats as integers. Runs after validation, whose messages show the original.
    pub fn normalize_numbers(&self, object: &mut Value) {
        if self.schema.is_some() {
            schema::normalize_numbers(object);
        }
    }

    /// Validates an object. Transition rules compare it with `old`.
    ///
    /// # Errors
    /// 422 with every invalid field.
    pub fn validate(
        &self,
        kind: &ResourceKind,
        part: ObjectPart,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<(), ApiError> {
        let mut errors = object::validate_metadata(kind, object);
        errors.extend(object::validate_data(kind, object, old));
        errors.extend(object::validate_role(kind, object, old));
        errors.extend(scale::validate(kind, object));
        if definition::is_definition(kind) {
            errors.extend(match part {
                ObjectPart::Object => definition::validate::validate(object, old),
                ObjectPart::Status => definition::validate::validate_status(object),
            });
        }
        if let Some(schema) = &self.schema {
            errors.extend(match part {
                ObjectPart::Object => schema.validate(object, old),
                ObjectPart::Status => schema.validate_status(object, old),
            });
        }
        if errors.is_empty() {
            return Ok(());
        }
        Err(ApiError::invalid(kind, object::metadata_str(object, "name"), errors))
    }
}

fn round_trip_of(kind: &ResourceKind) -> Option<RoundTrip> {
    match kind.kind.as_str() {
        "Node" => Some(round_trip::<Node>),
        "Namespace" => Some(round_trip::<Namespace>),
        "Secret" => Some(round_trip::<Secret>),
        "ConfigMap" => Some(round_trip::<ConfigMap>),
        "ServiceAccount" => Some(round_trip::<ServiceAccount>),
        "Lease" => Some(round_trip::<Lease>),
        "CertificateSigningRequest" => Some(round_trip::<CertificateSigningRequest>),
        "Role" => Some(round_trip::<Role>),
        "ClusterRole" => Some(round_trip::<ClusterRole>),
        "RoleBinding" => Some(round_trip::<RoleBinding>),
        "ClusterRoleBinding" => Some(round_trip::<ClusterRoleBinding>),
        "CustomResourceDefinition" => Some(round_trip::<CustomResourceDefinition>),
        "Event" if kind.group.is_empty() => Some(round_trip::<Event>),
        "Event" => Some(round_trip::<k8s_openapi::api::events::v1::Event>),
        _ => None,
    }
}

fn round_trip<T: DeserializeOwned + Serialize>(value: &Value) -> Result<Value, String> {
    let typed = T::deserialize(value).map_err(|error| error.to_string())?;
    serde_json::to_value(typed).map_err(|error| error.to_string())
}

/// Restores the metadata as it was sent: the typed round trip would reformat its timestamps.
fn keep_type_and_metadata(sent: &Value, mut typed: Value) -> Value {
    if let (Some(fields), Some(metadata)) = (typed.as_object_mut(), sent.get("metadata")) {
        fields.insert("metadata".to_owned(), metadata.clone());
    }
    typed
}

/// Collects the paths that are in `sent` but not in `kept`.
fn collect_dropped_fields(path: &str, sent: &Value, kept: &Value, found: &mut Vec<String>) {
    match (sent, kept) {
        (Value::Object(sent), Value::Object(kept)) => {
            for (key, value) in sent {
                let place = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                match kept.get(key) {
                    Some(other) => collect_dropped_fields(&place, value, other, found),
                    // Typed encoding omits empty fields; dropping those loses nothing.
                    None if is_empty(value) => {}
                    None if found.len() >= MAX_FINDINGS => return,
                    None => found.push(shorten(&place)),
                }
            }
        }
        (Value::Array(sent), Value::Array(kept)) => {
            for (index, (value, other)) in sent.iter().zip(kept).enumerate() {
                collect_dropped_fields(&format!("{path}[{index}]"), value, other, found);
            }
        }
        _ => {}
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

/// 400: the object cannot be decoded as its kind.
#[must_use]
pub fn decode_error(kind: &ResourceKind, reason: &str) -> ApiError {
    ApiError::bad_request(format!(
        "{name} in version \"{version}\" cannot be handled as a {name}: {reason}",
        name = kind.kind,
        version = kind.version,
    ))
}

/// Unknown and duplicate fields in a request with `fieldValidation=Strict`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("strict decoding error: {}", .problems.join(", "))]
pub struct StrictDecodingError {
    problems: Vec<String>,
}

/// Returns the warnings for unknown and duplicate fields.
///
/// # Errors
/// The client requested strict validation and there is such a field.
pub fn apply_field_validation(
    validation: FieldValidation,
    unknown: &[String],
    duplicates: &[String],
) -> Result<Vec<String>, StrictDecodingError> {
    let duplicates = duplicates.iter().map(|field| format!("duplicate field \"{field}\""));
    let unknown = unknown.iter().map(|field| format!("unknown field \"{field}\""));
    let texts: Vec<String> = duplicates.chain(unknown).collect();
    match validation {
        FieldValidation::Ignore => Ok(Vec::new()),
        FieldValidation::Warn => Ok(texts),
        FieldValidation::Strict if texts.is_empty() => Ok(texts),
        FieldValidation::Strict => Err(StrictDecodingError { problems: texts }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn kind(name: &str) -> ResourceKind {
        crate::built_in::kinds().into_iter().find(|kind| kind.kind == name).unwrap()
    }

    #[test]
    fn a_built_in_kind_keeps_known_fields() {
        let node = kind("Node");
        let admission = Admission::new(&node).unwrap();
        let mut object = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": "a", "creationTimestamp": null, "odd": 1},
            "spec": {"unschedulable": true, "more": 1, "taints": []},
        });
        let unknown = admission.prune(&node, &mut object).unwrap();
        assert_eq!(unknown, ["metadata.odd", "spec.more"]);
        assert_eq!(object["spec"], json!({"unschedulable": true, "taints": []}));
        assert_eq!(object["metadata"], json!({"name": "a"}));
        let mut bad = json!({"metadata": {"name": "a"}, "spec": {"unschedulable": "x"}});
        assert_eq!(admission.prune(&node, &mut bad).unwrap_err().code, 400);
    }

    #[test]
    fn metadata_with_wrong_types_is_rejected() {
        let node = kind("Node");
        for bad in [
            json!({"metadata": 1}),
            json!({"metadata": {"labels": {"a": 1}}}),
            json!({"metadata": {"finalizers": "a"}}),
            json!({"metadata": {"ownerReferences": [1]}}),
            json!({"metadata": {"name": 1}}),
            json!({"metadata": {"generation": "x"}}),
        ] {
            let error = metadata::prune(&node, &mut bad.clone()).unwrap_err();
            assert_eq!(error.code, 400, "{bad}");
        }
    }

    #[test]
    fn field_validation_levels() {
        let node = kind("Node");
        let unknown = ["spec.a".to_owned()];
        let judge = |validation| apply_field_validation(validation, &unknown, &[]);
        assert_eq!(judge(FieldValidation::Ignore).unwrap(), Vec::<String>::new());
        assert_eq!(judge(FieldValidation::Warn).unwrap(), ["unknown field \"spec.a\""]);
        assert_eq!(
            decode_error(&node, &judge(FieldValidation::Strict).unwrap_err().to_string()).message,
            "Node in version \"v1\" cannot be handled as a Node: strict decoding error: unknown field \"spec.a\""
        );
    }
}
