//! API errors as `Status` objects, with the texts of kube-apiserver.
//!
//! Used by every module that rejects a request; the router encodes them.

use serde_json::{Map, Value, json};

use crate::kind_registry::ResourceKind;
use crate::schema::FieldError;

/// An error response: the HTTP code and the fields of the `Status` object.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiError {
    /// The HTTP code.
    pub code: u16,
    /// The machine-readable reason: `NotFound`; may be empty.
    pub reason: &'static str,
    /// The message for people.
    pub message: String,
    /// `details` of the `Status`; `None` omits the field.
    pub details: Option<Value>,
}

impl ApiError {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None }
    }

    fn with_details(mut self, details: Value) -> Self {
        self.details = Some(details);
        self
    }

    /// 404: no object has that name.
    #[must_use]
    pub fn not_found(kind: &ResourceKind, name: &str) -> Self {
        let message =
            format!("{} \"{name}\" not found", qualified_resource(&kind.plural, &kind.group));
        Self::new(404, "NotFound", message).with_details(details(&kind.group, &kind.plural, name))
    }

    /// 404: one of the hub's own resources does not exist. The hint says where to look.
    #[must_use]
    pub fn named_not_found(resource: &str, name: &str, hint: &str) -> Self {
        let message = format!("{resource} \"{name}\" not found: {hint}");
        Self::new(404, "NotFound", message).with_details(details("machinist", resource, name))
    }

    /// 409: an object has that name already.
    #[must_use]
    pub fn already_exists(kind: &ResourceKind, name: &str) -> Self {
        let message =
            format!("{} \"{name}\" already exists", qualified_resource(&kind.plural, &kind.group));
        Self::new(409, "AlreadyExists", message).with_details(details(
            &kind.group,
            &kind.plural,
            name,
        ))
    }

    /// 409: the request conflicts with the stored object; `detail` says why.
    #[must_use]
    pub fn conflict(kind: &ResourceKind, name: &str, detail: &str) -> Self {
        let resource = qualified_resource(&kind.plural, &kind.group);
        let message = format!("Operation cannot be fulfilled on {resource} \"{name}\": {detail}");
        Self::new(409, "Conflict", message).with_details(details(&kind.group, &kind.plural, name))
    }

    /// 409: the object changed since the client read it.
    #[must_use]
    pub fn modified_conflict(kind: &ResourceKind, name: &str) -> Self {
        Self::conflict(
            kind,
            name,
            "the object has been modified; please apply your changes to the latest version and \
             try again",
        )
    }

    /// 409: an apply would change fields of other managers.
    #[must_use]
    pub fn apply_conflict(message: impl Into<String>, causes: &[Value]) -> Self {
        Self::new(409, "Conflict", message).with_details(json!({"causes": causes}))
    }

    /// 422: fields of the object are invalid.
    #[must_use]
    pub fn invalid(kind: &ResourceKind, name: &str, errors: Vec<FieldError>) -> Self {
        Self::invalid_options(&kind.group, &kind.kind, name, errors)
    }

    /// 422 for types without a [`ResourceKind`], such as `ListOptions` of `meta.k8s.io`.
    #[must_use]
    #[expect(clippy::needless_pass_by_value, reason = "the errors end here")]
    pub fn invalid_options(group: &str, kind: &str, name: &str, errors: Vec<FieldError>) -> Self {
        let causes: Vec<Value> = errors
            .iter()
            .map(|error| {
                let reason = error.reason.cause_type();
                json!({"reason": reason, "message": error.error_body(), "field": error.field})
            })
            .collect();
        let message = format!(
            "{} \"{name}\" is invalid{}",
            qualified_resource(kind, group),
            join_errors(&errors)
        );
        let mut all = details(group, kind, name);
        if !causes.is_empty() {
            all["causes"] = causes.into();
        }
        Self::new(422, "Invalid", message).with_details(all)
    }

    /// 400: the request is malformed.
    #[must_use]
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 403: the user lacks the permission. `resource` may name a subresource (`nodes/status`).
    #[must_use]
    pub fn forbidden(
        user: &str,
        verb: &str,
        group: &str,
        resource: &str,
        name: &str,
        namespace: Option<&str>,
    ) -> Self {
        let main = resource.split('/').next().unwrap_or(resource);
        let what = qualified_resource(main, group);
        let what = if name.is_empty() { what } else { format!("{what} \"{name}\"") };
        let place = match namespace {
            Some(namespace) if !namespace.is_empty() => format!("in the namespace \"{namespace}\""),
            _ => "at the cluster scope".to_owned(),
        };
        let message = format!(
            "{what} is forbidden: User \"{user}\" cannot {verb} resource \"{resource}\" in API \
             group \"{group}\" {place}"
        );
        Self::new(403, "Forbidden", message).with_details(details(group, main, name))
    }

    /// 403 for a path that is not a resource.
    #[must_use]
    pub fn forbidden_path(user: &str, verb: &str, path: &str) -> Self {
        let message = format!("forbidden: User \"{user}\" cannot {verb} path \"{path}\"");
        Self::new(403, "Forbidden", message).with_details(json!({}))
    }

    /// 403 with a specific reason: `nodes "x" is forbidden: reason`.
    #[must_use]
    pub fn forbidden_because(kind: &ResourceKind, name: &str, reason: &str) -> Self {
        let resource = qualified_resource(&kind.plural, &kind.group);
        let message = format!("{resource} \"{name}\" is forbidden: {reason}");
        Self::new(403, "Forbidden", message).with_details(details(&kind.group, &kind.plural, name))
    }

    /// 401: the client is not authenticated.
    #[must_use]
    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// 405: the resource does not support the method.
    #[must_use]
    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message).with_details(json!({}))
    }

    /// 406: the server offers none of the media types that the client accepts.
    #[must_use]
    pub fn not_acceptable(available: &[&str]) -> Self {
        let message =
            format!("only the following media types are accepted: {}", available.join(", "));
        Self::new(406, "NotAcceptable", message)
    }

    /// 406: the server offers none of the media types that the client accepts. The text of endpoints of built-in kinds.
    #[must_use]
    pub fn no_representation(available: &[&str]) -> Self {
        let list = available.join(", ");
        let message = format!("406: Not Acceptable\n\nAvailable representations: {list}");
        Self::new(406, "NotAcceptable", message).with_details(json!({}))
    }

    /// 405: a kind of which there never is an object.
    #[must_use]
    pub fn always_empty(kind: &ResourceKind) -> Self {
        let resource = qualified_resource(&kind.plural, &kind.group);
        let message = format!(
            "the server does not allow this method on the requested resource: a hub runs no workloads, so {resource} is \
             always empty: use a Kubernetes cluster for it"
        );
        Self::new(405, "MethodNotAllowed", message).with_details(json!({}))
    }

    /// 415: the server does not read bodies of this media type.
    #[must_use]
    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// 410: the requested history has been compacted.
    #[must_use]
    pub fn gone(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// 413: the body is larger than `limit` bytes.
    #[must_use]
    pub fn too_large(limit: usize) -> Self {
        let message = format!("Request entity too large: limit is {limit}");
        Self::new(413, "RequestEntityTooLarge", message)
    }

    /// 413: an object of this kind may have up to `limit` bytes.
    #[must_use]
    pub fn object_too_large(kind: &ResourceKind, name: &str, size: usize, limit: usize) -> Self {
        let resource = qualified_resource(&kind.plural, &kind.group);
        let message = format!(
            "Request entity too large: {resource} \"{name}\" has {size} bytes, limit is {limit}"
        );
        Self::new(413, "RequestEntityTooLarge", message).with_details(details(
            &kind.group,
            &kind.plural,
            name,
        ))
    }

    /// 413: decoded, the body would take more memory than the user may have.
    #[must_use]
    pub fn too_complex(limit_mib: usize) -> Self {
        let message = format!(
            "Request entity too large: it would take more than {limit_mib} MiB when decoded: use fewer fields"
        );
        Self::new(413, "RequestEntityTooLarge", message)
    }

    /// 429: retry after that many seconds.
    #[must_use]
    pub fn too_many_requests(retry_after_seconds: u32) -> Self {
        let message =
            "the server has received too many requests and has asked us to try again later";
        Self::new(429, "TooManyRequests", message)
            .with_details(json!({"retryAfterSeconds": retry_after_seconds}))
    }

    /// 429: the user is over a quota; the message names it. Retry after that many seconds.
    #[must_use]
    pub fn quota_exceeded(message: impl Into<String>, retry_after_seconds: u32) -> Self {
        Self::new(429, "TooManyRequests", message)
            .with_details(json!({"retryAfterSeconds": retry_after_seconds}))
    }

    /// 413: a list is too large for the requested form.
    #[must_use]
    pub fn list_too_large(limit: usize) -> Self {
        let message = format!(
            "the list has more than {limit} bytes: request it as JSON without the parameter pretty, or in pages (limit)"
        );
        Self::new(413, "RequestEntityTooLarge", message)
    }

    /// 503: the server cannot store anything at the moment.
    #[must_use]
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(503, "ServiceUnavailable", message)
    }

    /// 500: an internal error.
    #[must_use]
    pub fn internal(message: impl Into<String>) -> Self {
        let cause: String = message.into();
        Self::new(500, "InternalError", format!("Internal error occurred: {cause}"))
            .with_details(json!({"causes": [{"message": cause}]}))
    }

    /// 504: the requested revision is in the future.
    #[must_use]
    pub fn future_revision(requested: u64, current: u64) -> Self {
        let message =
            format!("Timeout: Too large resource version: {requested}, current: {current}");
        Self::new(504, "Timeout", message).with_details(json!({"causes": [{
            "reason": "ResourceVersionTooLarge",
            "message": "Too large resource version"
        }]}))
    }

    /// 404: the resource is not served.
    #[must_use]
    pub fn resource_not_found() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource")
            .with_details(json!({}))
    }

    /// Returns the `Status` object.
    #[must_use]
    pub fn to_status(&self) -> Value {
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        });
        if !self.reason.is_empty() {
            status["reason"] = self.reason.into();
        }
        if let Some(details) = &self.details {
            status["details"] = details.clone();
        }
        status["code"] = self.code.into();
        status
    }
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ApiError {}

/// `nodes`, or `machineconfigs.machineconfiguration.openshift.io`.
fn qualified_resource(resource: &str, group: &str) -> String {
    if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") }
}

fn details(group: &str, kind: &str, name: &str) -> Value {
    let fields = [("name", name), ("group", group), ("kind", kind)];
    let given = fields.into_iter().filter(|(_, value)| !value.is_empty());
    Value::Object(given.map(|(key, value)| (key.to_owned(), value.into())).collect::<Map<_, _>>())
}

/// `: one`, or `: [one, two]` without duplicates.
fn join_errors(errors: &[FieldError]) -> String {
    let mut texts: Vec<String> = Vec::with_capacity(errors.len());
    let mut seen = std::collections::HashSet::new();
    for error in errors {
        let text = error.to_string();
        if seen.insert(text.clone()) {
            texts.push(text);
        }
    }
    match texts.as_slice() {
        [] => String::new(),
        [one] => format!(": {one}"),
        many => format!(": [{}]", many.join(", ")),
    }
}
