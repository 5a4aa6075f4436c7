//! Reading access to the JSON of a schema.

use serde_json::{Map, Value};

/// A schema.
#[derive(Debug, Clone, Copy)]
pub(super) struct SchemaView<'a>(&'a Value);

impl<'a> SchemaView<'a> {
    pub(super) fn new(schema: &'a Value) -> Self {
        Self(schema)
    }

    pub(super) fn json(self) -> &'a Value {
        self.0
    }

    pub(super) fn get(self, name: &str) -> Option<&'a Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    pub(super) fn text(self, name: &str) -> &'a str {
        self.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    pub(super) fn type_(self) -> &'a str {
        self.text("type")
    }

    pub(super) fn flag(self, name: &str) -> bool {
        self.get(name) == Some(&Value::Bool(true))
    }

    pub(super) fn list(self, name: &str) -> &'a [Value] {
        self.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
    }

    pub(super) fn texts(self, name: &str) -> Vec<&'a str> {
        self.list(name).iter().filter_map(Value::as_str).collect()
    }

    pub(super) fn schemas(self, name: &str) -> impl Iterator<Item = SchemaView<'a>> {
        self.list(name).iter().map(Self)
    }

    pub(super) fn properties(self) -> impl Iterator<Item = (&'a String, SchemaView<'a>)> {
        let properties = self.get("properties").and_then(Value::as_object);
        properties.into_iter().flat_map(Map::iter).map(|(name, schema)| (name, Self(schema)))
    }

    pub(super) fn property(self, name: &str) -> Option<SchemaView<'a>> {
        self.get("properties")?.get(name).map(Self)
    }

    pub(super) fn schema(self, name: &str) -> Option<SchemaView<'a>> {
        self.get(name).filter(|value| value.is_object()).map(Self)
    }

    pub(super) fn preserves_unknown(self) -> bool {
        self.flag("x-kubernetes-preserve-unknown-fields")
    }
}

pub(super) fn child(path: &str, name: &str) -> String {
    format!("{path}.{name}")
}

pub(super) fn property_path(path: &str, name: &str) -> String {
    format!("{path}.properties[{name}]")
}

pub(super) fn item_path(path: &str, name: &str, index: usize) -> String {
    format!("{path}.{name}[{index}]")
}
