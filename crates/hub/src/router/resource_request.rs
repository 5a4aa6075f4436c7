//! One request for objects: authorization, dispatch to its handler, audit log.
//!
//! Called by the router for every path that names a resource.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use axum::response::Response;
use http::{Method, StatusCode, header};

use super::authentication::{AuthenticatedUser, Credential};
use super::content_negotiation::{self, AcceptedFormat};
pub(super) use super::request_verb::{RequestVerb, metrics_verb};
use super::response::ObjectRenderer;
use super::selection::Selection;
use super::visibility::{NodeFilter, Redaction};
use super::{
    BufferedRequest, create, definitions, delete, field_managers, read, response, scale, watch,
    write,
};
use crate::audit::{AuditEvent, ImpersonatedUser};
use crate::auth::UserInfo;
use crate::auth::authorizer::{AuthorizationDecision, NODE_LEASE_NAMESPACE, RequestAttributes};
use crate::hub::{Hub, now_rfc3339};
use crate::kind_registry::ResourceKind;
use crate::object;
use crate::patch::PatchKind;
use crate::request::{self, QueryError, QueryOptions, ResourcePath};
use crate::request_shares::RequestShare;
use crate::served_kinds::ServedKinds;
use crate::status::ApiError;
use crate::strategy;
use crate::table::IncludeObject;

/// One request for objects.
#[derive(Debug)]
pub(super) struct ResourceRequest<'a> {
    pub(super) hub: &'a Hub,
    /// The kinds that were served when the request began.
    pub(super) kinds: &'a ServedKinds,
    pub(super) kind: &'a Arc<ResourceKind>,
    pub(super) user: UserInfo,
    pub(super) credential: Credential,
    /// What the user may use at the same time; `None` if it is not limited.
    pub(super) share: Option<Arc<RequestShare>>,
    /// Who makes the request as `user`, if that is somebody else.
    impersonator: Option<UserInfo>,
    pub(super) verb: RequestVerb,
    pub(super) path: ResourcePath,
    pub(super) options: QueryOptions,
    /// The name of a new object, once it is known.
    pub(super) created_name: OnceLock<String>,
    accept: AcceptedFormat,
    include: IncludeObject,
    source_ip: Option<IpAddr>,
    /// Whether it is an apply patch.
    pub(super) is_apply: bool,
    /// `User-Agent`: names the manager of a write that does not.
    pub(super) user_agent: String,
    /// Replaces what the user may not see.
    redact: Option<Redaction>,
}

/// The error for a method that collections do not support. CRD kinds have a different text.
fn method_not_allowed(kind: &ResourceKind, method: &Method) -> ApiError {
    if !kind.built_in && matches!(*method, Method::PUT | Method::PATCH) {
        return ApiError::bad_request("name must be provided");
    }
    ApiError::method_not_allowed()
}

impl ResourceRequest<'_> {
    /// Handles a request for objects.
    pub(super) async fn handle(
        hub: &Hub,
        user: AuthenticatedUser,
        share: Option<Arc<RequestShare>>,
        path: ResourcePath,
        request: &BufferedRequest,
    ) -> Result<Response, ApiError> {
        let kinds = hub.inner.kinds.read();
        let found = kinds.registry.find(&path.group, &path.version, &path.plural);
        let kind = found.ok_or_else(|| definitions::not_served(&path))?;
        let query = request.parts.uri.query().unwrap_or_default();
        let watch = request::parse_query(query).is_ok_and(|options| options.watch);
        let verb = RequestVerb::from_method(&request.parts.method, path.name.is_some(), watch);
        let verb = verb.ok_or_else(|| match &path.name {
            Some(name) if kind.is_always_empty() && path.subresource.is_some() => {
                ApiError::not_found(kind, name)
            }
            _ => method_not_allowed(kind, &request.parts.method),
        })?;
        let options = request::parse_query(query).map_err(|bad| match bad {
            QueryError::Malformed(text) => ApiError::bad_request(text),
            QueryError::Invalid(error) => {
                ApiError::invalid_options("meta.k8s.io", verb.options_kind(), "", vec![error])
            }
        })?;
        let mut call = ResourceRequest {
            hub,
            kinds: &kinds,
            kind,
            user: user.info,
            credential: user.credential,
            share,
            impersonator: user.impersonator,
            verb,
            path,
            options,
            created_name: OnceLock::new(),
            accept: AcceptedFormat::default(),
            include: IncludeObject::Metadata,
            source_ip: request.source_ip(),
            is_apply: request
                .header(header::CONTENT_TYPE)
                .is_some_and(|kind| PatchKind::from_content_type(kind) == Some(PatchKind::Apply)),
            user_agent: request.header(header::USER_AGENT).unwrap_or_default().to_owned(),
            redact: None,
        };
        // Before it is authorized and audited: refused writes must neither cost much nor fill the audit log.
        if verb.is_write() {
            hub.inner.quotas.check_rate(&call.user, request.body.len())?;
        }
        let result = call.run(request).await;
        if verb.is_write() {
            call.audit(result.as_ref().map_or_else(|error| error.code, |r| r.status().as_u16()));
        }
        result
    }

    async fn run(&mut self, request: &BufferedRequest) -> Result<Response, ApiError> {
        self.check_path()?;
        let name = self.requested_name();
        let decision = self.authorize(name.as_deref())?;
        if decision == AuthorizationDecision::AllowOutline {
            // Without a redaction there would be no such decision.
            let redaction = self.hub.inner.redaction(self.kind);
            self.redact =
                Some(redaction.ok_or_else(ApiError::resource_not_found).map(|it| it.redact)?);
        }
        definitions::check_target(self)?;
        let is_delete = matches!(self.verb, RequestVerb::Delete | RequestVerb::DeleteCollection);
        if self.verb.is_write() && !is_delete && self.kind.is_always_empty() {
            return Err(ApiError::always_empty(self.kind));
        }
        self.accept = content_negotiation::negotiate(request.header(header::ACCEPT))
            .map_err(|reason| reason.to_error(self.kind.built_in))?;
        if self.verb == RequestVerb::Watch {
            content_negotiation::check_watch(self.accept)?;
        }
        self.include = IncludeObject::parse(&self.options.include_object)
            .ok_or_else(|| ApiError::bad_request("unrecognized includeObject value"))?;
        let mut response = self.dispatch(request).await?;
        definitions::settle(self).await;
        if let Some(defined) = &self.kind.defined {
            response::add_warnings(&mut response, defined.deprecation_warning.as_slice());
        }
        Ok(response)
    }

    async fn dispatch(&self, request: &BufferedRequest) -> Result<Response, ApiError> {
        let name = self.path.name.clone().unwrap_or_default();
        let content_type = request.header(header::CONTENT_TYPE).map(ToOwned::to_owned);
        let content_type = content_type.as_deref();
        match self.verb {
            RequestVerb::Get => read::get(self, &name).await,
            RequestVerb::List => read::list(self).await,
            RequestVerb::Watch => watch::watch(self, request),
            RequestVerb::Create => {
                field_managers::check_options(self, None)?;
                create::create(self, content_type, &request.body).await
            }
            RequestVerb::Update => {
                field_managers::check_options(self, None)?;
                write::update(self, &name, content_type, &request.body).await
            }
            RequestVerb::Patch => {
                let accepted = write::patch_types(self.kind);
                let kind = PatchKind::from_content_type(content_type.unwrap_or_default())
                    .ok_or_else(|| ApiError::unsupported_media_type(accepted))?;
                field_managers::check_options(self, Some(kind))?;
                write::patch(self, &name, kind, &request.body).await
            }
            RequestVerb::Delete => delete::delete(self, &name, content_type, &request.body).await,
            RequestVerb::DeleteCollection => {
                delete::delete_collection(self, content_type, &request.body).await
            }
        }
    }

    /// Checks that the path fits the kind: its namespace, its subresource and its verb.
    fn check_path(&self) -> Result<(), ApiError> {
        let ResourcePath { namespace, name, subresource, .. } = &self.path;
        let misplaced = match (self.kind.namespaced, namespace) {
            (false, Some(_)) => true,
            // Without a namespace, namespaced objects can only be listed and watched.
            (true, None) => name.is_some(),
            _ => false,
        };
        let known =
            subresource.as_ref().is_none_or(|sub| strategy::has_subresource(self.kind, sub));
        if misplaced {
            return Err(ApiError::resource_not_found());
        }
        if !known {
            return Err(ApiError::not_found(self.kind, name.as_deref().unwrap_or_default()));
        }
        let whole_kind = self.kind.namespaced && namespace.is_none();
        let fits = match self.verb {
            RequestVerb::Create | RequestVerb::DeleteCollection => {
                !whole_kind && subresource.is_none()
            }
            RequestVerb::Delete => subresource.is_none(),
            _ => true,
        };
        if fits { Ok(()) } else { Err(ApiError::method_not_allowed()) }
    }

    /// The name that the request is about. A field selector may give it.
    pub(super) fn requested_name(&self) -> Option<String> {
        self.path.name.clone().or_else(|| {
            let by_selector = matches!(self.verb, RequestVerb::List | RequestVerb::Watch);
            let namespace = self.namespace();
            by_selector
                .then(|| Selection::new(self.kind, namespace, &self.options).ok())?
                .and_then(|selection| selection.name().map(ToOwned::to_owned))
        })
    }

    /// Authorizes the request. The name of a new object is checked after its body is decoded.
    pub(super) fn authorize(&self, name: Option<&str>) -> Result<AuthorizationDecision, ApiError> {
        self.authorize_as(self.verb, name)
    }

    /// Authorizes another verb: an update may turn into a create.
    pub(super) fn authorize_as(
        &self,
        verb: RequestVerb,
        name: Option<&str>,
    ) -> Result<AuthorizationDecision, ApiError> {
        let attributes =
            RequestAttributes { verb: verb.name().to_owned(), ..self.attributes(name) };
        let decision = self.hub.inner.authorize(&self.user, &attributes);
        let allowed = match decision {
            AuthorizationDecision::Allow | AuthorizationDecision::AllowOutline => true,
            AuthorizationDecision::AllowRequester => self.is_requester(name.unwrap_or_default()),
            AuthorizationDecision::AllowRelated(relation) => {
                let filter = NodeFilter::new(self.hub, &self.user, relation);
                filter.is_some_and(|filter| match name {
                    Some(name) => filter.allows_name(self.kind, self.namespace(), name),
                    // The selection shows only what concerns the machine.
                    None => matches!(verb, RequestVerb::List | RequestVerb::Watch),
                })
            }
            AuthorizationDecision::Deny => false,
        };
        if allowed {
            return Ok(decision);
        }
        Err(ApiError::forbidden(
            &self.user.user,
            &attributes.verb,
            &attributes.group,
            &attributes.resource_with_subresource(),
            attributes.name.as_deref().unwrap_or_default(),
            attributes.namespace.as_deref(),
        ))
    }

    /// The attributes of the request. A namespace is in itself, so that a role in it can allow to read it.
    pub(super) fn attributes(&self, name: Option<&str>) -> RequestAttributes {
        let is_namespace = self.kind.built_in && self.kind.kind == "Namespace";
        let own = self.path.name.as_ref().filter(|_| is_namespace);
        RequestAttributes {
            verb: self.verb.name().to_owned(),
            group: self.kind.group.clone(),
            resource: self.kind.plural.clone(),
            subresource: self.path.subresource.clone().unwrap_or_default(),
            namespace: self.path.namespace.as_ref().or(own).cloned(),
            name: name.map(ToOwned::to_owned),
        }
    }

    /// Whether the user created the CSR. A missing CSR reveals nothing, so it counts as created.
    fn is_requester(&self, name: &str) -> bool {
        let key = object::storage_key(self.kind, self.namespace(), name);
        match self.hub.inner.store.get(&key).map(|entry| response::decode_entry(&entry)) {
            Some(Ok(object)) => object["spec"]["username"] == self.user.user.as_str(),
            Some(Err(_)) => false,
            None => true,
        }
    }

    /// The objects that a list, watch or collection delete is about, as far as the user may see them.
    pub(super) fn selection(&self) -> Result<Selection, ApiError> {
        let selection = Selection::new(self.kind, self.namespace(), &self.options)?;
        let attributes = self.attributes(self.requested_name().as_deref());
        let selection = selection.skipping(&self.hub.inner.unreadable);
        Ok(match self.hub.inner.authorize(&self.user, &attributes) {
            AuthorizationDecision::AllowRelated(relation) => {
                selection.with_filter(NodeFilter::new(self.hub, &self.user, relation))
            }
            AuthorizationDecision::AllowRequester => selection.requested_by(self.user.user.clone()),
            AuthorizationDecision::Allow
            | AuthorizationDecision::AllowOutline
            | AuthorizationDecision::Deny => selection,
        })
    }

    /// The namespace in the path.
    pub(super) fn namespace(&self) -> Option<&str> {
        self.path.namespace.as_deref()
    }

    /// How the response encodes objects.
    pub(super) fn renderer(&self) -> ObjectRenderer<'_> {
        ObjectRenderer {
            kind: self.kind,
            accept: self.accept,
            include: self.include,
            pretty: self.options.pretty,
            redact: self.redact,
            scale: scale::paths(self),
        }
    }

    fn audit(&self, code: u16) {
        let name = self.path.name.as_ref().or_else(|| self.created_name.get());
        let attributes = self.attributes(name.map(String::as_str));
        // Every machine renews its lease every few seconds, which would push all other events out of the log.
        let is_renewal = code == StatusCode::OK.as_u16()
            && self.impersonator.is_none()
            && self.user.node_name().is_some()
            && attributes.resource == "leases"
            && attributes.namespace.as_deref() == Some(NODE_LEASE_NAMESPACE)
            && matches!(attributes.verb.as_str(), "update" | "patch");
        if is_renewal {
            return;
        }
        let caller = self.impersonator.as_ref().unwrap_or(&self.user);
        let UserInfo { user: username, groups } = &self.user;
        self.hub.inner.audit.log(&AuditEvent {
            time: &now_rfc3339(),
            user: &caller.user,
            groups: &caller.groups,
            impersonated_user: self
                .impersonator
                .is_some()
                .then_some(ImpersonatedUser { username, groups }),
            source_ip: self.source_ip,
            verb: &attributes.verb,
            group: &attributes.group,
            resource: &attributes.resource_with_subresource(),
            namespace: attributes.namespace.as_deref(),
            name: attributes.name.as_deref(),
            dry_run: self.options.dry_run,
            includes_secrets: false,
            code,
        });
    }
}
