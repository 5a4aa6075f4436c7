//! Compiles the structural schema of a CRD to a [`MergeSchema`].

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{
    DEDUCED, FieldType, ListOwnership, MapType, MergeSchema, MergeType, ScalarType, TypeId,
    UNTYPED, built_in,
};

/// Compiles the schema of a whole object.
pub(super) fn compile(openapi_v3_schema: &Value) -> MergeSchema {
    let mut schema = MergeSchema::new();
    let metadata = built_in::object_meta(&mut schema);
    let text = schema.add(MergeType::scalar(ScalarType::Text));
    let mut compiler = Compiler { schema, metadata, text };
    let mut root = compiler.type_of(openapi_v3_schema, false);
    compiler.add_object_fields(&mut root);
    let root = compiler.schema.add(root);
    MergeSchema { root, ..compiler.schema }
}

struct Compiler {
    schema: MergeSchema,
    metadata: TypeId,
    text: TypeId,
}

impl Compiler {
    /// Adds the fields that every object has.
    fn add_object_fields(&self, object: &mut MergeType) {
        let Some(map) = &mut object.map else { return };
        for (name, type_) in
            [("apiVersion", self.text), ("kind", self.text), ("metadata", self.metadata)]
        {
            map.fields.insert(name.to_owned(), FieldType { type_, default: None });
        }
    }

    fn type_of(&mut self, schema: &Value, preserves: bool) -> MergeType {
        let empty = Map::new();
        let fields = schema.as_object().unwrap_or(&empty);
        let flag = |name: &str| fields.get(name) == Some(&Value::Bool(true));
        let preserves = preserves || flag("x-kubernetes-preserve-unknown-fields");
        let type_ = if flag("x-kubernetes-int-or-string") { "" } else { text(fields, "type") };
        let mut type_ = match type_ {
            "object" => MergeType::map(self.map_type(fields, preserves)),
            "array" => self.list_type(fields, preserves),
            "integer" | "number" => MergeType::scalar(ScalarType::Number),
            "boolean" => MergeType::scalar(ScalarType::Flag),
            "string" => MergeType::scalar(ScalarType::Text),
            _ => MergeType {
                scalar: Some(ScalarType::Any),
                map: Some(self.map_type(fields, preserves)),
                ..self.list_type(fields, preserves)
            },
        };
        if flag("x-kubernetes-embedded-resource") {
            self.add_object_fields(&mut type_);
        }
        type_
    }

    fn add_type_of(&mut self, schema: &Value, preserves: bool) -> TypeId {
        let type_ = self.type_of(schema, preserves);
        self.schema.add(type_)
    }

    fn map_type(&mut self, fields: &Map<String, Value>, preserves: bool) -> MapType {
        let properties = fields.get("properties").and_then(Value::as_object);
        let named: BTreeMap<String, FieldType> = properties
            .into_iter()
            .flatten()
            .map(|(name, property)| {
                let default = property.get("default").filter(|value| !value.is_null()).cloned();
                let type_ = self.add_type_of(property, preserves);
                (name.clone(), FieldType { type_, default })
            })
            .collect();
        let rest = match fields.get("additionalProperties") {
            None if preserves || named.is_empty() => Some(DEDUCED),
            None | Some(Value::Bool(false)) => None,
            Some(Value::Bool(true)) => Some(DEDUCED),
            Some(schema) => Some(self.add_type_of(schema, preserves)),
        };
        MapType { fields: named, rest, atomic: text(fields, "x-kubernetes-map-type") == "atomic" }
    }

    fn list_type(&mut self, fields: &Map<String, Value>, preserves: bool) -> MergeType {
        let items = match fields.get("items") {
            Some(items) => self.add_type_of(items, preserves),
            None => UNTYPED,
        };
        let ownership = match text(fields, "x-kubernetes-list-type") {
            "set" => ListOwnership::Set,
            "map" => {
                let keys = fields.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
                let keys = keys.into_iter().flatten().filter_map(Value::as_str);
                ListOwnership::Map(keys.map(str::to_owned).collect())
            }
            _ => ListOwnership::Atomic,
        };
        MergeType::list(items, ownership)
    }
}

fn text<'a>(fields: &'a Map<String, Value>, name: &str) -> &'a str {
    fields.get(name).and_then(Value::as_str).unwrap_or_default()
}
