//! `machinist hub backup`: a file with all objects of a running hub, encrypted if asked for.

use std::path::PathBuf;

use age::x25519;
use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use futures::TryStreamExt as _;
use http_body_util::BodyExt as _;
use kube::client::Body;
use machinist_hub::auth::certificates::PemKeyPair;
use tokio_util::io::{StreamReader, SyncIoBridge};

use super::super::up::DataDirArgs;
use super::super::{CommandOutcome, output};
use super::{hub_client, runtime};
use crate::backup::archive;
use crate::backup::encryption::{self, Encryption};
use crate::backup::file::{self, WrittenBackup};

/// Write a backup of a running hub to a file
///
/// The hub keeps running, and the backup is consistent. It contains all objects, including Secrets; encrypt it if it
/// leaves this host. The file is read back and verified before it gets its name. The hub's audit log records each
/// backup.
///
/// Without --include-pki a backup does not contain the CA, and every machine of a hub that is restored from it
/// has to join again.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  machinist hub backup hub.backup\n  machinist hub backup --recipient age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p --include-pki hub.backup.age"
)]
pub(in crate::cli) struct BackupArgs {
    #[command(flatten)]
    data_dir: DataDirArgs,

    /// Encrypt to this public key of age-keygen (repeatable); each of the keys can decrypt the backup
    #[arg(long, value_name = "AGE1...", value_parser = encryption::parse_recipient, conflicts_with = "passphrase_file")]
    recipient: Vec<x25519::Recipient>,

    /// Encrypt with the passphrase in the first line of this file; - is standard input
    #[arg(long, value_name = "FILE")]
    passphrase_file: Option<PathBuf>,

    /// Also back up the CA of the hub. The backup must be encrypted: whoever has the CA's key can act as any
    /// administrator or machine
    #[arg(long)]
    include_pki: bool,

    /// The file to write; it must not exist
    file: PathBuf,
}

impl BackupArgs {
    fn encryption(&self) -> Result<Encryption> {
        Ok(match &self.passphrase_file {
            Some(path) => Encryption::Passphrase(encryption::read_passphrase(path)?),
            None if self.recipient.is_empty() => Encryption::None,
            None => Encryption::Recipients(self.recipient.clone()),
        })
    }

    pub(in crate::cli) fn run(&self) -> Result<CommandOutcome> {
        if self.file.exists() {
            bail!("{} exists already: name another file", self.file.display());
        }
        let encryption = self.encryption()?;
        ensure!(
            !self.include_pki || !encryption.is_none(),
            "--include-pki: the key of the CA must not be written unencrypted: add --recipient or --passphrase-file, \
             or leave --include-pki out"
        );
        let directory = self.data_dir.directory()?;
        let ca = self.include_pki.then(|| archive::read_ca(&directory)).transpose()?;
        let written = runtime()?.block_on(self.write(ca, encryption.clone()))?;
        let contents = &written.verified.contents;
        output::print(&format!(
            "{}: {} bytes, {} objects, verified\n",
            self.file.display(),
            written.bytes,
            contents.objects
        ))?;
        for key in &contents.unreadable {
            output::print_note(&format!("{key} cannot be decoded: delete it"));
        }
        if encryption.is_none() {
            output::print_note("It contains all Secrets and is not encrypted: see --recipient.");
        }
        if !self.include_pki {
            output::print_note(&format!(
                "The CA is not in it: use --include-pki, or keep a copy of {}. Without it every machine has to join \
                 again.",
                directory.pki().display()
            ));
        }
        Ok(CommandOutcome::Done)
    }

    async fn write(&self, ca: Option<PemKeyPair>, encryption: Encryption) -> Result<WrittenBackup> {
        let client = hub_client(&self.data_dir).await?;
        let request = http::Request::get("/machinist/v1/backup").body(Body::empty())?;
        let response = client.send(request).await.context("cannot reach the hub")?;
        if !response.status().is_success() {
            bail!("the hub responded with {}", response.status());
        }
        let chunks = response.into_body().into_data_stream().map_err(std::io::Error::other);
        let source = StreamReader::new(Box::pin(chunks));
        let path = self.file.clone();
        // Encryption and the disk block.
        let writing = tokio::task::spawn_blocking(move || {
            let mut source = SyncIoBridge::new(source);
            file::write(&path, &mut source, ca.as_ref(), &encryption)
        });
        writing.await.context("the task that writes the backup failed")?
    }
}
