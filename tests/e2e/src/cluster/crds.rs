//! Custom resource definitions: ours and those that OpenShift publishes.

use super::Cluster;
use crate::{cache, wait_for};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};

impl Cluster {
    /// Installs CRDs from files and directories, and waits until the API serves them.
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
        let established = ["wait", "--for=condition=Established", "--timeout=60s"];
        let established = [&established[..], &args[1..]].concat();
        // kubectl fails on an object whose conditions nobody has written yet.
        wait_for("the CRDs to have conditions", || match self.kubectl(&established) {
            Ok(_) => Ok(true),
            Err(error) if error.to_string().contains("accessor error") => Ok(false),
            Err(error) => Err(error),
        })
    }

    /// Installs the CRDs that OpenShift publishes in the Go module `github.com/openshift/api`.
    pub fn install_published_crds(&self) -> Result<()> {
        self.install_crds(&[published_crds()?])
    }

    /// Installs the CRDs of this project.
    pub fn install_our_crds(&self) -> Result<()> {
        self.install_crds(&[our_crds()])
    }
}

/// The directory with OpenShift's CRDs, one file per kind.
pub fn published_crds() -> Result<PathBuf> {
    Ok(cache::artifact("openshift-api")?.join("crds"))
}

/// The directory with the CRDs of this project.
pub fn our_crds() -> PathBuf {
    cache::source_root().join("deploy/crds")
}

/// The CRD files in a directory.
pub fn crd_files(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(dir).with_context(|| format!("read {}", dir.display()))?;
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|end| end == "yaml"));
    files.sort();
    Ok(files)
}
