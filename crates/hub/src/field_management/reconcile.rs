//! Fits the field set of a manager to the current schema: a part that became atomic is owned as a whole.
//!
//! Pure; called by [`super::update`] before every comparison, since a new version may bring other schemas.

use super::field_set::{FieldNode, FieldSet};
use super::merge_schema::{ListOwnership, MapType, MergeSchema, TypeId};
use super::path_element::PathElement;
use super::typed::{Alternatives, Form, form};

/// The set for the schema; `None` if it fits as it is.
pub(super) fn reconcile(schema: &MergeSchema, set: &FieldSet) -> Option<FieldSet> {
    let mut roots = FieldSet::default();
    collect_atomic_roots(schema, schema.root(), set, true, &mut roots);
    (!roots.is_empty()).then(|| set.recursive_difference(&roots).union(&roots))
}

/// Collects the paths of atomic parts that the set splits. Returns whether the value itself is one.
fn collect_atomic_roots(
    schema: &MergeSchema,
    type_: TypeId,
    set: &FieldSet,
    whole: bool,
    roots: &mut FieldSet,
) -> bool {
    match form(schema.get(type_), Alternatives::All) {
        Some(Form::List(list)) => {
            if list.ownership == ListOwnership::Atomic {
                return !whole || !set.is_empty();
            }
            descend(set, roots, |_| Some(list.items), schema);
            false
        }
        Some(Form::Map(map)) if map.is_untyped() => false,
        Some(Form::Map(map)) => {
            if map.atomic {
                return !set.is_empty();
            }
            descend(set, roots, |element| field_type(map, element), schema);
            false
        }
        Some(Form::Scalar(_)) | None => false,
    }
}

fn field_type(map: &MapType, element: &PathElement) -> Option<TypeId> {
    match element {
        PathElement::Field(name) => map.field_type(name),
        _ => map.rest,
    }
}

fn descend(
    set: &FieldSet,
    roots: &mut FieldSet,
    type_of: impl Fn(&PathElement) -> Option<TypeId>,
    schema: &MergeSchema,
) {
    for FieldNode { element, member, children } in set.nodes() {
        let Some(type_) = type_of(element) else { continue };
        let mut below = FieldSet::default();
        let whole = *member && children.is_empty();
        let root = collect_atomic_roots(schema, type_, children, whole, &mut below);
        roots.attach(element.clone(), root, below);
    }
}
