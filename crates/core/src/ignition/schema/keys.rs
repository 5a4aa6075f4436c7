//! The keys of list entries, and the handwritten merges of lists that share their keys.

use std::borrow::Cow;

use super::{
    Directory, Disk, Dropin, File, Filesystem, HttpHeader, KernelArguments, Link, Luks, Partition,
    PasswdGroup, PasswdUser, Raid, Resource, Storage, Tang, Unit,
};
use crate::ignition::config_part::ConfigPart;
use crate::ignition::keyed_list::{KeyedItem, SeenKeys, group_keys, merge_groups};
use crate::ignition::report::{ConfigPath, IgnitionReport};

macro_rules! keyed_by {
    ($($type:ident . $field:ident),* $(,)?) => { $(
        impl KeyedItem for $type {
            fn key(&self) -> Cow<'_, str> {
                Cow::Borrowed(&self.$field)
            }
        }
    )* };
}

keyed_by!(
    PasswdGroup.name,
    PasswdUser.name,
    Directory.path,
    File.path,
    Link.path,
    Disk.device,
    Filesystem.device,
    Luks.name,
    Tang.url,
    Raid.name,
    Unit.name,
    Dropin.name,
);

impl KeyedItem for Resource {
    fn key(&self) -> Cow<'_, str> {
        Cow::Borrowed(self.source.as_deref().unwrap_or_default())
    }
}

impl KeyedItem for HttpHeader {
    fn key(&self) -> Cow<'_, str> {
        Cow::Borrowed(&self.name)
    }

    fn removes(&self) -> bool {
        self.value.is_none()
    }
}

impl KeyedItem for Partition {
    fn key(&self) -> Cow<'_, str> {
        match (self.number, &self.label) {
            (0, None) => Cow::Borrowed(""),
            (0, Some(label)) => Cow::Owned(format!("label:{label}")),
            (number, _) => Cow::Owned(format!("number:{number}")),
        }
    }
}

impl KernelArguments {
    /// An argument is in only one of the two lists: the later config moves it.
    pub(super) fn merge_by_hand(parts: Vec<Self>) -> Self {
        let groups = group_keys(parts.iter().map(|part| {
            let wanted = part.should_exist.iter().map(|item| (0, item.key(), false));
            wanted.chain(part.should_not_exist.iter().map(|item| (1, item.key(), false)))
        }));
        let (wanted, unwanted) =
            parts.into_iter().map(|part| (part.should_exist, part.should_not_exist)).unzip();
        Self {
            should_exist: merge_groups(&groups, 0, wanted).into(),
            should_not_exist: merge_groups(&groups, 1, unwanted).into(),
        }
    }

    pub(super) fn find_shared_duplicates(
        &self,
        path: &mut ConfigPath,
        report: &mut IgnitionReport,
    ) {
        // Each list checks itself; only keys in both lists are reported here.
        let mut seen = SeenKeys::default();
        seen.check(&self.should_exist, path, &mut IgnitionReport::default());
        path.push_key("shouldNotExist");
        seen.check_others(&self.should_not_exist, path, report);
        path.pop();
    }
}

impl Storage {
    /// The keys of files, directories and links, with the index of the list of each.
    pub(crate) fn node_keys(&self) -> impl Iterator<Item = (usize, Cow<'_, str>, bool)> {
        let directories = self.directories.iter().map(|d| (Self::DIRECTORIES, d.key(), false));
        let files = self.files.iter().map(|f| (Self::FILES, f.key(), false));
        let links = self.links.iter().map(|l| (Self::LINKS, l.key(), false));
        directories.chain(files).chain(links)
    }

    /// The index of the list of directories in [`Storage::node_keys`].
    pub(crate) const DIRECTORIES: usize = 0;
    /// The index of the list of files.
    pub(crate) const FILES: usize = 1;
    /// The index of the list of links.
    pub(crate) const LINKS: usize = 2;

    pub(super) fn merge_by_hand(parts: Vec<Self>) -> Self {
        let groups = group_keys(parts.iter().map(Self::node_keys));
        let count = parts.len();
        let (mut directories, mut files, mut links) =
            (Vec::with_capacity(count), Vec::with_capacity(count), Vec::with_capacity(count));
        let (mut disks, mut filesystems, mut luks, mut raid) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for part in parts {
            directories.push(part.directories);
            files.push(part.files);
            links.push(part.links);
            disks.push(part.disks);
            filesystems.push(part.filesystems);
            luks.push(part.luks);
            raid.push(part.raid);
        }
        Self {
            directories: merge_groups(&groups, Self::DIRECTORIES, directories).into(),
            files: merge_groups(&groups, Self::FILES, files).into(),
            links: merge_groups(&groups, Self::LINKS, links).into(),
            disks: ConfigPart::merge_all(disks),
            filesystems: ConfigPart::merge_all(filesystems),
            luks: ConfigPart::merge_all(luks),
            raid: ConfigPart::merge_all(raid),
        }
    }

    pub(super) fn find_shared_duplicates(
        &self,
        path: &mut ConfigPath,
        report: &mut IgnitionReport,
    ) {
        let mut seen = SeenKeys::default();
        seen.check(&self.directories, path, &mut IgnitionReport::default());
        path.push_key("files");
        seen.check_others(&self.files, path, report);
        path.pop();
        path.push_key("links");
        seen.check_others(&self.links, path, report);
        path.pop();
    }
}
