//! `/machinist/v1/tokens`: creates, lists and revokes bearer tokens.
//!
//! Called by `admin_endpoints`, for administrators only. [`crate::auth::tokens`] decides what a token permits.

use axum::response::Response;
use http::{Method, StatusCode, header};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{BufferedRequest, response};
use crate::audit::AuditEvent;
use crate::auth::UserInfo;
use crate::auth::machine;
use crate::auth::tokens::{self, BootstrapBinding, HubTokenRole, TOKEN_KEY_PREFIX, TokenRecord};
use crate::body;
use crate::hub::{Hub, now_rfc3339};
use crate::name_validation;
use crate::random;
use crate::status::ApiError;
use crate::store::{Precondition, StoreOp};

const DAY_SECONDS: i64 = 24 * 3600;
/// The longest lifetime of a token.
const MAX_TTL_SECONDS: i64 = 3650 * DAY_SECONDS;
/// The most tokens that are stored: each request with a token looks one up, and a list shows all.
const MAX_TOKENS: usize = 10_000;
/// The longest name of a token.
const MAX_NAME_CHARS: usize = 63;
/// The pool of a bootstrap token unless the request names others.
const DEFAULT_POOL: &str = "worker";

/// The lifetime of a token unless the request sets one.
fn default_ttl_seconds(role: HubTokenRole) -> i64 {
    match role {
        HubTokenRole::Admin | HubTokenRole::Bootstrap => DAY_SECONDS,
        HubTokenRole::Viewer | HubTokenRole::Metrics => 90 * DAY_SECONDS,
        HubTokenRole::Controller => 365 * DAY_SECONDS,
    }
}

/// The body of a request for a token: `{"role": "viewer", "ttlSeconds": 3600}`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct TokenOptions {
    role: Value,
    ttl_seconds: Option<i64>,
    name: String,
    /// Pools of a bootstrap token. None given means the default pool, `*` all.
    pools: Vec<String>,
    node_name: Option<String>,
    max_uses: Option<u32>,
    replaces: Option<String>,
}

impl TokenOptions {
    fn role(&self) -> Result<HubTokenRole, String> {
        serde_json::from_value(self.role.clone())
            .map_err(|_| "role must be admin, viewer, metrics, controller or bootstrap".to_owned())
    }

    fn ttl_seconds(&self, role: HubTokenRole) -> Result<i64, String> {
        match self.ttl_seconds {
            None => Ok(default_ttl_seconds(role)),
            Some(seconds) if (1..=MAX_TTL_SECONDS).contains(&seconds) => Ok(seconds),
            Some(seconds) if seconds < 1 => Err("ttlSeconds must be greater than 0".to_owned()),
            Some(_) => Err(format!("ttlSeconds must be {MAX_TTL_SECONDS} (10 years) at most")),
        }
    }

    fn checked_name(&self) -> Result<String, String> {
        if self.name.chars().count() > MAX_NAME_CHARS || self.name.chars().any(char::is_control) {
            return Err(format!(
                "name must have {MAX_NAME_CHARS} characters at most, and no control characters"
            ));
        }
        Ok(self.name.clone())
    }

    /// Who may join with the token; `None` unless it is a bootstrap token.
    fn binding(&self, role: HubTokenRole) -> Result<Option<BootstrapBinding>, String> {
        if role != HubTokenRole::Bootstrap {
            let is_bound = !self.pools.is_empty()
                || self.node_name.is_some()
                || self.max_uses.is_some()
                || self.replaces.is_some();
            return if is_bound {
                Err("pools, nodeName, maxUses and replaces are for the role bootstrap only"
                    .to_owned())
            } else {
                Ok(None)
            };
        }
        let pools = match self.pools.as_slice() {
            [] => [DEFAULT_POOL.to_owned()].into(),
            [all] if all == "*" => Default::default(),
            pools => machine::parse_roles(&pools.join(","))?,
        };
        if let Some(pattern) = &self.node_name {
            // A pattern with a letter for each star has the form of a name.
            let wrong = name_validation::validate_subdomain(&pattern.replace('*', "a"));
            if let Some(wrong) = wrong.first() {
                return Err(format!("nodeName {pattern:?}: {wrong}"));
            }
        }
        if let Some(name) = &self.replaces
            && let Some(wrong) = name_validation::validate_subdomain(name).first()
        {
            return Err(format!("replaces {name:?}: {wrong}"));
        }
        if self.max_uses == Some(0) {
            return Err("maxUses must be greater than 0".to_owned());
        }
        // Whoever replaces a machine does it once.
        let max_uses = self.max_uses.or(self.replaces.is_some().then_some(1));
        Ok(Some(BootstrapBinding {
            pools,
            node_names: self.node_name.clone(),
            max_uses,
            uses: 0,
            replaces: self.replaces.clone(),
        }))
    }
}

/// Handles a request for tokens; `id` is empty for all.
pub(super) async fn handle(
    hub: &Hub,
    user: &UserInfo,
    id: &str,
    request: &BufferedRequest,
) -> Result<Response, ApiError> {
    let (verb, result) = match (id, request.parts.method.clone()) {
        ("", Method::GET) => return Ok(list(hub)),
        ("", Method::POST) => ("create", create(hub, request).await),
        ("", _) => return Err(ApiError::method_not_allowed()),
        (id, Method::DELETE) => ("delete", revoke(hub, id).await),
        _ => return Err(ApiError::method_not_allowed()),
    };
    let code = result.as_ref().map_or_else(|e| e.code, |r| r.status().as_u16());
    audit(hub, user, request, verb, id, code);
    result
}

/// Creates a token. Only this response contains its text.
async fn create(hub: &Hub, request: &BufferedRequest) -> Result<Response, ApiError> {
    let content_type = request.header(header::CONTENT_TYPE);
    let body = body::decode(content_type, &request.body)?.value;
    let options: TokenOptions = serde_json::from_value(body).map_err(|error| {
        ApiError::bad_request(format!("the token options are invalid: {error}"))
    })?;
    let new = prepare(&options).map_err(ApiError::bad_request)?;
    if hub.inner.store.list(TOKEN_KEY_PREFIX, None, None).entries.len() >= MAX_TOKENS {
        return Err(ApiError::bad_request(format!(
            "there are {MAX_TOKENS} tokens, the most that a hub keeps: revoke some with machinist hub token revoke"
        )));
    }
    let value = serde_json::to_vec(&new.record).map_err(|e| ApiError::internal(e.to_string()))?;
    let key = format!("{TOKEN_KEY_PREFIX}{}", new.id);
    let op = StoreOp::Put { key, value: value.into(), expect: Precondition::Absent };
    hub.inner.store.commit(vec![op]).await.map_err(|e| ApiError::internal(e.to_string()))?;
    let mut created = shown(&new.id, &new.record);
    created["token"] = new.token.into();
    Ok(response::json_response(StatusCode::CREATED, &created))
}

fn prepare(options: &TokenOptions) -> Result<tokens::NewToken, String> {
    let role = options.role()?;
    let now = jiff::Timestamp::now().as_second();
    let expires = now.saturating_add(options.ttl_seconds(role)?);
    let (name, bootstrap) = (options.checked_name()?, options.binding(role)?);
    let random = random::bytes().map_err(|error| error.to_string())?;
    let mut new = tokens::generate(role, Some(expires), random);
    new.record = TokenRecord { name, created: Some(now), bootstrap, ..new.record };
    Ok(new)
}

/// Lists all tokens, without their hashes.
fn list(hub: &Hub) -> Response {
    let page = hub.inner.store.list(TOKEN_KEY_PREFIX, None, None);
    let shown: Vec<Value> = page
        .entries
        .iter()
        .filter_map(|entry| {
            let record: TokenRecord = serde_json::from_slice(&entry.value).ok()?;
            Some(shown(entry.key.strip_prefix(TOKEN_KEY_PREFIX)?, &record))
        })
        .collect();
    response::json_response(StatusCode::OK, &json!({"items": shown}))
}

/// What anyone may see of a token: everything but its hash.
fn shown(id: &str, record: &TokenRecord) -> Value {
    json!({
        "id": id,
        "role": record.role,
        "name": record.name,
        "created": record.created,
        "expires": record.expires,
        "lastUsed": record.last_used,
        "bootstrap": record.bootstrap,
    })
}

/// Revokes a token: the next request with it is rejected.
async fn revoke(hub: &Hub, id: &str) -> Result<Response, ApiError> {
    let key = format!("{TOKEN_KEY_PREFIX}{id}");
    let entry = hub.inner.store.get(&key).filter(|_| tokens::is_token_id(id));
    if entry.is_none() {
        return Err(ApiError::named_not_found(
            "tokens",
            id,
            "machinist hub token list shows all tokens",
        ));
    }
    let op = StoreOp::Delete { key, expect: Precondition::Any };
    hub.inner.store.commit(vec![op]).await.map_err(|e| ApiError::internal(e.to_string()))?;
    hub.inner.recheck_credentials();
    Ok(response::json_response(StatusCode::OK, &json!({"id": id})))
}

fn audit(hub: &Hub, user: &UserInfo, request: &BufferedRequest, verb: &str, id: &str, code: u16) {
    hub.inner.audit.log(&AuditEvent {
        time: &now_rfc3339(),
        user: &user.user,
        groups: &user.groups,
        impersonated_user: None,
        source_ip: request.source_ip(),
        verb,
        group: "machinist",
        resource: "tokens",
        namespace: None,
        name: Some(id).filter(|id| !id.is_empty()),
        dry_run: false,
        includes_secrets: false,
        code,
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(text: &str) -> TokenOptions {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn every_new_token_ends() {
        for role in ["admin", "viewer", "metrics", "controller", "bootstrap"] {
            let new = prepare(&options(&format!(r#"{{"role": "{role}"}}"#))).unwrap();
            assert!(new.record.expires.is_some() && new.record.created.is_some(), "{role}");
        }
    }

    #[test]
    fn options_are_checked() {
        for text in [
            r"{}",
            r#"{"role": "root"}"#,
            r#"{"role": "viewer", "ttlSeconds": 0}"#,
            r#"{"role": "viewer", "ttlSeconds": 9223372036854775807}"#,
            r#"{"role": "viewer", "pools": ["worker"]}"#,
            r#"{"role": "viewer", "name": "a\u0007"}"#,
            r#"{"role": "bootstrap", "maxUses": 0}"#,
            r#"{"role": "bootstrap", "nodeName": "A*"}"#,
            r#"{"role": "bootstrap", "nodeName": "a/*"}"#,
            r#"{"role": "bootstrap", "replaces": "a*"}"#,
            r#"{"role": "bootstrap", "pools": ["a/b"]}"#,
        ] {
            assert!(prepare(&options(text)).is_err(), "{text}");
        }
        let long = "a".repeat(64);
        assert!(prepare(&options(&format!(r#"{{"role": "viewer", "name": "{long}"}}"#))).is_err());
    }

    #[test]
    fn a_bootstrap_token_is_bound() {
        let binding = |text: &str| prepare(&options(text)).unwrap().record.bootstrap.unwrap();
        let plain = binding(r#"{"role": "bootstrap"}"#);
        assert_eq!((plain.pools, plain.max_uses), (["worker".to_owned()].into(), None));
        assert!(binding(r#"{"role": "bootstrap", "pools": ["*"]}"#).pools.is_empty());
        let replacing = binding(r#"{"role": "bootstrap", "replaces": "w1"}"#);
        assert_eq!(replacing.max_uses, Some(1));
        let named = binding(r#"{"role": "bootstrap", "nodeName": "w*.example.com"}"#);
        assert_eq!(named.node_names.as_deref(), Some("w*.example.com"));
    }
}
