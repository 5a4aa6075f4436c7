//! What a request does to objects: its verb.

use http::Method;
use http::request::Parts;

use crate::request::{self, RequestTarget};

/// What a request does to objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestVerb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
}

impl RequestVerb {
    /// Returns the verb of a method; `None` if the method is not allowed there.
    pub(super) fn from_method(method: &Method, has_name: bool, watch: bool) -> Option<Self> {
        match (method.as_str(), has_name) {
            ("GET" | "HEAD", true) => Some(Self::Get),
            ("GET" | "HEAD", false) if watch => Some(Self::Watch),
            ("GET" | "HEAD", false) => Some(Self::List),
            ("POST", false) => Some(Self::Create),
            ("PUT", true) => Some(Self::Update),
            ("PATCH", true) => Some(Self::Patch),
            ("DELETE", true) => Some(Self::Delete),
            ("DELETE", false) => Some(Self::DeleteCollection),
            _ => None,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }

    /// The options type of the verb, for error messages.
    pub(super) fn options_kind(self) -> &'static str {
        match self {
            Self::Get => "GetOptions",
            Self::List | Self::Watch => "ListOptions",
            Self::Create => "CreateOptions",
            Self::Update => "UpdateOptions",
            Self::Patch => "PatchOptions",
            Self::Delete | Self::DeleteCollection => "DeleteOptions",
        }
    }

    pub(super) fn is_write(self) -> bool {
        !matches!(self, Self::Get | Self::List | Self::Watch)
    }
}

/// The verb label of a request in the metrics, from a fixed set.
pub(super) fn metrics_verb(target: &RequestTarget, parts: &Parts) -> &'static str {
    let RequestTarget::Resource(path) = target else { return "other" };
    let query = parts.uri.query().filter(|query| query.contains("watch"));
    let watch = query.is_some_and(|query| request::parse_query(query).is_ok_and(|it| it.watch));
    RequestVerb::from_method(&parts.method, path.name.is_some(), watch)
        .map_or("other", RequestVerb::name)
}
