//! The packages of extensions and other kernels, extracted from their image into a temporary repository.

use std::fs;
use std::path::PathBuf;
use std::thread;

use anyhow::{Context as _, Result};
use machinist_core::api::names::path::PULL_SECRET;
use machinist_core::os::OsChange;
use machinist_core::os::extensions::{
    REPO_DIR, REPO_FILE, fetch_backoff, fetch_commands, repo_file,
};

use super::command::HostCommands;

/// A repository of packages, removed when this value is dropped.
#[derive(Debug)]
pub(super) struct ExtensionsRepo {
    host: HostCommands,
    file: PathBuf,
    dir: PathBuf,
    container: String,
}

impl ExtensionsRepo {
    /// Extracts the packages that a change needs; `None` if it needs none.
    pub(super) fn fetch(host: &HostCommands, change: &OsChange) -> Result<Option<Self>> {
        let Some(image) = &change.extensions_image else { return Ok(None) };
        let authfile = host.path(PULL_SECRET).is_file().then_some(PULL_SECRET);
        let calls = fetch_commands(image, authfile);
        let mut failures = 0;
        while let Err(error) = host.run_logged("nice", &calls.pull) {
            failures += 1;
            let pause = fetch_backoff(failures).ok_or(error)?;
            thread::sleep(pause);
        }
        let repo = Self {
            host: host.clone(),
            file: host.path(REPO_FILE),
            dir: host.path(REPO_DIR),
            container: calls.container,
        };
        fs::create_dir_all(&repo.dir)
            .with_context(|| format!("cannot make {}", repo.dir.display()))?;
        host.run_logged("podman", &calls.create)?;
        host.run_logged("podman", &calls.copy)?;
        host.run_logged("chcon", &calls.label)?;
        fs::write(&repo.file, repo_file())
            .with_context(|| format!("cannot write {}", repo.file.display()))?;
        Ok(Some(repo))
    }
}

impl Drop for ExtensionsRepo {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.file);
        let _ = fs::remove_dir_all(&self.dir);
        if let Err(error) =
            self.host.run_logged("podman", &["rm", "--force", "--ignore", &self.container])
        {
            let error = format_args!("{error:#}");
            tracing::warn!(%error, "cannot remove the container of the extensions");
        }
    }
}
