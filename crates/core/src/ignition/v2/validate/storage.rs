//! File systems, RAID arrays, files, directories and links.

use std::collections::HashSet;

use super::super::schema::{File, Filesystem, Mount, Owner, Raid, Storage};
use super::{V2Validator, path_problem};
use crate::ignition::report::ConfigPath;

impl V2Validator {
    /// Reports nodes in unknown file systems, and duplicate file systems.
    pub(super) fn filesystem_names(&mut self, storage: &Storage, path: &ConfigPath) {
        let mut names = HashSet::from(["root"]);
        let mut shadows = Vec::new();
        for (index, filesystem) in storage.filesystems.iter().enumerate() {
            if !names.insert(&filesystem.name) {
                shadows.push((index, &filesystem.name));
            }
        }
        let files = storage.files.iter().map(|node| (&node.filesystem, &node.path));
        let links = storage.links.iter().map(|node| (&node.filesystem, &node.path));
        let directories = storage.directories.iter().map(|node| (&node.filesystem, &node.path));
        let nodes = (files.enumerate().map(|(index, node)| ("files", "File", index, node)))
            .chain(links.enumerate().map(|(index, node)| ("links", "Link", index, node)))
            .chain(
                directories
                    .enumerate()
                    .map(|(index, node)| ("directories", "Directory", index, node)),
            );
        for (list, kind, index, (filesystem, node)) in nodes {
            if !filesystem.is_empty() && !names.contains(filesystem.as_str()) {
                let message = format!(
                    "{kind} {node:?} references nonexistent filesystem {filesystem:?}. (This is ok if it is defined in a referenced config)"
                );
                self.report.warning(&path.key(list).index(index), message);
            }
        }
        for (index, name) in shadows {
            let message = format!("Filesystem {name:?} shadows exising filesystem definition");
            self.report.warning(&path.key("filesystems").index(index), message);
        }
    }

    pub(super) fn storage(&mut self, storage: &Storage, path: &ConfigPath) {
        for (index, node) in storage.directories.iter().enumerate() {
            let path = path.key("directories").index(index);
            self.node(&node.filesystem, &node.path, [&node.group, &node.user], &path);
            self.mode(node.mode, &path);
        }
        for (index, disk) in storage.disks.iter().enumerate() {
            self.disk(disk, &path.key("disks").index(index));
        }
        for (index, file) in storage.files.iter().enumerate() {
            self.file(file, &path.key("files").index(index));
        }
        for (index, filesystem) in storage.filesystems.iter().enumerate() {
            self.filesystem(filesystem, &path.key("filesystems").index(index));
        }
        for (index, node) in storage.links.iter().enumerate() {
            let path = path.key("links").index(index);
            self.node(&node.filesystem, &node.path, [&node.group, &node.user], &path);
        }
        for (index, raid) in storage.raid.iter().enumerate() {
            self.raid(raid, &path.key("raid").index(index));
        }
    }

    fn node(
        &mut self,
        filesystem: &str,
        node: &str,
        owners: [&Option<Owner>; 2],
        path: &ConfigPath,
    ) {
        if filesystem.is_empty() {
            self.report.error(&path.key("filesystem"), "no filesystem specified");
        }
        self.error_if(path_problem(node), path, "path");
        for (owner, key) in owners.into_iter().zip(["group", "user"]) {
            let both = owner.as_ref().is_some_and(|o| o.id.is_some() && !o.name.is_empty());
            self.error_if(both.then_some("cannot set both id and name"), path, key);
        }
    }

    fn mode(&mut self, mode: Option<i64>, path: &ConfigPath) {
        match mode {
            Some(mode) if !(0..=0o7777).contains(&mode) => {
                self.report.error(&path.key("mode"), "illegal file mode");
            }
            None if self.minor >= 2 => {
                let message = "permissions unset, defaulting to 0000";
                self.report.warning(&path.key("mode"), message);
            }
            _ => {}
        }
    }

    fn file(&mut self, file: &File, path: &ConfigPath) {
        let both = file.append && file.overwrite == Some(true);
        if !self
            .report_problems(both.then_some("cannot set both append and overwrite to true"), path)
        {
            return;
        }
        self.node(&file.filesystem, &file.path, [&file.group, &file.user], path);
        let contents = path.key("contents");
        let known = matches!(file.contents.compression.as_str(), "" | "gzip");
        self.error_if((!known).then_some("invalid compression method"), &contents, "compression");
        let problem = self.source_problem(&file.contents.source).map(|problem| match self.minor {
            3 => format!("invalid url {:?}: {problem}", file.contents.source),
            _ => problem,
        });
        self.error_if(problem, &contents, "source");
        self.verification(&file.contents.verification, &contents);
        self.mode(file.mode, path);
    }

    fn filesystem(&mut self, filesystem: &Filesystem, path: &ConfigPath) {
        let problems = match (&filesystem.mount, &filesystem.path) {
            (None, None) => vec!["filesystem is missing mount or path"],
            (None, Some(_)) => Vec::new(),
            (Some(mount), place) => {
                let both = place.is_some().then_some("filesystem has both mount and path defined");
                both.into_iter().chain(create_problems(mount)).collect()
            }
        };
        let sound = self.report_problems(problems, path);
        let create = filesystem.mount.as_ref().is_some_and(|mount| mount.create.is_some());
        if create && self.minor >= 1 {
            let message = "the create object has been deprecated in favor of mount-level options";
            self.report.warning(path, message);
        }
        if !sound {
            return;
        }
        let problem = filesystem.path.as_deref().and_then(path_problem).map(|problem| {
            if self.minor < 3 {
                problem.to_owned()
            } else {
                format!("filesystem {:?}: {problem}", filesystem.name)
            }
        });
        self.error_if(problem, path, "path");
        if let Some(mount) = &filesystem.mount {
            self.mount(mount, &path.key("mount"));
        }
    }

    fn mount(&mut self, mount: &Mount, path: &ConfigPath) {
        let longest_label = match mount.format.as_str() {
            "ext4" => 16,
            "btrfs" => 256,
            "xfs" => 12,
            "swap" if self.minor >= 1 => 15,
            "vfat" if self.minor >= 1 => 11,
            _ => return self.report.error(&path.key("format"), "invalid filesystem format"),
        };
        self.error_if(path_problem(&mount.device), path, "device");
        if mount.label.as_ref().is_some_and(|label| label.len() > longest_label) {
            let message = format!(
                "filesystem labels cannot be longer than {longest_label} characters when using {}",
                mount.format
            );
            self.report.error(&path.key("label"), message);
        }
    }

    fn raid(&mut self, raid: &Raid, path: &ConfigPath) {
        let problem = match raid.level.as_str() {
            "linear" | "raid0" | "0" | "stripe" => (raid.spares != 0)
                .then_some("spares unsupported for arrays with a level greater than 0"),
            "raid1" | "1" | "mirror" | "raid4" | "4" | "raid5" | "5" | "raid6" | "6" | "raid10"
            | "10" => None,
            _ => Some("unrecognized raid level"),
        };
        self.error_if(problem, path, "level");
        for (index, device) in raid.devices.iter().enumerate() {
            if let Some(problem) = path_problem(device) {
                self.report.error(&path.key("devices").index(index), problem);
            }
        }
    }
}

/// The deprecated way to create a file system cannot be combined with the one that replaced it.
fn create_problems(mount: &Mount) -> impl Iterator<Item = &'static str> {
    let create = mount.create.is_some();
    let wipe = (create && mount.wipe_filesystem)
        .then_some("cannot use both create object and wipeFilesystem field");
    let options = (create && !mount.options.is_empty())
        .then_some("cannot use both create object and mount-level options field");
    wipe.into_iter().chain(options)
}
