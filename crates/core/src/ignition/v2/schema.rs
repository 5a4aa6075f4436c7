//! The Ignition config, specification 2: one set of types for 2.0 to 2.2, each field with the
//! minor version that introduced it. Field order is the order of Ignition's own encoder.

mod storage;

use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::ignition::config_part::{ConfigDecoder, ConfigPart, shape};
use crate::ignition::keyed_list::Appended;
use crate::ignition::report::{ConfigPath, IgnitionReport};

pub use storage::{
    Create, Directory, Disk, File, FileContents, Filesystem, Link, Mount, Owner, Partition, Raid,
    Storage,
};

/// An integer that is unsigned in 2.0 and signed in later versions. As in Ignition, an unsigned
/// value that is too large for a signed one becomes negative.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WholeNumber(pub i64);

impl Serialize for WholeNumber {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_i64(self.0)
    }
}

impl ConfigPart for WholeNumber {
    fn decode(&mut self, value: &Value, cx: &mut ConfigDecoder) {
        if cx.minor > 0 || value.is_null() {
            return self.0.decode(value, cx);
        }
        match value.as_u64() {
            Some(number) => self.0 = number.cast_signed(),
            None => cx.report.error(&cx.path, "expected a whole number without a sign"),
        }
    }

    fn is_zero(&self) -> bool {
        self.0 == 0
    }

    fn merge_all(parts: Vec<Self>) -> Self {
        parts.into_iter().next_back().unwrap_or_default()
    }

    fn find_duplicates(&self, _: &mut ConfigPath, _: &mut IgnitionReport) {}
}

shape! {
    /// A whole Ignition config.
    Config, merge by_field {
        /// Ignition's settings: version, further configs, certificates.
        ignition: Ignition = "ignition", always;
        /// networkd units.
        networkd: Networkd = "networkd";
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
        /// Configs to fetch and append, or to use instead.
        config: IgnitionConfig = "config";
        /// Certificate authorities for fetching.
        security: Security = "security" since 2;
        /// Time limits for fetching.
        timeouts: Timeouts = "timeouts" since 1;
        /// The version of the specification.
        version: String = "version";
    }
}

shape! {
    /// Configs to fetch.
    IgnitionConfig, merge by_field {
        /// Configs to append to this one.
        append: Appended<Reference> = "append";
        /// A config to use instead of this one.
        replace: Option<Reference> = "replace";
    }
}

shape! {
    /// A config or a certificate to fetch.
    Reference, merge by_field {
        /// The URL.
        source: String = "source";
        /// The required checksum of the fetched bytes.
        verification: Verification = "verification";
    }
}

shape! {
    /// A checksum.
    Verification, merge by_field {
        /// `sha512-…`.
        hash: Option<String> = "hash";
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
        certificate_authorities: Appended<Reference> = "certificateAuthorities";
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
    /// networkd units.
    Networkd, merge by_field {
        /// The units.
        units: Appended<NetworkdUnit> = "units";
    }
}

shape! {
    /// A networkd unit.
    NetworkdUnit, merge by_field {
        /// Its contents.
        contents: String = "contents";
        /// Its drop-ins.
        dropins: Appended<Dropin> = "dropins" since 2;
        /// Its name.
        name: String = "name";
    }
}

shape! {
    /// A drop-in of a systemd or networkd unit.
    Dropin, merge by_field {
        /// Its contents.
        contents: String = "contents";
        /// Its name.
        name: String = "name";
    }
}

shape! {
    /// Users and groups.
    Passwd, merge by_field {
        /// Groups.
        groups: Appended<PasswdGroup> = "groups";
        /// Users.
        users: Appended<PasswdUser> = "users";
    }
}

shape! {
    /// A group.
    PasswdGroup, merge by_field {
        /// Its number.
        gid: Option<WholeNumber> = "gid";
        /// Its name.
        name: String = "name";
        /// Its password hash.
        password_hash: String = "passwordHash";
        /// Whether it is a system group.
        system: bool = "system";
    }
}

shape! {
    /// A user.
    PasswdUser, merge by_field {
        /// How the user is made where it is not there yet; deprecated.
        create: Option<UserCreate> = "create";
        /// The comment field.
        gecos: String = "gecos" since 1;
        /// Supplementary groups.
        groups: Appended<String> = "groups" since 1;
        /// The home directory.
        home_dir: String = "homeDir" since 1;
        /// The name.
        name: String = "name";
        /// Whether to skip creating the home directory.
        no_create_home: bool = "noCreateHome" since 1;
        /// Whether to skip the login databases.
        no_log_init: bool = "noLogInit" since 1;
        /// Whether to skip creating the group of the same name.
        no_user_group: bool = "noUserGroup" since 1;
        /// The password hash.
        password_hash: Option<String> = "passwordHash";
        /// The primary group.
        primary_group: String = "primaryGroup" since 1;
        /// SSH keys.
        ssh_authorized_keys: Appended<String> = "sshAuthorizedKeys";
        /// The login shell.
        shell: String = "shell" since 1;
        /// Whether it is a system user.
        system: bool = "system" since 1;
        /// Its number.
        uid: Option<i64> = "uid" since 1;
    }
}

shape! {
    /// How a user is made; deprecated.
    UserCreate, merge by_field {
        /// The comment field.
        gecos: String = "gecos";
        /// Supplementary groups.
        groups: Appended<String> = "groups";
        /// The home directory.
        home_dir: String = "homeDir";
        /// Whether to skip creating the home directory.
        no_create_home: bool = "noCreateHome";
        /// Whether to skip the login databases.
        no_log_init: bool = "noLogInit";
        /// Whether to skip creating the group of the same name.
        no_user_group: bool = "noUserGroup";
        /// The primary group.
        primary_group: String = "primaryGroup";
        /// The login shell.
        shell: String = "shell";
        /// Whether it is a system user.
        system: bool = "system";
        /// Its number.
        uid: Option<WholeNumber> = "uid";
    }
}

shape! {
    /// systemd units.
    Systemd, merge by_field {
        /// The units.
        units: Appended<Unit> = "units";
    }
}

shape! {
    /// A systemd unit.
    Unit, merge by_field {
        /// Its contents; without them, only drop-ins and state are managed.
        contents: String = "contents";
        /// Its drop-ins.
        dropins: Appended<Dropin> = "dropins";
        /// Whether it is enabled; deprecated.
        enable: bool = "enable";
        /// Whether it is enabled; unset leaves it unchanged.
        enabled: Option<bool> = "enabled" since 1;
        /// Whether it is masked.
        mask: bool = "mask";
        /// Its name.
        name: String = "name";
    }
}
