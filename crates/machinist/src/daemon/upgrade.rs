//! The binary of the daemon on the disk, and how another one takes its place. `core::daemon::upgrade` decides; the agent
//! fetches the binary, and the watchdog puts the last good one back.
//!
//! Order of a replacement, so that a daemon runs whenever the power goes: the new binary is complete and synced beside the
//! old one and has said its version; the last good copy is the running binary; the record is synced; one rename.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use machinist_core::daemon::upgrade::{InstalledBinary, UpgradeRecord};
use machinist_core::hex::hex;
use machinist_core::node::UpgradeRequest;
use machinist_core::versioned;
use rustix::fs::StatVfsMountFlags;
use sha2::{Digest as _, Sha256};
use tokio::process::Command;
use tokio::time::timeout;

use super::join::paths::JoinPaths;
use super::join::{SERVICE, WATCHDOG_TIMER};
use super::service_state;
use crate::durable_file;

/// The version of the record that this version writes.
const RECORD_VERSION: u32 = 1;
/// How much of a file is hashed at once.
const CHUNK: usize = 1 << 16;
/// How long a new binary may take to say its version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(20);
/// How much of what it says is read.
const MAX_VERSION_BYTES: u64 = 4096;
/// Where dpkg lists the files of the package.
const DPKG_LISTS: [&str; 3] = ["machinist.list", "machinist:amd64.list", "machinist:arm64.list"];

/// Reads the record of the last upgrade. One that cannot be read counts as none: the worst is another attempt.
pub(super) fn read_record(root: &Path) -> Option<UpgradeRecord> {
    let path = JoinPaths::new(root).upgrade_record();
    let bytes = fs::read(&path).ok()?;
    versioned::from_json(&path.display().to_string(), RECORD_VERSION, &bytes)
        .inspect_err(|error| tracing::warn!(%error, "ignoring the record of the last upgrade"))
        .ok()
}

pub(super) fn write_record(root: &Path, record: &UpgradeRecord) -> Result<()> {
    let path = JoinPaths::new(root).upgrade_record();
    let bytes = versioned::to_json(RECORD_VERSION, record)?;
    durable_file::write(&path, &bytes, durable_file::PRIVATE)
        .with_context(|| format!("cannot write {}", path.display()))
}

pub(super) fn remove_record(root: &Path) -> Result<()> {
    let path = JoinPaths::new(root).upgrade_record();
    durable_file::remove(&path).with_context(|| format!("cannot remove {}", path.display()))?;
    Ok(())
}

/// Notes that the new daemon has completed a pass: from now on only a crash loop brings the old one back.
pub(super) fn note_came_up(root: &Path) -> Result<()> {
    match read_record(root) {
        Some(record) => note_came_up_as(root, record, &sha256_of(Path::new("/proc/self/exe"))?),
        None => Ok(()),
    }
}

fn note_came_up_as(root: &Path, record: UpgradeRecord, own_sha256: &str) -> Result<()> {
    if record.request.sha256 != own_sha256 || record.came_up {
        return Ok(());
    }
    write_record(root, &UpgradeRecord { came_up: true, ..record })
}

/// The digest of a file.
pub(super) fn sha256_of(path: &Path) -> io::Result<String> {
    let (mut file, mut hash, mut chunk) = (File::open(path)?, Sha256::new(), vec![0; CHUNK]);
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(hex(&hash.finalize())),
            read => hash.update(&chunk[..read]),
        }
    }
}

/// How the running daemon was installed.
pub(super) fn installed(root: &Path) -> InstalledBinary {
    if root != Path::new("/") {
        let is_pod = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
        return InstalledBinary { is_pod, ..InstalledBinary::default() };
    }
    let path = service_binary(root);
    let (package, is_read_only) = match &path {
        Some(path) => (owning_package(Path::new("/var/lib/dpkg/info"), path), is_read_only(path)),
        None => (None, false),
    };
    InstalledBinary {
        is_pod: false,
        service_path: path.map(|path| path.display().to_string()),
        package,
        is_read_only,
        has_watchdog: JoinPaths::new(root).timer_link(WATCHDOG_TIMER).symlink_metadata().is_ok(),
    }
}

/// The binary of the service, if it is the one that runs.
pub(super) fn service_binary(root: &Path) -> Option<PathBuf> {
    let (_, unit) = service_state::unit_file(root);
    let installed = service_state::binary_path(&unit)?.canonicalize().ok()?;
    let running = std::env::current_exe().ok()?;
    (installed == running).then_some(installed)
}

/// The package that has a file, by the lists of dpkg.
fn owning_package(lists: &Path, path: &Path) -> Option<String> {
    let has = |list: &str| {
        let text = fs::read_to_string(lists.join(list)).unwrap_or_default();
        text.lines().any(|line| Path::new(line) == path)
    };
    DPKG_LISTS.iter().any(|list| has(list)).then(|| "machinist".to_owned())
}

fn is_read_only(path: &Path) -> bool {
    let mount = rustix::fs::statvfs(path.parent().unwrap_or(path));
    mount.is_ok_and(|mount| mount.f_flag.contains(StatVfsMountFlags::RDONLY))
}

/// Where a new binary waits, beside the one that it replaces: a rename does not cross file systems, and SELinux labels it
/// as it labels that one.
pub(super) fn candidate_path(binary: &Path) -> PathBuf {
    let mut path = binary.to_owned().into_os_string();
    path.push(".new");
    path.into()
}

/// What `version` of a binary prints.
pub(super) async fn version_of(binary: &Path) -> Result<String> {
    let mut command = Command::new(binary);
    command.arg("version").env_clear().kill_on_drop(true);
    command.stdin(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    command.stdout(std::process::Stdio::piped());
    let run = async {
        use tokio::io::AsyncReadExt as _;
        let mut child = command
            .spawn()
            .map_err(|error| anyhow!("the binary cannot be run on this machine: {error}"))?;
        let mut text = Vec::new();
        if let Some(output) = child.stdout.take() {
            output.take(MAX_VERSION_BYTES).read_to_end(&mut text).await?;
        }
        let status = child.wait().await?;
        if !status.success() {
            bail!("`version` of the binary ended with {status}");
        }
        Ok(String::from_utf8_lossy(&text).into_owned())
    };
    timeout(VERSION_TIMEOUT, run).await.unwrap_or_else(|_| {
        bail!("`version` of the binary has not ended after {} s", VERSION_TIMEOUT.as_secs())
    })
}

/// Puts a new binary in the place of the running one. The caller ends, and systemd starts the new one.
pub(super) fn replace(
    root: &Path,
    binary: &Path,
    request: &UpgradeRequest,
    own_sha256: &str,
) -> Result<()> {
    let copy = JoinPaths::new(root).last_good("machinist");
    if sha256_of(&copy).ok().as_deref() != Some(own_sha256) {
        bail!(
            "{} is not the running daemon, so there is nothing to return to: see journalctl -u {SERVICE}",
            copy.display()
        );
    }
    let attempts = read_record(root)
        .filter(|record| record.request.id == request.id)
        .map_or(0, |record| record.attempts);
    let record = UpgradeRecord {
        request: request.clone(),
        from_sha256: own_sha256.to_owned(),
        attempts: attempts + 1,
        checks: 0,
        came_up: false,
        failed: None,
    };
    write_record(root, &record)?;
    durable_file::rename(&candidate_path(binary), binary)
        .with_context(|| format!("cannot replace {}", binary.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn request(sha256: String) -> UpgradeRequest {
        UpgradeRequest {
            id: "1".to_owned(),
            sha256,
            size: 3,
            architecture: None,
            allow_downgrade: false,
        }
    }

    #[test]
    fn a_binary_is_replaced_only_if_there_is_one_to_return_to() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let binary = root.join("machinist");
        fs::create_dir_all(JoinPaths::new(root).last_good("")).unwrap();
        fs::write(&binary, "old").unwrap();
        fs::write(candidate_path(&binary), "new").unwrap();
        let (old, new) =
            (sha256_of(&binary).unwrap(), sha256_of(&candidate_path(&binary)).unwrap());
        let error = replace(root, &binary, &request(new.clone()), &old).unwrap_err();
        assert!(error.to_string().contains("nothing to return to"), "{error}");
        assert_eq!((fs::read(&binary).unwrap(), read_record(root)), (b"old".to_vec(), None));

        fs::write(JoinPaths::new(root).last_good("machinist"), "old").unwrap();
        replace(root, &binary, &request(new.clone()), &old).unwrap();
        assert_eq!(fs::read(&binary).unwrap(), b"new");
        let record = read_record(root).unwrap();
        assert_eq!((record.attempts, record.came_up), (1, false));
        note_came_up_as(root, record.clone(), &old).unwrap();
        assert!(!read_record(root).unwrap().came_up, "the old daemon is not the new one");
        note_came_up_as(root, record, &new).unwrap();
        assert!(read_record(root).unwrap().came_up);
        remove_record(root).unwrap();
        assert_eq!(read_record(root), None);
    }

    #[test]
    fn a_file_of_a_package_is_known() {
        let lists = tempfile::tempdir().unwrap();
        let binary = Path::new("/usr/bin/machinist");
        assert_eq!(owning_package(lists.path(), binary), None);
        fs::write(lists.path().join("machinist.list"), "/.\n/usr\n/usr/bin/machinist\n").unwrap();
        assert_eq!(owning_package(lists.path(), binary).as_deref(), Some("machinist"));
        assert_eq!(owning_package(lists.path(), Path::new("/usr/local/bin/machinist")), None);
    }

    #[tokio::test]
    async fn what_is_no_machinist_ends_within_limits() {
        let directory = tempfile::tempdir().unwrap();
        let script = |name: &str, text: &str| {
            let path = directory.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            path
        };
        let good = script("good", "#!/bin/sh\necho machinist 9.9.9\n");
        assert_eq!(version_of(&good).await.unwrap(), "machinist 9.9.9\n");
        let fails = version_of(&script("fails", "#!/bin/sh\nexit 3\n")).await.unwrap_err();
        assert!(fails.to_string().contains("ended with exit status: 3"), "{fails}");
        let nonsense = version_of(&script("nonsense", "\u{7f}ELF")).await.unwrap_err();
        assert!(nonsense.to_string().contains("cannot be run on this machine"), "{nonsense}");
        // One that never stops writing is cut off, and ends with SIGPIPE.
        let endless = version_of(&script("endless", "#!/bin/sh\nwhile :; do echo x; done\n")).await;
        assert!(endless.is_err());
    }
}
