//! Impersonation: a user with the right `impersonate` makes a request as somebody else (`kubectl --as`).
//!
//! It fails closed: a request with an `Impersonate-` header that is not allowed or not understood is refused, never run with
//! the rights of the caller. The audit log has both users. Called by the router after authentication.

use std::net::IpAddr;

use http::HeaderMap;

use super::BufferedRequest;
use super::authentication::AuthenticatedUser;
use crate::audit::AuditEvent;
use crate::auth::UserInfo;
use crate::auth::authorizer::{AuthorizationDecision, RequestAttributes};
use crate::hub::{Hub, now_rfc3339};
use crate::object_limits::shorten;
use crate::request::percent_decode;
use crate::status::ApiError;

const PREFIX: &str = "impersonate-";
const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";

/// The most values of all these headers together.
const MAX_VALUES: usize = 64;

/// The group of extra fields and UIDs as resources.
const AUTHENTICATION_GROUP: &str = "authentication.k8s.io";
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// Who somebody wants to be.
#[derive(Debug, Default)]
struct Impersonated {
    user: String,
    groups: Vec<String>,
    /// The other claims, as what must be allowed. The hub's users have neither UIDs nor extra fields, so that they decide
    /// nothing.
    others: Vec<RequestAttributes>,
}

/// The user that a request is made as: the authenticated one, or the one that it impersonates.
pub(super) fn impersonate(
    hub: &Hub,
    user: AuthenticatedUser,
    request: &BufferedRequest,
) -> Result<AuthenticatedUser, ApiError> {
    let Some(wanted) = parse(&request.parts.headers)? else { return Ok(user) };
    for attributes in &required_rights(&wanted) {
        let decision = hub.inner.authorize(&user.info, attributes);
        if decision != AuthorizationDecision::Allow {
            // Refused attempts must not fill the audit log.
            hub.inner.quotas.check_rate(&user.info, request.body.len())?;
            audit_refusal(hub, &user.info, attributes, request.source_ip());
            return Err(ApiError::forbidden(
                &user.info.user,
                &attributes.verb,
                &attributes.group,
                &attributes.resource_with_subresource(),
                &shorten(attributes.name.as_deref().unwrap_or_default()),
                attributes.namespace.as_deref(),
            ));
        }
    }
    let info = UserInfo::new(wanted.user, wanted.groups);
    let impersonator = Some(user.impersonator.unwrap_or(user.info));
    Ok(AuthenticatedUser { info, credential: user.credential, impersonator })
}

fn audit_refusal(
    hub: &Hub,
    user: &UserInfo,
    attributes: &RequestAttributes,
    source_ip: Option<IpAddr>,
) {
    hub.inner.audit.log(&AuditEvent {
        time: &now_rfc3339(),
        user: &user.user,
        groups: &user.groups,
        impersonated_user: None,
        source_ip,
        verb: &attributes.verb,
        group: &attributes.group,
        resource: &attributes.resource_with_subresource(),
        namespace: attributes.namespace.as_deref(),
        name: attributes.name.as_deref(),
        dry_run: false,
        includes_secrets: false,
        code: 403,
    });
}

fn parse(headers: &HeaderMap) -> Result<Option<Impersonated>, ApiError> {
    let mut wanted = Impersonated::default();
    let mut count = 0;
    for (name, value) in headers.iter().filter(|(name, _)| name.as_str().starts_with(PREFIX)) {
        count += 1;
        if count > MAX_VALUES {
            let text = format!("more than {MAX_VALUES} impersonation headers: send fewer");
            return Err(ApiError::bad_request(text));
        }
        let invalid = || ApiError::bad_request(format!("the header {name} is malformed"));
        let value = value.to_str().map_err(|_| invalid())?.to_owned();
        match name.as_str() {
            USER if wanted.user.is_empty() => wanted.user = value,
            GROUP => wanted.groups.push(value),
            UID => wanted.others.push(attributes(AUTHENTICATION_GROUP, "uids", "", &value)),
            name => {
                let key = name.strip_prefix(EXTRA).and_then(|key| percent_decode(key, false));
                let key = key.filter(|key| !key.is_empty()).ok_or_else(invalid)?;
                wanted.others.push(attributes(AUTHENTICATION_GROUP, "userextras", &key, &value));
            }
        }
    }
    if count == 0 {
        return Ok(None);
    }
    if wanted.user.is_empty() {
        let text =
            "impersonation of groups, a UID or extra fields needs a user: send Impersonate-User";
        return Err(ApiError::bad_request(text));
    }
    Ok(Some(wanted))
}

fn attributes(group: &str, resource: &str, subresource: &str, name: &str) -> RequestAttributes {
    RequestAttributes {
        verb: "impersonate".to_owned(),
        group: group.to_owned(),
        resource: resource.to_owned(),
        subresource: subresource.to_owned(),
        namespace: None,
        name: Some(name.to_owned()),
    }
}

/// What the authenticated user must be allowed to do.
fn required_rights(wanted: &Impersonated) -> Vec<RequestAttributes> {
    let account = wanted.user.strip_prefix(SERVICE_ACCOUNT).and_then(|rest| rest.split_once(':'));
    let user = match account {
        Some((namespace, name)) => RequestAttributes {
            namespace: Some(namespace.to_owned()),
            ..attributes("", "serviceaccounts", "", name)
        },
        None => attributes("", "users", "", &wanted.user),
    };
    let groups = wanted.groups.iter().map(|group| attributes("", "groups", "", group));
    [user].into_iter().chain(groups).chain(wanted.others.iter().cloned()).collect()
}
