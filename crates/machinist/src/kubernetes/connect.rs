//! Which home is meant.
//!
//! A kubeconfig that is named counts, even if it is wrong. Without one, a hub that runs on this
//! machine comes before the user's `~/.kube/config`: whoever started it wants to talk to it.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::data_dir::DataDirectory;

/// How long a home may take to answer for the first time.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a hub on this very machine may take to take a connection.
const LOCAL_CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// What to do where there is no home.
pub const REMEDY: &str = "start one with `machinist up`, or give --kubeconfig";

/// What the user said about the home.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConnectionOptions {
    /// `--kubeconfig`.
    pub kubeconfig: Option<PathBuf>,
    /// `--context`.
    pub context: Option<String>,
}

/// What the environment says about the home.
#[derive(Debug, Clone, Default)]
pub struct ConnectionEnv {
    /// `KUBECONFIG`: one file, or several with colons between them.
    pub kubeconfig: Option<OsString>,
    /// `XDG_STATE_HOME`.
    pub xdg_state_home: Option<String>,
    /// `HOME`.
    pub home_dir: Option<String>,
}

impl ConnectionEnv {
    /// Those of this process.
    #[must_use]
    pub fn from_process() -> Self {
        let text = |name| std::env::var(name).ok();
        Self {
            kubeconfig: std::env::var_os("KUBECONFIG"),
            xdg_state_home: text("XDG_STATE_HOME"),
            home_dir: text("HOME"),
        }
    }
}

/// A place where a home may be described.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KubeconfigSource {
    /// Files that the user names; the first to set a thing decides.
    Explicit(Vec<PathBuf>),
    /// The kubeconfig of a hub on this machine; it counts while the hub runs.
    LocalHub(PathBuf),
    /// The user's own kubeconfig; it counts if it is there.
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

/// The places to look at, in their order.
#[must_use]
pub fn candidates(wanted: &ConnectionOptions, around: &ConnectionEnv) -> Vec<KubeconfigSource> {
    if let Some(path) = &wanted.kubeconfig {
        return vec![KubeconfigSource::Explicit(vec![path.clone()])];
    }
    if let Some(list) = &around.kubeconfig {
        let paths: Vec<_> =
            std::env::split_paths(list).filter(|path| !path.as_os_str().is_empty()).collect();
        if !paths.is_empty() {
            return vec![KubeconfigSource::Explicit(paths)];
        }
    }
    let mut places = Vec::new();
    if let Ok(directory) =
        DataDirectory::user_default(around.xdg_state_home.as_deref(), around.home_dir.as_deref())
    {
        places.push(KubeconfigSource::LocalHub(directory.kubeconfig()));
    }
    if let Some(home) = &around.home_dir {
        places.push(KubeconfigSource::UserDefault(Path::new(home).join(".kube/config")));
    }
    places.push(KubeconfigSource::InCluster);
    places
}

/// A client for the home that is meant. The home has answered once.
///
/// # Errors
/// There is none, or it does not answer; the text says what was looked for and what to do.
pub async fn client(wanted: &ConnectionOptions) -> Result<kube::Client> {
    let (config, place) = resolve(wanted).await?;
    connect(config, &place).await
}

/// A client for a process that runs for long: the home may answer later, and a request that is
/// refused is not repeated behind its back (`429` is how a budget refuses an eviction).
///
/// # Errors
/// There is no home.
pub async fn long_running_client(wanted: &ConnectionOptions) -> Result<kube::Client> {
    let (mut config, place) = resolve(wanted).await?;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.default_retry = false;
    kube::Client::try_from(config).with_context(|| place.to_string())
}

/// The home that is meant.
async fn resolve(wanted: &ConnectionOptions) -> Result<(kube::Config, KubeconfigSource)> {
    let mut passed = Vec::new();
    for place in candidates(wanted, &ConnectionEnv::from_process()) {
        match load_config(&place, wanted.context.as_deref()).await? {
            Ok(config) => return Ok((config, place)),
            Err(why) => passed.push(format!("{place}: {why}")),
        }
    }
    Err(anyhow!("found no home of the API ({}): {REMEDY}", passed.join("; ")))
}

/// The configuration at a place; the inner error is why it does not count.
async fn load_config(
    place: &KubeconfigSource,
    context: Option<&str>,
) -> Result<Result<kube::Config, String>> {
    let read = |path: &Path| {
        Kubeconfig::read_from(path).with_context(|| format!("cannot read {}", path.display()))
    };
    let kubeconfig = match place {
        KubeconfigSource::InCluster => {
            return Ok(kube::Config::incluster().map_err(|_| "not in a cluster".to_owned()));
        }
        KubeconfigSource::LocalHub(path) | KubeconfigSource::UserDefault(path)
            if !path.exists() =>
        {
            return Ok(Err("not there".to_owned()));
        }
        KubeconfigSource::LocalHub(path) | KubeconfigSource::UserDefault(path) => read(path)?,
        KubeconfigSource::Explicit(paths) => {
            // Of several files some may be missing, as with kubectl.
            let there = |path: &&PathBuf| paths.len() == 1 || path.exists();
            let mut merged = Kubeconfig::default();
            for path in paths.iter().filter(there) {
                merged = merged.merge(read(path)?)?;
            }
            merged
        }
    };
    let has = |context: &&str| kubeconfig.contexts.iter().any(|one| one.name == *context);
    let is_named = matches!(place, KubeconfigSource::Explicit(_));
    if let Some(missing) = context.filter(|context| !is_named && !has(context)) {
        return Ok(Err(format!("has no context {missing}")));
    }
    let options =
        KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .with_context(|| place.to_string())?;
    if matches!(place, KubeconfigSource::LocalHub(_)) && !is_listening(&config).await {
        return Ok(Err(format!("nothing listens on {}", config.cluster_url)));
    }
    Ok(Ok(config))
}

/// Whether anyone takes a connection there.
async fn is_listening(config: &kube::Config) -> bool {
    let Some(host) = config.cluster_url.host() else { return false };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = config.cluster_url.port_u16().unwrap_or(443);
    matches!(timeout(LOCAL_CONNECT_TIMEOUT, TcpStream::connect((host, port))).await, Ok(Ok(_)))
}

async fn connect(mut config: kube::Config, place: &KubeconfigSource) -> Result<kube::Client> {
    let address = config.cluster_url.to_string();
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    let context = || format!("the home at {address} ({place})");
    let client = kube::Client::try_from(config).with_context(context)?;
    let question = http::Request::get("/version").body(Vec::new())?;
    let why = match timeout(CONNECT_TIMEOUT, client.request_text(question)).await {
        // Any answer will do: who may not ask this may well ask other things.
        Ok(Ok(_) | Err(kube::Error::Api(_))) => return Ok(client),
        Ok(Err(error)) => root_cause(&error),
        Err(_) => format!("no answer in {} seconds", CONNECT_TIMEOUT.as_secs()),
    };
    Err(anyhow!("the home at {address} ({place}) does not answer: {why}; is it running? {REMEDY}"))
}

/// The innermost cause: the outer ones only say that something failed.
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

    fn around(kubeconfig: Option<&str>, state: Option<&str>, home: Option<&str>) -> ConnectionEnv {
        let text = |text: Option<&str>| text.map(str::to_owned);
        ConnectionEnv {
            kubeconfig: kubeconfig.map(OsString::from),
            xdg_state_home: text(state),
            home_dir: text(home),
        }
    }

    #[test]
    fn where_a_home_is_looked_for() {
        let none = ConnectionOptions::default();
        let flag = ConnectionOptions { kubeconfig: Some("/f".into()), context: None };
        let hub = |path: &str| KubeconfigSource::LocalHub(path.into());
        let user = || KubeconfigSource::UserDefault("/h/.kube/config".into());
        for (wanted, around, expected) in [
            (
                &flag,
                around(Some("/k"), None, Some("/h")),
                vec![KubeconfigSource::Explicit(vec!["/f".into()])],
            ),
            (
                &none,
                around(Some("/a:/b:"), None, Some("/h")),
                vec![KubeconfigSource::Explicit(vec!["/a".into(), "/b".into()])],
            ),
            (
                &none,
                around(Some(""), Some("/s"), Some("/h")),
                vec![hub("/s/machinist/kubeconfig"), user(), KubeconfigSource::InCluster],
            ),
            (
                &none,
                around(None, None, Some("/h")),
                vec![
                    hub("/h/.local/state/machinist/kubeconfig"),
                    user(),
                    KubeconfigSource::InCluster,
                ],
            ),
            (&none, around(None, None, None), vec![KubeconfigSource::InCluster]),
        ] {
            assert_eq!(candidates(wanted, &around), expected);
        }
    }
}
