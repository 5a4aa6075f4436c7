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

use crate::up::directory::Directory;

/// How long a home may take to answer for the first time.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a hub on this very machine may take to take a connection.
const LOCAL_PATIENCE: Duration = Duration::from_secs(1);
/// What to do where there is no home.
pub const REMEDY: &str = "start one with `machinist up`, or give --kubeconfig";

/// What the user said about the home.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// `--kubeconfig`.
    pub kubeconfig: Option<PathBuf>,
    /// `--context`.
    pub context: Option<String>,
}

/// What the environment says about the home.
#[derive(Debug, Clone, Default)]
pub struct Surroundings {
    /// `KUBECONFIG`: one file, or several with colons between them.
    pub kubeconfig: Option<OsString>,
    /// `XDG_STATE_HOME`.
    pub state_home: Option<String>,
    /// `HOME`.
    pub home: Option<String>,
}

impl Surroundings {
    /// Those of this process.
    #[must_use]
    pub fn of_process() -> Self {
        let text = |name| std::env::var(name).ok();
        Self {
            kubeconfig: std::env::var_os("KUBECONFIG"),
            state_home: text("XDG_STATE_HOME"),
            home: text("HOME"),
        }
    }
}

/// A place where a home may be described.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Files that the user names; the first to set a thing decides.
    Named(Vec<PathBuf>),
    /// The kubeconfig of a hub on this machine; it counts while the hub runs.
    Hub(PathBuf),
    /// The user's own kubeconfig; it counts if it is there.
    User(PathBuf),
    /// The cluster in which this process runs.
    Around,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(paths) => {
                let names: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
                f.write_str(&names.join(":"))
            }
            Self::Hub(path) => write!(f, "{} (a hub on this machine)", path.display()),
            Self::User(path) => write!(f, "{}", path.display()),
            Self::Around => f.write_str("the cluster around this process"),
        }
    }
}

/// The places to look at, in their order.
#[must_use]
pub fn places(wanted: &Wanted, around: &Surroundings) -> Vec<Place> {
    if let Some(path) = &wanted.kubeconfig {
        return vec![Place::Named(vec![path.clone()])];
    }
    if let Some(list) = &around.kubeconfig {
        let paths: Vec<_> =
            std::env::split_paths(list).filter(|path| !path.as_os_str().is_empty()).collect();
        if !paths.is_empty() {
            return vec![Place::Named(paths)];
        }
    }
    let mut places = Vec::new();
    if let Ok(directory) = Directory::of_user(around.state_home.as_deref(), around.home.as_deref())
    {
        places.push(Place::Hub(directory.kubeconfig()));
    }
    if let Some(home) = &around.home {
        places.push(Place::User(Path::new(home).join(".kube/config")));
    }
    places.push(Place::Around);
    places
}

/// A client for the home that is meant. The home has answered once.
///
/// # Errors
/// There is none, or it does not answer; the text says what was looked for and what to do.
pub async fn client(wanted: &Wanted) -> Result<kube::Client> {
    let (config, place) = found(wanted).await?;
    connect(config, &place).await
}

/// A client for a process that runs for long: the home may answer later, and a request that is
/// refused is not repeated behind its back (`429` is how a budget refuses an eviction).
///
/// # Errors
/// There is no home.
pub async fn patient_client(wanted: &Wanted) -> Result<kube::Client> {
    let (mut config, place) = found(wanted).await?;
    config.connect_timeout = Some(PATIENCE);
    config.default_retry = false;
    kube::Client::try_from(config).with_context(|| place.to_string())
}

/// The home that is meant.
async fn found(wanted: &Wanted) -> Result<(kube::Config, Place)> {
    let mut passed = Vec::new();
    for place in places(wanted, &Surroundings::of_process()) {
        match config(&place, wanted.context.as_deref()).await? {
            Ok(config) => return Ok((config, place)),
            Err(why) => passed.push(format!("{place}: {why}")),
        }
    }
    Err(anyhow!("found no home of the API ({}): {REMEDY}", passed.join("; ")))
}

/// The configuration at a place; the inner error is why it does not count.
async fn config(place: &Place, context: Option<&str>) -> Result<Result<kube::Config, String>> {
    let read = |path: &Path| {
        Kubeconfig::read_from(path).with_context(|| format!("cannot read {}", path.display()))
    };
    let kubeconfig = match place {
        Place::Around => {
            return Ok(kube::Config::incluster().map_err(|_| "not in a cluster".to_owned()));
        }
        Place::Hub(path) | Place::User(path) if !path.exists() => {
            return Ok(Err("not there".to_owned()));
        }
        Place::Hub(path) | Place::User(path) => read(path)?,
        Place::Named(paths) => {
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
    let is_named = matches!(place, Place::Named(_));
    if let Some(missing) = context.filter(|context| !is_named && !has(context)) {
        return Ok(Err(format!("has no context {missing}")));
    }
    let options =
        KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .with_context(|| place.to_string())?;
    if matches!(place, Place::Hub(_)) && !listens(&config).await {
        return Ok(Err(format!("nothing listens on {}", config.cluster_url)));
    }
    Ok(Ok(config))
}

/// Whether anyone takes a connection there.
async fn listens(config: &kube::Config) -> bool {
    let Some(host) = config.cluster_url.host() else { return false };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = config.cluster_url.port_u16().unwrap_or(443);
    matches!(timeout(LOCAL_PATIENCE, TcpStream::connect((host, port))).await, Ok(Ok(_)))
}

async fn connect(mut config: kube::Config, place: &Place) -> Result<kube::Client> {
    let address = config.cluster_url.to_string();
    config.connect_timeout = Some(PATIENCE);
    let context = || format!("the home at {address} ({place})");
    let client = kube::Client::try_from(config).with_context(context)?;
    let question = http::Request::get("/version").body(Vec::new())?;
    let why = match timeout(PATIENCE, client.request_text(question)).await {
        // Any answer will do: who may not ask this may well ask other things.
        Ok(Ok(_) | Err(kube::Error::Api(_))) => return Ok(client),
        Ok(Err(error)) => deepest(&error),
        Err(_) => format!("no answer in {} seconds", PATIENCE.as_secs()),
    };
    Err(anyhow!("the home at {address} ({place}) does not answer: {why}; is it running? {REMEDY}"))
}

/// The innermost cause: the outer ones only say that something failed.
fn deepest(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(cause) = error.source() {
        error = cause;
    }
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around(kubeconfig: Option<&str>, state: Option<&str>, home: Option<&str>) -> Surroundings {
        let text = |text: Option<&str>| text.map(str::to_owned);
        Surroundings {
            kubeconfig: kubeconfig.map(OsString::from),
            state_home: text(state),
            home: text(home),
        }
    }

    #[test]
    fn where_a_home_is_looked_for() {
        let none = Wanted::default();
        let flag = Wanted { kubeconfig: Some("/f".into()), context: None };
        let hub = |path: &str| Place::Hub(path.into());
        let user = || Place::User("/h/.kube/config".into());
        for (wanted, around, expected) in [
            (&flag, around(Some("/k"), None, Some("/h")), vec![Place::Named(vec!["/f".into()])]),
            (
                &none,
                around(Some("/a:/b:"), None, Some("/h")),
                vec![Place::Named(vec!["/a".into(), "/b".into()])],
            ),
            (
                &none,
                around(Some(""), Some("/s"), Some("/h")),
                vec![hub("/s/machinist/kubeconfig"), user(), Place::Around],
            ),
            (
                &none,
                around(None, None, Some("/h")),
                vec![hub("/h/.local/state/machinist/kubeconfig"), user(), Place::Around],
            ),
            (&none, around(None, None, None), vec![Place::Around]),
        ] {
            assert_eq!(places(wanted, &around), expected);
        }
    }
}
