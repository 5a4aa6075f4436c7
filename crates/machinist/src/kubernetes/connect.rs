//! Finds the API server to talk to, and connects to it.
//!
//! A kubeconfig that the user names is used, even if it is wrong. Without one, a hub that runs on this machine comes before
//! the user's `~/.kube/config`: a user who started a hub wants to talk to it.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::bounded_responses::{ResponseLimit, bounded_client};
use crate::data_dir::DataDirectory;

/// The kubeconfig of the hub that a package installs as a service. Only root can read it.
const PACKAGED_HUB: &str = "/var/lib/machinist-hub/kubeconfig";
/// How long the API server may take for its first response.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a hub on this machine may take to accept a connection.
const LOCAL_CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// What to do if there is no API server.
pub const REMEDY: &str = "start one with `machinist up`, or give --kubeconfig";

/// The API server derives the field manager of a write from it, up to the slash.
const USER_AGENT: http::HeaderValue =
    http::HeaderValue::from_static(concat!("machinist/", env!("CARGO_PKG_VERSION")));

/// The address of the API server of this process, for its log.
static SERVER: OnceLock<String> = OnceLock::new();

/// The address of the API server that this long-running process has connected to first; empty before that.
pub(crate) fn server_address() -> &'static str {
    SERVER.get().map_or("", String::as_str)
}

/// How the user names the API server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConnectionOptions {
    /// `--kubeconfig`.
    pub kubeconfig: Option<PathBuf>,
    /// `--context`.
    pub context: Option<String>,
}

/// How the environment names the API server.
#[derive(Debug, Clone, Default)]
pub struct ConnectionEnv {
    /// `KUBECONFIG`: one file, or several with colons between them.
    pub kubeconfig: Option<OsString>,
    /// `XDG_STATE_HOME`.
    pub xdg_state_home: Option<String>,
    /// `HOME`.
    pub home_dir: Option<String>,
    /// Whether kubectl runs this process as a plugin.
    pub is_kubectl_plugin: bool,
}

/// Whether kubectl runs this process: it finds plugins by their names.
#[must_use]
pub fn is_kubectl_plugin() -> bool {
    let name = std::env::args_os().next().map(PathBuf::from);
    name.is_some_and(|path| path.file_name() == Some("kubectl-machinist".as_ref()))
}

impl ConnectionEnv {
    /// The environment of this process.
    #[must_use]
    pub fn from_process() -> Self {
        let text = |name| std::env::var(name).ok();
        Self {
            kubeconfig: std::env::var_os("KUBECONFIG"),
            xdg_state_home: text("XDG_STATE_HOME"),
            home_dir: text("HOME"),
            is_kubectl_plugin: is_kubectl_plugin(),
        }
    }
}

/// Where the address of the API server may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KubeconfigSource {
    /// Files that the user names; the first one that sets a value wins.
    Explicit(Vec<PathBuf>),
    /// The kubeconfig of a hub on this machine; used while the hub runs.
    LocalHub(PathBuf),
    /// The user's own kubeconfig; used if it exists.
    UserDefault(PathBuf),
    /// The cluster in which this process runs.
    InCluster,
}

impl fmt::Display for KubeconfigSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Explicit(paths) => {
                let names: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
                f.write_str(&names.join(":"))
            }
            Self::LocalHub(path) => write!(f, "{} (a hub on this machine)", path.display()),
            Self::UserDefault(path) => write!(f, "{}", path.display()),
            Self::InCluster => f.write_str("the cluster around this process"),
        }
    }
}

/// The sources to try, in order.
#[must_use]
pub fn candidates(wanted: &ConnectionOptions, env: &ConnectionEnv) -> Vec<KubeconfigSource> {
    if let Some(path) = &wanted.kubeconfig {
        return vec![KubeconfigSource::Explicit(vec![path.clone()])];
    }
    if let Some(list) = &env.kubeconfig {
        let paths: Vec<_> =
            std::env::split_paths(list).filter(|path| !path.as_os_str().is_empty()).collect();
        if !paths.is_empty() {
            return vec![KubeconfigSource::Explicit(paths)];
        }
    }
    let mut sources = Vec::new();
    let data = DataDirectory::user_default(env.xdg_state_home.as_deref(), env.home_dir.as_deref());
    // A plugin uses the API server that kubectl would use.
    if let Some(directory) = data.ok().filter(|_| !env.is_kubectl_plugin) {
        sources.push(KubeconfigSource::LocalHub(directory.kubeconfig()));
    }
    if !env.is_kubectl_plugin {
        sources.push(KubeconfigSource::LocalHub(PACKAGED_HUB.into()));
    }
    if let Some(home) = &env.home_dir {
        sources.push(KubeconfigSource::UserDefault(Path::new(home).join(".kube/config")));
    }
    sources.push(KubeconfigSource::InCluster);
    sources
}

/// A client for the API server, which has responded once.
///
/// # Errors
/// There is none, or it does not respond; the text says what was tried and what to do.
pub async fn client(wanted: &ConnectionOptions) -> Result<kube::Client> {
    let (config, source) = resolve(wanted).await?;
    connect(config, &source).await
}

/// A client for a long-running process: the API server may respond later, and the client retries no refused request by
/// itself (a disruption budget refuses an eviction with `429`).
///
/// # Errors
/// There is no API server.
pub async fn long_running_client(
    wanted: &ConnectionOptions,
    limit: ResponseLimit,
) -> Result<kube::Client> {
    let (mut config, source) = resolve(wanted).await?;
    // A second client, after a renewal, is for the same API server.
    let _ = SERVER.set(config.cluster_url.to_string().trim_end_matches('/').to_owned());
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.default_retry = false;
    bounded_client(config, limit).with_context(|| source.to_string())
}

/// The first usable source.
async fn resolve(wanted: &ConnectionOptions) -> Result<(kube::Config, KubeconfigSource)> {
    let mut skipped = Vec::new();
    for source in candidates(wanted, &ConnectionEnv::from_process()) {
        match load_config(&source, wanted.context.as_deref()).await? {
            Ok(mut config) => {
                config.headers.push((http::header::USER_AGENT, USER_AGENT));
                return Ok((config, source));
            }
            Err(why) => skipped.push(format!("{source}: {why}")),
        }
    }
    Err(anyhow!("found no API server ({}): {REMEDY}", skipped.join("; ")))
}

/// The configuration of a source; the inner error is why the source is skipped.
async fn load_config(
    source: &KubeconfigSource,
    context: Option<&str>,
) -> Result<Result<kube::Config, String>> {
    let read = |path: &Path| {
        Kubeconfig::read_from(path).with_context(|| format!("cannot read {}", path.display()))
    };
    let kubeconfig = match source {
        KubeconfigSource::InCluster => {
            return Ok(kube::Config::incluster().map_err(|_| "not in a cluster".to_owned()));
        }
        KubeconfigSource::LocalHub(path) | KubeconfigSource::UserDefault(path)
            if !path.exists() =>
        {
            return Ok(Err("does not exist".to_owned()));
        }
        // The hub of the package belongs to root, and a user who has another API server needs none.
        KubeconfigSource::LocalHub(path)
            if std::fs::File::open(path)
                .is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied) =>
        {
            return Ok(Err("may be read by root only".to_owned()));
        }
        KubeconfigSource::LocalHub(path) | KubeconfigSource::UserDefault(path) => read(path)?,
        KubeconfigSource::Explicit(paths) => {
            // Some of several files may be missing, as with kubectl.
            let there = |path: &&PathBuf| paths.len() == 1 || path.exists();
            let mut merged = Kubeconfig::default();
            for path in paths.iter().filter(there) {
                merged = merged.merge(read(path)?)?;
            }
            merged
        }
    };
    let has = |context: &&str| kubeconfig.contexts.iter().any(|one| one.name == *context);
    let is_named = matches!(source, KubeconfigSource::Explicit(_));
    if let Some(missing) = context.filter(|context| !is_named && !has(context)) {
        return Ok(Err(format!("has no context {missing}")));
    }
    let options =
        KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .with_context(|| source.to_string())?;
    if matches!(source, KubeconfigSource::LocalHub(_)) && !is_listening(&config).await {
        return Ok(Err(format!("nothing listens on {}", config.cluster_url)));
    }
    Ok(Ok(config))
}

/// Whether anything accepts connections there.
async fn is_listening(config: &kube::Config) -> bool {
    let Some(host) = config.cluster_url.host() else { return false };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = config.cluster_url.port_u16().unwrap_or(443);
    matches!(timeout(LOCAL_CONNECT_TIMEOUT, TcpStream::connect((host, port))).await, Ok(Ok(_)))
}

async fn connect(mut config: kube::Config, source: &KubeconfigSource) -> Result<kube::Client> {
    let address = config.cluster_url.to_string();
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    let context = || format!("the API server at {address} ({source})");
    let client = bounded_client(config, ResponseLimit::LISTS).with_context(context)?;
    let request = http::Request::get("/version").body(Vec::new())?;
    let why = match timeout(CONNECT_TIMEOUT, client.request_text(request)).await {
        // Any response will do: a user without this right may have others.
        Ok(Ok(_) | Err(kube::Error::Api(_))) => return Ok(client),
        Ok(Err(error)) => root_cause(&error),
        Err(_) => format!("no response in {} seconds", CONNECT_TIMEOUT.as_secs()),
    };
    Err(anyhow!(
        "the API server at {address} ({source}) does not answer: {why}; is it running? {REMEDY}"
    ))
}

/// The innermost cause: the outer errors only say that something failed.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(cause) = error.source() {
        error = cause;
    }
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn env(kubeconfig: Option<&str>, state: Option<&str>, home: Option<&str>) -> ConnectionEnv {
        let text = |text: Option<&str>| text.map(str::to_owned);
        ConnectionEnv {
            kubeconfig: kubeconfig.map(OsString::from),
            xdg_state_home: text(state),
            home_dir: text(home),
            is_kubectl_plugin: false,
        }
    }

    #[test]
    fn sources_are_tried_in_order() {
        let none = ConnectionOptions::default();
        let flag = ConnectionOptions { kubeconfig: Some("/f".into()), context: None };
        let hub = |path: &str| KubeconfigSource::LocalHub(path.into());
        let packaged = || hub(PACKAGED_HUB);
        let user = || KubeconfigSource::UserDefault("/h/.kube/config".into());
        for (wanted, env, expected) in [
            (
                &flag,
                env(Some("/k"), None, Some("/h")),
                vec![KubeconfigSource::Explicit(vec!["/f".into()])],
            ),
            (
                &none,
                env(Some("/a:/b:"), None, Some("/h")),
                vec![KubeconfigSource::Explicit(vec!["/a".into(), "/b".into()])],
            ),
            (
                &none,
                env(Some(""), Some("/s"), Some("/h")),
                vec![
                    hub("/s/machinist/kubeconfig"),
                    packaged(),
                    user(),
                    KubeconfigSource::InCluster,
                ],
            ),
            (
                &none,
                env(None, None, Some("/h")),
                vec![
                    hub("/h/.local/state/machinist/kubeconfig"),
                    packaged(),
                    user(),
                    KubeconfigSource::InCluster,
                ],
            ),
            (&none, env(None, None, None), vec![packaged(), KubeconfigSource::InCluster]),
            (
                &none,
                ConnectionEnv { is_kubectl_plugin: true, ..env(None, Some("/s"), Some("/h")) },
                vec![user(), KubeconfigSource::InCluster],
            ),
        ] {
            assert_eq!(candidates(wanted, &env), expected);
        }
    }
}
