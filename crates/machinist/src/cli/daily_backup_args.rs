//! The flags of the daily backup of `machinist up`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use age::x25519;
use anyhow::{Context as _, Result};
use clap::Args;

use crate::backup::encryption::{self, Encryption};
use crate::up::DailyBackupConfig;

#[derive(Debug, Args)]
pub(super) struct DailyBackupArgs {
    /// Back up the hub to this directory every day, and verify each backup. The directory must exist and be
    /// used by this hub only
    #[arg(long, value_name = "DIR")]
    backup_dir: Option<PathBuf>,

    /// The number of daily backups that are kept
    #[arg(long, value_name = "NUMBER", default_value = "7", requires = "backup_dir")]
    backup_keep: NonZeroUsize,

    /// Encrypt daily backups to this public key of age-keygen (repeatable)
    #[arg(long, value_name = "AGE1...", value_parser = encryption::parse_recipient, requires = "backup_dir")]
    backup_recipient: Vec<x25519::Recipient>,

    /// Also back up the CA every day; needs --backup-recipient
    #[arg(long, requires = "backup_recipient")]
    backup_include_pki: bool,
}

impl DailyBackupArgs {
    pub(super) fn config(&self) -> Result<Option<DailyBackupConfig>> {
        let Some(directory) = &self.backup_dir else { return Ok(None) };
        let encryption = match &self.backup_recipient[..] {
            [] => Encryption::None,
            recipients => Encryption::Recipients(recipients.to_vec()),
        };
        Ok(Some(DailyBackupConfig {
            directory: std::path::absolute(directory).context("--backup-dir")?,
            keep: self.backup_keep,
            encryption,
            include_pki: self.backup_include_pki,
        }))
    }
}
