//! Which objects a request is about.

use crate::object;
use crate::registry::Kind;
use crate::request::Options;
use crate::selector::{FieldSelector, LabelSelector};
use crate::status::ApiError;
use crate::store::Entry;

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
        kind: &Kind,
        namespace: Option<&str>,
        options: &Options,
    ) -> Result<Self, ApiError> {
        let labels = LabelSelector::parse(&options.label_selector)?;
        let fields = FieldSelector::parse(&options.field_selector)?;
        fields.check_supported(kind)?;
        let namespace = namespace.or_else(|| {
            // `--all-namespaces --field-selector metadata.namespace=x` is one namespace.
            fields.exact("metadata.namespace").filter(|_| kind.namespaced)
        });
        let one = fields.exact("metadata.name").filter(|name| is_plain(name));
        let is_exact = one.is_some() && (namespace.is_some() || !kind.namespaced);
        let name = if is_exact { one.unwrap_or_default() } else { "" };
        let prefix = object::key(kind, namespace.filter(|name| is_plain(name)), name);
        Ok(Self { labels, fields, prefix, is_exact })
    }

    /// The name that is asked for, if it is only one.
    pub(super) fn name(&self) -> Option<&str> {
        self.fields.exact("metadata.name")
    }

    /// Whether it is everything of the kind or namespace.
    pub(super) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    fn is_exact_name(&self) -> bool {
        self.is_exact && self.fields.is_only("metadata.name")
    }

    /// Whether an entry is meant.
    ///
    /// # Errors
    /// The entry is damaged.
    pub(super) fn matches(&self, entry: &Entry) -> Result<bool, ApiError> {
        if self.is_exact && *entry.key != *self.prefix {
            return Ok(false);
        }
        // The key says it all where only the name is asked for: what a machine watches of itself.
        if self.labels.is_empty() && (self.fields.is_empty() || self.is_exact_name()) {
            return Ok(true);
        }
        let object = super::answer::value_of(entry)?;
        Ok(self.labels.matches(&object) && self.fields.matches(&object))
    }
}

/// Whether a name can be a part of a key.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.contains('/')
}
