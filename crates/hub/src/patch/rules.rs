//! Which lists of the built-in kinds a strategic merge patch merges, and by which key.

/// How the parts of an object are merged; what is not named is merged if it is an object and replaced if it is a list.
#[derive(Debug)]
pub struct StrategicRules {
    fields: &'static [(&'static str, Field)],
}

/// How one list is merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListMerge {
    /// The patch takes the place of the list.
    Replace,
    /// A set of plain values.
    Values,
    /// Objects that are told apart by this field.
    Key(&'static str),
}

#[derive(Debug)]
enum Field {
    Object(&'static StrategicRules),
    List(ListMerge),
}

static NONE: StrategicRules = StrategicRules { fields: &[] };

static META: StrategicRules = StrategicRules {
    fields: &[
        ("ownerReferences", Field::List(ListMerge::Key("uid"))),
        ("finalizers", Field::List(ListMerge::Values)),
    ],
};

static ONLY_META: StrategicRules = StrategicRules { fields: &[("metadata", Field::Object(&META))] };

static NODE: StrategicRules = StrategicRules {
    fields: &[
        ("metadata", Field::Object(&META)),
        ("spec", Field::Object(&NODE_SPEC)),
        ("status", Field::Object(&NODE_STATUS)),
    ],
};

static NODE_SPEC: StrategicRules =
    StrategicRules { fields: &[("podCIDRs", Field::List(ListMerge::Values))] };

static NODE_STATUS: StrategicRules = StrategicRules {
    fields: &[
        ("conditions", Field::List(ListMerge::Key("type"))),
        ("addresses", Field::List(ListMerge::Key("type"))),
    ],
};

static NAMESPACE: StrategicRules = StrategicRules {
    fields: &[("metadata", Field::Object(&META)), ("status", Field::Object(&NAMESPACE_STATUS))],
};

static NAMESPACE_STATUS: StrategicRules =
    StrategicRules { fields: &[("conditions", Field::List(ListMerge::Key("type")))] };

impl StrategicRules {
    /// The rules inside a field that is an object.
    pub(super) fn object(&self, name: &str) -> &'static StrategicRules {
        match self.field(name) {
            Some(Field::Object(rules)) => rules,
            _ => &NONE,
        }
    }

    /// How a field that is a list is merged.
    #[must_use]
    pub fn list(&self, name: &str) -> ListMerge {
        match self.field(name) {
            Some(Field::List(merge)) => *merge,
            _ => ListMerge::Replace,
        }
    }

    fn field(&self, name: &str) -> Option<&'static Field> {
        self.fields.iter().find(|(field, _)| *field == name).map(|(_, rules)| rules)
    }
}

/// The rules inside the items of merged lists: none of the built-in kinds needs any.
pub(super) fn item_rules() -> &'static StrategicRules {
    &NONE
}

/// The rules of a built-in kind; none for kinds that take no strategic merge patch.
#[must_use]
pub fn strategic_rules(group: &str, kind: &str) -> Option<&'static StrategicRules> {
    Some(match (group, kind) {
        ("", "Node") => &NODE,
        ("", "Namespace") => &NAMESPACE,
        ("", "Secret" | "ConfigMap" | "Event")
        | ("events.k8s.io", "Event")
        | ("coordination.k8s.io", "Lease")
        | ("certificates.k8s.io", "CertificateSigningRequest")
        | ("apiextensions.k8s.io", "CustomResourceDefinition") => &ONLY_META,
        _ => return None,
    })
}
