//! Resolves the tag of an OS image to a digest, at its registry. The request runs concurrently to rendering, which takes the
//! result when it is there. Called by `pin_image`.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::http::header::{ACCEPT, AUTHORIZATION, HeaderValue, WWW_AUTHENTICATE};
use ::http::uri::PathAndQuery;
use ::http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt as _, Limited};
use k8s_openapi::api::core::v1::Secret;
use kube::client::Body;
use kube::{Api, Client, Config};
use machinist_core::api::names::object;
use machinist_core::os::credentials;
use machinist_core::render::pin_image::{AuthChallenge, TaggedImage, is_digest};
use machinist_hub::failure_log::FailureLog;
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;

use super::context::{Context, WriteError};
use super::event_component;
use super::generate::DOCKER_CONFIG_KEY;

/// How long a registry may take for all requests together: a pool waits for it.
const REGISTRY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a digest is valid: configs of several pools that are rendered together get the same.
const CACHE_TTL: Duration = Duration::from_secs(60);
/// The wait after a failed request.
const RETRY_DELAY: Duration = Duration::from_secs(15);
/// The largest token response that is read.
const MAX_TOKEN_RESPONSE: usize = 1 << 20;
/// The accepted manifests: of one architecture, and of several.
const ACCEPT_MANIFESTS: &str = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.docker.distribution.manifest.v2+json";
/// The task under which failed reads are reported.
const READ_PULL_SECRET: &str = "read the pull secret";
/// The header with the digest of a manifest.
const DIGEST_HEADER: &str = "docker-content-digest";

/// The credentials and the settings for registries.
#[derive(Clone, Default)]
pub(super) struct RegistryAuth {
    /// The pull secret.
    pub pull_secret: Option<Value>,
    /// Registries without TLS, or with a certificate that is not verified.
    pub insecure_registries: Vec<String>,
}

impl fmt::Debug for RegistryAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegistryAuth")
            .field("insecure", &self.insecure_registries)
            .finish_non_exhaustive()
    }
}

impl RegistryAuth {
    /// Reads them from the API server. A pull secret that cannot be read is left out: many registries need none.
    pub(super) async fn from_cluster(context: &Context) -> Self {
        let pull_secret = pull_secret(context).await;
        let image = context.caches.generate.images.get(object::CLUSTER);
        let sources = image.and_then(|image| image.spec.registry_sources.clone());
        let insecure = sources.and_then(|it| it.insecure_registries).unwrap_or_default();
        Self { pull_secret, insecure_registries: insecure }
    }
}

/// The pull secret that the ControllerConfig names; by default that of the cluster.
async fn pull_secret(context: &Context) -> Option<Value> {
    let config = context.caches.controller_config();
    let reference = config.and_then(|config| config.spec.pull_secret.clone()).unwrap_or_default();
    let namespace = reference.namespace.as_deref().unwrap_or(object::CONFIG_NAMESPACE);
    let name = reference.name.as_deref().unwrap_or(object::PULL_SECRET);
    let api: Api<Secret> = Api::namespaced(context.client.clone(), namespace);
    let parsed = match context.write(api.get(name)).await {
        Ok(secret) => parse_pull_secret(&secret),
        Err(error) if error.is_not_found() => Ok(None),
        Err(WriteError::NotLeading) => return None,
        Err(error) => {
            // The event is on the object that names the secret, if there is one.
            match context.caches.controller_config() {
                Some(config) => {
                    let component = event_component::RENDER;
                    context.write_failed(READ_PULL_SECRET, component, config.as_ref(), &error);
                }
                None => drop(context.failures.failed(READ_PULL_SECRET, name, &error.to_string())),
            }
            return None;
        }
    };
    if let Some(config) = context.caches.controller_config() {
        context.write_succeeded(READ_PULL_SECRET, config.as_ref());
    }
    context.failures.record(READ_PULL_SECRET, name, parsed).flatten()
}

/// The credentials in a pull secret; none if it has no such key.
fn parse_pull_secret(secret: &Secret) -> Result<Option<Value>, String> {
    let Some(data) = secret.data.as_ref().and_then(|data| data.get(DOCKER_CONFIG_KEY)) else {
        return Ok(None);
    };
    // The text of the error would be a part of the secret.
    let parsed = serde_json::from_slice(&data.0).map(Some);
    parsed.map_err(|_| {
        format!("{DOCKER_CONFIG_KEY} is not JSON: tags are resolved anonymously; write it again")
    })
}

/// What is known about a tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TagResolution {
    /// The request is under way.
    Resolving,
    /// The digest.
    Resolved(String),
    /// Why it cannot be resolved.
    Failed(String),
}

/// Resolves tags and caches the results. A clone shares the cache.
#[derive(Debug, Clone, Default)]
pub(super) struct TagResolver {
    cache: Arc<Mutex<HashMap<String, (TagResolution, Instant)>>>,
}

impl TagResolver {
    /// The digest of a tag, as far as it is known; starts a request if it is not.
    pub(super) fn resolve(
        &self,
        tagged: &TaggedImage,
        auth: RegistryAuth,
        failures: &FailureLog,
    ) -> TagResolution {
        const TASK: &str = "resolve the tag of an OS image";
        let key = format!("{}/{}:{}", tagged.host, tagged.repository, tagged.tag);
        let mut all = self.lock();
        if let Some((known, since)) = all.get(&key) {
            let valid = match known {
                TagResolution::Resolving => REGISTRY_TIMEOUT * 2,
                TagResolution::Resolved(_) => CACHE_TTL,
                TagResolution::Failed(_) => RETRY_DELAY,
            };
            if since.elapsed() < valid {
                return known.clone();
            }
        }
        all.insert(key.clone(), (TagResolution::Resolving, Instant::now()));
        drop(all);
        let (resolver, tagged, failures) = (self.clone(), tagged.clone(), failures.clone());
        tokio::spawn(async move {
            let request = fetch_digest(&tagged, &auth);
            let known = match tokio::time::timeout(REGISTRY_TIMEOUT, request).await {
                Ok(Ok(digest)) => TagResolution::Resolved(digest),
                Ok(Err(error)) => TagResolution::Failed(format!("{error:#}")),
                Err(_) => TagResolution::Failed(format!("{} does not respond", tagged.host)),
            };
            match &known {
                TagResolution::Failed(error) => {
                    failures.failed(TASK, &key, error);
                }
                known => {
                    failures.succeeded(TASK, &key);
                    tracing::info!(image = key, digest = ?known, "resolved the tag of an OS image");
                }
            }
            resolver.lock().insert(key, (known, Instant::now()));
        });
        TagResolution::Resolving
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, (TagResolution, Instant)>> {
        self.cache.lock()
    }
}

async fn fetch_digest(tagged: &TaggedImage, auth: &RegistryAuth) -> anyhow::Result<String> {
    let TaggedImage { host, repository, tag } = tagged;
    let is_insecure = auth.insecure_registries.iter().any(|one| one == host);
    let path = format!("/v2/{repository}/manifests/{tag}");
    let mut response = send(&format!("https://{host}{path}"), is_insecure, None).await;
    let mut scheme = "https";
    if is_insecure && response.is_err() {
        scheme = "http";
        response = send(&format!("http://{host}{path}"), true, None).await;
    }
    let mut response = response?;
    if response.status() == StatusCode::UNAUTHORIZED {
        let shown = response.headers().get(WWW_AUTHENTICATE).and_then(|it| it.to_str().ok());
        let challenge = shown.and_then(|shown| AuthChallenge::parse(shown, repository));
        let user = auth.pull_secret.as_ref().and_then(|it| credentials(it, host, repository));
        let had_one = user.is_some();
        let header = authorization(challenge, user, is_insecure).await?;
        response = send(&format!("{scheme}://{host}{path}"), is_insecure, Some(header)).await?;
        if matches!(response.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) && had_one
        {
            anyhow::bail!(
                "{host} does not accept the credentials of the pull secret: correct its entry for {host}"
            );
        }
    }
    let status = response.status();
    anyhow::ensure!(status.is_success(), "{host} responded {status}");
    let digest = response.headers().get(DIGEST_HEADER).and_then(|it| it.to_str().ok());
    match digest.filter(|digest| is_digest(digest)) {
        Some(digest) => Ok(digest.to_owned()),
        None => anyhow::bail!("{host} sends no digest"),
    }
}

/// The credentials that a registry requires.
async fn authorization(
    challenge: Option<AuthChallenge>,
    user: Option<String>,
    is_insecure: bool,
) -> anyhow::Result<HeaderValue> {
    let basic = user.map(|user| format!("Basic {user}"));
    let text = match challenge {
        Some(AuthChallenge::Basic) => basic.ok_or_else(|| {
            anyhow::anyhow!(
                "the registry requires a password, and the pull secret has none for it: add an entry"
            )
        })?,
        Some(AuthChallenge::Bearer { url }) => {
            anyhow::ensure!(
                is_insecure || url.starts_with("https://"),
                "the registry's token service has no TLS: no password is sent there"
            );
            let header = basic.map(|basic| sensitive_header(&basic)).transpose()?;
            let response = send(&url, is_insecure, header).await?;
            let status = response.status();
            anyhow::ensure!(status.is_success(), "the token service responded {status}");
            let body = Limited::new(response.into_body(), MAX_TOKEN_RESPONSE).collect().await;
            let body = body.map_err(|_| anyhow::anyhow!("the token response is too large"))?.to_bytes();
            let body: Value = serde_json::from_slice(&body).unwrap_or_default();
            let token = ["token", "access_token"].iter().find_map(|name| body[*name].as_str());
            let token = token.ok_or_else(|| anyhow::anyhow!("the token service sent no token"))?;
            format!("Bearer {token}")
        }
        None => anyhow::bail!("the registry requires an unknown authentication scheme"),
    };
    sensitive_header(&text)
}

fn sensitive_header(text: &str) -> anyhow::Result<HeaderValue> {
    let header = HeaderValue::try_from(text);
    let mut header = header.map_err(|_| anyhow::anyhow!("the password is not text"))?;
    header.set_sensitive(true);
    Ok(header)
}

/// Sends one request. It uses kube's client, which trusts the CAs of this machine.
async fn send(
    url: &str,
    is_insecure: bool,
    authorization: Option<HeaderValue>,
) -> anyhow::Result<Response<Body>> {
    let (whole, mut base): (Uri, _) = (url.parse()?, url.parse::<Uri>()?.into_parts());
    base.path_and_query = Some(PathAndQuery::from_static("/"));
    let mut config = Config::new(Uri::from_parts(base)?);
    config.accept_invalid_certs = is_insecure;
    let place = whole.path_and_query().map_or("/", PathAndQuery::as_str);
    let mut request = Request::builder().method(Method::GET).uri(place);
    request = request.header(ACCEPT, ACCEPT_MANIFESTS);
    if let Some(header) = authorization {
        request = request.header(AUTHORIZATION, header);
    }
    Ok(Client::try_from(config)?.send(request.body(Body::empty())?).await?)
}
