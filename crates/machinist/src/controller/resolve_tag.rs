//! Asks registries which image a tag means. Nobody waits for an answer: it is asked for beside the
//! rendering, and taken when it is there.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
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
use serde_json::Value;

use super::context::Context;
use super::generate::DOCKER_CONFIG_KEY;

/// How long a registry may take for all of it: a pool waits for it.
const REGISTRY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long an answer counts: the configs of several pools that come together get the same.
const CACHE_TTL: Duration = Duration::from_secs(60);
/// After a question that failed.
const RETRY_DELAY: Duration = Duration::from_secs(15);
/// An answer with a token is not larger than this.
const MAX_TOKEN_RESPONSE: usize = 1 << 20;
/// The forms in which an image may be described: those of one machine's kind, and of several.
const ACCEPT_MANIFESTS: &str = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, \
    application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.docker.distribution.manifest.v2+json";
/// The header in which a registry says what it holds.
const DIGEST_HEADER: &str = "docker-content-digest";

/// What is needed to ask.
#[derive(Clone, Default)]
pub(super) struct RegistryAuth {
    /// The pull secret.
    pub pull_secret: Option<Value>,
    /// Registries that speak no TLS, or show a certificate that nobody has to trust.
    pub insecure_registries: Vec<String>,
}

impl fmt::Debug for RegistryAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Means").field("insecure", &self.insecure_registries).finish_non_exhaustive()
    }
}

impl RegistryAuth {
    /// What the home says. What cannot be read is left out: many registries want nothing.
    pub(super) async fn from_cluster(shell: &Context) -> Self {
        let pull_secret = pull_secret(shell).await;
        let image = shell.caches.generate.images.get(object::CLUSTER);
        let sources = image.and_then(|image| image.spec.registry_sources.clone());
        let insecure = sources.and_then(|it| it.insecure_registries).unwrap_or_default();
        Self { pull_secret, insecure_registries: insecure }
    }
}

/// The pull secret that the ControllerConfig names; where it names none, that of the whole system.
async fn pull_secret(shell: &Context) -> Option<Value> {
    let config = shell.caches.controller_config();
    let reference = config.and_then(|config| config.spec.pull_secret.clone()).unwrap_or_default();
    let namespace = reference.namespace.as_deref().unwrap_or(object::CONFIG_NAMESPACE);
    let name = reference.name.as_deref().unwrap_or(object::PULL_SECRET);
    let api: Api<Secret> = Api::namespaced(shell.client.clone(), namespace);
    let secret = shell.write(api.get(name)).await.ok()?;
    serde_json::from_slice(&secret.data?.get(DOCKER_CONFIG_KEY)?.0).ok()
}

/// What is known about a tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TagResolution {
    /// It is being asked about.
    Resolving,
    /// The digest.
    Resolved(String),
    /// Why it is not known.
    Failed(String),
}

/// Asks, and remembers for a while. A clone knows the same.
#[derive(Debug, Clone, Default)]
pub(super) struct TagResolver {
    cache: Arc<Mutex<HashMap<String, (TagResolution, Instant)>>>,
}

impl TagResolver {
    /// What a tag means, as far as that is known; begins to find out if it is not.
    pub(super) fn resolve(&self, tagged: &TaggedImage, means: RegistryAuth) -> TagResolution {
        let key = format!("{}/{}:{}", tagged.host, tagged.repository, tagged.tag);
        let mut all = self.lock();
        if let Some((known, since)) = all.get(&key) {
            let counts = match known {
                TagResolution::Resolving => REGISTRY_TIMEOUT * 2,
                TagResolution::Resolved(_) => CACHE_TTL,
                TagResolution::Failed(_) => RETRY_DELAY,
            };
            if since.elapsed() < counts {
                return known.clone();
            }
        }
        all.insert(key.clone(), (TagResolution::Resolving, Instant::now()));
        drop(all);
        let (pins, tagged) = (self.clone(), tagged.clone());
        tokio::spawn(async move {
            let asked = tokio::time::timeout(REGISTRY_TIMEOUT, fetch_digest(&tagged, &means)).await;
            let known = match asked {
                Ok(Ok(digest)) => TagResolution::Resolved(digest),
                Ok(Err(error)) => TagResolution::Failed(format!("{error:#}")),
                Err(_) => TagResolution::Failed(format!("{} does not answer", tagged.host)),
            };
            tracing::info!(image = key, answer = ?known, "asked the registry which image a tag means");
            pins.lock().insert(key, (known, Instant::now()));
        });
        TagResolution::Resolving
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, (TagResolution, Instant)>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn fetch_digest(tagged: &TaggedImage, means: &RegistryAuth) -> anyhow::Result<String> {
    let TaggedImage { host, repository, tag } = tagged;
    let is_insecure = means.insecure_registries.iter().any(|one| one == host);
    let path = format!("/v2/{repository}/manifests/{tag}");
    let mut answer = send(&format!("https://{host}{path}"), is_insecure, None).await;
    let mut scheme = "https";
    if is_insecure && answer.is_err() {
        scheme = "http";
        answer = send(&format!("http://{host}{path}"), true, None).await;
    }
    let mut answer = answer?;
    if answer.status() == StatusCode::UNAUTHORIZED {
        let shown = answer.headers().get(WWW_AUTHENTICATE).and_then(|it| it.to_str().ok());
        let challenge = shown.and_then(|shown| AuthChallenge::parse(shown, repository));
        let user = means.pull_secret.as_ref().and_then(|it| credentials(it, host, repository));
        let had_one = user.is_some();
        let header = authorization(challenge, user, is_insecure).await?;
        answer = send(&format!("{scheme}://{host}{path}"), is_insecure, Some(header)).await?;
        if matches!(answer.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) && had_one {
            anyhow::bail!(
                "{host} does not accept the credentials of the pull secret: correct its entry for {host}"
            );
        }
    }
    let status = answer.status();
    anyhow::ensure!(status.is_success(), "{host} answers {status}");
    let digest = answer.headers().get(DIGEST_HEADER).and_then(|it| it.to_str().ok());
    match digest.filter(|digest| is_digest(digest)) {
        Some(digest) => Ok(digest.to_owned()),
        None => anyhow::bail!("{host} does not say which image it is"),
    }
}

/// What to show to a registry that wants to know who asks.
async fn authorization(
    challenge: Option<AuthChallenge>,
    user: Option<String>,
    is_insecure: bool,
) -> anyhow::Result<HeaderValue> {
    let basic = user.map(|user| format!("Basic {user}"));
    let text = match challenge {
        Some(AuthChallenge::Basic) => basic.ok_or_else(|| {
            anyhow::anyhow!(
                "the registry wants a password, and the pull secret has none for it: add an entry"
            )
        })?,
        Some(AuthChallenge::Bearer { url }) => {
            anyhow::ensure!(
                is_insecure || url.starts_with("https://"),
                "the registry has its tokens given out without TLS: nobody is told a password there"
            );
            let header = basic.map(|basic| sensitive_header(&basic)).transpose()?;
            let answer = send(&url, is_insecure, header).await?;
            let status = answer.status();
            anyhow::ensure!(status.is_success(), "whoever gives out tokens answers {status}");
            let body = Limited::new(answer.into_body(), MAX_TOKEN_RESPONSE).collect().await;
            let body = body.map_err(|_| anyhow::anyhow!("a token that is too large"))?.to_bytes();
            let body: Value = serde_json::from_slice(&body).unwrap_or_default();
            let token = ["token", "access_token"].iter().find_map(|name| body[*name].as_str());
            let token = token.ok_or_else(|| anyhow::anyhow!("no token came"))?;
            format!("Bearer {token}")
        }
        None => anyhow::bail!("the registry wants to know who asks, in a way nobody knows here"),
    };
    sensitive_header(&text)
}

fn sensitive_header(text: &str) -> anyhow::Result<HeaderValue> {
    let header = HeaderValue::try_from(text);
    let mut header = header.map_err(|_| anyhow::anyhow!("a password that is no text"))?;
    header.set_sensitive(true);
    Ok(header)
}

/// One request. The client is that for the API: it trusts whom the machine trusts.
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
