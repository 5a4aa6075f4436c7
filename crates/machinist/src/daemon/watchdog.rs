//! The watchdog of the daemon: a timer runs it from a copy of the last daemon that worked. It restores the daemon's unit
//! and binary and starts the service. `core::watchdog` decides; this performs. Called by `machinist daemon watchdog`.
//!
//! The daemon stores the copy when it has completed a pass ([`store_last_good`]), and then reports what was restored.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use machinist_core::daemon::upgrade::{MAX_UNCONFIRMED_CHECKS, UpgradeRecord};
use machinist_core::versioned;
use machinist_core::watchdog::{LastGood, ObservedService, WatchdogAction, watchdog_decision};
use serde::{Deserialize, Serialize};

use super::join::paths::JoinPaths;
use super::join::{PREVIOUS, SERVICE, identity_copy};
use super::systemd::Systemd;
use super::{service_state, upgrade};
use crate::durable_file::{self, PartFile};

/// The version of the record that this version writes.
const RECORD_VERSION: u32 = 1;
/// How many restores the record keeps.
const MAX_RECORDED: usize = 20;
/// How much of two files is compared at once.
const CHUNK: usize = 1 << 16;
/// The space on the disk that a copy of the binary leaves free.
const RESERVED_SPACE: u64 = 64 << 20;

/// What the watchdog has done since the daemon last worked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct WatchdogRecord {
    /// How often it recovered the daemon from a crash loop.
    recoveries: u32,
    /// What it restored, for people.
    restored: Vec<String>,
    /// The problem that it cannot solve, as it was last logged.
    #[serde(skip_serializing_if = "Option::is_none")]
    unsolved: Option<String>,
}

impl WatchdogRecord {
    /// Reads the record. One that cannot be read, because it is damaged or of a newer version, must not keep the watchdog from
    /// its work: it counts from zero.
    fn read(path: &Path) -> Self {
        let Ok(bytes) = fs::read(path) else { return Self::default() };
        versioned::from_json(&path.display().to_string(), RECORD_VERSION, &bytes)
            .unwrap_or_default()
    }

    /// Whether a problem that the watchdog cannot solve is not in the log yet.
    fn take_unlogged(&mut self, problem: &str) -> bool {
        let is_new = self.unsolved.as_deref() != Some(problem);
        self.unsolved = Some(problem.to_owned());
        is_new
    }

    fn write(&self, path: &Path) -> Result<()> {
        let bytes = versioned::to_json(RECORD_VERSION, self)?;
        durable_file::write(path, &bytes, durable_file::PRIVATE)
            .with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Looks once, and restores what is broken.
pub(crate) async fn run(root: &Path) -> Result<()> {
    let join_paths = JoinPaths::new(root);
    let Some(mut observed) = service_state::observe(root).await else { return Ok(()) };
    if !observed.has_identity && identity_copy::restore(root)? {
        let Some(again) = service_state::observe(root).await else { return Ok(()) };
        observed = again;
        // The unit of a package does not start without an identity.
        if observed.active_state.as_deref() == Some("inactive")
            && let Some(systemd) = Systemd::connect(root).await?
        {
            systemd.start(SERVICE).await?;
        }
    }
    let Ok(unit) = fs::read_to_string(join_paths.last_good(SERVICE)) else { return Ok(()) };
    let copy = join_paths.last_good("machinist");
    let binary =
        service_state::binary_path(&unit).context("the last good unit has no ExecStart")?;
    let binary = beneath(root, binary);
    let begun = count_check(root, &observed)?;
    let is_upgrade_overdue = begun.as_ref().is_some_and(UpgradeRecord::is_overdue);
    // Reading two binaries every minute would cost more than the daemon itself.
    let may_differ = observed.is_crash_looping() || is_upgrade_overdue;
    let binary_differs = may_differ && !is_same(&copy, &binary);
    let last_good = LastGood {
        is_upgrade_overdue,
        binary_differs,
        unit_differs: service_state::unit_file(root).1 != unit,
        unit_is_packaged: service_state::packaged_unit(root).as_deref() == Some(unit.as_str()),
    };
    let record_path = join_paths.watchdog_record();
    let mut record = WatchdogRecord::read(&record_path);
    let decision = watchdog_decision(&observed, last_good, record.recoveries);
    let Some(problem) = decision.problem else { return Ok(()) };
    if decision.actions.is_empty() {
        // Every minute: once per change.
        if record.take_unlogged(&problem.to_string()) {
            tracing::warn!(%problem, "the daemon cannot run, and the watchdog cannot help");
            record.write(&record_path)?;
        }
        return Ok(());
    }
    record.unsolved = None;
    tracing::warn!(%problem, actions = ?decision.actions, "restoring the daemon");
    // Recorded first: a crash in between must not make the number of recoveries endless.
    record.recoveries += u32::from(decision.is_recovery);
    record.restored.push(decision.describe());
    let excess = record.restored.len().saturating_sub(MAX_RECORDED);
    record.restored.drain(..excess);
    if let Err(error) = record.write(&record_path) {
        // On a full disk, too, a mask is removed and the service is started. Only what must be counted is not done.
        if decision.is_recovery {
            return Err(error);
        }
        tracing::warn!(error = %format_args!("{error:#}"), "cannot record what is restored");
    }
    if decision.actions.contains(&WatchdogAction::WriteBinary)
        && let Some(record) = begun.filter(|record| record.failed.is_none())
    {
        // First: the old daemon must not try the same binary again.
        let reason = format!(
            "the new daemon did not come up ({}), and the watchdog put the old one back: see journalctl -u {SERVICE} there",
            problem.cause()
        );
        upgrade::write_record(root, &UpgradeRecord { failed: Some(reason), ..record })?;
    }
    let is_running = !is_upgrade_overdue && observed.active_state.as_deref() == Some("active");
    for action in decision.actions {
        perform(root, action, &unit, &copy, &binary, is_running)
            .await
            .with_context(|| format!("cannot restore the daemon ({action:?})"))?;
    }
    Ok(())
}

/// Counts a look at a new daemon that has not come up yet. Runs are counted, not minutes: a machine may be off meanwhile.
fn count_check(root: &Path, observed: &ObservedService) -> Result<Option<UpgradeRecord>> {
    let Some(mut record) = upgrade::read_record(root) else { return Ok(None) };
    let is_stopped = observed.active_state.as_deref() == Some("inactive");
    let is_open = record.failed.is_none() && !record.came_up && !is_stopped;
    if is_open && record.checks < MAX_UNCONFIRMED_CHECKS {
        record.checks += 1;
        upgrade::write_record(root, &record)?;
    }
    Ok(Some(record))
}

async fn perform(
    root: &Path,
    action: WatchdogAction,
    unit: &str,
    copy: &Path,
    binary: &Path,
    is_running: bool,
) -> Result<()> {
    let join_paths = JoinPaths::new(root);
    match action {
        WatchdogAction::Unmask => {
            durable_file::remove(&join_paths.unit_file(SERVICE))?;
        }
        WatchdogAction::WriteUnit => {
            let path = join_paths.unit_file(SERVICE);
            durable_file::write(&path, unit.as_bytes(), durable_file::PUBLIC)?;
        }
        WatchdogAction::WriteBinary => copy_file(copy, binary, 0o755)?,
        WatchdogAction::Enable => {
            let link = join_paths.wants_link(SERVICE);
            durable_file::create_directories(link.parent().unwrap_or(root))?;
            durable_file::write_symlink(&format!("/etc/systemd/system/{SERVICE}"), &link)?;
        }
        WatchdogAction::Start => {
            let Some(systemd) = Systemd::connect(root).await? else { return Ok(()) };
            systemd.daemon_reload().await?;
            systemd.reset_failed(SERVICE).await?;
            if !is_running {
                systemd.restart(SERVICE).await?;
            }
        }
    }
    Ok(())
}

/// Stores the identity, and the running binary and its unit as the last good ones, if they are those of the service and have
/// changed.
/// Returns what the watchdog has restored since the last time.
pub(super) fn store_last_good(root: &Path) -> Result<Vec<String>> {
    let join_paths = JoinPaths::new(root);
    identity_copy::store(root)?;
    let (_, unit) = service_state::unit_file(root);
    let installed = service_state::binary_path(&unit).and_then(|path| path.canonicalize().ok());
    let running = std::env::current_exe().ok();
    // In a pod, or started by hand: nothing that a watchdog could restore.
    if root != Path::new("/") || installed.is_none() || installed != running {
        return Ok(Vec::new());
    }
    let directory = join_paths.last_good("");
    durable_file::create_directory(&directory, 0o700)
        .with_context(|| format!("cannot create {}", directory.display()))?;
    let (own, copy) = (Path::new("/proc/self/exe"), join_paths.last_good("machinist"));
    if !is_same(own, &copy) {
        let space = rustix::fs::statvfs(&directory)?;
        let needed = own.metadata()?.len() + RESERVED_SPACE;
        if space.f_bavail.saturating_mul(space.f_frsize) < needed {
            bail!("{}: the disk is too full for a copy of the binary", directory.display());
        }
        keep_previous(&copy, &join_paths.last_good(PREVIOUS));
        copy_file(own, &copy, 0o700).with_context(|| format!("cannot write {}", copy.display()))?;
    }
    let stored = join_paths.last_good(SERVICE);
    if fs::read_to_string(&stored).ok().as_deref() != Some(unit.as_str()) {
        durable_file::write(&stored, unit.as_bytes(), durable_file::PRIVATE)
            .with_context(|| format!("cannot write {}", stored.display()))?;
    }
    let path = join_paths.watchdog_record();
    let record = WatchdogRecord::read(&path);
    durable_file::remove(&path).with_context(|| format!("cannot remove {}", path.display()))?;
    Ok(record.restored)
}

/// Keeps the last good binary under another name: for a person who wants it back. Its loss is not worth stopping for.
fn keep_previous(copy: &Path, previous: &Path) {
    let kept = durable_file::remove(previous).and_then(|_| durable_file::hard_link(copy, previous));
    if let Err(error) = kept.or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    }) {
        tracing::warn!(%error, "cannot keep the previous binary");
    }
}

fn beneath(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

fn copy_file(from: &Path, to: &Path, mode: u32) -> io::Result<()> {
    let (mut source, mut part) = (File::open(from)?, PartFile::begin(to, mode)?);
    io::copy(&mut source, &mut part)?;
    part.sync()?;
    part.rename()
}

/// Whether two files have the same contents. One that cannot be read is different.
fn is_same(one: &Path, other: &Path) -> bool {
    let compare = || -> io::Result<bool> {
        let (mut one, mut other) = (File::open(one)?, File::open(other)?);
        let (mut left, mut right) = (vec![0; CHUNK], vec![0; CHUNK]);
        let mut remaining = one.metadata()?.len();
        if remaining != other.metadata()?.len() {
            return Ok(false);
        }
        while remaining > 0 {
            let length = usize::try_from(remaining).unwrap_or(CHUNK).min(CHUNK);
            one.read_exact(&mut left[..length])?;
            other.read_exact(&mut right[..length])?;
            if left[..length] != right[..length] {
                return Ok(false);
            }
            remaining -= length as u64;
        }
        Ok(true)
    };
    compare().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_compared_and_copied() {
        let directory = tempfile::tempdir().unwrap();
        let (one, two) = (directory.path().join("one"), directory.path().join("two"));
        let mut bytes = vec![7; CHUNK + 1];
        fs::write(&one, &bytes).unwrap();
        assert!(!is_same(&one, &two));
        copy_file(&one, &two, 0o700).unwrap();
        assert!(is_same(&one, &two));
        bytes[CHUNK] = 8;
        fs::write(&two, &bytes).unwrap();
        assert!(!is_same(&one, &two));
        fs::write(&two, b"").unwrap();
        assert!(!is_same(&one, &two));
    }

    #[test]
    fn an_unsolved_problem_is_logged_once_per_change_by_all_runs_together() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("watchdog.json");
        for (problem, expected) in [("a", true), ("a", false), ("b", true), ("b", false)] {
            let mut record = WatchdogRecord::read(&path);
            assert_eq!(record.take_unlogged(problem), expected, "{problem}");
            record.write(&path).unwrap();
        }
    }

    #[test]
    fn a_record_that_cannot_be_read_is_ignored() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("watchdog.json");
        assert_eq!(WatchdogRecord::read(&path), WatchdogRecord::default());
        let mut record = WatchdogRecord { recoveries: 2, ..WatchdogRecord::default() };
        record.restored.push("unit".to_owned());
        record.write(&path).unwrap();
        assert_eq!(WatchdogRecord::read(&path), record);
        for text in ["", "{", r#"{"version":99,"recoveries":3}"#, r#"{"recoveries":-1}"#] {
            fs::write(&path, text).unwrap();
            assert_eq!(WatchdogRecord::read(&path), WatchdogRecord::default(), "{text}");
        }
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert_eq!(WatchdogRecord::read(&path), WatchdogRecord::default());
    }
}
