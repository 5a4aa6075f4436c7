//! The Ignition config, specification 3: one set of types for 3.0 to 3.5, each field with the
//! minor version that introduced it. Field order is the order of Ignition's own encoder.

mod keys;
mod storage;

use super::config_part::{ConfigDecoder, ConfigPart, shape};
use super::keyed_list::Keyed;
use super::report::{ConfigPath, IgnitionReport};

pub use storage::{
    Cex, Clevis, ClevisCustom, Directory, Disk, File, Filesystem, Link, Luks, NodeGroup, NodeUser,
    Partition, Raid, Storage, Tang,
};

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
