//! The `storage` section: disks, file systems, files, directories, links and encrypted volumes.

use super::Resource;
use crate::ignition::config_part::{ConfigDecoder, ConfigPart, shape};
use crate::ignition::keyed_list::{Appended, Keyed};
use crate::ignition::report::{ConfigPath, IgnitionReport};

shape! {
    /// Disks, file systems, files, directories and links. Files, directories and links share their
    /// keys: a path can only be one of them.
    Storage, merge by_hand {
        /// Directories.
        directories: Keyed<Directory> = "directories";
        /// Disks.
        disks: Keyed<Disk> = "disks";
        /// Files.
        files: Keyed<File> = "files";
        /// File systems.
        filesystems: Keyed<Filesystem> = "filesystems";
        /// Links.
        links: Keyed<Link> = "links";
        /// Encrypted volumes.
        luks: Keyed<Luks> = "luks" since 2;
        /// RAID arrays.
        raid: Keyed<Raid> = "raid";
    }
}

shape! {
    /// The owning group of a node: number or name.
    NodeGroup, merge by_field {
        /// Its number.
        id: Option<i64> = "id";
        /// Its name.
        name: Option<String> = "name";
    }
}

shape! {
    /// The owner of a node: number or name.
    NodeUser, merge by_field {
        /// Its number.
        id: Option<i64> = "id";
        /// Its name.
        name: Option<String> = "name";
    }
}

shape! {
    /// A directory.
    Directory, merge by_field {
        /// Its group.
        group: NodeGroup = "group";
        /// Whether an existing node is removed first.
        overwrite: Option<bool> = "overwrite";
        /// Its path.
        path: String = "path", always;
        /// Its owner.
        user: NodeUser = "user";
        /// Its permissions.
        mode: Option<i64> = "mode";
    }
}

shape! {
    /// A file.
    File, merge by_field {
        /// Its group.
        group: NodeGroup = "group";
        /// Whether an existing node is removed first.
        overwrite: Option<bool> = "overwrite";
        /// Its path.
        path: String = "path", always;
        /// Its owner.
        user: NodeUser = "user";
        /// Contents to append.
        append: Appended<Resource> = "append";
        /// Its contents.
        contents: Resource = "contents";
        /// Its permissions.
        mode: Option<i64> = "mode";
    }
}

shape! {
    /// A symbolic or hard link.
    Link, merge by_field {
        /// Its group.
        group: NodeGroup = "group";
        /// Whether an existing node is removed first.
        overwrite: Option<bool> = "overwrite";
        /// Its path.
        path: String = "path", always;
        /// Its owner.
        user: NodeUser = "user";
        /// Whether it is a hard link.
        hard: Option<bool> = "hard";
        /// Where it points.
        target: Option<String> = "target";
    }
}

shape! {
    /// A disk to partition.
    Disk, merge by_field {
        /// Its device.
        device: String = "device", always;
        /// Its partitions.
        partitions: Keyed<Partition> = "partitions";
        /// Whether the partition table is wiped first.
        wipe_table: Option<bool> = "wipeTable";
    }
}

shape! {
    /// A partition.
    Partition, merge by_field {
        /// Its GUID.
        guid: Option<String> = "guid";
        /// Its label.
        label: Option<String> = "label";
        /// Its number; 0 means the next free one.
        number: i64 = "number";
        /// Whether an existing one may be resized.
        resize: Option<bool> = "resize" since 2;
        /// Whether it should exist.
        should_exist: Option<bool> = "shouldExist";
        /// Its size; 0 means all remaining space.
        size_mib: Option<i64> = "sizeMiB";
        /// Its start; 0 means the largest gap.
        start_mib: Option<i64> = "startMiB";
        /// The GUID of its type.
        type_guid: Option<String> = "typeGuid";
        /// Whether an existing one that does not match is wiped.
        wipe_partition_entry: Option<bool> = "wipePartitionEntry";
    }
}

shape! {
    /// A file system.
    Filesystem, merge by_field {
        /// Its device.
        device: String = "device", always;
        /// Its type.
        format: Option<String> = "format";
        /// Its label.
        label: Option<String> = "label";
        /// Options to mount it with.
        mount_options: Appended<String> = "mountOptions" since 1;
        /// Options to create it with.
        options: Appended<String> = "options";
        /// Where it is mounted while Ignition writes files.
        path: Option<String> = "path";
        /// Its UUID.
        uuid: Option<String> = "uuid";
        /// Whether the device is wiped first.
        wipe_filesystem: Option<bool> = "wipeFilesystem";
    }
}

shape! {
    /// An encrypted volume.
    Luks, merge by_field {
        /// Keys held by an IBM Crypto Express card.
        cex: Cex = "cex" since 5;
        /// Automatic unlocking.
        clevis: Clevis = "clevis";
        /// Its device.
        device: Option<String> = "device";
        /// Whether discards pass through.
        discard: Option<bool> = "discard" since 4;
        /// Its key.
        key_file: Resource = "keyFile";
        /// Its label.
        label: Option<String> = "label";
        /// Its name.
        name: String = "name", always;
        /// Options to open it with.
        open_options: Keyed<String> = "openOptions" since 4;
        /// Options to create it with.
        options: Appended<String> = "options";
        /// Its UUID.
        uuid: Option<String> = "uuid";
        /// Whether the device is wiped first.
        wipe_volume: Option<bool> = "wipeVolume";
    }
}

shape! {
    /// Keys held by an IBM Crypto Express card.
    Cex, merge by_field {
        /// Whether they are used.
        enabled: Option<bool> = "enabled";
    }
}

shape! {
    /// Automatic unlocking of an encrypted volume.
    Clevis, merge by_field {
        /// A custom pin and its configuration.
        custom: ClevisCustom = "custom";
        /// Tang servers.
        tang: Keyed<Tang> = "tang";
        /// How many of the methods must succeed.
        threshold: Option<i64> = "threshold";
        /// Whether the TPM is one of the methods.
        tpm2: Option<bool> = "tpm2";
    }
}

shape! {
    /// A custom clevis pin.
    ClevisCustom, merge by_field {
        /// Its configuration.
        config: Option<String> = "config";
        /// Whether it needs the network.
        needs_network: Option<bool> = "needsNetwork";
        /// Its name.
        pin: Option<String> = "pin";
    }
}

shape! {
    /// A tang server.
    Tang, merge by_field {
        /// Its advertisement, for provisioning while it cannot be reached.
        advertisement: Option<String> = "advertisement" since 4;
        /// The thumbprint of its key.
        thumbprint: Option<String> = "thumbprint";
        /// Its address.
        url: String = "url";
    }
}

shape! {
    /// A RAID array.
    Raid, merge by_field {
        /// Its member devices.
        devices: Keyed<String> = "devices";
        /// Its level.
        level: Option<String> = "level";
        /// Its name.
        name: String = "name", always;
        /// Options to create it with.
        options: Appended<String> = "options";
        /// How many of the devices are spares.
        spares: Option<i64> = "spares";
    }
}
