//! Which objects a request is about.

use crate::kind_registry::ResourceKind;
use crate::object;
use crate::request::QueryOptions;
use crate::selector::{FieldSelector, LabelSelector};
use crate::status::ApiError;
use crate::store::StoreEntry;

/// A part of the objects of a kind.
#[derive(Debug, Clone)]
pub(super) struct Selection {
    labels: LabelSelector,
    fields: FieldSelector,
    /// The key, if only one object can be meant; else what its keys begin with.
    pub(super) prefix: String,
    pub(super) is_exact: bool,
}

impl Selection {
    /// Reads the selectors of a query.
    ///
    /// # Errors
    /// 400 if they make no sense, or the kind does not have the field.
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
        Ok(Self { labels, fields, prefix, is_exact })
    }

    /// The name that is asked for, if it is only one.
    pub(super) fn name(&self) -> Option<&str> {
        self.fields.required_value("metadata.name")
    }

    /// Whether it is everything of the kind or namespace.
    pub(super) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    fn is_exact_name(&self) -> bool {
        self.is_exact && self.fields.requires_only("metadata.name")
    }

    /// Whether an entry is meant.
    ///
    /// # Errors
    /// The entry is damaged.
    pub(super) fn matches(&self, entry: &StoreEntry) -> Result<bool, ApiError> {
        if self.is_exact && *entry.key != *self.prefix {
            return Ok(false);
        }
        // The key says it all where only the name is asked for: what a machine watches of itself.
        if self.labels.is_empty() && (self.fields.is_empty() || self.is_exact_name()) {
            return Ok(true);
        }
        let object = super::response::decode_entry(entry)?;
        Ok(self.labels.matches(&object) && self.fields.matches(&object))
    }
}

/// Whether a name can be a part of a key.
fn is_valid_key_segment(name: &str) -> bool {
    !name.is_empty() && !name.contains('/')
}
