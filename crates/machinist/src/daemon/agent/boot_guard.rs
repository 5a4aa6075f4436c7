//! The boot guard: on a host whose daemon is a pod, a unit that returns to the previous config if the kubelet does not run
//! after the reboot into a new one. The daemon writes the unit and a copy of itself before that reboot ([`arm`]) and
//! removes both when no change is pending ([`disarm`]); `machinist daemon guard` is the unit's command ([`run`]).
//! `core::daemon::boot_guard` decides. The guard needs neither kubelet nor container runtime nor API server.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow};
use http::Uri;
use k8s_openapi::api::core::v1::Node;
use machinist_core::api::MachineConfig;
use machinist_core::daemon::PendingChange;
use machinist_core::daemon::boot_guard::{
    BOOT_GUARD_DEADLINE, BOOT_GUARD_DIR, BOOT_GUARD_UNIT, arms_boot_guard, boot_guard_unit,
    has_change_to_guard,
};
use machinist_core::health::FailedCheck;

use super::super::health::{self, HealthTarget};
use super::super::os::detect::{self, OsBackend};
use super::super::state::{self, DiskState};
use super::super::status::DaemonNote;
use super::super::systemd::Systemd;
use super::disk::MachineDisk;
use super::health_gate::failed_config;
use super::post_apply::order_reboot;
use super::{Agent, kubelet_health, os};
use crate::durable_file::{self, PartFile};

/// What is Machinist's own on a host; the directory of the guard is in it.
const STATE_DIR: &str = "var/lib/machinist";

/// Where the files of the guard are.
struct GuardFiles {
    directory: PathBuf,
    binary: PathBuf,
    unit: PathBuf,
    link: PathBuf,
}

impl GuardFiles {
    fn beneath(root: &Path) -> Self {
        let (directory, units) = (root.join(BOOT_GUARD_DIR), root.join("etc/systemd/system"));
        Self {
            binary: directory.join("machinist"),
            directory,
            unit: units.join(BOOT_GUARD_UNIT),
            link: units.join("multi-user.target.wants").join(BOOT_GUARD_UNIT),
        }
    }
}

/// Writes the guard for the next boot. The link that enables it is last.
fn arm(root: &Path, kubelet: &Uri) -> io::Result<()> {
    let files = GuardFiles::beneath(root);
    durable_file::create_directory(&root.join(STATE_DIR), 0o700)?;
    durable_file::create_directory(&files.directory, 0o700)?;
    let (mut own, mut part) =
        (File::open("/proc/self/exe")?, PartFile::begin(&files.binary, 0o700)?);
    io::copy(&mut own, &mut part)?;
    part.sync()?;
    part.rename()?;
    if let Some(directory) = files.link.parent() {
        durable_file::create_directories(directory)?;
    }
    let text = boot_guard_unit(&kubelet.to_string());
    durable_file::write(&files.unit, text.as_bytes(), durable_file::PUBLIC)?;
    durable_file::write_symlink(&format!("/etc/systemd/system/{BOOT_GUARD_UNIT}"), &files.link)
}

/// Removes the guard, the link that enables it first. Returns whether there was one.
pub(super) fn disarm(root: &Path) -> io::Result<bool> {
    let files = GuardFiles::beneath(root);
    let mut was_armed = false;
    for path in [&files.link, &files.unit, &files.binary] {
        was_armed |= durable_file::remove(path)?;
    }
    if was_armed {
        // What is not empty belongs to someone else.
        let _ = std::fs::remove_dir(&files.directory);
        let _ = std::fs::remove_dir(root.join(STATE_DIR));
    }
    Ok(was_armed)
}

impl Agent {
    /// Whether the daemon runs in a pod, with the root of the host mounted.
    pub(super) fn is_in_pod(&self) -> bool {
        self.disk.path() != Path::new("/")
    }

    /// Arms the guard before a reboot, where the kubelet starts this daemon. Without it the reboot happens all the same:
    /// the machine is as safe as it is without a guard, and its event says so.
    pub(super) async fn arm_boot_guard(&self, node: &Arc<Node>, pending: &PendingChange) {
        let Some(kubelet) = &self.kubelet else { return };
        let is_pod = self.is_in_pod();
        if !arms_boot_guard(pending, kubelet_health::responds(kubelet).await, is_pod) {
            return;
        }
        let (root, endpoint) = (self.disk.path().to_owned(), kubelet.clone());
        let armed = tokio::task::spawn_blocking(move || arm(&root, &endpoint)).await;
        let armed = armed.map_err(io::Error::other).and_then(|result| result);
        match armed {
            Ok(()) => tracing::info!(
                unit = BOOT_GUARD_UNIT,
                "the host returns to the previous config if its kubelet does not run after the reboot"
            ),
            Err(error) => {
                let message = format!(
                    "cannot write {BOOT_GUARD_UNIT} on the host: {error}; if the kubelet does not run after this reboot, nobody rolls back"
                );
                tracing::warn!(message);
                self.reporter.warn(node, "BootGuardFailed", message);
            }
        }
    }
}

/// The guard on the host: waits until the machine is healthy, otherwise returns to the previous config and reboots.
///
/// # Errors
/// The rollback is not possible.
pub(crate) async fn run(root: &Path, kubelet: &Uri) -> Result<()> {
    let disk = MachineDisk::new(root);
    disk.recover().await?;
    let Some((current, _)) = change_to_guard(&disk).await? else {
        disarm(root)?;
        return Ok(());
    };
    let config = current.metadata.name.clone().unwrap_or_default();
    tracing::info!(config, "checking whether the kubelet runs with the new config");
    let Err(failing) = check(root, &current, kubelet).await else {
        tracing::info!(config, "the kubelet runs: the daemon continues");
        disarm(root)?;
        return Ok(());
    };
    // The daemon may have started meanwhile: it judges the change itself, or has completed it.
    let is_left = DaemonNote::read(root).ok().flatten().is_none();
    match change_to_guard(&disk).await?.filter(|_| is_left) {
        Some((current, pending)) => roll_back(&disk, current, pending, failing).await,
        None => {
            tracing::info!(config, %failing, "the daemon runs: it judges the change");
            disarm(root)?;
            Ok(())
        }
    }
}

/// The change that this boot is the first with, and its config.
async fn change_to_guard(disk: &MachineDisk) -> Result<Option<(MachineConfig, PendingChange)>> {
    let boot_id = state::boot_id(disk.path())?;
    let DiskState { current, pending, .. } = disk.read().await?;
    let Some(current) = current else { return Ok(None) };
    let config = current.metadata.name.as_deref().unwrap_or_default();
    let guarded = has_change_to_guard(config, pending.as_ref(), &boot_id);
    Ok(pending.filter(|_| guarded).map(|pending| (current, pending)))
}

/// Waits for the checks of the config, and for the kubelet.
async fn check(root: &Path, config: &MachineConfig, kubelet: &Uri) -> Result<(), FailedCheck> {
    let mut deadline = BOOT_GUARD_DEADLINE;
    // The daemon has read the checks before it wrote the config.
    if let Ok(Some(mut spec)) = health::spec(config) {
        // The guard has no credentials for the API server.
        spec.api = false;
        deadline = spec.deadline;
        if !spec.checks().is_empty() {
            health::wait_until_healthy(&spec, HealthTarget { root, client: None }).await?;
        }
    }
    kubelet_health::wait_until_running(kubelet, deadline).await
}

async fn roll_back(
    disk: &MachineDisk,
    current: MachineConfig,
    pending: PendingChange,
    failing: FailedCheck,
) -> Result<()> {
    let root = disk.path();
    let path = root.to_owned();
    let backend = Arc::new(tokio::task::spawn_blocking(move || detect::detect(&path)).await?);
    let marker = failed_config(&current, &pending, failing);
    tracing::error!(reason = marker.reason(), "rolling back");
    disk.record_failed_config(marker).await?;
    write_rollback(disk, &backend, current, pending).await?;
    // Nothing judges the previous config: it is the last one that worked.
    disarm(root)?;
    let systemd = Systemd::connect(root).await?;
    let systemd = systemd.ok_or_else(|| anyhow!("systemd is not running on this machine"))?;
    order_reboot(&systemd, &backend, "returning to the previous config").await
}

/// Writes the previous config and stages the previous OS.
async fn write_rollback(
    disk: &MachineDisk,
    backend: &Arc<OsBackend>,
    current: MachineConfig,
    pending: PendingChange,
) -> Result<()> {
    let boot_id = state::boot_id(disk.path())?;
    let previous = pending.previous.clone();
    let os = os::plan_os_rollback(backend, &current, &pending).await?;
    let mut rollback = pending.rollback(&boot_id);
    rollback.os = os;
    disk.apply_change(current, previous, rollback.clone(), false)
        .await
        .context("cannot write the previous config")?;
    let Some(os) = rollback.os.as_mut().filter(|os| !os.is_staged) else { return Ok(()) };
    os::stage_os_change(backend, os.change.clone(), true).await?;
    os.is_staged = true;
    disk.set_pending(Some(rollback)).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn it_is_written_beneath_the_root_and_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let endpoint: Uri = "http://localhost:10248/healthz".parse().unwrap();
        assert!(!disarm(root).unwrap());
        for _ in 0..2 {
            arm(root, &endpoint).unwrap();
        }
        let files = GuardFiles::beneath(root);
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o7777;
        assert_eq!((mode(&files.binary), mode(&files.unit)), (0o700, 0o644));
        let target = std::fs::read_link(&files.link).unwrap();
        assert_eq!(target, Path::new("/etc/systemd/system").join(BOOT_GUARD_UNIT));
        assert!(disarm(root).unwrap());
        assert!(!root.join("var/lib/machinist").exists());
        assert!(!files.unit.exists() && files.link.symlink_metadata().is_err());
    }

    #[test]
    fn a_state_directory_that_is_in_use_stays() {
        let directory = tempfile::tempdir().unwrap();
        let kept = directory.path().join("var/lib/machinist/kept");
        std::fs::create_dir_all(kept.parent().unwrap()).unwrap();
        std::fs::write(&kept, "").unwrap();
        arm(directory.path(), &"http://localhost/".parse().unwrap()).unwrap();
        assert!(disarm(directory.path()).unwrap());
        assert!(kept.exists());
    }
}
