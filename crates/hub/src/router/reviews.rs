//! Questions about oneself: `kubectl auth can-i` and `kubectl auth whoami`.

use axum::response::Response;
use http::{Method, StatusCode, header};
use serde_json::{Value, json};

use super::{Incoming, answer, body};
use crate::auth::roles::{Attributes, Decision};
use crate::auth::{ADMINS, Identity};
use crate::hub::Hub;
use crate::request::ResourcePath;
use crate::status::ApiError;

const AUTHORIZATION: &str = "authorization.k8s.io";
const AUTHENTICATION: &str = "authentication.k8s.io";

/// Whether a path is such a question.
pub(super) fn is_review(path: &ResourcePath) -> bool {
    let plural = path.plural.as_str();
    path.version == "v1"
        && path.name.is_none()
        && matches!(
            (path.group.as_str(), plural),
            (AUTHORIZATION, "selfsubjectaccessreviews" | "selfsubjectrulesreviews")
                | (AUTHENTICATION, "selfsubjectreviews")
        )
}

/// Answers such a question.
pub(super) fn answer(
    hub: &Hub,
    who: &Identity,
    path: &ResourcePath,
    request: &Incoming,
) -> Result<Response, ApiError> {
    if request.parts.method != Method::POST {
        return Err(ApiError::method_not_allowed());
    }
    let content_type = request.header(header::CONTENT_TYPE);
    let mut review = body::parse(content_type, &request.body)?.value;
    if !review.is_object() {
        return Err(ApiError::bad_request("the review is no object"));
    }
    review["status"] = match path.plural.as_str() {
        "selfsubjectreviews" => json!({
            "userInfo": {"username": who.user, "groups": who.groups}
        }),
        "selfsubjectaccessreviews" => access(hub, who, &review["spec"]),
        _ => rules(who),
    };
    let (group, kind) = match path.plural.as_str() {
        "selfsubjectreviews" => (AUTHENTICATION, "SelfSubjectReview"),
        "selfsubjectaccessreviews" => (AUTHORIZATION, "SelfSubjectAccessReview"),
        _ => (AUTHORIZATION, "SelfSubjectRulesReview"),
    };
    review["apiVersion"] = format!("{group}/v1").into();
    review["kind"] = kind.into();
    Ok(answer::json_answer(StatusCode::CREATED, &review))
}

fn access(hub: &Hub, who: &Identity, spec: &Value) -> Value {
    let asked = &spec["resourceAttributes"];
    let text = |field: &str| asked[field].as_str().unwrap_or_default().to_owned();
    let some = |text: String| (!text.is_empty()).then_some(text);
    let allowed = if asked.is_object() {
        let what = Attributes {
            verb: text("verb"),
            group: text("group"),
            resource: text("resource"),
            subresource: text("subresource"),
            namespace: some(text("namespace")),
            name: some(text("name")),
        };
        hub.inner.roles.decide(who, &what) == Decision::Allow
    } else {
        let path = spec["nonResourceAttributes"]["path"].as_str().unwrap_or_default();
        who.is_in(ADMINS) || !path.starts_with("/machinist/")
    };
    json!({"allowed": allowed})
}

/// Only the administrator's rules can be said in the words of Kubernetes.
fn rules(who: &Identity) -> Value {
    let all = json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]);
    let admin = who.is_in(ADMINS);
    json!({
        "resourceRules": if admin { all } else { json!([]) },
        "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["/api", "/apis", "/healthz", "/livez", "/openapi/*", "/readyz", "/version"]}],
        "incomplete": !admin,
    })
}
