//! Errors of generators.

use std::fmt;

use kube::{Resource, ResourceExt as _};

/// The object that MachineConfigs are generated from. Compared field by field; its text is only for people. Boxed strings keep
/// [`GenerateError`] small enough to be returned by value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceRef {
    /// The kind.
    pub kind: Box<str>,
    /// The namespace, if the object is in one.
    pub namespace: Option<Box<str>>,
    /// The name; empty for a source that is no object.
    pub name: Box<str>,
}

impl SourceRef {
    /// An object that is in no namespace.
    #[must_use]
    pub fn new(kind: impl Into<Box<str>>, name: impl Into<Box<str>>) -> Self {
        Self { kind: kind.into(), namespace: None, name: name.into() }
    }

    /// A reference to an object.
    #[must_use]
    pub fn of<K: Resource<DynamicType = ()>>(object: &K) -> Self {
        Self {
            kind: K::kind(&()).into(),
            namespace: object.namespace().map(Into::into),
            name: object.name_any().into(),
        }
    }
}

impl fmt::Display for SourceRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        match &self.namespace {
            Some(namespace) => write!(f, " {namespace}/{}", self.name),
            None if self.name.is_empty() => Ok(()),
            None => write!(f, " {}", self.name),
        }
    }
}

/// Why an object could not be turned into MachineConfigs: object, field, problem and remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{object}: {field}: {message} ({remedy})")]
pub struct GenerateError {
    /// The object.
    pub object: SourceRef,
    /// The field, as a path: `spec.containerRuntimeConfig.pidsLimit`.
    pub field: String,
    /// What is wrong with it.
    pub message: String,
    /// What to do about it.
    pub remedy: String,
}

impl GenerateError {
    /// Whether this error is about an object.
    #[must_use]
    pub fn is_about<K: Resource<DynamicType = ()>>(&self, object: &K) -> bool {
        self.object == SourceRef::of(object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::MachineConfigPool;
    use k8s_openapi::api::core::v1::Secret;

    #[test]
    fn an_error_is_about_the_object_with_its_kind_namespace_and_name() {
        let pool: MachineConfigPool =
            serde_json::from_value(serde_json::json!({"metadata": {"name": "a"}, "spec": {}}))
                .unwrap();
        let mut secret = Secret::default();
        (secret.metadata.name, secret.metadata.namespace) = (Some("a".into()), Some("n".into()));
        let error = |object| GenerateError {
            object,
            field: "spec".to_owned(),
            message: "x".to_owned(),
            remedy: "y".to_owned(),
        };
        for (object, shown, about_pool, about_secret) in [
            (SourceRef::new("MachineConfigPool", "a"), "MachineConfigPool a", true, false),
            (SourceRef::new("MachineConfigPool", "b"), "MachineConfigPool b", false, false),
            (SourceRef::of(&secret), "Secret n/a", false, true),
            (SourceRef::new("Secret", "a"), "Secret a", false, false),
            (SourceRef::new("the templates", ""), "the templates", false, false),
        ] {
            let error = error(object);
            assert_eq!(error.to_string(), format!("{shown}: spec: x (y)"));
            assert_eq!(
                (error.is_about(&pool), error.is_about(&secret)),
                (about_pool, about_secret)
            );
        }
    }
}
