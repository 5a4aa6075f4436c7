//! How the parts of a kind's objects are merged and owned: which lists are sets or maps, which parts are atomic.
//!
//! A type may be a scalar, a list and a map at once; the value decides then ("untyped" parts, such as an Ignition config
//! inside a MachineConfig). Pure. [`structural`] compiles the schema of a CRD, [`built_in`] that of a built-in kind;
//! called once per kind by [`super::FieldManagement`].

pub(super) mod built_in;
mod structural;

use std::collections::BTreeMap;

use serde_json::Value;

use crate::kind_registry::ResourceKind;

/// A type in a [`MergeSchema`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TypeId(u32);

/// A value of any type that is owned as a whole.
const UNTYPED: TypeId = TypeId(0);
/// A value of any type. Its objects are merged by field, its lists are owned as a whole.
const DEDUCED: TypeId = TypeId(1);

/// The types of one kind.
#[derive(Debug)]
pub(super) struct MergeSchema {
    types: Vec<MergeType>,
    root: TypeId,
}

/// What a value may be.
#[derive(Debug, Clone, Default)]
pub(super) struct MergeType {
    pub(super) scalar: Option<ScalarType>,
    pub(super) list: Option<ListType>,
    pub(super) map: Option<MapType>,
}

/// The type of a scalar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScalarType {
    Number,
    Text,
    Flag,
    Any,
}

#[derive(Debug, Clone)]
pub(super) struct ListType {
    pub(super) items: TypeId,
    pub(super) ownership: ListOwnership,
}

/// Who may own what of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ListOwnership {
    /// The list has one owner (or several with the same list).
    Atomic,
    /// Each value has its owners.
    Set,
    /// Each item has its owners; these fields identify it.
    Map(Vec<String>),
}

#[derive(Debug, Clone, Default)]
pub(super) struct MapType {
    pub(super) fields: BTreeMap<String, FieldType>,
    /// The type of the fields that are not named; `None` if there may be none.
    pub(super) rest: Option<TypeId>,
    /// Whether it is owned as a whole.
    pub(super) atomic: bool,
}

#[derive(Debug, Clone)]
pub(super) struct FieldType {
    pub(super) type_: TypeId,
    /// The value of a missing field, where it is a key of a list.
    pub(super) default: Option<Value>,
}

impl MapType {
    /// The type of a field; `None` if there may be no such field.
    pub(super) fn field_type(&self, name: &str) -> Option<TypeId> {
        self.fields.get(name).map(|field| field.type_).or(self.rest)
    }

    /// Whether it has only fields of any type.
    pub(super) fn is_untyped(&self) -> bool {
        self.rest == Some(DEDUCED) && self.fields.is_empty()
    }
}

impl MergeSchema {
    /// Compiles the schema of a kind; `None` for kinds that nobody writes.
    pub(super) fn of_kind(kind: &ResourceKind) -> Option<Self> {
        match &kind.schema {
            Some(schema) if !kind.built_in => Some(structural::compile(schema)),
            _ => built_in::merge_schema(kind),
        }
    }

    fn new() -> Self {
        let untyped = MergeType {
            scalar: Some(ScalarType::Any),
            list: Some(ListType { items: UNTYPED, ownership: ListOwnership::Atomic }),
            map: Some(MapType { rest: Some(UNTYPED), atomic: true, ..MapType::default() }),
        };
        let deduced = MergeType {
            map: Some(MapType { rest: Some(DEDUCED), ..MapType::default() }),
            ..untyped.clone()
        };
        Self { types: vec![untyped, deduced], root: DEDUCED }
    }

    fn add(&mut self, type_: MergeType) -> TypeId {
        self.types.push(type_);
        TypeId(u32::try_from(self.types.len() - 1).unwrap_or(UNTYPED.0))
    }

    pub(super) fn root(&self) -> TypeId {
        self.root
    }

    pub(super) fn get(&self, id: TypeId) -> &MergeType {
        &self.types[id.0 as usize]
    }
}

impl MergeType {
    fn scalar(type_: ScalarType) -> Self {
        Self { scalar: Some(type_), ..Self::default() }
    }

    fn list(items: TypeId, ownership: ListOwnership) -> Self {
        Self { list: Some(ListType { items, ownership }), ..Self::default() }
    }

    fn map(map: MapType) -> Self {
        Self { map: Some(map), ..Self::default() }
    }
}
