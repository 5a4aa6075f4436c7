//! The data directory of a hub: paths of its files, which only the owner can read.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::durable_file;

/// A data directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataDirectory {
    root: PathBuf,
}

impl DataDirectory {
    /// The directory at a path.
    #[must_use]
    pub fn at(root: PathBuf) -> Self {
        Self { root }
    }

    /// The default directory of a user: `$XDG_STATE_HOME/machinist`, else
    /// `~/.local/state/machinist`.
    ///
    /// # Errors
    /// Neither variable is set.
    pub fn user_default(state_home: Option<&str>, home: Option<&str>) -> Result<Self> {
        let given = |text: Option<&str>| text.map(PathBuf::from).filter(|path| path.is_absolute());
        let state = given(state_home).or_else(|| given(home).map(|home| home.join(".local/state")));
        match state {
            Some(state) => Ok(Self::at(state.join("machinist"))),
            None => {
                bail!("neither XDG_STATE_HOME nor HOME is set: name a directory with --data-dir")
            }
        }
    }

    /// The path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.root
    }

    /// The directory of the store.
    #[must_use]
    pub fn store(&self) -> PathBuf {
        self.root.join("store")
    }

    /// The binaries that machines upgrade to.
    #[must_use]
    pub fn binaries(&self) -> PathBuf {
        self.root.join("binaries")
    }

    /// The directory of keys and certificates.
    #[must_use]
    pub fn pki(&self) -> PathBuf {
        self.root.join("pki")
    }

    /// The certificate of the CA.
    #[must_use]
    pub fn ca(&self) -> PathBuf {
        self.pki().join("ca.crt")
    }

    /// The key of the CA.
    #[must_use]
    pub fn ca_key(&self) -> PathBuf {
        self.pki().join("ca.key")
    }

    /// Exists while a restore into the directory is not complete.
    #[must_use]
    pub fn restore_marker(&self) -> PathBuf {
        self.root.join("RESTORING")
    }

    /// The kubeconfig of the administrator.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.root.join("kubeconfig")
    }

    /// The audit log.
    #[must_use]
    pub fn audit(&self) -> PathBuf {
        self.root.join("audit.log")
    }

    /// Creates the directory if it does not exist; returns whether it was created.
    ///
    /// # Errors
    /// It cannot be created, or others can read it.
    pub fn create(&self) -> Result<bool> {
        let is_new = !self.root.exists();
        for directory in [self.root.clone(), self.pki()] {
            let mut builder = fs::DirBuilder::new();
            let made = builder.recursive(true).mode(0o700).create(&directory);
            made.with_context(|| format!("cannot create {}", directory.display()))?;
            let mode = fs::metadata(&directory)?.permissions().mode();
            if mode & 0o077 != 0 {
                fs::set_permissions(&directory, fs::Permissions::from_mode(0o700))
                    .with_context(|| format!("others can read {}", directory.display()))?;
            }
        }
        Ok(is_new)
    }
}

/// Replaces a file atomically, readable only for its owner. It is on disk when this returns.
///
/// # Errors
/// The file cannot be written.
pub fn write_private(path: &Path, contents: &str) -> Result<()> {
    durable_file::write(path, contents.as_bytes(), durable_file::PRIVATE)
        .with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_follows_the_environment() {
        let path = |state, home| DataDirectory::user_default(state, home).map(|d| d.root).ok();
        assert_eq!(path(Some("/s"), Some("/h")), Some("/s/machinist".into()));
        assert_eq!(path(Some("rel"), Some("/h")), Some("/h/.local/state/machinist".into()));
        assert_eq!(path(None, Some("/h")), Some("/h/.local/state/machinist".into()));
        assert_eq!(path(None, None), None);
    }

    #[test]
    fn only_the_owner_can_read_it() {
        let temporary = tempfile::tempdir().unwrap();
        let directory = DataDirectory::at(temporary.path().join("a/b"));
        assert!(directory.create().unwrap());
        assert!(!directory.create().unwrap());
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(directory.path()), 0o700);
        write_private(&directory.kubeconfig(), "x").unwrap();
        assert_eq!(mode(&directory.kubeconfig()), 0o600);
    }
}
