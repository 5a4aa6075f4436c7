//! Authenticates requests: by client certificate, by bearer token, or as a user in the same process.
//!
//! A connection, and a watch even more so, outlives what it was made with. So each request checks again whether its
//! credential counts, and a watch does whenever a credential was revoked. Called by the router.

use http::header;
use http::request::Parts;

use super::{PeerCertificate, response};
use crate::auth::UserInfo;
use crate::auth::service_account::{self, API_AUDIENCE};
use crate::auth::tokens::{self, LAST_USE_INTERVAL_SECONDS, TOKEN_KEY_PREFIX, TokenRecord};
use crate::hub::Hub;
use crate::machines::StoredMachine;
use crate::object::{self, metadata_str};
use crate::store::{CommitError, Precondition, Store, StoreOp};
use crate::websocket;

/// The most last uses that are remembered. Far more than there are tokens.
const MAX_REMEMBERED_USES: usize = 100_000;

/// A user and what proves it.
#[derive(Debug, Clone)]
pub(super) struct AuthenticatedUser {
    pub(super) info: UserInfo,
    pub(super) credential: Credential,
    /// Who makes the request as this user, if that is somebody else.
    pub(super) impersonator: Option<UserInfo>,
}

impl AuthenticatedUser {
    fn new(info: UserInfo, credential: Credential) -> Self {
        Self { info, credential, impersonator: None }
    }
}

/// What proves who a user is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Credential {
    /// The user is in the same process.
    InProcess,
    /// A client certificate, of a machine if there is a name.
    Certificate { machine: Option<String>, not_before: i64, not_after: i64 },
    /// A token of the service account with this key and UID.
    ServiceAccount { key: String, uid: String, expires: i64 },
    /// The token with this id and hash.
    Token { id: String, hash: String, expires: Option<i64> },
}

impl Credential {
    /// Whether it still counts: it has neither expired nor been revoked.
    pub(super) fn is_valid(&self, store: &Store, now: i64) -> bool {
        match self {
            Self::InProcess => true,
            Self::Certificate { machine, not_before, not_after } => {
                let is_revoked = machine.as_ref().is_some_and(|name| {
                    StoredMachine::read(store, name).record.is_revoked(*not_before)
                });
                now < *not_after && !is_revoked
            }
            Self::ServiceAccount { key, uid, expires } => {
                now < *expires && is_same_account(store, key, uid)
            }
            Self::Token { id, hash, .. } => find_token(store, id)
                .is_some_and(|record| record.hash == *hash && !record.is_expired(now)),
        }
    }

    /// When it expires, in seconds since 1970.
    pub(super) fn expires(&self) -> Option<i64> {
        match self {
            Self::InProcess => None,
            Self::Certificate { not_after, .. } => Some(*not_after),
            Self::ServiceAccount { expires, .. } => Some(*expires),
            Self::Token { expires, .. } => *expires,
        }
    }
}

/// Authenticates a request. `None` means anonymous; wrong credentials are an error.
pub(super) fn authenticate(hub: &Hub, parts: &Parts) -> Result<Option<AuthenticatedUser>, ()> {
    let now = jiff::Timestamp::now().as_second();
    let peer = parts.extensions.get::<PeerCertificate>();
    match peer {
        Some(PeerCertificate::Trusted(user)) => {
            let credential = Credential::InProcess;
            return Ok(Some(AuthenticatedUser::new(user.clone(), credential)));
        }
        Some(PeerCertificate::Verified(certificate)) => {
            let credential = Credential::Certificate {
                machine: certificate.user.node_name().map(ToOwned::to_owned),
                not_before: certificate.not_before,
                not_after: certificate.not_after,
            };
            if credential.is_valid(&hub.inner.store, now) {
                return Ok(Some(AuthenticatedUser::new(certificate.user.clone(), credential)));
            }
        }
        Some(PeerCertificate::Untrusted) | None => {}
    }
    let Some(value) = parts.headers.get(header::AUTHORIZATION) else {
        if let Some(token) = websocket::bearer_token(&parts.headers) {
            return authenticate_token(hub, &token?, now).map(Some).ok_or(());
        }
        return if peer.is_some() { Err(()) } else { Ok(None) };
    };
    let text = value.to_str().map_err(|_| ())?;
    let (scheme, token) = text.trim().split_once(' ').ok_or(())?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(());
    }
    authenticate_token(hub, token.trim(), now).map(Some).ok_or(())
}

/// Whether the service account with a key is still the one with this UID.
fn is_same_account(store: &Store, key: &str, uid: &str) -> bool {
    let object = store.get(key).and_then(|entry| response::decode_entry(&entry).ok());
    object.is_some_and(|object| metadata_str(&object, "uid") == uid)
}

/// The user of a token of a service account that is for one of these audiences.
pub(super) fn authenticate_service_account(
    hub: &Hub,
    token: &str,
    now: i64,
    audiences: &[&str],
) -> Option<AuthenticatedUser> {
    let claims = service_account::verify(token, hub.inner.ca.as_ref()?, now)?;
    if !claims.audiences.iter().any(|audience| audiences.contains(&audience.as_str())) {
        return None;
    }
    let kinds = hub.inner.kinds.read();
    let kind = kinds.registry.find("", "v1", "serviceaccounts")?;
    let account = &claims.account;
    let key = object::storage_key(kind, Some(&account.namespace), &account.name);
    if !is_same_account(&hub.inner.store, &key, &account.uid) {
        return None;
    }
    let (uid, expires) = (account.uid.clone(), claims.expires);
    Some(AuthenticatedUser::new(account.user(), Credential::ServiceAccount { key, uid, expires }))
}

/// The user of a bearer token.
pub(super) fn authenticate_token(hub: &Hub, token: &str, now: i64) -> Option<AuthenticatedUser> {
    if service_account::is_token(token) {
        return authenticate_service_account(hub, token, now, &[API_AUDIENCE]);
    }
    let id = tokens::token_id(token)?;
    let record = find_token(&hub.inner.store, id)?;
    let info = tokens::authenticate(token, &record, now)?;
    note_use(hub, id, &record, now);
    let credential =
        Credential::Token { id: id.to_owned(), hash: record.hash, expires: record.expires };
    Some(AuthenticatedUser::new(info, credential))
}

fn find_token(store: &Store, id: &str) -> Option<TokenRecord> {
    let entry = store.get(&format!("{TOKEN_KEY_PREFIX}{id}"))?;
    serde_json::from_slice(&entry.value).ok()
}

/// Writes the last use of a token, in the background and rarely: each write is a commit.
fn note_use(hub: &Hub, id: &str, record: &TokenRecord, now: i64) {
    let is_recent = |time: i64| (now - time).abs() < LAST_USE_INTERVAL_SECONDS;
    if record.last_used.is_some_and(is_recent) {
        return;
    }
    {
        let mut uses = hub.inner.token_uses.lock();
        if uses.get(id).copied().is_some_and(is_recent) {
            return;
        }
        if uses.len() >= MAX_REMEMBERED_USES {
            uses.clear();
        }
        uses.insert(id.to_owned(), now);
    }
    let (store, id) = (hub.inner.store.clone(), id.to_owned());
    let failures = hub.failures().clone();
    hub.inner.tasks.spawn(async move {
        let key = format!("{TOKEN_KEY_PREFIX}{id}");
        let Some(entry) = store.get(&key) else { return };
        let Ok(record) = serde_json::from_slice::<TokenRecord>(&entry.value) else { return };
        let record = TokenRecord { last_used: Some(now), ..record };
        let Ok(value) = serde_json::to_vec(&record) else { return };
        // A token that is changed or revoked meanwhile must not come back.
        let expect = Precondition::Revision(entry.revision);
        let op = StoreOp::Put { key, value: value.into(), expect };
        let written = match store.commit(vec![op]).await {
            Ok(_) | Err(CommitError::Conflict { .. }) => Ok(()),
            Err(error) => Err(error),
        };
        failures.record("write the last use of a token", "", written);
    });
}
