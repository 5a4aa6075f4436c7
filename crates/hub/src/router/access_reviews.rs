//! Access reviews: `kubectl auth can-i` and `kubectl auth whoami`, and the reviews with which other servers verify the
//! tokens of their clients (TokenReview and SubjectAccessReview).
//!
//! Answers from the authorizer; stores nothing. Called by the router.

use axum::body::Body;
use axum::response::Response;
use http::{Method, StatusCode, header};
use serde_json::{Value, json};

use super::authentication::{authenticate_service_account, authenticate_token};
use super::visibility::NodeFilter;
use super::{BufferedRequest, response};
use crate::auth::authorizer::{AuthorizationDecision, RequestAttributes};
use crate::auth::service_account::API_AUDIENCE;
use crate::auth::{NODE_GROUP, UserInfo};
use crate::body;
use crate::hub::Hub;
use crate::metrics::to_prometheus_text;
use crate::rbac::rule::RoleRule;
use crate::request::ResourcePath;
use crate::status::ApiError;

const AUTHORIZATION_GROUP: &str = "authorization.k8s.io";
const AUTHENTICATION_GROUP: &str = "authentication.k8s.io";

/// Where the hub's metrics are.
const METRICS_PATH: &str = "/metrics";

/// The largest review. One holds a few names.
const MAX_REVIEW_BYTES: usize = 16 << 10;

/// Whether a path is an access review.
pub(super) fn is_review(path: &ResourcePath) -> bool {
    let plural = path.plural.as_str();
    path.version == "v1"
        && path.name.is_none()
        && matches!(
            (path.group.as_str(), plural),
            (
                AUTHORIZATION_GROUP,
                "selfsubjectaccessreviews" | "selfsubjectrulesreviews" | "subjectaccessreviews"
            ) | (AUTHENTICATION_GROUP, "selfsubjectreviews" | "tokenreviews")
        )
}

/// Handles an access review.
pub(super) fn handle(
    hub: &Hub,
    user: &UserInfo,
    path: &ResourcePath,
    request: &BufferedRequest,
) -> Result<Response, ApiError> {
    if request.parts.method != Method::POST {
        return Err(ApiError::method_not_allowed());
    }
    let plural = path.plural.as_str();
    let is_about_others = matches!(plural, "tokenreviews" | "subjectaccessreviews");
    if is_about_others && !may_review_others(hub, user, path) {
        return Err(ApiError::forbidden(&user.user, "create", &path.group, plural, "", None));
    }
    let content_type = request.header(header::CONTENT_TYPE);
    if request.body.len() > MAX_REVIEW_BYTES {
        return Err(ApiError::too_large(MAX_REVIEW_BYTES));
    }
    let mut sent = body::decode(content_type, &request.body)?.value;
    if !sent.is_object() {
        return Err(ApiError::bad_request("the review must be a JSON object"));
    }
    let status = match plural {
        "selfsubjectreviews" => json!({"userInfo": user_json(user)}),
        "selfsubjectaccessreviews" => access_status(hub, user, &sent["spec"]),
        "subjectaccessreviews" => access_status(hub, &reviewed_user(&sent["spec"])?, &sent["spec"]),
        "tokenreviews" => {
            let status = token_status(hub, &sent["spec"])?;
            // Whoever sees the response must not see the token.
            sent["spec"] = json!({});
            status
        }
        _ => rules_status(hub, user, &sent["spec"])?,
    };
    let (group, kind) = match plural {
        "selfsubjectreviews" => (AUTHENTICATION_GROUP, "SelfSubjectReview"),
        "tokenreviews" => (AUTHENTICATION_GROUP, "TokenReview"),
        "selfsubjectaccessreviews" => (AUTHORIZATION_GROUP, "SelfSubjectAccessReview"),
        "subjectaccessreviews" => (AUTHORIZATION_GROUP, "SubjectAccessReview"),
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

fn user_json(user: &UserInfo) -> Value {
    json!({"username": user.user, "groups": user.groups})
}

/// Whose token it is. A token that is wrong, expired or revoked belongs to nobody.
fn token_status(hub: &Hub, spec: &Value) -> Result<Value, ApiError> {
    let token = spec["token"].as_str().unwrap_or_default();
    if token.is_empty() {
        return Err(ApiError::bad_request("token is required for TokenReview in authentication"));
    }
    let now = jiff::Timestamp::now().as_second();
    let listed = spec["audiences"].as_array().into_iter().flatten();
    let audiences: Vec<&str> = listed.filter_map(Value::as_str).collect();
    let found = if audiences.is_empty() || audiences.contains(&API_AUDIENCE) {
        authenticate_token(hub, token, now)
    } else {
        // A token for other servers: who reviews it names itself.
        authenticate_service_account(hub, token, now, &audiences)
    };
    Ok(match found {
        Some(user) if audiences.is_empty() => {
            json!({"authenticated": true, "user": user_json(&user.info)})
        }
        Some(user) => {
            let audiences =
                if audiences.contains(&API_AUDIENCE) { vec![API_AUDIENCE] } else { audiences };
            json!({"authenticated": true, "user": user_json(&user.info), "audiences": audiences})
        }
        None => json!({"user": {}, "error": "the token is wrong, expired or revoked"}),
    })
}

/// The user of a SubjectAccessReview, in no groups but those it names.
fn reviewed_user(spec: &Value) -> Result<UserInfo, ApiError> {
    let groups = spec["groups"].as_array().into_iter().flatten();
    let groups: Vec<String> = groups.filter_map(|it| it.as_str().map(str::to_owned)).collect();
    let user = spec["user"].as_str().unwrap_or_default().to_owned();
    if user.is_empty() && groups.is_empty() {
        return Err(ApiError::bad_request("at least one of user or group must be specified"));
    }
    Ok(UserInfo { user, groups })
}

/// A machine reviews the clients of its own servers, as in Kubernetes. Others need a role: `system:auth-delegator`.
fn may_review_others(hub: &Hub, user: &UserInfo, path: &ResourcePath) -> bool {
    let request = RequestAttributes {
        verb: "create".to_owned(),
        group: path.group.clone(),
        resource: path.plural.clone(),
        ..RequestAttributes::default()
    };
    user.is_in_group(NODE_GROUP) || is_allowed(hub, user, &request)
}

/// `/metrics`: the hub's metrics, for those who may read them.
pub(super) fn metrics(
    hub: &Hub,
    user: &UserInfo,
    request: &BufferedRequest,
) -> Result<Response, ApiError> {
    let method = &request.parts.method;
    let verb = method.as_str().to_ascii_lowercase();
    if !hub.inner.authorize_path(user, "get", METRICS_PATH) {
        return Err(ApiError::forbidden_path(&user.user, &verb, METRICS_PATH));
    }
    if !matches!(*method, Method::GET | Method::HEAD) {
        return Err(ApiError::method_not_allowed());
    }
    let mut text = String::new();
    hub.inner.metrics.encode(&mut text);
    text.push_str("# EOF\n");
    let content_type = "text/plain; version=0.0.4; charset=utf-8";
    let body = Body::from(to_prometheus_text(&text));
    Ok(response::build_response(StatusCode::OK, content_type, body))
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
        let requested = &spec["nonResourceAttributes"];
        let text = |field: &str| requested[field].as_str().unwrap_or_default();
        hub.inner.authorize_path(user, text("verb"), text("path"))
    };
    json!({"allowed": allowed})
}

fn is_allowed(hub: &Hub, user: &UserInfo, attributes: &RequestAttributes) -> bool {
    match hub.inner.authorize(user, attributes) {
        AuthorizationDecision::Allow | AuthorizationDecision::AllowOutline => true,
        AuthorizationDecision::AllowRelated(relation) => {
            let served = hub.inner.kinds.read();
            let mut kinds = served.registry.kinds();
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

/// The rules of a user in a namespace. Those of machines depend on their objects, which a list cannot express.
fn rules_status(hub: &Hub, user: &UserInfo, spec: &Value) -> Result<Value, ApiError> {
    let namespace = spec["namespace"].as_str().unwrap_or_default();
    if namespace.is_empty() {
        return Err(ApiError::bad_request("no namespace on request"));
    }
    let (rules, is_complete) = hub.inner.rules_of(user, namespace);
    let (paths, objects): (Vec<_>, Vec<_>) =
        rules.iter().partition(|rule| !rule.non_resource_urls.is_empty());
    let json = |rules: Vec<&RoleRule>| rules.into_iter().map(RoleRule::to_json).collect::<Value>();
    let mut status = json!({
        "resourceRules": json(objects), "nonResourceRules": json(paths), "incomplete": !is_complete,
    });
    if !is_complete {
        let text = "machines and bootstrap tokens are limited to objects that are their own";
        status["evaluationError"] = text.into();
    }
    Ok(status)
}
