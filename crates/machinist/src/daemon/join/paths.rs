//! Where the things of a joined machine are.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// The folder of the machine's identity.
const STATE_DIR: &str = "var/lib/machinist";
/// The machine's identity, beneath the root.
pub(super) const KUBECONFIG: &str = "/var/lib/machinist/kubeconfig";
/// Where units are.
const UNIT_DIR: &str = "etc/systemd/system";

/// Places beneath a root.
#[derive(Debug, Clone)]
pub(crate) struct JoinPaths {
    root: PathBuf,
}

impl JoinPaths {
    pub(crate) fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// The folder of the machine's identity.
    pub(crate) fn state_dir(&self) -> PathBuf {
        self.root.join(STATE_DIR)
    }

    /// The machine's identity, and the way to its home.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.state_dir().join("kubeconfig")
    }

    /// The service.
    pub(in super::super) fn unit_file(&self, name: &str) -> PathBuf {
        self.root.join(UNIT_DIR).join(name)
    }

    /// What has the service started.
    pub(super) fn wants_link(&self, name: &str) -> PathBuf {
        self.root.join(UNIT_DIR).join("multi-user.target.wants").join(name)
    }

    /// Makes the folder, for root alone.
    pub(super) fn create_state_dir(&self) -> Result<()> {
        let folder = self.state_dir();
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        made.with_context(|| format!("cannot make {}", folder.display()))
    }

    /// Removes a file, and says whether it was there.
    pub(super) fn remove_file(path: &Path) -> Result<bool> {
        match fs::remove_file(path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error).with_context(|| format!("cannot remove {}", path.display())),
        }
    }

    /// Removes a folder that is empty.
    pub(super) fn remove_empty(path: &Path) {
        // What is in it is somebody else's.
        let _ = fs::remove_dir(path);
    }
}
