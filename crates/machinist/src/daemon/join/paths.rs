//! Where the files of a joined machine are.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::durable_file;

/// The directory of the machine's identity.
const STATE_DIR: &str = "var/lib/machinist";
/// The identity of the machine, beneath the root.
pub(super) const KUBECONFIG: &str = "/var/lib/machinist/kubeconfig";
/// The directory of unit files.
const UNIT_DIR: &str = "etc/systemd/system";

/// Paths beneath a root.
#[derive(Debug, Clone)]
pub(crate) struct JoinPaths {
    root: PathBuf,
}

impl JoinPaths {
    pub(crate) fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// The directory of the machine's identity.
    pub(crate) fn state_dir(&self) -> PathBuf {
        self.root.join(STATE_DIR)
    }

    /// The kubeconfig: the identity of the machine, and the address of its API server.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.state_dir().join("kubeconfig")
    }

    /// The service.
    pub(in super::super) fn unit_file(&self, name: &str) -> PathBuf {
        self.root.join(UNIT_DIR).join(name)
    }

    /// The link that enables the service.
    pub(in super::super) fn wants_link(&self, name: &str) -> PathBuf {
        self.root.join(UNIT_DIR).join("multi-user.target.wants").join(name)
    }

    /// The link that enables the timer of the watchdog.
    pub(in super::super) fn timer_link(&self, name: &str) -> PathBuf {
        self.root.join(UNIT_DIR).join("timers.target.wants").join(name)
    }

    /// A copy that the last working daemon stored of itself; the directory for an empty name.
    pub(in super::super) fn last_good(&self, name: &str) -> PathBuf {
        self.state_dir().join("last-good").join(name)
    }

    /// What the watchdog has done since the daemon last worked.
    pub(in super::super) fn watchdog_record(&self) -> PathBuf {
        self.state_dir().join("watchdog.json")
    }

    /// The upgrade of the daemon that was begun last.
    pub(in super::super) fn upgrade_record(&self) -> PathBuf {
        self.state_dir().join("upgrade.json")
    }

    /// The certificate request of a join that has not ended.
    pub(super) fn join_request(&self) -> PathBuf {
        self.state_dir().join("join-request.json")
    }

    /// Creates the directory, which only root may enter.
    pub(super) fn create_state_dir(&self) -> Result<()> {
        let directory = self.state_dir();
        durable_file::create_directory(&directory, 0o700)
            .with_context(|| format!("cannot make {}", directory.display()))
    }

    /// Removes a file. Returns whether it was there.
    pub(super) fn remove_file(path: &Path) -> Result<bool> {
        durable_file::remove(path).with_context(|| format!("cannot remove {}", path.display()))
    }

    /// Removes an empty directory.
    pub(super) fn remove_empty(path: &Path) {
        // Its contents belong to someone else.
        let _ = fs::remove_dir(path);
    }
}
