//! `DELETE /machinist/v1/machines/NAME`: revokes the certificates of a machine.
//!
//! Called by `admin_endpoints`, for administrators only.

use axum::response::Response;
use http::{Method, StatusCode};
use serde_json::json;

use super::{BufferedRequest, response};
use crate::audit::AuditEvent;
use crate::auth::UserInfo;
use crate::hub::{Hub, now_rfc3339};
use crate::machines::StoredMachine;
use crate::name_validation;
use crate::status::ApiError;

/// How often the write is repeated after conflicting ones.
const MAX_ATTEMPTS: usize = 10;

/// Handles a request for a machine.
pub(super) async fn handle(
    hub: &Hub,
    user: &UserInfo,
    name: &str,
    request: &BufferedRequest,
) -> Result<Response, ApiError> {
    if request.parts.method != Method::DELETE || name.is_empty() {
        return Err(ApiError::method_not_allowed());
    }
    let result = revoke(hub, name).await;
    hub.inner.audit.log(&AuditEvent {
        time: &now_rfc3339(),
        user: &user.user,
        groups: &user.groups,
        impersonated_user: None,
        source_ip: request.source_ip(),
        verb: "delete",
        group: "machinist",
        resource: "machines",
        namespace: None,
        name: Some(name),
        dry_run: false,
        includes_secrets: false,
        code: result.as_ref().map_or_else(|e| e.code, |r| r.status().as_u16()),
    });
    result
}

async fn revoke(hub: &Hub, name: &str) -> Result<Response, ApiError> {
    if let Some(wrong) = name_validation::validate_subdomain(name).first() {
        return Err(ApiError::bad_request(format!("machine {name:?}: {wrong}")));
    }
    // A machine without a record may have a certificate of an earlier version: it is revoked all the same.
    for _ in 0..MAX_ATTEMPTS {
        let stored = StoredMachine::read(&hub.inner.store, name);
        let new = stored.record.clone().after_revocation(jiff::Timestamp::now().as_second());
        let Some(op) = stored.replace_with(name, &new) else { break };
        if hub.inner.store.commit(vec![op]).await.is_ok() {
            break;
        }
    }
    let stored = StoredMachine::read(&hub.inner.store, name);
    if stored.record.revoked_before.is_none() || stored.record.not_after.is_some() {
        return Err(ApiError::internal(format!("cannot write the record of machine {name}")));
    }
    hub.inner.recheck_credentials();
    Ok(response::json_response(StatusCode::OK, &json!({"name": name})))
}
