//! What the kit requires of the host. A missing requirement fails a test as "environment"; it never passes silently.

use crate::cache;
use crate::cgroup;
use anyhow::{Result, bail};
use rustix::process::{Resource, getrlimit, setrlimit};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::{env, fs};

/// Commands that every part of the kit calls.
const TOOLS: [&str; 9] = [
    "systemd-nspawn",
    "nsenter",
    "ip",
    "mount",
    "losetup",
    "setsid",
    "bash",
    "etcd",
    "docker-registry",
];

/// A host that has been checked.
#[derive(Debug, Clone, Copy)]
pub struct TestEnvironment(());

impl TestEnvironment {
    /// Checks for root, the tools and permission to create cgroups.
    pub fn check() -> Result<Self> {
        if !rustix::process::geteuid().is_root() {
            bail!("environment: root missing, the kit mounts, boots and makes networks");
        }
        for tool in TOOLS {
            find_tool(tool)?;
        }
        let hierarchies = cgroup::hierarchies();
        if hierarchies.is_empty() {
            bail!("environment: cgroups missing, nothing is mounted on /sys/fs/cgroup");
        }
        let probe = hierarchies[0].join(format!("machinist-probe-{}", std::process::id()));
        if let Err(error) = fs::create_dir(&probe)
            && error.kind() != std::io::ErrorKind::AlreadyExists
        {
            bail!("environment: writable cgroups missing ({}: {error})", hierarchies[0].display());
        }
        // A concurrent test may have removed it already.
        let _ = fs::remove_dir(&probe);
        Ok(Self(()))
    }
}

/// The path of a command, or an "environment" error.
pub fn find_tool(tool: &str) -> Result<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let dirs = env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    for dir in dirs {
        let file = dir.join(tool);
        if file.is_file() {
            return Ok(file);
        }
    }
    bail!("environment: {tool} missing, run make testkit")
}

/// A Kubernetes command from the cache.
pub fn kubernetes_binary(command: &str) -> Result<PathBuf> {
    existing(&cache::artifact("kubernetes")?.join("bin").join(command))
}

/// A number from an environment variable.
pub fn env_number<T: FromStr>(name: &str, default: T) -> T {
    env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Raises the limit of open files to its maximum, because every simulated client needs one. Returns the limit.
pub fn raise_file_limit() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If this fails, the first client without a file reports it.
    let _ = setrlimit(Resource::Nofile, limit);
    getrlimit(Resource::Nofile).current.unwrap_or(1024)
}

fn existing(file: &Path) -> Result<PathBuf> {
    if !file.is_file() {
        bail!("environment: {} missing, run make testkit", file.display());
    }
    Ok(file.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_as_environment() {
        let tool = find_tool("no-such-tool").unwrap_err().to_string();
        assert_eq!(tool, "environment: no-such-tool missing, run make testkit");
        let cached = kubernetes_binary("no-such-command").unwrap_err().to_string();
        assert!(cached.starts_with("environment: "), "{cached}");
    }
}
