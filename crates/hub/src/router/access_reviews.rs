//! Self-subject reviews: `kubectl auth can-i` and `kubectl auth whoami`.
//!
//! Answers from the authorizer; stores nothing. Called by the router.

use axum::response::Response;
use http::{Method, StatusCode, header};
use serde_json::{Value, json};

use super::visibility::NodeFilter;
use super::{BufferedRequest, response};
use crate::auth::authorizer::{AuthorizationDecision, RequestAttributes};
use crate::auth::{ADMIN_GROUP, UserInfo};
use crate::body;
use crate::hub::Hub;
use crate::request::ResourcePath;
use crate::status::ApiError;

const AUTHORIZATION_GROUP: &str = "authorization.k8s.io";
const AUTHENTICATION_GROUP: &str = "authentication.k8s.io";

/// The largest review. One holds a few names.
const MAX_REVIEW_BYTES: usize = 16 << 10;

/// Whether a path is a self-subject review.
pub(super) fn is_review(path: &ResourcePath) -> bool {
    let plural = path.plural.as_str();
    path.version == "v1"
        && path.name.is_none()
        && matches!(
            (path.group.as_str(), plural),
            (AUTHORIZATION_GROUP, "selfsubjectaccessreviews" | "selfsubjectrulesreviews")
                | (AUTHENTICATION_GROUP, "selfsubjectreviews")
        )
}

/// Handles a self-subject review.
pub(super) fn handle(
    hub: &Hub,
    user: &UserInfo,
    path: &ResourcePath,
    request: &BufferedRequest,
) -> Result<Response, ApiError> {
    if request.parts.method != Method::POST {
        return Err(ApiError::method_not_allowed());
    }
    let content_type = request.header(header::CONTENT_TYPE);
    if request.body.len() > MAX_REVIEW_BYTES {
        return Err(ApiError::too_large(MAX_REVIEW_BYTES));
    }
    let sent = body::decode(content_type, &request.body)?.value;
    if !sent.is_object() {
        return Err(ApiError::bad_request("the review must be a JSON object"));
    }
    let status = match path.plural.as_str() {
        "selfsubjectreviews" => json!({
            "userInfo": {"username": user.user, "groups": user.groups}
        }),
        "selfsubjectaccessreviews" => access_status(hub, user, &sent["spec"]),
        _ => rules_status(user),
    };
    let (group, kind) = match path.plural.as_str() {
        "selfsubjectreviews" => (AUTHENTICATION_GROUP, "SelfSubjectReview"),
        "selfsubjectaccessreviews" => (AUTHORIZATION_GROUP, "SelfSubjectAccessReview"),
        _ => (AUTHORIZATION_GROUP, "SelfSubjectRulesReview"),
    };
    let mut review = json!({
        "apiVersion": format!("{group}/v1"), "kind": kind, "metadata": {"creationTimestamp": null},
        "status": status,
    });
    if let Some(spec) = sent.get("spec") {
        review["spec"] = spec.clone();
    }
    Ok(response::json_response(StatusCode::CREATED, &review))
}

fn access_status(hub: &Hub, user: &UserInfo, spec: &Value) -> Value {
    let requested = &spec["resourceAttributes"];
    let text = |field: &str| requested[field].as_str().unwrap_or_default().to_owned();
    let some = |text: String| (!text.is_empty()).then_some(text);
    let allowed = if requested.is_object() {
        let attributes = RequestAttributes {
            verb: text("verb"),
            group: text("group"),
            resource: text("resource"),
            subresource: text("subresource"),
            namespace: some(text("namespace")),
            name: some(text("name")),
        };
        is_allowed(hub, user, &attributes)
    } else {
        let path = spec["nonResourceAttributes"]["path"].as_str().unwrap_or_default();
        user.is_in_group(ADMIN_GROUP) || !path.starts_with("/machinist/")
    };
    json!({"allowed": allowed})
}

fn is_allowed(hub: &Hub, user: &UserInfo, attributes: &RequestAttributes) -> bool {
    match hub.inner.authorizer.authorize(user, attributes) {
        AuthorizationDecision::Allow => true,
        AuthorizationDecision::AllowRelated(relation) => {
            let mut kinds = hub.inner.registry.kinds();
            let kind = kinds
                .find(|kind| kind.group == attributes.group && kind.plural == attributes.resource);
            let filter = NodeFilter::new(hub, user, relation);
            match (&attributes.name, kind, filter) {
                (Some(name), Some(kind), Some(filter)) => {
                    filter.allows_name(kind, attributes.namespace.as_deref(), name)
                }
                (None, ..) => matches!(attributes.verb.as_str(), "list" | "watch"),
                _ => false,
            }
        }
        AuthorizationDecision::AllowRequester | AuthorizationDecision::Deny => false,
    }
}

/// Only the administrator's rules can be expressed in Kubernetes' terms; all others are incomplete.
fn rules_status(user: &UserInfo) -> Value {
    let all = json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]);
    let admin = user.is_in_group(ADMIN_GROUP);
    json!({
        "resourceRules": if admin { all } else { json!([]) },
        "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/api", "/apis", "/healthz", "/livez", "/openapi/*", "/readyz", "/version"]}],
        "incomplete": !admin,
    })
}
