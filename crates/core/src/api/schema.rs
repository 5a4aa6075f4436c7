//! Converts the Rust types into the schemas that an API server enforces.
//!
//! The types are lenient: nearly everything is optional, so that a half-written manifest or an
//! object of a newer version can be read. The schemas are strict: `#[schemars(...)]` attributes on
//! the fields state what is required, length limits and rules. This module merges the two into one
//! structural schema, as Kubernetes requires.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

/// The key with which a field states the default that the API server fills in.
///
/// The defaults of the Rust types mean "absent", and must not reach the schema.
pub(crate) const DEFAULT: &str = "x-default";

/// Implements `JsonSchema` for a kind from a [`RootSchema`].
macro_rules! kind_schema {
    ($kind:ty, $root:expr $(,)?) => {
        impl schemars::JsonSchema for $kind {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($kind).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                $root.build()
            }
        }
    };
}
pub(crate) use kind_schema;

/// Builds the schema of a whole object.
pub(crate) struct RootSchema {
    spec: Value,
    status: Option<Value>,
    rules: Vec<Value>,
    open: bool,
    spec_required: bool,
}

impl RootSchema {
    /// An object with the given spec.
    pub(crate) fn new<Spec: JsonSchema>() -> Self {
        Self {
            spec: structural_schema::<Spec>(),
            status: None,
            rules: Vec::new(),
            open: false,
            spec_required: true,
        }
    }

    /// Adds a status.
    pub(crate) fn status<Status: JsonSchema>(mut self) -> Self {
        self.status = Some(structural_schema::<Status>());
        self
    }

    /// Adds rules about the whole object.
    pub(crate) fn rules(mut self, rules: Vec<Value>) -> Self {
        self.rules = rules;
        self
    }

    /// Keeps fields that the schema does not name.
    pub(crate) fn preserve_unknown_fields(mut self) -> Self {
        self.open = true;
        self
    }

    /// Accepts an object that has no spec.
    pub(crate) fn spec_optional(mut self) -> Self {
        self.spec_required = false;
        self
    }

    /// The finished schema. The description of the spec becomes the description of the kind.
    pub(crate) fn build(self) -> Schema {
        let description = self.spec.get("description").cloned();
        let mut properties = Map::new();
        properties.insert(
            "apiVersion".into(),
            json!({"type": "string", "description": "The API version of this object."}),
        );
        properties.insert(
            "kind".into(),
            json!({"type": "string", "description": "The kind of this object."}),
        );
        properties.insert("metadata".into(), json!({"type": "object"}));
        let mut spec = self.spec;
        set_description(&mut spec, "The desired state.");
        properties.insert("spec".into(), spec);
        if let Some(mut status) = self.status {
            set_description(&mut status, "The observed state.");
            properties.insert("status".into(), status);
        }
        let mut root = Map::new();
        root.insert("type".into(), "object".into());
        if let Some(description) = description {
            root.insert("description".into(), description);
        }
        root.insert("properties".into(), Value::Object(properties));
        if self.spec_required {
            root.insert("required".into(), json!(["spec"]));
        }
        if !self.rules.is_empty() {
            root.insert("x-kubernetes-validations".into(), Value::Array(self.rules));
        }
        let mut root = Value::Object(root);
        if self.open {
            open(&mut root);
        }
        Schema::try_from(root).unwrap_or_default()
    }
}

/// The structural schema of one type.
fn structural_schema<T: JsonSchema>() -> Value {
    let generator = SchemaSettings::draft07()
        .with(|settings| {
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        })
        .into_generator();
    let mut schema = generator.into_root_schema_for::<T>().to_value();
    structural(&mut schema);
    schema
}

fn set_description(schema: &mut Value, text: &str) {
    if let Value::Object(map) = schema {
        map.insert("description".into(), text.into());
    }
}

/// Turns the output of schemars into a structural schema: an optional field is absent, never null,
/// unless it is marked `nullable`.
fn structural(schema: &mut Value) {
    let Value::Object(map) = schema else { return };
    unwrap_optional(map);
    map.remove("title");
    map.remove("default");
    if let Some(default) = map.remove(DEFAULT) {
        map.insert("default".into(), default);
    }
    if let Some(Value::String(format)) = map.get("format")
        && !matches!(format.as_str(), "int32" | "int64" | "date-time" | "byte" | "hostname" | "ip")
    {
        map.remove("format");
    }
    for_each_subschema(map, structural);
}

/// `{"type": [T, "null"]}` becomes `{"type": T}`.
fn unwrap_optional(map: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = map.get_mut("type") {
        types.retain(|name| name != "null");
        if let [single] = types.as_slice() {
            let single = single.clone();
            map.insert("type".into(), single);
        }
    }
}

/// Lets every object keep the fields that the schema does not name.
fn open(schema: &mut Value) {
    let Value::Object(map) = schema else { return };
    let is_object = map.get("type").is_some_and(|name| name == "object");
    if is_object && map.contains_key("properties") && !map.contains_key("x-kubernetes-map-type") {
        map.insert("x-kubernetes-preserve-unknown-fields".into(), true.into());
    }
    for_each_subschema(map, open);
}

fn for_each_subschema(map: &mut Map<String, Value>, mut apply: impl FnMut(&mut Value)) {
    if let Some(Value::Object(properties)) = map.get_mut("properties") {
        properties.values_mut().for_each(&mut apply);
    }
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = map.get_mut(key) {
            apply(inner);
        }
    }
}

/// Any JSON object, kept as it is.
pub(crate) fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// Any JSON object or null, kept as it is.
pub(crate) fn nullable_any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "nullable": true,
        "x-kubernetes-preserve-unknown-fields": true,
    })
}

/// A whole Kubernetes object inside another one, or null.
pub(crate) fn embedded_resource(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "nullable": true,
        "required": ["spec"],
        "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true,
    })
}

/// A list of strings that is replaced as a whole.
pub(crate) fn strings(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": {"type": "string"},
        "x-kubernetes-list-type": "atomic",
    })
}

/// A number or a string: `3` or `"10%"`.
pub(crate) fn int_or_string(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"x-kubernetes-int-or-string": true})
}

/// A Kubernetes quantity: `8192`, `"10M"`, `"1.5Gi"`.
pub(crate) fn quantity(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "pattern": r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$",
    })
}

/// A label selector.
pub(crate) fn label_selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "properties": {
            "matchExpressions": {
                "type": "array",
                "description": "Requirements on labels; all of them must be met.",
                "x-kubernetes-list-type": "atomic",
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": {"type": "string", "description": "The label."},
                        "operator": {
                            "type": "string",
                            "description": "In, NotIn, Exists or DoesNotExist.",
                        },
                        "values": {
                            "type": "array",
                            "description": "The values that In and NotIn compare with; empty for the others.",
                            "items": {"type": "string"},
                            "x-kubernetes-list-type": "atomic",
                        },
                    },
                },
            },
            "matchLabels": {
                "type": "object",
                "description": "Labels and their required values; all of them must match.",
                "additionalProperties": {"type": "string"},
            },
        },
        "x-kubernetes-map-type": "atomic",
    })
}

/// The properties of a reference to another object.
fn object_reference_properties() -> Map<String, Value> {
    ["apiVersion", "fieldPath", "kind", "name", "namespace", "resourceVersion", "uid"]
        .into_iter()
        .map(|name| (name.to_owned(), json!({"type": "string"})))
        .collect()
}

/// A reference to another object.
pub(crate) fn object_reference(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "properties": object_reference_properties(),
        "x-kubernetes-map-type": "atomic",
    })
}

/// A reference to a rendered config and the configs that it was merged from.
pub(crate) fn pool_configuration(_: &mut SchemaGenerator) -> Schema {
    let source = json!({
        "type": "array",
        "description": "The MachineConfigs that were merged into this one.",
        "items": {
            "type": "object",
            "properties": object_reference_properties(),
            "x-kubernetes-map-type": "atomic",
        },
        "x-kubernetes-list-type": "atomic",
    });
    let mut properties = object_reference_properties();
    properties.insert("source".into(), source);
    json_schema!({
        "type": "object",
        "properties": properties,
        "x-kubernetes-map-type": "atomic",
    })
}

/// Bytes, written as base64.
pub(crate) fn bytes(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "byte"})
}

/// Bytes, written as base64, or null.
pub(crate) fn nullable_bytes(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "string", "format": "byte", "nullable": true})
}

/// Changes one property of an object schema; `path` leads to it.
pub(crate) fn adjust(schema: &mut Schema, path: &[&str], change: impl Fn(&mut Map<String, Value>)) {
    let Some(root) = schema.as_object_mut() else { return };
    let mut map = Some(root);
    for name in path {
        map = map.and_then(|map| map.get_mut(*name)).and_then(Value::as_object_mut);
    }
    if let Some(map) = map {
        change(map);
    }
}

/// Adds the given keywords to the schema of the items of a list.
pub(crate) fn each_item(keywords: Value) -> impl FnMut(&mut Schema) {
    move |list| {
        adjust(list, &["items"], |item| {
            if let Value::Object(keywords) = &keywords {
                item.extend(keywords.clone());
            }
        });
    }
}
