//! `machinist hub`: backup, restore and tokens of a hub.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use machinist_core::duration::parse_duration;
use machinist_hub::store::Store;
use serde_json::{Value, json};

use super::hub_check::HubCheck;
use super::up::DataDirArgs;
use super::{CommandOutcome, output};
use crate::durable_file;

/// Back up and restore a hub, and create tokens for it
#[derive(Debug, Subcommand)]
pub(super) enum HubCommand {
    Backup(Backup),
    Restore(Restore),
    Check(HubCheck),
    Token(HubTokenArgs),
}

impl HubCommand {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        match self {
            Self::Backup(command) => command.run(),
            Self::Restore(command) => command.run(),
            Self::Check(command) => command.run(),
            Self::Token(command) => command.run(),
        }
    }
}

/// Write a backup of a running hub to a file
///
/// The hub keeps running, and the backup is consistent. It contains all objects, including Secrets, but
/// not the CA: also back up the directory `pki` in the data directory.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist hub backup hub.backup")]
pub(super) struct Backup {
    #[command(flatten)]
    data_dir: DataDirArgs,

    /// The file to write; it must not exist
    file: PathBuf,
}

impl Backup {
    fn run(&self) -> Result<CommandOutcome> {
        if self.file.exists() {
            bail!("{} exists already: name another file", self.file.display());
        }
        let size = runtime()?.block_on(async {
            let client = hub_client(&self.data_dir).await?;
            let request = http::Request::get("/machinist/v1/backup").body(Body::empty())?;
            let response = client.send(request).await.context("cannot reach the hub")?;
            if !response.status().is_success() {
                bail!("the hub responded with {}", response.status());
            }
            write_backup(&self.file, response.into_body()).await
        })?;
        output::print(&format!("{}: {size} bytes\n", self.file.display()))?;
        Ok(CommandOutcome::Done)
    }
}

/// Writes a stream to a file, which appears only when it is complete.
async fn write_backup(path: &Path, mut body: Body) -> Result<u64> {
    let mut part = path.to_owned().into_os_string();
    part.push(".part");
    let context = || format!("cannot write {}", path.display());
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&part)
        .with_context(context)?;
    let mut size = 0;
    while let Some(frame) = body.frame().await {
        let frame = frame.context("the connection to the hub was lost")?;
        if let Some(bytes) = frame.data_ref() {
            file.write_all(bytes).with_context(context)?;
            size += bytes.len() as u64;
        }
    }
    file.sync_all().with_context(context)?;
    durable_file::rename(Path::new(&part), path).with_context(context)?;
    Ok(size)
}

/// Create a data directory from a backup
///
/// The directory must not contain a store. Clients that watch list again after a restore.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist hub restore --data-dir /tmp/machinist hub.backup")]
pub(super) struct Restore {
    #[command(flatten)]
    data_dir: DataDirArgs,

    /// The backup file
    file: PathBuf,
}

impl Restore {
    fn run(&self) -> Result<CommandOutcome> {
        let directory = self.data_dir.directory()?;
        directory.create()?;
        Store::restore(&self.file, &directory.store())?;
        let place = directory.path().display();
        output::print(&format!(
            "restored into {place}; start it with machinist up --data-dir {place}\n"
        ))?;
        Ok(CommandOutcome::Done)
    }
}

/// Create a bearer token for a running hub and print it
///
/// The token is shown only once: the hub stores a hash of it.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist hub token --role bootstrap --ttl 1h")]
pub(super) struct HubTokenArgs {
    #[command(flatten)]
    data_dir: DataDirArgs,

    /// What the token permits
    #[arg(long, value_enum)]
    role: TokenRoleArg,

    /// How long the token is valid, such as 1h [default: 24h for bootstrap, otherwise unlimited]
    #[arg(long, value_name = "DURATION", value_parser = parse_ttl)]
    ttl: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TokenRoleArg {
    /// Everything
    Admin,
    /// Read everything except Secrets
    Viewer,
    /// What a controller needs
    Controller,
    /// Request the certificate of a new machine
    Bootstrap,
}

/// Parses a duration. A number alone means seconds, as earlier versions took it.
fn parse_ttl(text: &str) -> Result<Duration, String> {
    match text.parse::<u32>() {
        Ok(seconds) => Ok(Duration::from_secs(seconds.into())),
        Err(_) => parse_duration(text),
    }
}

impl HubTokenArgs {
    fn run(&self) -> Result<CommandOutcome> {
        let role = match self.role {
            TokenRoleArg::Admin => "admin",
            TokenRoleArg::Viewer => "viewer",
            TokenRoleArg::Controller => "controller",
            TokenRoleArg::Bootstrap => "bootstrap",
        };
        let request_body = json!({"role": role, "ttlSeconds": self.ttl.map(|ttl| ttl.as_secs())});
        let made: Value = runtime()?.block_on(async {
            let client = hub_client(&self.data_dir).await?;
            let request = http::Request::post("/machinist/v1/tokens")
                .header("content-type", "application/json")
                .body(serde_json::to_vec(&request_body)?)?;
            client.request(request).await.context("the hub did not create the token")
        })?;
        output::print(&format!("{}\n", made["token"].as_str().unwrap_or_default()))?;
        Ok(CommandOutcome::Done)
    }
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Runtime::new().context("cannot start the async runtime")
}

/// A client for the hub of a data directory.
async fn hub_client(data: &DataDirArgs) -> Result<kube::Client> {
    let path = data.directory()?.kubeconfig();
    let kubeconfig = Kubeconfig::read_from(&path).with_context(|| {
        format!("cannot read {}: is this the data directory of machinist up?", path.display())
    })?;
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    Ok(kube::Client::try_from(config)?)
}
