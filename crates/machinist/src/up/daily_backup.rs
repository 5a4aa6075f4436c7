//! The daily backup of a hub: takes it when it is due, verifies it, and deletes the oldest ones.
//!
//! `core::backup_schedule` decides when, and which ones. A failure deletes nothing, and never stops the hub or keeps it
//! from starting: a disk for backups that is not mounted must not cost the API. Started by `machinist up --backup-dir`.

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use machinist_core::backup_schedule::{
    ExistingBackup, NextBackup, file_name, next_backup, outdated,
};
use machinist_hub::Hub;
use machinist_hub::auth::{ADMIN_GROUP, UserInfo};
use tokio_util::io::SyncIoBridge;
use tokio_util::sync::CancellationToken;

use super::backup_metrics::BackupMetrics;
use super::pki::now_seconds;
use crate::backup::archive;
use crate::backup::encryption::Encryption;
use crate::backup::file::{self, WrittenBackup};
use crate::data_dir::DataDirectory;
use crate::durable_file;

/// How long the loop sleeps at most: the clock may jump meanwhile.
const MAX_SLEEP: Duration = Duration::from_secs(300);
/// What must be free on the disk besides the backup. A backup must not stop the hub from writing.
const MIN_FREE_BYTES: u64 = 64 << 20;
/// How much larger a backup may be than the objects in it.
const SIZE_FACTOR_PERCENT: u64 = 110;

/// The task under which a failed backup is reported.
const TASK: &str = "take the daily backup";

/// How a hub is backed up.
#[derive(Debug, Clone)]
pub struct DailyBackupConfig {
    /// The directory of the backups. Other files in it are left alone.
    pub(crate) directory: PathBuf,
    /// How many backups are kept.
    pub(crate) keep: NonZeroUsize,
    /// How they are encrypted.
    pub(crate) encryption: Encryption,
    /// Whether they contain the CA.
    pub(crate) include_pki: bool,
}

/// Takes backups until the hub stops.
pub(super) async fn run(
    hub: Hub,
    data: DataDirectory,
    config: DailyBackupConfig,
    metrics: BackupMetrics,
    stop: CancellationToken,
) {
    let mut backups = DailyBackups { hub, data, config, metrics, last_failure: None };
    loop {
        let wait = backups.run_once(now_seconds()).await;
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
    }
}

struct DailyBackups {
    hub: Hub,
    data: DataDirectory,
    config: DailyBackupConfig,
    metrics: BackupMetrics,
    last_failure: Option<i64>,
}

impl DailyBackups {
    /// Takes a backup if one is due at this time. Returns how long to wait.
    async fn run_once(&mut self, now: i64) -> Duration {
        match self.back_up_if_due(now).await {
            Ok(wait) => wait,
            Err(error) => {
                self.last_failure = Some(now);
                self.metrics.failed();
                // Tried again after an hour.
                let failures = self.hub.failures().lasting();
                failures.failed(TASK, &self.directory(), &format!("{error:#}"));
                MAX_SLEEP
            }
        }
    }

    fn directory(&self) -> String {
        self.config.directory.display().to_string()
    }

    async fn back_up_if_due(&mut self, now: i64) -> Result<Duration> {
        let directory = &self.config.directory;
        // An unreadable directory is a failure like others, and is tried again after the same time.
        let existing = match existing_backups(directory) {
            Err(error) if next_backup(now, &[], self.last_failure) == NextBackup::Now => {
                return Err(error);
            }
            Err(_) => return Ok(MAX_SLEEP),
            Ok(existing) => existing,
        };
        if let Some(time) =
            existing.iter().map(|backup| backup.time).filter(|time| *time <= now).max()
        {
            self.metrics.succeeded(time);
        }
        if let NextBackup::At(time) = next_backup(now, &existing, self.last_failure) {
            let seconds = u64::try_from(time.saturating_sub(now)).unwrap_or(0);
            return Ok(Duration::from_secs(seconds).clamp(Duration::from_secs(1), MAX_SLEEP));
        }
        let name = file_name(now, !self.config.encryption.is_none());
        let new = ExistingBackup { name: name.context("the clock is wrong")?, time: now };
        remove_partial(directory)?;
        let written = self.write(&directory.join(&new.name)).await?;
        self.last_failure = None;
        self.hub.failures().succeeded(TASK, &self.directory());
        self.metrics.succeeded(now);
        let unreadable = written.verified.contents.unreadable.len();
        let (objects, bytes) = (written.verified.contents.objects, written.bytes);
        tracing::info!(
            file = new.name,
            objects,
            bytes,
            unreadable,
            "daily backup written and verified"
        );
        for name in outdated(&existing, &new, self.config.keep) {
            let path = directory.join(name);
            durable_file::remove(&path)
                .with_context(|| format!("cannot remove {}", path.display()))?;
            tracing::info!(file = name, "old backup removed");
        }
        Ok(MAX_SLEEP)
    }

    async fn write(&self, path: &Path) -> Result<WrittenBackup> {
        let size = self.hub.store().backup_bytes();
        let free = free_bytes(&self.config.directory)?;
        check_free_space(&self.config.directory, size, free)?;
        let ca = self.config.include_pki.then(|| archive::read_ca(&self.data)).transpose()?;
        let user = UserInfo::new("machinist:daily-backup", [ADMIN_GROUP.to_owned()]);
        let source = self.hub.start_backup(&user, None);
        let (path, encryption) = (path.to_owned(), self.config.encryption.clone());
        let writing = tokio::task::spawn_blocking(move || {
            let mut source = SyncIoBridge::new(source);
            file::write(&path, &mut source, ca.as_ref(), &encryption)
        });
        writing.await.context("the task that writes the backup failed")?
    }
}

/// The backups in a directory. Everything else in it is ignored.
fn existing_backups(directory: &Path) -> Result<Vec<ExistingBackup>> {
    let names = file_names(directory)?;
    Ok(names.iter().filter_map(|name| ExistingBackup::parse(name)).collect())
}

/// Removes what a crash left while it wrote a backup.
fn remove_partial(directory: &Path) -> Result<()> {
    for name in file_names(directory)? {
        if name.strip_suffix(".part").and_then(ExistingBackup::parse).is_some() {
            let path = directory.join(&name);
            durable_file::remove(&path)
                .with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    Ok(())
}

fn file_names(directory: &Path) -> Result<Vec<String>> {
    let context = || format!("cannot read the directory of backups {}", directory.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).with_context(context)? {
        names.extend(entry.with_context(context)?.file_name().into_string());
    }
    Ok(names)
}

fn free_bytes(directory: &Path) -> Result<u64> {
    let found = rustix::fs::statvfs(directory)
        .with_context(|| format!("cannot read the free space of {}", directory.display()))?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Fails if a backup would leave too little space for the hub itself.
fn check_free_space(directory: &Path, objects: u64, free: u64) -> Result<()> {
    let needed = (objects / 100).saturating_mul(SIZE_FACTOR_PERCENT).saturating_add(MIN_FREE_BYTES);
    // In MiB, so that the same cause is not reported again whenever the number of bytes changes.
    ensure!(
        free >= needed,
        "the disk of {} has too little free space for a backup, which needs {} MiB: free space, lower --backup-keep, or \
         use another disk",
        directory.display(),
        needed >> 20
    );
    Ok(())
}

#[cfg(test)]
#[path = "daily_backup_tests.rs"]
mod tests;
