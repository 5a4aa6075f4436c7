//! Custom resource definitions: our own and the published ones.

use super::Cluster;
use crate::cache;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};

impl Cluster {
    /// Installs the CRDs in files and folders, and waits until the API serves them.
    pub fn install_crds<P: AsRef<Path>>(&self, paths: &[P]) -> Result<()> {
        let mut args = vec!["--server-side".to_owned()];
        for path in paths {
            let path = path.as_ref();
            if !path.exists() {
                bail!("there are no CRDs at {}", path.display());
            }
            args.push(format!("--filename={}", path.display()));
        }
        let args: Vec<_> = args.iter().map(String::as_str).collect();
        self.kubectl(&[&["apply"], &args[..]].concat()).context("install CRDs")?;
        let files = &args[1..];
        self.kubectl(&[&["wait", "--for=condition=Established", "--timeout=60s"], files].concat())?;
        Ok(())
    }

    /// Installs the CRDs that OpenShift publishes, as they are in the Go module `github.com/openshift/api`.
    pub fn install_published_crds(&self) -> Result<()> {
        self.install_crds(&[published_crds()?])
    }

    /// Installs the CRDs of this project.
    pub fn install_our_crds(&self) -> Result<()> {
        self.install_crds(&[our_crds()])
    }
}

/// The folder with the published CRDs, one file per kind.
pub fn published_crds() -> Result<PathBuf> {
    Ok(cache::artifact("openshift-api")?.join("crds"))
}

/// The folder with the CRDs of this project.
pub fn our_crds() -> PathBuf {
    cache::source_root().join("deploy/crds")
}

/// The CRD files in a folder.
pub fn crd_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))?;
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|end| end == "yaml"));
    files.sort();
    Ok(files)
}
