//! The Ignition config, specification 3: one set of types for 3.0 to 3.5, each field with the
//! minor version that introduced it. Field order is the order of Ignition's own encoder.

use std::borrow::Cow;

use super::config_part::{ConfigDecoder, ConfigPart, shape};
use super::keyed_list::{Appended, Keyed, KeyedItem, SeenKeys, group_keys, merge_groups};
use super::report::{ConfigPath, IgnitionReport};

shape! {
    /// A whole Ignition config.
    Config, merge by_field {
        /// Ignition's settings: version, further configs, proxies, certificates.
        ignition: Ignition = "ignition", always;
        /// Kernel arguments as Ignition handles them; MCO does not use them.
        kernel_arguments: KernelArguments = "kernelArguments" since 3;
        /// Users and groups.
        passwd: Passwd = "passwd";
        /// Disks, file systems, files, directories and links.
        storage: Storage = "storage";
        /// systemd units.
        systemd: Systemd = "systemd";
    }
}

shape! {
    /// Ignition's settings.
    Ignition, merge by_field {
        /// Configs to fetch and merge, or to use instead.
        config: IgnitionConfig = "config";
        /// Proxies for fetching.
        proxy: Proxy = "proxy" since 1;
        /// Certificate authorities for fetching.
        security: Security = "security";
        /// Time limits for fetching.
        timeouts: Timeouts = "timeouts";
        /// The version of the specification.
        version: String = "version", always;
    }
}

shape! {
    /// Configs to fetch.
    IgnitionConfig, merge by_field {
        /// Configs to merge into this one.
        merge: Keyed<Resource> = "merge";
        /// A config to use instead of this one.
        replace: Resource = "replace";
    }
}

shape! {
    /// Proxies for fetching.
    Proxy, merge by_field {
        /// For `http` URLs.
        http_proxy: Option<String> = "httpProxy";
        /// For `https` URLs.
        https_proxy: Option<String> = "httpsProxy";
        /// Hosts that are reached without a proxy.
        no_proxy: Keyed<String> = "noProxy";
    }
}

shape! {
    /// Security settings.
    Security, merge by_field {
        /// TLS settings.
        tls: Tls = "tls";
    }
}

shape! {
    /// TLS settings.
    Tls, merge by_field {
        /// Additional certificate authorities to trust.
        certificate_authorities: Keyed<Resource> = "certificateAuthorities";
    }
}

shape! {
    /// Time limits in seconds.
    Timeouts, merge by_field {
        /// Until the response headers arrive.
        http_response_headers: Option<i64> = "httpResponseHeaders";
        /// Until a fetch times out.
        http_total: Option<i64> = "httpTotal";
    }
}

shape! {
    /// Something to fetch: a URL (most often a `data:` URL that holds the contents themselves).
    Resource, merge by_field {
        /// `gzip`, or nothing.
        compression: Option<String> = "compression";
        /// Headers to send when fetching.
        http_headers: Keyed<HttpHeader> = "httpHeaders" since 1;
        /// The URL.
        source: Option<String> = "source";
        /// The required checksum of the fetched bytes.
        verification: Verification = "verification";
    }
}

shape! {
    /// A header to send when fetching.
    HttpHeader, merge by_field {
        /// Its name.
        name: String = "name", always;
        /// Its value; without one, the header of that name is removed when merging.
        value: Option<String> = "value";
    }
}

shape! {
    /// A checksum.
    Verification, merge by_field {
        /// `sha512-…` or `sha256-…`.
        hash: Option<String> = "hash";
    }
}

shape! {
    /// Ignition's kernel arguments.
    KernelArguments, merge by_hand {
        /// Required arguments.
        should_exist: Keyed<String> = "shouldExist";
        /// Forbidden arguments.
        should_not_exist: Keyed<String> = "shouldNotExist";
    }
}

shape! {
    /// Users and groups.
    Passwd, merge by_field {
        /// Groups.
        groups: Keyed<PasswdGroup> = "groups";
        /// Users.
        users: Keyed<PasswdUser> = "users";
    }
}

shape! {
    /// A group.
    PasswdGroup, merge by_field {
        /// Its number.
        gid: Option<i64> = "gid";
        /// Its name.
        name: String = "name", always;
        /// Its password hash.
        password_hash: Option<String> = "passwordHash";
        /// Whether it should exist.
        should_exist: Option<bool> = "shouldExist" since 2;
        /// Whether it is a system group.
        system: Option<bool> = "system";
    }
}

shape! {
    /// A user.
    PasswdUser, merge by_field {
        /// The comment field.
        gecos: Option<String> = "gecos";
        /// Supplementary groups.
        groups: Keyed<String> = "groups";
        /// The home directory.
        home_dir: Option<String> = "homeDir";
        /// The name.
        name: String = "name", always;
        /// Whether to skip creating the home directory.
        no_create_home: Option<bool> = "noCreateHome";
        /// Whether to skip the login databases.
        no_log_init: Option<bool> = "noLogInit";
        /// Whether to skip creating the group of the same name.
        no_user_group: Option<bool> = "noUserGroup";
        /// The password hash.
        password_hash: Option<String> = "passwordHash";
        /// The primary group.
        primary_group: Option<String> = "primaryGroup";
        /// SSH keys.
        ssh_authorized_keys: Keyed<String> = "sshAuthorizedKeys";
        /// The login shell.
        shell: Option<String> = "shell";
        /// Whether the user should exist.
        should_exist: Option<bool> = "shouldExist" since 2;
        /// Whether it is a system user.
        system: Option<bool> = "system";
        /// Its number.
        uid: Option<i64> = "uid";
    }
}

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

shape! {
    /// systemd units.
    Systemd, merge by_field {
        /// The units.
        units: Keyed<Unit> = "units";
    }
}

shape! {
    /// A systemd unit.
    Unit, merge by_field {
        /// Its contents; without them, only drop-ins and state are managed.
        contents: Option<String> = "contents";
        /// Its drop-ins.
        dropins: Keyed<Dropin> = "dropins";
        /// Whether it is enabled; unset leaves it unchanged.
        enabled: Option<bool> = "enabled";
        /// Whether it is masked.
        mask: Option<bool> = "mask";
        /// Its name.
        name: String = "name", always;
    }
}

shape! {
    /// A drop-in of a systemd unit.
    Dropin, merge by_field {
        /// Its contents.
        contents: Option<String> = "contents";
        /// Its name.
        name: String = "name", always;
    }
}

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
    fn merge_by_hand(parts: Vec<Self>) -> Self {
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

    fn find_shared_duplicates(&self, path: &mut ConfigPath, report: &mut IgnitionReport) {
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

    fn merge_by_hand(parts: Vec<Self>) -> Self {
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

    fn find_shared_duplicates(&self, path: &mut ConfigPath, report: &mut IgnitionReport) {
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
