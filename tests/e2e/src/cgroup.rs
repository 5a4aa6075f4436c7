//! Cgroups: one per lab, and one per process or machine below it, in every mounted hierarchy.

use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

const CGROUP_ROOT: &str = "/sys/fs/cgroup";

/// The mounted hierarchies: the unified one, or the separate ones of cgroup v1.
pub fn hierarchies() -> Vec<PathBuf> {
    let root = Path::new(CGROUP_ROOT);
    if root.join("cgroup.procs").exists() {
        return vec![root.to_owned()];
    }
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    let mut found: Vec<_> = entries
        .map(|entry| entry.path())
        // Links such as cpu,cpuacct name the same hierarchy again.
        .filter(|path| !path.is_symlink() && path.join("cgroup.procs").exists())
        .collect();
    found.sort();
    found
}

/// Creates a group in every hierarchy. Returns the paths of their `cgroup.procs`.
pub(crate) fn make(name: &str) -> Result<Vec<PathBuf>> {
    let mut members = Vec::new();
    for hierarchy in hierarchies() {
        let group = hierarchy.join(name);
        fs::create_dir_all(&group).with_context(|| format!("make cgroup {}", group.display()))?;
        // A new cpuset is empty and accepts no process until it is filled.
        for file in ["cpuset.cpus", "cpuset.mems"] {
            let (own, above) = (group.join(file), group.join("..").join(file));
            if own.exists() && !hierarchy.join("cgroup.controllers").exists() {
                fs::write(&own, fs::read(&above)?).with_context(|| format!("fill {file}"))?;
            }
        }
        members.push(group.join("cgroup.procs"));
    }
    Ok(members)
}

/// The processes in a group and in the groups below it.
pub(crate) fn processes(name: &str) -> Vec<i32> {
    let mut found = Vec::new();
    for hierarchy in hierarchies() {
        collect(&hierarchy.join(name), &mut found);
    }
    found.sort_unstable();
    found.dedup();
    found
}

fn collect(group: &Path, found: &mut Vec<i32>) {
    let members = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    found.extend(members.lines().filter_map(|line| line.parse::<i32>().ok()));
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            collect(&entry.path(), found);
        }
    }
}

/// Removes the groups below a group, as a power cycle would. With `keep` the group itself stays.
pub(crate) fn remove(name: &str, keep: bool) {
    for hierarchy in hierarchies() {
        remove_below(&hierarchy.join(name), keep);
    }
}

fn remove_below(group: &Path, keep: bool) {
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            remove_below(&entry.path(), false);
        }
    }
    if !keep {
        // The janitor removes a group that is still busy.
        let _ = fs::remove_dir(group);
    }
}
