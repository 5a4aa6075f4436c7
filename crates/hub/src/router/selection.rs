//! The objects that a list, watch or collection delete selects.

use std::sync::Arc;

use super::visibility::NodeFilter;
use crate::kind_registry::ResourceKind;
use crate::object;
use crate::request::QueryOptions;
use crate::selector::{FieldSelector, LabelSelector};
use crate::status::ApiError;
use crate::store::StoreEntry;
use crate::unreadable_entries::UnreadableEntries;

/// A selection of the objects of a kind.
#[derive(Debug, Clone)]
pub(super) struct Selection {
    labels: LabelSelector,
    fields: FieldSelector,
    /// The key if only one object can match, otherwise a key prefix.
    pub(super) prefix: String,
    pub(super) is_exact: bool,
    /// Entries that it never selects.
    unreadable: Arc<UnreadableEntries>,
    /// What a machine may see.
    filter: Option<NodeFilter>,
    /// The only user whose requests it selects.
    requester: Option<String>,
}

impl Selection {
    /// Parses the selectors of a query.
    ///
    /// # Errors
    /// 400: a selector is malformed, or the kind does not support the field.
    pub(super) fn new(
        kind: &ResourceKind,
        namespace: Option<&str>,
        options: &QueryOptions,
    ) -> Result<Self, ApiError> {
        let labels = LabelSelector::parse(&options.label_selector)?;
        let fields = FieldSelector::parse(&options.field_selector)?;
        fields.check_supported(kind)?;
        let namespace = namespace.or_else(|| {
            // `--all-namespaces --field-selector metadata.namespace=x` is one namespace.
            fields.required_value("metadata.namespace").filter(|_| kind.namespaced)
        });
        let one = fields.required_value("metadata.name").filter(|name| is_valid_key_segment(name));
        let is_exact = one.is_some() && (namespace.is_some() || !kind.namespaced);
        let name = if is_exact { one.unwrap_or_default() } else { "" };
        let prefix =
            object::storage_key(kind, namespace.filter(|name| is_valid_key_segment(name)), name);
        Ok(Self {
            labels,
            fields,
            prefix,
            is_exact,
            unreadable: Arc::default(),
            filter: None,
            requester: None,
        })
    }

    /// The same selection without entries that cannot be decoded.
    pub(super) fn skipping(self, unreadable: &Arc<UnreadableEntries>) -> Self {
        Self { unreadable: Arc::clone(unreadable), ..self }
    }

    /// Selects only the requests of one user, also among those that come later or are gone.
    pub(super) fn requested_by(self, user: String) -> Self {
        Self { requester: Some(user), ..self }
    }

    /// Selects only what a filter allows.
    pub(super) fn with_filter(self, filter: Option<NodeFilter>) -> Self {
        Self { filter, ..self }
    }

    /// The selected name, if there can be only one.
    pub(super) fn name(&self) -> Option<&str> {
        self.fields.required_value("metadata.name")
    }

    /// Whether it selects all objects of the kind or namespace.
    pub(super) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty() && self.filter.is_none()
    }

    fn is_exact_name(&self) -> bool {
        self.is_exact && self.fields.requires_only("metadata.name")
    }

    /// Whether it selects an entry.
    pub(super) fn matches(&self, entry: &StoreEntry) -> bool {
        if (self.is_exact && *entry.key != *self.prefix) || self.unreadable.contains(entry) {
            return false;
        }
        if self.filter.as_ref().is_some_and(|filter| !filter.allows(entry)) {
            return false;
        }
        if let Some(requester) = &self.requester {
            let object = super::response::decode_entry(entry);
            if !object.is_ok_and(|object| object["spec"]["username"] == requester.as_str()) {
                return false;
            }
        }
        // If only the name is selected, the key decides without decoding: every machine watches its
        // own objects this way.
        if self.labels.is_empty() && (self.fields.is_empty() || self.is_exact_name()) {
            return true;
        }
        super::response::decode_entry(entry)
            .is_ok_and(|object| self.labels.matches(&object) && self.fields.matches(&object))
    }
}

/// Whether a name is valid in a key.
fn is_valid_key_segment(name: &str) -> bool {
    !name.is_empty() && !name.contains('/')
}
