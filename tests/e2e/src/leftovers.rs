//! What a lab has left behind on this host. A test fails unless it is nothing.

use crate::cgroup;
use crate::lab::LabId;
use crate::{cache, command};
use anyhow::Result;
use std::fs;

/// Everything that still carries a lab's name: processes, cgroups, mounts, namespaces, links, loop devices, files.
pub fn leftovers(ticket: &LabId) -> Result<Vec<String>> {
    let left = named(&ticket.lab)?;
    Ok(if ticket.is_reused()? { Vec::new() } else { left })
}

fn named(lab: &str) -> Result<Vec<String>> {
    let mut left: Vec<String> = Vec::new();
    let dir = cache::cache_dir()?.join("run").join(lab);
    let dir = dir.to_string_lossy();
    let inside = format!("{dir}/");
    let mounts = format!("{}/", crate::lab::mount_points(lab).display());
    for pid in cgroup::processes(lab) {
        left.push(format!("process {pid}"));
    }
    for hierarchy in cgroup::hierarchies() {
        if hierarchy.join(lab).exists() {
            left.push(format!("cgroup {}", hierarchy.join(lab).display()));
        }
    }
    for line in fs::read_to_string("/proc/self/mountinfo")?.lines() {
        let mount_path = line.split(' ').nth(4).unwrap_or_default();
        let mount_path = format!("{mount_path}/");
        if mount_path.starts_with(&inside) || mount_path.starts_with(&mounts) {
            left.push(format!("mount {mount_path}"));
        }
    }
    let mine = |name: &&str| *name == lab || name.starts_with(&format!("{lab}-"));
    let namespaces = command::run_args("ip", ["netns", "list"])?;
    let names = namespaces.lines().filter_map(|line| line.split(' ').next());
    left.extend(names.filter(mine).map(|name| format!("namespace {name}")));
    let links = command::run_args("ip", ["-o", "link", "show"])?;
    let names = links.lines().filter_map(|line| line.split([':', '@']).nth(1).map(str::trim));
    left.extend(names.filter(mine).map(|name| format!("link {name}")));
    let loops = command::run_args("losetup", ["--list", "--noheadings", "--output", "BACK-FILE"])?;
    let files = loops.lines().map(str::trim).filter(|file| file.starts_with(&inside));
    left.extend(files.map(|file| format!("loop device of {file}")));
    for path in [dir.as_ref(), mounts.as_str()] {
        if fs::exists(path)? {
            left.push(format!("directory {path}"));
        }
    }
    Ok(left)
}
