//! Converts specification 2.2 to 3. The results and refusals are those of the Machine Config
//! Operator's converter.

use std::collections::{HashMap, HashSet};

use super::schema::{
    Config, Directory, Disk, Dropin, File, Link, Owner, PasswdGroup, PasswdUser, Raid, Reference,
    Storage, Systemd, Unit, Verification,
};
use super::validate::validate_as;
use crate::go::path as go_path;
use crate::ignition::keyed_list::{Appended, Keyed, KeyedItem};
use crate::ignition::report::IgnitionReport;
use crate::ignition::schema as v3;
use crate::ignition::validate::validate as validate_v3;
use crate::ignition::version::IgnitionVersion;

/// Why a specification 2 config has no equivalent in specification 3.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UpgradeError {
    /// A user other than `core`.
    #[error("unexpected user with name: {name}. Only core user is supported")]
    UnexpectedUser {
        /// The user's name.
        name: String,
    },
    /// The config is invalid, or uses deprecated features.
    #[error("Invalid input config:\n{report}")]
    Invalid {
        /// The findings.
        report: IgnitionReport,
    },
    /// A networkd section.
    #[error("config includes deprecated networkd section - use Files instead")]
    Networkd,
    /// A file system other than the root.
    #[error(
        "Config defined filesystem {name:?} but no mapping was defined.Please specify a path to be used as the filesystem mountpoint."
    )]
    NoFilesystem {
        /// The file system's name.
        name: String,
    },
    /// Two files, directories or links with the same path.
    #[error(
        "Config has conflicting inodes: {first:?} and {second:?}.  All files, directories and links must specify a unique `path`."
    )]
    DuplicateInode {
        /// The first entry with the path.
        first: String,
        /// The second entry with the path.
        second: String,
    },
    /// A path that goes through a link of the same config.
    #[error(
        "{name} uses link defined in config {link:?}. Please use a link not defined in Storage:Links"
    )]
    UsesOwnLink {
        /// The link's path.
        link: String,
        /// The entry that uses the link.
        name: String,
    },
    /// A unit that is defined twice.
    #[error("Config has duplicate unit name {name:?}.  All units must specify a unique `name`.")]
    DuplicateUnit {
        /// The unit's name.
        name: String,
    },
    /// A drop-in that is defined twice.
    #[error(
        "Config has duplicate dropin name {name:?} in unit {unit:?}.  All dropins must specify a unique `name`."
    )]
    DuplicateDropin {
        /// The unit's name.
        unit: String,
        /// The drop-in's name.
        name: String,
    },
    /// The result is not valid in specification 3.
    #[error("{report}")]
    InvalidResult {
        /// The findings.
        report: IgnitionReport,
    },
}

/// Converts a 2.2 config to the internal version 3.5.0. The only known file system is the root;
/// nodes in any other are treated as if they were in the root.
pub fn to_v3(config: &Config) -> Result<v3::Config, UpgradeError> {
    check(config)?;
    let ignition = &config.ignition;
    let mut result = v3::Config::default();
    "3.0.0".clone_into(&mut result.ignition.version);
    result.ignition.config.merge = appended(&ignition.config.append);
    result.ignition.config.replace =
        ignition.config.replace.as_ref().map(reference).unwrap_or_default();
    let tls = &ignition.security.tls;
    result.ignition.security.tls.certificate_authorities =
        translate_list(&tls.certificate_authorities, reference);
    result.ignition.timeouts = v3::Timeouts {
        http_response_headers: ignition.timeouts.http_response_headers,
        http_total: ignition.timeouts.http_total,
    };
    result.passwd.users = translate_list(&config.passwd.users, user);
    result.passwd.groups = translate_list(&config.passwd.groups, group);
    result.systemd.units = translate_list(&config.systemd.units, unit);
    result.storage.disks = translate_list(&config.storage.disks, disk);
    result.storage.raid = translate_list(&config.storage.raid, raid);
    result.storage.files = translate_list(&config.storage.files, file);
    result.storage.directories = translate_list(&config.storage.directories, directory);
    result.storage.links = translate_list(&config.storage.links, link);
    let report = validate_v3(&result, 0);
    if report.is_fatal() {
        return Err(UpgradeError::InvalidResult { report });
    }
    result.ignition.version = IgnitionVersion::MAX.to_string();
    Ok(result)
}

fn check(config: &Config) -> Result<(), UpgradeError> {
    let report = validate_as(config, 3);
    if report.is_fatal() || report.is_deprecated() {
        return Err(UpgradeError::Invalid { report });
    }
    if !config.networkd.units.is_empty() {
        return Err(UpgradeError::Networkd);
    }
    if let Some(other) = config.storage.filesystems.iter().find(|fs| fs.name != "root") {
        return Err(UpgradeError::NoFilesystem { name: other.name.clone() });
    }
    check_nodes(&config.storage)?;
    check_units(&config.systemd)
}

/// Checks that a path is only one kind of node and does not go through a link of the same config.
/// As in MCO's converter, a path that merely begins with the same characters as a link counts as
/// below it.
fn check_nodes(storage: &Storage) -> Result<(), UpgradeError> {
    let places = |kind: &'static str, paths: Vec<&String>| {
        let join = |path: &String| (kind, go_path::join(&["/", path]));
        paths.into_iter().map(join).collect::<Vec<_>>()
    };
    let files = places("File", storage.files.iter().map(|node| &node.path).collect());
    let directories =
        places("Directory", storage.directories.iter().map(|node| &node.path).collect());
    let links = places("Link", storage.links.iter().map(|node| &node.path).collect());
    let mut seen: HashMap<&str, &str> = HashMap::new();
    for (kind, path) in files.iter().chain(&directories).chain(&links) {
        if let Some(first) = seen.insert(path, kind) {
            return Err(UpgradeError::DuplicateInode {
                first: format!("{first}: {path}"),
                second: format!("{kind}: {path}"),
            });
        }
        if let Some((_, link)) =
            links.iter().find(|(_, link)| path.starts_with(link.as_str()) && path != link)
        {
            let name = format!("{kind}: {path}");
            return Err(UpgradeError::UsesOwnLink { link: link.clone(), name });
        }
    }
    Ok(())
}

fn check_units(systemd: &Systemd) -> Result<(), UpgradeError> {
    let mut units = HashSet::new();
    for unit in &systemd.units {
        if !units.insert(&unit.name) {
            return Err(UpgradeError::DuplicateUnit { name: unit.name.clone() });
        }
        let mut dropins = HashSet::new();
        if let Some(twice) = unit.dropins.iter().find(|dropin| !dropins.insert(&dropin.name)) {
            let (unit, name) = (unit.name.clone(), twice.name.clone());
            return Err(UpgradeError::DuplicateDropin { unit, name });
        }
    }
    Ok(())
}

fn translate_list<T, U: KeyedItem>(items: &[T], translate: impl Fn(&T) -> U) -> Keyed<U> {
    items.iter().map(translate).collect::<Vec<_>>().into()
}

fn copy_list(items: &[String]) -> Keyed<String> {
    items.to_vec().into()
}

/// An empty text counts as unset.
fn non_empty(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// `false` counts as unset.
fn true_or_none(flag: bool) -> Option<bool> {
    flag.then_some(true)
}

fn verification(verification: &Verification) -> v3::Verification {
    v3::Verification { hash: verification.hash.clone() }
}

fn reference(reference: &Reference) -> v3::Resource {
    v3::Resource {
        source: Some(reference.source.clone()),
        verification: verification(&reference.verification),
        ..v3::Resource::default()
    }
}

/// MCO's converter takes the address of its loop variable, so that every reference ends up with the
/// source of the last one; two or more are then refused as duplicates of each other.
fn appended(references: &[Reference]) -> Keyed<v3::Resource> {
    let source = references.last().map(|last| last.source.clone());
    translate_list(references, |item| v3::Resource { source: source.clone(), ..reference(item) })
}

fn user(user: &PasswdUser) -> v3::PasswdUser {
    v3::PasswdUser {
        gecos: non_empty(&user.gecos),
        groups: copy_list(&user.groups),
        home_dir: non_empty(&user.home_dir),
        name: user.name.clone(),
        no_create_home: true_or_none(user.no_create_home),
        no_log_init: true_or_none(user.no_log_init),
        no_user_group: true_or_none(user.no_user_group),
        password_hash: user.password_hash.clone(),
        primary_group: non_empty(&user.primary_group),
        ssh_authorized_keys: copy_list(&user.ssh_authorized_keys),
        shell: non_empty(&user.shell),
        should_exist: None,
        system: true_or_none(user.system),
        uid: user.uid,
    }
}

fn group(group: &PasswdGroup) -> v3::PasswdGroup {
    v3::PasswdGroup {
        gid: group.gid.map(|gid| gid.0),
        name: group.name.clone(),
        password_hash: non_empty(&group.password_hash),
        should_exist: None,
        system: true_or_none(group.system),
    }
}

fn unit(unit: &Unit) -> v3::Unit {
    v3::Unit {
        contents: non_empty(&unit.contents),
        dropins: translate_list(&unit.dropins, dropin),
        enabled: unit.enabled.or(true_or_none(unit.enable)),
        mask: true_or_none(unit.mask),
        name: unit.name.clone(),
    }
}

fn dropin(dropin: &Dropin) -> v3::Dropin {
    v3::Dropin { contents: non_empty(&dropin.contents), name: dropin.name.clone() }
}

/// Disks that get this far have no partitions: their size and start are deprecated, and refused.
fn disk(disk: &Disk) -> v3::Disk {
    v3::Disk {
        device: disk.device.clone(),
        partitions: Keyed::default(),
        wipe_table: true_or_none(disk.wipe_table),
    }
}

fn raid(raid: &Raid) -> v3::Raid {
    v3::Raid {
        devices: copy_list(&raid.devices),
        level: Some(raid.level.clone()),
        name: raid.name.clone(),
        options: Appended::from(raid.options.to_vec()),
        spares: Some(raid.spares).filter(|spares| *spares != 0),
    }
}

fn node_user(owner: Option<&Owner>) -> v3::NodeUser {
    owner
        .map(|owner| v3::NodeUser { id: owner.id, name: non_empty(&owner.name) })
        .unwrap_or_default()
}

fn node_group(owner: Option<&Owner>) -> v3::NodeGroup {
    let v3::NodeUser { id, name } = node_user(owner);
    v3::NodeGroup { id, name }
}

fn file(file: &File) -> v3::File {
    let contents = v3::Resource {
        compression: non_empty(&file.contents.compression),
        source: Some(file.contents.source.clone()),
        verification: verification(&file.contents.verification),
        ..v3::Resource::default()
    };
    let (append, contents) = if file.append {
        (Appended::from(vec![contents]), v3::Resource::default())
    } else {
        (Appended::default(), contents)
    };
    v3::File {
        group: node_group(file.group.as_ref()),
        // Files of specification 2 overwrite by default; those that append never do.
        overwrite: Some(!file.append && file.overwrite.unwrap_or(true)),
        path: go_path::clean(&file.path),
        user: node_user(file.user.as_ref()),
        append,
        contents,
        mode: file.mode,
    }
}

fn directory(directory: &Directory) -> v3::Directory {
    v3::Directory {
        group: node_group(directory.group.as_ref()),
        overwrite: directory.overwrite,
        path: go_path::clean(&directory.path),
        user: node_user(directory.user.as_ref()),
        mode: directory.mode,
    }
}

fn link(link: &Link) -> v3::Link {
    v3::Link {
        group: node_group(link.group.as_ref()),
        overwrite: link.overwrite,
        path: go_path::clean(&link.path),
        user: node_user(link.user.as_ref()),
        hard: true_or_none(link.hard),
        target: Some(link.target.clone()),
    }
}

#[cfg(test)]
mod tests;
