//! The lists of built-in kinds that a strategic merge patch merges, and their keys.

/// How the parts of an object are merged; what is not named is merged if it is an object and replaced if it is a list.
#[derive(Debug)]
pub struct StrategicRules {
    fields: &'static [(&'static str, FieldRule)],
}

/// How a list is merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListMerge {
    /// The patch replaces the list.
    Replace,
    /// A set of scalars.
    Values,
    /// Objects identified by this field.
    Key(&'static str),
}

#[derive(Debug)]
enum FieldRule {
    Object(&'static StrategicRules),
    List(ListMerge),
}

static NONE: StrategicRules = StrategicRules { fields: &[] };

static META: StrategicRules = StrategicRules {
    fields: &[
        ("ownerReferences", FieldRule::List(ListMerge::Key("uid"))),
        ("finalizers", FieldRule::List(ListMerge::Values)),
    ],
};

static META_ONLY: StrategicRules =
    StrategicRules { fields: &[("metadata", FieldRule::Object(&META))] };

static NODE: StrategicRules = StrategicRules {
    fields: &[
        ("metadata", FieldRule::Object(&META)),
        ("spec", FieldRule::Object(&NODE_SPEC)),
        ("status", FieldRule::Object(&NODE_STATUS)),
    ],
};

static NODE_SPEC: StrategicRules =
    StrategicRules { fields: &[("podCIDRs", FieldRule::List(ListMerge::Values))] };

static NODE_STATUS: StrategicRules = StrategicRules {
    fields: &[
        ("conditions", FieldRule::List(ListMerge::Key("type"))),
        ("addresses", FieldRule::List(ListMerge::Key("type"))),
    ],
};

static NAMESPACE: StrategicRules = StrategicRules {
    fields: &[
        ("metadata", FieldRule::Object(&META)),
        ("status", FieldRule::Object(&NAMESPACE_STATUS)),
    ],
};

static SERVICE_ACCOUNT: StrategicRules = StrategicRules {
    fields: &[
        ("metadata", FieldRule::Object(&META)),
        ("secrets", FieldRule::List(ListMerge::Key("name"))),
    ],
};

static NAMESPACE_STATUS: StrategicRules =
    StrategicRules { fields: &[("conditions", FieldRule::List(ListMerge::Key("type")))] };

impl StrategicRules {
    /// The rules of a field that is an object.
    pub(super) fn object(&self, name: &str) -> &'static StrategicRules {
        match self.field(name) {
            Some(FieldRule::Object(rules)) => rules,
            _ => &NONE,
        }
    }

    /// How a field that is a list is merged.
    #[must_use]
    pub fn list(&self, name: &str) -> ListMerge {
        match self.field(name) {
            Some(FieldRule::List(merge)) => *merge,
            _ => ListMerge::Replace,
        }
    }

    fn field(&self, name: &str) -> Option<&'static FieldRule> {
        self.fields.iter().find(|(field, _)| *field == name).map(|(_, rules)| rules)
    }
}

/// The rules inside the items of merged lists. No built-in kind here needs any.
pub(super) fn item_rules() -> &'static StrategicRules {
    &NONE
}

/// The rules of a built-in kind; `None` for kinds without strategic merge patch.
#[must_use]
pub fn strategic_rules(group: &str, kind: &str) -> Option<&'static StrategicRules> {
    Some(match (group, kind) {
        ("", "Node") => &NODE,
        ("", "Namespace") => &NAMESPACE,
        ("", "ServiceAccount") => &SERVICE_ACCOUNT,
        ("", "Secret" | "ConfigMap" | "Event")
        | ("events.k8s.io", "Event")
        | ("coordination.k8s.io", "Lease")
        | ("certificates.k8s.io", "CertificateSigningRequest")
        | (
            "rbac.authorization.k8s.io",
            "Role" | "ClusterRole" | "RoleBinding" | "ClusterRoleBinding",
        )
        | ("apiextensions.k8s.io", "CustomResourceDefinition") => &META_ONLY,
        _ => return None,
    })
}
