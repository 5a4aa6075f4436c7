//! `machinist hub restore`: a data directory from a backup file.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use super::super::up::DataDirArgs;
use super::super::{CommandOutcome, output};
use crate::backup::{encryption, restore};
use crate::data_dir::DataDirectory;

/// Create a data directory from a backup
///
/// The directory must not contain a store. The backup is verified before anything is written, and a restore that was
/// interrupted can be repeated. Clients that watch list again after a restore.
///
/// A backup that was made with --include-pki also restores the CA. Without the CA of the old hub every machine has
/// to join again; the command says what else stops working.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  machinist hub restore --data-dir /tmp/machinist hub.backup\n  machinist hub restore --data-dir /tmp/machinist --identity-file key.txt hub.backup.age"
)]
pub(in crate::cli) struct RestoreArgs {
    #[command(flatten)]
    data_dir: DataDirArgs,

    /// Decrypt with the identities in this file of age-keygen; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "passphrase_file")]
    identity_file: Option<PathBuf>,

    /// Decrypt with the passphrase in the first line of this file; - is standard input
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,

    /// The backup file
    file: PathBuf,
}

impl RestoreArgs {
    pub(in crate::cli) fn run(&self) -> Result<CommandOutcome> {
        let directory = self.data_dir.directory()?;
        let keys =
            encryption::read_keys(self.identity_file.as_ref(), self.passphrase_file.as_ref())?;
        let restored = restore::restore(&self.file, &keys, &directory)?;
        let place = directory.path().display();
        output::print(&format!(
            "restored {} objects into {place}; start the hub with machinist up --data-dir {place}\n",
            restored.objects
        ))?;
        if !restored.has_ca {
            output::print_note(&without_ca(&directory));
        }
        Ok(CommandOutcome::Done)
    }
}

/// What stops working without the CA, and what to do about it.
fn without_ca(directory: &DataDirectory) -> String {
    format!(
        "The backup has no CA, and {pki} has none. Without the CA of the old hub\n\
         - every machine has to join again: its certificate is worth nothing. machinist hub readmit --all prints a \
         token for each; run machinist join with it and the new CA on the machine, which keeps its config;\n\
         - kubeconfigs of administrators stop working: machinist up writes a new one;\n\
         - tokens keep their rights, but whoever uses one has to trust the new CA.\n\
         To keep the CA, copy the directory pki of the old hub to {pki} before the first start, or restore a backup \
         that was made with --include-pki. To begin with a new CA, start the hub with machinist up --new-ca.",
        pki = directory.pki().display()
    )
}
