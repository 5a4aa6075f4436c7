//! Validates disks, file systems, RAID arrays, files, directories and links.

use std::collections::{HashMap, HashSet};

use super::super::keyed_list::Keyed;
use super::super::report::ConfigPath;
use super::super::schema::{Disk, File, Filesystem, NodeGroup, NodeUser, Partition, Raid, Storage};
use super::{Validator, path_problem};
use crate::go::path as go_path;

const SPECIAL_BITS: &str =
    "setuid/setgid/sticky bits are not supported or functional in spec versions older than 3.6.0";

impl Validator<'_> {
    pub(super) fn storage(&mut self, storage: &Storage, path: &ConfigPath) {
        self.nodes(storage, path);
        self.links(storage, path);
        for (index, disk) in storage.disks.iter().enumerate() {
            self.disk(disk, &path.key("disks").index(index));
        }
        for (index, filesystem) in storage.filesystems.iter().enumerate() {
            self.filesystem(filesystem, &path.key("filesystems").index(index));
        }
        self.filesystems_on_disks(storage, &path.key("filesystems"));
        for (index, luks) in storage.luks.iter().enumerate() {
            self.luks(luks, &path.key("luks").index(index));
        }
        for (index, raid) in storage.raid.iter().enumerate() {
            self.raid(raid, &path.key("raid").index(index));
        }
    }

    fn nodes(&mut self, storage: &Storage, path: &ConfigPath) {
        for (index, directory) in storage.directories.iter().enumerate() {
            let path = path.key("directories").index(index);
            self.node(&directory.path, &directory.user, &directory.group, &path);
            self.mode(directory.mode, &path);
        }
        for (index, file) in storage.files.iter().enumerate() {
            self.file(file, &path.key("files").index(index));
        }
        for (index, link) in storage.links.iter().enumerate() {
            let path = path.key("links").index(index);
            self.node(&link.path, &link.user, &link.group, &path);
        }
    }

    fn node(&mut self, node: &str, user: &NodeUser, group: &NodeGroup, path: &ConfigPath) {
        self.error_if(path_problem(node), path, "path");
        let both = |id: Option<i64>, name: &Option<String>| {
            let both = id.is_some() && name.as_ref().is_some_and(|name| !name.is_empty());
            both.then_some("cannot set both id and name")
        };
        self.error_if(both(user.id, &user.name), path, "user");
        self.error_if(both(group.id, &group.name), path, "group");
    }

    fn mode(&mut self, mode: Option<i64>, path: &ConfigPath) {
        let Some(mode) = mode else { return };
        if !(0..=0o7777).contains(&mode) {
            self.report.error(&path.key("mode"), "illegal file mode");
        }
        if mode & 0o7000 != 0 {
            self.report.warning(&path.key("mode"), SPECIAL_BITS);
        }
    }

    fn file(&mut self, file: &File, path: &ConfigPath) {
        self.node(&file.path, &file.user, &file.group, path);
        self.mode(file.mode, path);
        if file.overwrite == Some(true) && file.contents.source.is_none() {
            let message = "overwrite must be false if source is unspecified";
            self.report.error(&path.key("overwrite"), message);
        }
        self.resource(&file.contents, &path.key("contents"));
        for (index, resource) in file.append.iter().enumerate() {
            self.resource(resource, &path.key("append").index(index));
        }
    }

    /// Validates links, and refuses nodes below a link.
    fn links(&mut self, storage: &Storage, path: &ConfigPath) {
        if storage.links.is_empty() {
            return;
        }
        let links: HashSet<&str> = storage.links.iter().map(|link| link.path.as_str()).collect();
        let below_links = |node: &str| {
            node.match_indices('/').filter(|&(at, _)| links.contains(&node[..at])).count()
        };
        for (index, directory) in storage.directories.iter().enumerate() {
            for _ in 0..below_links(&directory.path) {
                let path = path.key("directories").index(index);
                self.report.error(&path, "directory path includes link in config");
            }
        }
        for (index, file) in storage.files.iter().enumerate() {
            for _ in 0..below_links(&file.path) {
                let path = path.key("files").index(index);
                self.report.error(&path, "file path includes link in config");
            }
        }
        for (index, link) in storage.links.iter().enumerate() {
            let path = path.key("links").index(index);
            for _ in 0..below_links(&link.path) {
                self.report.error(&path, "link path includes link in config");
            }
            let target = link.target.as_deref().unwrap_or_default();
            if target.is_empty() && self.minor >= 3 {
                self.report.error(&path.key("target"), "link target is required");
                continue;
            }
            if link.hard == Some(true) {
                self.hard_link(storage, index, target, &path);
            }
        }
    }

    fn hard_link(&mut self, storage: &Storage, index: usize, target: &str, path: &ConfigPath) {
        let link = &storage.links[index];
        let mut resolved = go_path::clean(target);
        if !resolved.starts_with('/') {
            resolved = go_path::join(&[&link.path, target]);
        }
        if storage.directories.iter().any(|directory| directory.path == resolved) {
            self.report.error(path, "hard link target is a directory");
        }
        for (set, whose, what) in [
            (link.user.id.is_some(), "user", "id"),
            (link.user.name.is_some(), "user", "name"),
            (link.group.id.is_some(), "group", "id"),
            (link.group.name.is_some(), "group", "name"),
        ] {
            if set {
                let path = path.key(whose).key(what);
                self.report.warning(&path, "user/group ignored for hard link");
            }
        }
    }

    fn disk(&mut self, disk: &Disk, path: &ConfigPath) {
        for (index, partition) in disk.partitions.iter().enumerate() {
            self.partition(partition, &path.key("partitions").index(index));
        }
        if disk.device.is_empty() {
            self.report.error(&path.key("device"), "disk device is required");
            return;
        }
        self.error_if(path_problem(&disk.device), path, "device");
        let partitions = path.key("partitions");
        if let Some(index) = colliding_number(&disk.partitions) {
            self.report.error(&partitions.index(index), "partition numbers collide");
        }
        if let Some(index) = overlapping(&disk.partitions) {
            self.report.error(&partitions.index(index), "partitions overlap");
        }
        let unwanted = disk.partitions.iter().any(|p| p.should_exist == Some(false));
        if unwanted && disk.partitions.iter().any(|p| p.number == 0) {
            let message =
                "shouldExist is false for a partition and other partition(s) has start or size 0";
            self.report.error(&partitions, message);
        }
        let mut labels = HashSet::new();
        let label_again = disk
            .partitions
            .iter()
            .position(|p| p.label.as_ref().is_some_and(|label| !labels.insert(label)));
        if let Some(index) = label_again {
            self.report
                .error(&partitions.index(index), "cannot use the same partition label twice");
        }
    }

    fn partition(&mut self, partition: &Partition, path: &ConfigPath) {
        let not_empty = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
        let says_more = partition.label.is_some()
            || not_empty(&partition.type_guid)
            || not_empty(&partition.guid)
            || partition.start_mib.is_some()
            || partition.size_mib.is_some();
        if partition.should_exist == Some(false) && says_more {
            let message = "shouldExist specified false with other options also specified";
            self.report.error(path, message);
        }
        if partition.number == 0 && partition.label.is_none() {
            self.report.error(path, "a partition number >= 1 or a label must be specified");
        }
        let label_problem = partition.label.as_deref().and_then(|label| match label {
            label if label.len() > 36 => Some("partition labels may not exceed 36 characters"),
            label if label.contains(':') => {
                Some("partition label will be truncated to text before the colon")
            }
            _ => None,
        });
        self.error_if(label_problem, path, "label");
        self.error_if(guid_problem(partition.guid.as_deref()), path, "guid");
        self.error_if(guid_problem(partition.type_guid.as_deref()), path, "typeGuid");
    }

    fn filesystem(&mut self, filesystem: &Filesystem, path: &ConfigPath) {
        let mounted_at = filesystem.path.as_deref().filter(|path| !path.is_empty());
        self.error_if(mounted_at.and_then(path_problem), path, "path");
        self.error_if(path_problem(&filesystem.device), path, "device");
        let format = filesystem.format.as_deref().filter(|format| !format.is_empty());
        let label = filesystem.label.as_deref().filter(|label| !label.is_empty());
        let says_more = mounted_at.is_some()
            || label.is_some()
            || filesystem.uuid.as_ref().is_some_and(|uuid| !uuid.is_empty())
            || filesystem.wipe_filesystem == Some(true)
            || !filesystem.mount_options.is_empty()
            || !filesystem.options.is_empty();
        let format_problem = match format {
            None if says_more && self.minor == 0 => Some(FORMAT_NEEDED),
            None => says_more.then_some(FORMAT_NEEDED),
            Some("ext4" | "btrfs" | "xfs" | "swap" | "vfat") => None,
            Some("none") if self.minor >= 3 => None,
            Some(_) => Some("invalid filesystem format"),
        };
        self.error_if(format_problem, path, "format");
        let longest = match format {
            Some("ext4") => Some((16, "ext4")),
            Some("btrfs") => Some((256, "btrfs")),
            Some("xfs") => Some((12, "xfs")),
            Some("swap") => Some((15, "swap")),
            Some("vfat") => Some((11, "vfat")),
            _ => None,
        };
        match (label, longest) {
            (Some(_), None) if format.is_none() => {
                let message = "filesystem must specify format if label is specified";
                self.report.error(&path.key("label"), message);
            }
            (Some(label), Some((longest, format))) if label.len() > longest => {
                let message = format!(
                    "filesystem labels cannot be longer than {longest} characters when using {format}"
                );
                self.report.error(&path.key("label"), message);
            }
            _ => {}
        }
    }

    fn filesystems_on_disks(&mut self, storage: &Storage, path: &ConfigPath) {
        let disks: HashMap<&str, &Disk> =
            storage.disks.iter().map(|disk| (disk.device.as_str(), disk)).collect();
        for (index, filesystem) in storage.filesystems.iter().enumerate() {
            let Some(disk) = disks.get(filesystem.device.as_str()) else { continue };
            let path = path.index(index).key("device");
            if !disk.partitions.is_empty() {
                self.report.warning(&path, "filesystem overwrites partitioned device");
            } else if filesystem.wipe_filesystem != Some(true) && disk.wipe_table == Some(true) {
                let message =
                    "device matches disk with wipeTable enabled; filesystem will be wiped";
                self.report.warning(&path, message);
            }
        }
    }

    fn raid(&mut self, raid: &Raid, path: &ConfigPath) {
        let level = raid.level.as_deref().unwrap_or_default();
        let problem = match level {
            "" if self.minor >= 3 => Some("raid level is required"),
            "linear" | "raid0" | "0" | "stripe" => raid
                .spares
                .is_some_and(|spares| spares != 0)
                .then_some("spares unsupported for linear and raid0 arrays"),
            "raid1" | "1" | "mirror" | "raid4" | "4" | "raid5" | "5" | "raid6" | "6" | "raid10"
            | "10" => None,
            _ => Some("unrecognized raid level"),
        };
        self.error_if(problem, path, "level");
        if raid.devices.is_empty() {
            self.report.error(&path.key("devices"), "raid devices required");
        }
        for (index, device) in raid.devices.iter().enumerate() {
            if let Some(problem) = path_problem(device) {
                self.report.error(&path.key("devices").index(index), problem);
            }
        }
    }
}

const FORMAT_NEEDED: &str = "format cannot be empty when path, label, uuid, wipeFilesystem, options, or mountOptions is specified";

fn guid_problem(guid: Option<&str>) -> Option<&'static str> {
    let guid = guid.filter(|guid| !guid.is_empty())?;
    let parts: Vec<&str> = guid.split('-').collect();
    let fits = parts.iter().map(|part| part.len()).eq([8, 4, 4, 4, 12])
        && parts.iter().all(|part| part.bytes().all(|b| b.is_ascii_hexdigit()));
    (!fits).then_some("doesn't match the form \"01234567-89AB-CDEF-EDCB-A98765432101\"")
}

fn colliding_number(partitions: &Keyed<Partition>) -> Option<usize> {
    let mut numbers = HashSet::new();
    partitions.iter().position(|p| p.number != 0 && !numbers.insert(p.number))
}

/// The first partition that overlaps another one, if both have a start and a size.
fn overlapping(partitions: &Keyed<Partition>) -> Option<usize> {
    let extent = |p: &Partition| match (p.start_mib, p.size_mib) {
        (Some(start), Some(size)) if start != 0 => {
            let end = if size == 0 { start } else { start.wrapping_add(size).wrapping_sub(1) };
            Some((start, end))
        }
        _ => None,
    };
    partitions.iter().enumerate().find_map(|(this, partition)| {
        let (start, end) = extent(partition)?;
        partitions.iter().enumerate().position(|(other, against)| {
            let Some((from, to)) = extent(against) else { return false };
            this != other
                && ((from..=to).contains(&start)
                    || (from..=to).contains(&end)
                    || start < from && end > to)
        })
    })
}
