//! The `storage` section: disks, file systems, files, directories, links and RAID arrays.

use super::{Verification, WholeNumber};
use crate::ignition::config_part::{ConfigDecoder, ConfigPart, shape};
use crate::ignition::keyed_list::Appended;
use crate::ignition::report::{ConfigPath, IgnitionReport};

shape! {
    /// Disks, file systems, files, directories and links.
    Storage, merge by_field {
        /// Directories.
        directories: Appended<Directory> = "directories" since 1;
        /// Disks.
        disks: Appended<Disk> = "disks";
        /// Files.
        files: Appended<File> = "files";
        /// File systems.
        filesystems: Appended<Filesystem> = "filesystems";
        /// Links.
        links: Appended<Link> = "links" since 1;
        /// RAID arrays.
        raid: Appended<Raid> = "raid";
    }
}

shape! {
    /// The owner or the owning group of a node: number or name.
    Owner, merge by_field {
        /// The number.
        id: Option<i64> = "id";
        /// The name.
        name: String = "name" since 1;
    }
}

shape! {
    /// A directory.
    Directory, merge by_field {
        /// The name of the file system it is in.
        filesystem: String = "filesystem";
        /// Its group.
        group: Option<Owner> = "group";
        /// Whether an existing node is removed first.
        overwrite: Option<bool> = "overwrite" since 2;
        /// Its path.
        path: String = "path";
        /// Its owner.
        user: Option<Owner> = "user";
        /// Its permissions.
        mode: Option<i64> = "mode";
    }
}

shape! {
    /// A file.
    File, merge by_field {
        /// The name of the file system it is in.
        filesystem: String = "filesystem";
        /// Its group.
        group: Option<Owner> = "group";
        /// Whether an existing node is removed first.
        overwrite: Option<bool> = "overwrite" since 2;
        /// Its path.
        path: String = "path";
        /// Its owner.
        user: Option<Owner> = "user";
        /// Whether the contents are appended.
        append: bool = "append" since 2;
        /// Its contents.
        contents: FileContents = "contents";
        /// Its permissions.
        mode: Option<i64> = "mode";
    }
}

shape! {
    /// The contents of a file.
    FileContents, merge by_field {
        /// `gzip`, or nothing.
        compression: String = "compression";
        /// The URL.
        source: String = "source";
        /// The required checksum of the fetched bytes.
        verification: Verification = "verification";
    }
}

shape! {
    /// A symbolic or hard link.
    Link, merge by_field {
        /// The name of the file system it is in.
        filesystem: String = "filesystem";
        /// Its group.
        group: Option<Owner> = "group";
        /// Whether an existing node is removed first.
        overwrite: Option<bool> = "overwrite" since 2;
        /// Its path.
        path: String = "path";
        /// Its owner.
        user: Option<Owner> = "user";
        /// Whether it is a hard link.
        hard: bool = "hard";
        /// Where it points.
        target: String = "target";
    }
}

shape! {
    /// A disk to partition.
    Disk, merge by_field {
        /// Its device.
        device: String = "device";
        /// Its partitions.
        partitions: Appended<Partition> = "partitions";
        /// Whether the partition table is wiped first.
        wipe_table: bool = "wipeTable";
    }
}

shape! {
    /// A partition.
    Partition, merge by_field {
        /// Its GUID.
        guid: String = "guid" since 1;
        /// Its label.
        label: String = "label";
        /// Its number; 0 means the next free one.
        number: i64 = "number";
        /// Its size in sectors; 0 means all remaining space.
        size: WholeNumber = "size";
        /// Its first sector; 0 means the largest gap.
        start: WholeNumber = "start";
        /// The GUID of its type.
        type_guid: String = "typeGuid";
    }
}

shape! {
    /// A file system, by the name that files, directories and links use.
    Filesystem, merge by_field {
        /// What to mount.
        mount: Option<Mount> = "mount";
        /// Its name.
        name: String = "name";
        /// Where it is already mounted.
        path: Option<String> = "path";
    }
}

shape! {
    /// A file system to mount, optionally created first.
    Mount, merge by_field {
        /// How it is made; deprecated.
        create: Option<Create> = "create";
        /// Its device.
        device: String = "device";
        /// Its type.
        format: String = "format";
        /// Its label.
        label: Option<String> = "label" since 1;
        /// Options to create it with.
        options: Appended<String> = "options" since 1;
        /// Its UUID.
        uuid: Option<String> = "uuid" since 1;
        /// Whether the device is wiped first.
        wipe_filesystem: bool = "wipeFilesystem" since 1;
    }
}

shape! {
    /// How a file system is made; deprecated.
    Create, merge by_field {
        /// Whether an existing file system is overwritten.
        force: bool = "force";
        /// Options to create it with.
        options: Appended<String> = "options";
    }
}

shape! {
    /// A RAID array.
    Raid, merge by_field {
        /// Its member devices.
        devices: Appended<String> = "devices";
        /// Its level.
        level: String = "level";
        /// Its name.
        name: String = "name";
        /// Options to create it with.
        options: Appended<String> = "options" since 2;
        /// How many of the devices are spares.
        spares: i64 = "spares";
    }
}
