//! `machinist hub`: backup and restore of a hub, and who has access to it.
//!
//! | module | is |
//! |---|---|
//! | `backup` | `machinist hub backup` |
//! | `restore` | `machinist hub restore` |
//! | `token` | `machinist hub token` |
//! | `readmit` | `machinist hub readmit` |
//! | `revoke` | `machinist hub revoke` |

mod backup;
mod readmit;
mod restore;
mod revoke;
mod token;

use anyhow::{Context as _, Result};
use clap::Subcommand;
use kube::config::{KubeConfigOptions, Kubeconfig};

use super::CommandOutcome;
use super::hub_check::HubCheck;
use super::up::DataDirArgs;

/// Back up and restore a hub, and manage who has access to it
#[derive(Debug, Subcommand)]
pub(super) enum HubCommand {
    Backup(backup::BackupArgs),
    Restore(restore::RestoreArgs),
    Check(HubCheck),
    Token(token::HubTokenArgs),
    Revoke(revoke::RevokeMachineArgs),
    Readmit(readmit::ReadmitArgs),
}

impl HubCommand {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        match self {
            Self::Backup(command) => command.run(),
            Self::Restore(command) => command.run(),
            Self::Check(command) => command.run(),
            Self::Token(command) => command.run(),
            Self::Revoke(command) => command.run(),
            Self::Readmit(command) => command.run(),
        }
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
