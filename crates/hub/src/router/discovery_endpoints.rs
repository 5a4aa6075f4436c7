//! Endpoints without objects: health, version, discovery and OpenAPI.
//!
//! Encodes the documents of [`crate::discovery`] and [`crate::openapi`]. Called by the router.

use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha512};

use super::content_negotiation::{self, AcceptedFormat, ResponseForm};
use super::{BufferedRequest, response};
use crate::hub::Hub;
use crate::kind_registry::KindRegistry;
use crate::request::{self, RequestTarget};
use crate::served_kinds::{OpenApiV2, ServedKinds};
use crate::status::ApiError;
use crate::{discovery, hex, openapi};

/// The Kubernetes version whose API the hub implements.
const KUBERNETES_VERSION: (&str, &str, &str) = ("1", "34", "v1.34.1");

/// Handles every request that names no object.
pub(super) fn handle(
    hub: &Hub,
    target: &RequestTarget,
    request: &BufferedRequest,
) -> Result<Response, ApiError> {
    let kinds = hub.inner.kinds.read();
    let registry = &kinds.registry;
    let accept = request.header(header::ACCEPT);
    let form = match (target, content_negotiation::negotiate(accept)) {
        (_, Ok(form)) => form,
        (RequestTarget::ApiGroups, Err(_)) => {
            return Err(ApiError::not_acceptable(content_negotiation::SUPPORTED_TYPES));
        }
        (
            RequestTarget::ApiVersions
            | RequestTarget::Group { .. }
            | RequestTarget::ResourceList { .. },
            Err(_),
        ) => return Err(ApiError::no_representation(content_negotiation::SUPPORTED_TYPES)),
        (RequestTarget::Version, Err(_)) => {
            return Err(ApiError::no_representation(&["application/json"]));
        }
        (_, Err(_)) => AcceptedFormat::default(),
    };
    let found = match target {
        RequestTarget::Health { check } => return Ok(health(hub, check, request)),
        RequestTarget::Version => Some(version(hub)),
        RequestTarget::Root => Some(paths(registry)),
        RequestTarget::ApiVersions if form.form == ResponseForm::AggregatedDiscovery => {
            return Ok(aggregated_response(&discovery::aggregated_discovery(registry, true)));
        }
        RequestTarget::ApiGroups if form.form == ResponseForm::AggregatedDiscovery => {
            return Ok(aggregated_response(&discovery::aggregated_discovery(registry, false)));
        }
        RequestTarget::ApiVersions => Some(discovery::api_versions()),
        RequestTarget::ApiGroups => Some(discovery::api_groups(registry)),
        RequestTarget::Group { group } => discovery::api_group(registry, group),
        RequestTarget::ResourceList { group, version } => {
            discovery::resource_list(registry, group, version)
        }
        RequestTarget::OpenApiV2 => return openapi_v2(&kinds, request),
        RequestTarget::OpenApiV3Index => {
            let index = &kinds.openapi.v3_index;
            Some(index.get_or_init(|| openapi::v3_index(registry)).clone())
        }
        RequestTarget::OpenApiV3 { path } => openapi::v3_document(registry, path),
        RequestTarget::Admin { .. }
        | RequestTarget::Metrics
        | RequestTarget::Resource(_)
        | RequestTarget::Unknown => None,
    };
    let found = found.ok_or_else(ApiError::resource_not_found)?;
    let accept = AcceptedFormat { form: ResponseForm::Object, encoding: form.encoding };
    Ok(response::write(StatusCode::OK, &found, accept.encoding, false))
}

fn aggregated_response(document: &Value) -> Response {
    const TYPE: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    response::build_response(StatusCode::OK, TYPE, Body::from(document.to_string()))
}

/// The media types of the OpenAPI 2 document, best first, and whether they are protobuf.
const OPENAPI_V2_TYPES: [(&str, bool); 3] = [
    ("application/json", false),
    ("application/com.github.proto-openapi.spec.v2@v1.0+protobuf", true),
    (OPENAPI_V2_PROTOBUF, true),
];
/// The media type of responses; requests also use the older name with `@`.
const OPENAPI_V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// `/openapi/v2`, as JSON or protobuf.
fn openapi_v2(kinds: &ServedKinds, request: &BufferedRequest) -> Result<Response, ApiError> {
    let names = OPENAPI_V2_TYPES.map(|(name, _)| name);
    let chosen = content_negotiation::choose(request.header(header::ACCEPT), &names)?;
    let is_protobuf = OPENAPI_V2_TYPES.iter().any(|(name, is)| *is && *name == chosen);
    let document = kinds.openapi.v2.get_or_init(|| {
        let document = openapi::v2_document(&kinds.registry);
        let json = document.to_string();
        let etag = hex::encode(&Sha512::digest(&json)).to_uppercase();
        let protobuf = openapi::protobuf::encode(&document).into();
        OpenApiV2 { json: json.into(), protobuf, etag }
    });
    let (content_type, body) = if is_protobuf {
        (OPENAPI_V2_PROTOBUF, &document.protobuf)
    } else {
        ("application/json", &document.json)
    };
    let etag = format!("\"{}\"", document.etag);
    let known = request.header(header::IF_NONE_MATCH).unwrap_or_default();
    let is_known = known
        .split(',')
        .map(str::trim)
        .any(|known| known == "*" || known.strip_prefix("W/").unwrap_or(known) == etag);
    let mut response = if is_known {
        response::build_response(StatusCode::NOT_MODIFIED, content_type, Body::empty())
    } else {
        response::build_response(StatusCode::OK, content_type, Body::from(body.clone()))
    };
    let headers = response.headers_mut();
    headers.insert(header::VARY, HeaderValue::from_static("Accept"));
    if let Ok(etag) = HeaderValue::from_str(&etag) {
        headers.insert(header::ETAG, etag);
    }
    Ok(response)
}

fn version(hub: &Hub) -> Value {
    let (major, minor, base) = KUBERNETES_VERSION;
    let own = if hub.inner.version.is_empty() { "0" } else { &hub.inner.version };
    json!({
        "major": major,
        "minor": minor,
        "gitVersion": format!("{base}+machinist-{own}"),
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, architecture()),
    })
}

/// Go's name of the CPU architecture.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn paths(registry: &KindRegistry) -> Value {
    let mut paths: Vec<String> = ["/api", "/api/v1", "/apis"].map(ToOwned::to_owned).to_vec();
    for kind in registry.kinds().filter(|kind| !kind.group.is_empty()) {
        paths.push(format!("/apis/{}", kind.group));
        paths.push(format!("/apis/{}/{}", kind.group, kind.version));
    }
    for path in
        ["/healthz", "/livez", "/metrics", "/openapi/v2", "/openapi/v3", "/readyz", "/version"]
    {
        paths.push(path.to_owned());
    }
    paths.sort();
    paths.dedup();
    json!({"paths": paths})
}

/// `ok`, or what failed. Live means that the hub responds; ready means that it can also write.
fn health(hub: &Hub, check: &str, request: &BufferedRequest) -> Response {
    let query = request.parts.uri.query().unwrap_or_default();
    let verbose = request::parse_query(query).is_ok_and(|options| options.verbose);
    let writable = check == "livez" || hub.inner.store.is_writable();
    let stopping = check == "readyz" && hub.inner.stop.is_cancelled();
    let checks = [("ping", true), ("store", writable), ("shutdown", !stopping)];
    let good = checks.iter().all(|(_, good)| *good);
    let code = if good { StatusCode::OK } else { StatusCode::INTERNAL_SERVER_ERROR };
    let mut text = String::new();
    if verbose || !good {
        for (name, good) in checks {
            let line = if good { format!("[+]{name} ok\n") } else { format!("[-]{name} failed\n") };
            text.push_str(&line);
        }
        let end = if good { "passed" } else { "failed" };
        text.push_str(&format!("{check} check {end}\n"));
    } else {
        text.push_str("ok");
    }
    response::build_response(code, "text/plain; charset=utf-8", Body::from(text))
}
