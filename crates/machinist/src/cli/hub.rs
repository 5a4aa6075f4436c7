//! `machinist hub`: backup and restore of a hub, and who has access to it.
//!
//! | module | is |
//! |---|---|
//! | `token` | `machinist hub token` |
//! | `revoke` | `machinist hub revoke` |

mod revoke;
mod token;

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand};
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use machinist_hub::store::Store;

use super::hub_check::HubCheck;
use super::up::DataDirArgs;
use super::{CommandOutcome, output};
use crate::durable_file;

/// Back up and restore a hub, and manage who has access to it
#[derive(Debug, Subcommand)]
pub(super) enum HubCommand {
    Backup(Backup),
    Restore(Restore),
    Check(HubCheck),
    Token(token::HubTokenArgs),
    Revoke(revoke::RevokeMachineArgs),
}

impl HubCommand {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        match self {
            Self::Backup(command) => command.run(),
            Self::Restore(command) => command.run(),
            Self::Check(command) => command.run(),
            Self::Token(command) => command.run(),
            Self::Revoke(command) => command.run(),
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
        output::print_note(&format!(
            "The CA is not in it: keep a copy of {}, too. Without it every machine has to join again.",
            self.data_dir.directory()?.pki().display()
        ));
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
        if !directory.pki().join("ca.key").exists() {
            output::print_note(&format!(
                "A backup has no CA. Copy the saved directory to {} first: otherwise machinist up makes a new CA, and \
                 every machine has to join again.",
                directory.pki().display()
            ));
        }
        Ok(CommandOutcome::Done)
    }
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Runtime::new().context("cannot start the async runtime")
}

/// A client for the hub of a data directory.
async fn hub_client(data: &DataDirArgs) -> Result<kube::Client> {
    let path = data.directory()?.kubeconfig();
    let kubeconfig = Kubeconfig::read_from(&path).map_err(|_| {
        anyhow::anyhow!(
            "cannot read {}: --data-dir must name the data directory of a hub on this host",
            path.display()
        )
    })?;
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    Ok(kube::Client::try_from(config)?)
}
