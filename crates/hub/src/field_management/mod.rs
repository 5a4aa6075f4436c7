//! Field management: who owns which field of an object, and server-side apply.
//!
//! Every write records in `metadata.managedFields` which manager owns which fields. An apply request merges an object by the
//! schema of its kind, removes what its manager gave up, and fails if it would change what others own. The formats and
//! results are those of Kubernetes; `docs/design/0011-server-side-apply.md` says how the parts work together.
//!
//! Pure: objects and a time in, objects out. The router calls [`FieldManagement::track`] after it decoded a write and before
//! the kind's own rules run, and [`FieldManagement::apply`] for an apply patch. It must know nothing of requests.

mod compare;
mod conflicts;
mod field_set;
mod fields_v1;
mod last_applied;
mod managed_fields;
mod merge;
mod merge_schema;
mod owned_fields;
mod path_element;
mod reconcile;
mod remove;
#[cfg(test)]
mod tests;
mod typed;
mod update;
mod value_order;

use std::sync::LazyLock;

use jiff::Timestamp;
use serde_json::{Value, json};

pub use conflicts::Conflicts;
pub use field_set::FieldSet;
pub(crate) use managed_fields::keep_times_if_unchanged;
pub(crate) use merge_schema::built_in::to_shown_form;

use crate::event_conversion;
use crate::kind_registry::ResourceKind;
use crate::object::set_metadata_field;
use managed_fields::{ManagerId, Managers, Ownership, cap_updaters};
use merge_schema::MergeSchema;
use typed::TypeMismatch;
use update::{ApplyFailure, WriteRules};

/// The manager of the fields that nobody tracked before the first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// The fields that are set by the server or identify the object: nobody owns them.
static UNOWNED: LazyLock<FieldSet> = LazyLock::new(|| {
    let metadata = [
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    ];
    let fields = metadata.iter().map(|field| FieldSet::of_fields(&["metadata", field]));
    let top = ["apiVersion", "kind", "metadata"].map(|field| FieldSet::of_fields(&[field]));
    fields.chain(top).fold(FieldSet::default(), |all, set| all.union(&set))
});

/// Who writes, through which endpoint, and when.
#[derive(Debug, Clone, Copy)]
pub struct FieldWriter<'a> {
    /// The name of the manager.
    pub manager: &'a str,
    /// The subresource; empty for the object itself.
    pub subresource: &'a str,
    /// The time of the write.
    pub now: Timestamp,
}

/// Why an object is not applied.
#[derive(Debug, Clone, PartialEq)]
pub enum ApplyError {
    /// The request is malformed: 400.
    Malformed(String),
    /// Others own fields that it would change: 409.
    Conflicts(Conflicts),
    /// The object does not fit the schema of its kind: 500, as in Kubernetes.
    Mismatch(String),
}

/// The field management of one kind.
#[derive(Debug)]
pub struct FieldManagement {
    schema: MergeSchema,
    api_version: String,
    group_version_kind: String,
    sibling_version: Option<&'static str>,
    equal_versions: Vec<String>,
    /// An object without contents, as it is shown.
    empty: Value,
    excluded: Vec<(&'static str, FieldSet)>,
}

impl FieldManagement {
    /// The field management of a kind; `None` for kinds that nobody writes.
    #[must_use]
    pub fn new(kind: &ResourceKind) -> Option<Self> {
        let schema = MergeSchema::of_kind(kind)?;
        let mut empty = json!({"apiVersion": kind.api_version(), "kind": kind.kind});
        to_shown_form(kind, &mut empty);
        let sibling_version = match (kind.built_in, kind.kind.as_str()) {
            (true, "Event") if event_conversion::is_events_v1(kind) => Some("v1"),
            (true, "Event") => Some("events.k8s.io/v1"),
            _ => None,
        };
        Some(Self {
            schema,
            api_version: kind.api_version(),
            group_version_kind: group_version_kind(&kind.group, &kind.version, &kind.kind),
            sibling_version,
            equal_versions: equal_versions(kind),
            empty,
            excluded: excluded_fields(kind),
        })
    }

    fn rules(&self, subresource: &str) -> WriteRules<'_> {
        static NOTHING: LazyLock<FieldSet> = LazyLock::new(FieldSet::default);
        let excluded = self.excluded.iter().find(|(name, _)| *name == subresource);
        WriteRules {
            schema: &self.schema,
            api_version: &self.api_version,
            sibling_version: self.sibling_version,
            equal_versions: &self.equal_versions,
            excluded: excluded.map_or(&NOTHING, |(_, fields)| fields),
        }
    }

    /// Records a write of a whole object: sets `managedFields` of `new`. `live` is the stored object; `None` for a new one.
    ///
    /// It never fails: an object that does not fit its schema has no managers.
    pub fn track(&self, writer: &FieldWriter<'_>, live: Option<&Value>, new: &mut Value) {
        let managers = self.managers_of_write(writer, live, new);
        set_metadata_field(new, "managedFields", None);
        let tracked = match managers {
            // Nothing was tracked of this object until now. The first apply begins to.
            managers if managers.is_empty() && live.is_some() => Ok(managers),
            managers => self.update(writer, live.unwrap_or(&self.empty), new, managers),
        };
        managed_fields::encode(&tracked.unwrap_or_default(), new);
    }

    /// The managers before a write: those that it sends, or else those of the stored object.
    fn managers_of_write(
        &self,
        writer: &FieldWriter<'_>,
        live: Option<&Value>,
        new: &Value,
    ) -> Managers {
        let stored = || live.and_then(managed_fields::decode).unwrap_or_default();
        // Only a write of the object itself may change them.
        if !writer.subresource.is_empty() {
            return stored();
        }
        if managed_fields::is_reset(new) {
            return Managers::new();
        }
        managed_fields::decode(new).filter(|sent| !sent.is_empty()).unwrap_or_else(stored)
    }

    fn update(
        &self,
        writer: &FieldWriter<'_>,
        live: &Value,
        new: &Value,
        mut managers: Managers,
    ) -> Result<Managers, ApplyError> {
        for object in [new, live] {
            let errors = typed::validate(&self.schema, self.schema.root(), object, true);
            if !errors.is_empty() {
                return Err(ApplyError::Mismatch(TypeMismatch::join(&errors)));
            }
        }
        let fields = self.rules(writer.subresource).update(live, new, &mut managers)?;
        let fields = fields.difference(&UNOWNED);
        if !fields.is_empty() {
            let id = ManagerId::updater(writer.manager, &self.api_version, writer.subresource);
            let before = managers.get(&id).map(|owned| &owned.fields);
            let fields = before.map_or_else(|| fields.clone(), |before| fields.union(before));
            let api_version = self.api_version.clone();
            managers.insert(id, Ownership { fields, api_version, time: Some(writer.now) });
        }
        cap_updaters(&mut managers);
        Ok(managers)
    }

    /// Applies an object. `live` is the stored object; `None` creates it.
    ///
    /// # Errors
    /// See [`ApplyError`].
    pub fn apply(
        &self,
        writer: &FieldWriter<'_>,
        live: Option<&Value>,
        applied: &Value,
        force: bool,
    ) -> Result<Value, ApplyError> {
        self.check_applied(applied)?;
        let live = live.unwrap_or(&self.empty);
        let mut managers = managed_fields::decode(live).ok_or_else(|| {
            ApplyError::Mismatch("failed to decode managed fields of the stored object".to_owned())
        })?;
        if managers.is_empty() {
            let first = FieldWriter { manager: BEFORE_FIRST_APPLY, ..*writer };
            managers = self.update(&first, &self.empty, live, managers)?;
        }
        let mut applied_object =
            match self.apply_once(writer, live, applied, managers.clone(), force) {
                Err(ApplyError::Conflicts(conflicts))
                    if writer.manager == last_applied::KUBECTL =>
                {
                    // What kubectl applied on the client's side is its own.
                    let allowed =
                        last_applied::unchanged_fields(&self.schema, &self.api_version, live);
                    let left =
                        allowed.map_or_else(|| conflicts.clone(), |own| conflicts.outside(&own));
                    if !left.is_empty() {
                        return Err(ApplyError::Conflicts(left));
                    }
                    self.apply_once(writer, live, applied, managers, true)?
                }
                done => done?,
            };
        if writer.manager == last_applied::KUBECTL {
            last_applied::refresh(&mut applied_object, applied);
        }
        Ok(applied_object)
    }

    fn check_applied(&self, applied: &Value) -> Result<(), ApplyError> {
        let text = |name: &str| applied[name].as_str().unwrap_or_default();
        let (group, version) =
            text("apiVersion").rsplit_once('/').unwrap_or(("", text("apiVersion")));
        let sent = group_version_kind(group, version, text("kind"));
        if sent != self.group_version_kind {
            return Err(ApplyError::Malformed(format!("invalid object type: {sent}")));
        }
        if !applied["metadata"]["managedFields"].is_null() {
            return Err(ApplyError::Malformed("metadata.managedFields must be nil".to_owned()));
        }
        let errors = typed::validate(&self.schema, self.schema.root(), applied, false);
        if errors.is_empty() {
            return Ok(());
        }
        let text = |field: &str| match crate::object::metadata_str(applied, field) {
            "" if field == "name" => String::new(),
            text => text.to_owned(),
        };
        Err(ApplyError::Mismatch(format!(
            "failed to create typed patch object ({}/{}; {sent}): {}",
            text("namespace"),
            text("name"),
            TypeMismatch::join(&errors)
        )))
    }

    fn apply_once(
        &self,
        writer: &FieldWriter<'_>,
        live: &Value,
        applied: &Value,
        mut managers: Managers,
        force: bool,
    ) -> Result<Value, ApplyError> {
        let errors = typed::validate(&self.schema, self.schema.root(), live, true);
        if !errors.is_empty() {
            return Err(ApplyError::Mismatch(format!(
                "failed to create typed live object: {}",
                TypeMismatch::join(&errors)
            )));
        }
        let applier = ManagerId::applier(writer.manager, writer.subresource);
        let rules = self.rules(writer.subresource);
        let new = rules.apply(live, applied, &mut managers, &applier, force)?;
        if let Some(owned) = managers.get_mut(&applier) {
            owned.fields = owned.fields.difference(&UNOWNED);
            if new.is_some() {
                owned.time = Some(writer.now);
            }
        }
        managers.retain(|_, owned| !owned.fields.is_empty());
        let mut new = new.unwrap_or_else(|| live.clone());
        managed_fields::encode(&managers, &mut new);
        Ok(new)
    }
}

impl From<ApplyFailure> for ApplyError {
    fn from(failure: ApplyFailure) -> Self {
        match failure {
            ApplyFailure::Conflicts(conflicts) => Self::Conflicts(conflicts),
            ApplyFailure::Mismatch(text) => Self::Mismatch(text),
        }
    }
}

/// The versions in which a kind is served. They differ only in their name: nothing is converted.
fn equal_versions(kind: &ResourceKind) -> Vec<String> {
    let versions = kind.defined.iter().flat_map(|defined| &defined.served_versions);
    versions.map(|version| format!("{}/{version}", kind.group)).collect()
}

/// A type as error messages name it.
fn group_version_kind(group: &str, version: &str, kind: &str) -> String {
    format!("{group}/{version}, Kind={kind}")
}

/// The fields that the endpoints of a kind do not write, by subresource.
fn excluded_fields(kind: &ResourceKind) -> Vec<(&'static str, FieldSet)> {
    let of = FieldSet::of_fields;
    match (kind.built_in, kind.kind.as_str()) {
        (true, "CertificateSigningRequest") => vec![
            ("", of(&["spec"]).union(&of(&["status"]))),
            ("status", of(&["spec"]).union(&of(&["status", "conditions"]))),
            ("approval", of(&["spec"]).union(&of(&["status", "certificate"]))),
        ],
        _ if !kind.status_subresource => Vec::new(),
        _ => vec![("", of(&["status"])), ("status", of(&["spec"])), ("finalize", of(&["status"]))],
    }
}
