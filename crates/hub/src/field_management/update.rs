//! Who owns what after a write: every change takes fields from their owners and gives them to the writer.
//!
//! Pure functions on two objects and the managers; the rules of Kubernetes' server-side apply. Called by
//! [`super::FieldManagement`].

use serde_json::Value;

use super::compare::{Comparison, compare};
use super::conflicts::Conflicts;
use super::field_set::FieldSet;
use super::managed_fields::{ManagerId, Managers, Ownership};
use super::merge::merge;
use super::merge_schema::MergeSchema;
use super::owned_fields::field_set;
use super::reconcile::reconcile;
use super::remove::remove_fields;
use super::typed::TypeMismatch;
use super::value_order::equal;

/// What a write is judged by.
#[derive(Debug, Clone, Copy)]
pub(super) struct WriteRules<'a> {
    pub(super) schema: &'a MergeSchema,
    /// The API version of the request.
    pub(super) api_version: &'a str,
    /// Another version in which the same objects are written; its managers are left alone.
    pub(super) sibling_version: Option<&'a str>,
    /// Other versions in which the same objects have the same fields.
    pub(super) equal_versions: &'a [String],
    /// The fields that this endpoint does not write, so that nobody owns them through it.
    pub(super) excluded: &'a FieldSet,
}

/// Why an object is not applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ApplyFailure {
    Conflicts(Conflicts),
    Mismatch(String),
}

impl WriteRules<'_> {
    fn is_own_version(&self, owned: &Ownership) -> bool {
        owned.api_version == self.api_version || self.equal_versions.contains(&owned.api_version)
    }

    /// Drops managers of versions that are not served, and fits the others to the schema.
    fn reconcile(&self, managers: &mut Managers) {
        managers.retain(|_, owned| {
            self.is_own_version(owned) || Some(owned.api_version.as_str()) == self.sibling_version
        });
        for owned in managers.values_mut().filter(|owned| self.is_own_version(owned)) {
            if let Some(fields) = reconcile(self.schema, &owned.fields) {
                owned.fields = fields;
            }
        }
    }

    /// Takes what changed from all managers but the acting one. Without force that is a conflict.
    fn take_from_others(
        &self,
        live: &Value,
        new: &Value,
        managers: &mut Managers,
        acting: Option<&ManagerId>,
        force: bool,
    ) -> Result<Comparison, ApplyFailure> {
        let compared = compare(self.schema, live, new).map_err(|error| {
            ApplyFailure::Mismatch(format!("failed to compare objects: {error}"))
        })?;
        let compared = compared.without(self.excluded);
        let changed = compared.modified.union(&compared.added);
        let others =
            |id: &ManagerId, owned: &Ownership| Some(id) != acting && self.is_own_version(owned);
        if !force {
            let conflicts = managers.iter().filter(|(id, owned)| others(id, owned));
            let conflicts = conflicts
                .map(|(id, owned)| (id.clone(), owned.fields.intersection(&changed)))
                .filter(|(_, fields)| !fields.is_empty());
            let conflicts = Conflicts::new(conflicts);
            if !conflicts.is_empty() {
                return Err(ApplyFailure::Conflicts(conflicts));
            }
        }
        let gone = changed.union(&compared.removed);
        if !gone.is_empty() {
            for (_, owned) in managers.iter_mut().filter(|(id, owned)| others(id, owned)) {
                owned.fields = owned.fields.difference(&gone);
            }
        }
        managers.retain(|_, owned| !owned.fields.is_empty());
        Ok(compared)
    }

    /// Updates the managers for a write of a whole object. Returns the fields that the writer now owns.
    pub(super) fn update(
        &self,
        live: &Value,
        new: &Value,
        managers: &mut Managers,
    ) -> Result<FieldSet, ApplyFailure> {
        self.reconcile(managers);
        let compared = self.take_from_others(live, new, managers, None, true)?;
        Ok(compared.modified.union(&compared.added))
    }

    /// Applies an object. Returns the new one, or `None` if nothing changed.
    pub(super) fn apply(
        &self,
        live: &Value,
        applied: &Value,
        managers: &mut Managers,
        applier: &ManagerId,
        force: bool,
    ) -> Result<Option<Value>, ApplyFailure> {
        self.reconcile(managers);
        let merged = merge(self.schema, live, applied).map_err(|error: TypeMismatch| {
            ApplyFailure::Mismatch(format!("failed to merge config: {error}"))
        })?;
        let last = managers.get(applier).cloned();
        let fields = field_set(self.schema, self.schema.root(), applied);
        let owned = Ownership {
            fields: fields.recursive_difference(self.excluded),
            api_version: self.api_version.to_owned(),
            time: last.as_ref().and_then(|last| last.time),
        };
        managers.insert(applier.clone(), owned);
        let new = match last {
            Some(last) if self.is_own_version(&last) => self.prune(merged, managers, &last.fields),
            _ => merged,
        };
        self.take_from_others(live, &new, managers, Some(applier), force)?;
        Ok((!equal(live, &new)).then_some(new))
    }

    /// Removes what the applier owned until now and nobody owns any more.
    fn prune(&self, merged: Value, managers: &Managers, last: &FieldSet) -> Value {
        let named = |set: &FieldSet| set.with_named_fields(self.schema, Some(self.schema.root()));
        let set_of = |object: &Value| named(&field_set(self.schema, self.schema.root(), object));
        let last = named(last);
        if last.is_empty() {
            return merged;
        }
        let before = set_of(&merged);
        let without_last = set_of(&remove_fields(self.schema, &merged, &last));
        // Others' fields come back, with what contains them.
        let owned = managers.values().filter(|owned| self.is_own_version(owned));
        let owned = owned.fold(FieldSet::default(), |all, owned| all.union(&owned.fields));
        let kept = without_last.union(&named(&owned));
        let pruned = remove_fields(self.schema, &merged, &before.difference(&kept));
        // What nobody owned comes back too, unless it was the applier's.
        let gone = before.difference(&set_of(&pruned)).intersection(&last);
        remove_fields(self.schema, &merged, &gone)
    }
}
