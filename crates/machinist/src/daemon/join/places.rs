//! Where the things of a joined machine are.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// The folder of the machine's identity.
const FOLDER: &str = "var/lib/machinist";
/// The machine's identity, beneath the root.
pub(super) const KUBECONFIG: &str = "/var/lib/machinist/kubeconfig";
/// Where units are.
const UNITS: &str = "etc/systemd/system";

/// Places beneath a root.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    root: PathBuf,
}

impl Places {
    pub(crate) fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// The folder of the machine's identity.
    pub(crate) fn folder(&self) -> PathBuf {
        self.root.join(FOLDER)
    }

    /// The machine's identity, and the way to its home.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.folder().join("kubeconfig")
    }

    /// The service.
    pub(in super::super) fn unit(&self, name: &str) -> PathBuf {
        self.root.join(UNITS).join(name)
    }

    /// What has the service started.
    pub(super) fn wanted(&self, name: &str) -> PathBuf {
        self.root.join(UNITS).join("multi-user.target.wants").join(name)
    }

    /// Makes the folder, for root alone.
    pub(super) fn make(&self) -> Result<()> {
        let folder = self.folder();
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        made.with_context(|| format!("cannot make {}", folder.display()))
    }

    /// Removes a file, and says whether it was there.
    pub(super) fn remove(path: &Path) -> Result<bool> {
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
