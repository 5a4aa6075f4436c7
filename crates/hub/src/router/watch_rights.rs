//! The rights of an open watch: it ends when a role or binding changes what its user may see.
//!
//! Called by the watch handler.

use std::sync::Arc;

use super::resource_request::ResourceRequest;
use crate::auth::UserInfo;
use crate::auth::authorizer::{AuthorizationDecision, RequestAttributes};
use crate::hub::Hub;
use crate::kind_registry::ResourceKind;
use crate::status::ApiError;

/// What a watch was allowed with.
#[derive(Debug)]
pub(super) struct WatchRights {
    hub: Hub,
    user: UserInfo,
    request: RequestAttributes,
    decision: AuthorizationDecision,
    /// The state of the roles that the decision was made with.
    generation: u64,
}

impl WatchRights {
    /// The rights of a request that was authorized.
    pub(super) fn of(call: &ResourceRequest<'_>) -> Self {
        let request = call.attributes(call.requested_name().as_deref());
        let generation = call.hub.inner.rbac.generation();
        let decision = call.hub.inner.authorize(&call.user, &request);
        Self { hub: call.hub.clone(), user: call.user.clone(), request, decision, generation }
    }

    /// Whether the kind is served as it was when the watch began. Its definition may have changed, or be gone.
    pub(super) fn is_served(&self, kind: &Arc<ResourceKind>) -> bool {
        let kinds = self.hub.inner.kinds.read();
        let now = kinds.registry.find(&kind.group, &kind.version, &kind.plural);
        kind.defined.is_none() || now.is_some_and(|now| Arc::ptr_eq(now, kind))
    }

    /// Decides again, if a role or binding changed.
    ///
    /// # Errors
    /// 403: the user may not watch any more. 410: it may, but sees something else.
    pub(super) fn recheck(&mut self) -> Result<(), ApiError> {
        let generation = self.hub.inner.rbac.generation();
        if generation == self.generation {
            return Ok(());
        }
        self.generation = generation;
        let decision = self.hub.inner.authorize(&self.user, &self.request);
        if decision == self.decision {
            return Ok(());
        }
        if decision != AuthorizationDecision::Deny {
            return Err(ApiError::gone("the rights of the user have changed: list again"));
        }
        Err(ApiError::forbidden(
            &self.user.user,
            &self.request.verb,
            &self.request.group,
            &self.request.resource_with_subresource(),
            self.request.name.as_deref().unwrap_or_default(),
            self.request.namespace.as_deref(),
        ))
    }
}
