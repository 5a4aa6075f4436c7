//! Converts specification 3.2 to 2.2, for machines whose Ignition supports no other version. The
//! results and refusals are those of the Machine Config Operator's converter.

use super::schema::{
    Config, Directory, Disk, Dropin, File, FileContents, Filesystem, Link, Mount, Owner, Partition,
    PasswdGroup, PasswdUser, Raid, Reference, Unit, Verification, WholeNumber,
};
use super::validate::validate;
use crate::ignition::config_part::ConfigPart as _;
use crate::ignition::keyed_list::Appended;
use crate::ignition::report::IgnitionReport;
use crate::ignition::schema as v3;

/// Why a specification 3 config has no equivalent in 2.2.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DowngradeError {
    /// A compressed resource.
    #[error("Compression in {section} is not supported on 2.2")]
    Compression {
        /// The section.
        section: &'static str,
    },
    /// A resource with HTTP headers.
    #[error("HTTPHeaders in {section} are not supported on 2.2")]
    HttpHeaders {
        /// The section.
        section: &'static str,
    },
    /// Proxies.
    #[error("HTTP proxies in Ignition.Proxy are not supported on 2.2")]
    Proxy,
    /// Encrypted volumes.
    #[error("LUKS is not supported on 2.2")]
    Luks,
    /// A user or group that must not exist.
    #[error("ShouldExist in {section} is not supported on 2.2")]
    ShouldExist {
        /// The section.
        section: &'static str,
    },
    /// A partition with start or size in MiB.
    #[error("SizeMiB and StartMiB in Storage.Disks.Partitions is not supported on 2.2")]
    PartitionExtent,
    /// A partition that may be resized.
    #[error("Resize in Storage.Disks.Partitions is not supported on 2.2")]
    Resize,
    /// Mount options of a file system.
    #[error("MountOptions in Storage.Filesystems is not supported on 2.2")]
    MountOptions,
    /// The result is not valid in 2.2.
    #[error("Converted spec has unexpected fatal error:\n{report}")]
    InvalidResult {
        /// The findings.
        report: IgnitionReport,
    },
}

/// Converts a config that is valid as 3.2, without later features, to 2.2.
pub fn from_v3(config: &v3::Config) -> Result<Config, DowngradeError> {
    check_ignition(&config.ignition)?;
    if !config.storage.luks.is_empty() {
        return Err(DowngradeError::Luks);
    }
    check_passwd(&config.passwd)?;
    check_storage(&config.storage)?;
    let ignition = &config.ignition;
    let storage = &config.storage;
    let filesystems: Vec<&str> =
        storage.filesystems.iter().filter_map(|filesystem| filesystem.path.as_deref()).collect();
    let mut result = Config::default();
    "2.2.0".clone_into(&mut result.ignition.version);
    result.ignition.config.replace = reference(&ignition.config.replace);
    result.ignition.config.append = references(&ignition.config.merge);
    result.ignition.security.tls.certificate_authorities =
        references(&ignition.security.tls.certificate_authorities);
    result.ignition.timeouts.http_response_headers = ignition.timeouts.http_response_headers;
    result.ignition.timeouts.http_total = ignition.timeouts.http_total;
    result.passwd.users = translate_list(&config.passwd.users, user);
    result.passwd.groups = translate_list(&config.passwd.groups, group);
    result.systemd.units = translate_list(&config.systemd.units, unit);
    result.storage.disks = translate_list(&storage.disks, disk);
    result.storage.raid = translate_list(&storage.raid, raid);
    result.storage.filesystems = named_filesystems(&storage.filesystems);
    let files = storage.files.iter().flat_map(|file| split_file(file, &filesystems));
    result.storage.files = files.collect::<Vec<_>>().into();
    result.storage.directories =
        translate_list(&storage.directories, |d| directory(d, &filesystems));
    result.storage.links = translate_list(&storage.links, |l| link(l, &filesystems));
    let report = validate(&result);
    if report.is_fatal() {
        return Err(DowngradeError::InvalidResult { report });
    }
    Ok(result)
}

fn check_resource(resource: &v3::Resource, section: &'static str) -> Result<(), DowngradeError> {
    if resource.compression.is_some() {
        return Err(DowngradeError::Compression { section });
    }
    if resource.http_headers.is_mentioned() {
        return Err(DowngradeError::HttpHeaders { section });
    }
    Ok(())
}

fn check_ignition(ignition: &v3::Ignition) -> Result<(), DowngradeError> {
    for resource in &ignition.config.merge {
        check_resource(resource, "Ignition.Config.Merge")?;
    }
    check_resource(&ignition.config.replace, "Ignition.Config.Replace")?;
    for resource in &ignition.security.tls.certificate_authorities {
        check_resource(resource, "Ignition.Security.TLS.CertificateAuthorities")?;
    }
    let proxy = &ignition.proxy;
    if proxy.http_proxy.is_some() || proxy.https_proxy.is_some() || proxy.no_proxy.is_mentioned() {
        return Err(DowngradeError::Proxy);
    }
    Ok(())
}

fn check_passwd(passwd: &v3::Passwd) -> Result<(), DowngradeError> {
    if passwd.users.iter().any(|user| user.should_exist == Some(false)) {
        return Err(DowngradeError::ShouldExist { section: "Passwd.Users" });
    }
    if passwd.groups.iter().any(|group| group.should_exist == Some(false)) {
        return Err(DowngradeError::ShouldExist { section: "Passwd.Groups" });
    }
    Ok(())
}

fn check_storage(storage: &v3::Storage) -> Result<(), DowngradeError> {
    for partition in storage.disks.iter().flat_map(|disk| &disk.partitions) {
        if partition.size_mib.is_some() || partition.start_mib.is_some() {
            return Err(DowngradeError::PartitionExtent);
        }
        if partition.resize == Some(true) {
            return Err(DowngradeError::Resize);
        }
    }
    if storage.filesystems.iter().any(|filesystem| filesystem.mount_options.is_mentioned()) {
        return Err(DowngradeError::MountOptions);
    }
    for file in &storage.files {
        if file.contents.http_headers.is_mentioned() {
            return Err(DowngradeError::HttpHeaders { section: "Storage.Files.Contents" });
        }
        if file.append.iter().any(|contents| contents.http_headers.is_mentioned()) {
            return Err(DowngradeError::HttpHeaders { section: "Storage.Files.Append.*" });
        }
    }
    Ok(())
}

fn translate_list<T, U>(items: &[T], translate: impl FnMut(&T) -> U) -> Appended<U> {
    items.iter().map(translate).collect::<Vec<_>>().into()
}

fn copy_list(items: &[String]) -> Appended<String> {
    items.to_vec().into()
}

fn text(text: Option<&String>) -> String {
    text.cloned().unwrap_or_default()
}

fn verification(verification: &v3::Verification) -> Verification {
    Verification { hash: verification.hash.clone() }
}

fn reference(resource: &v3::Resource) -> Option<Reference> {
    let source = resource.source.clone()?;
    Some(Reference { source, verification: verification(&resource.verification) })
}

/// Copies all of them: in a valid 3.2 config each has a source here.
fn references(resources: &[v3::Resource]) -> Appended<Reference> {
    resources.iter().filter_map(reference).collect::<Vec<_>>().into()
}

fn user(user: &v3::PasswdUser) -> PasswdUser {
    PasswdUser {
        create: None,
        gecos: text(user.gecos.as_ref()),
        groups: copy_list(&user.groups),
        home_dir: text(user.home_dir.as_ref()),
        name: user.name.clone(),
        no_create_home: user.no_create_home == Some(true),
        no_log_init: user.no_log_init == Some(true),
        no_user_group: user.no_user_group == Some(true),
        password_hash: user.password_hash.clone(),
        primary_group: text(user.primary_group.as_ref()),
        ssh_authorized_keys: copy_list(&user.ssh_authorized_keys),
        shell: text(user.shell.as_ref()),
        system: user.system == Some(true),
        uid: user.uid,
    }
}

fn group(group: &v3::PasswdGroup) -> PasswdGroup {
    PasswdGroup {
        gid: group.gid.map(WholeNumber),
        name: group.name.clone(),
        password_hash: text(group.password_hash.as_ref()),
        system: group.system == Some(true),
    }
}

fn unit(unit: &v3::Unit) -> Unit {
    let dropin = |dropin: &v3::Dropin| Dropin {
        contents: text(dropin.contents.as_ref()),
        name: dropin.name.clone(),
    };
    Unit {
        contents: text(unit.contents.as_ref()),
        dropins: translate_list(&unit.dropins, dropin),
        enable: false,
        enabled: unit.enabled,
        mask: unit.mask == Some(true),
        name: unit.name.clone(),
    }
}

fn disk(disk: &v3::Disk) -> Disk {
    let partition = |partition: &v3::Partition| Partition {
        guid: text(partition.guid.as_ref()),
        label: text(partition.label.as_ref()),
        number: partition.number,
        type_guid: text(partition.type_guid.as_ref()),
        ..Partition::default()
    };
    Disk {
        device: disk.device.clone(),
        partitions: translate_list(&disk.partitions, partition),
        wipe_table: disk.wipe_table == Some(true),
    }
}

fn raid(raid: &v3::Raid) -> Raid {
    Raid {
        devices: copy_list(&raid.devices),
        level: text(raid.level.as_ref()),
        name: raid.name.clone(),
        options: copy_list(&raid.options),
        spares: raid.spares.unwrap_or_default(),
    }
}

/// Names a file system by its path, or by its index if it has none.
fn named_filesystems(filesystems: &[v3::Filesystem]) -> Appended<Filesystem> {
    let mut unnamed = 0;
    translate_list(filesystems, |filesystem| {
        let name = filesystem.path.clone().unwrap_or_else(|| {
            unnamed += 1;
            unnamed.to_string()
        });
        let mount = Mount {
            create: None,
            device: filesystem.device.clone(),
            format: text(filesystem.format.as_ref()),
            label: filesystem.label.clone(),
            options: copy_list(&filesystem.options),
            uuid: filesystem.uuid.clone(),
            wipe_filesystem: filesystem.wipe_filesystem == Some(true),
        };
        Filesystem { mount: Some(mount), name, path: None }
    })
}

/// The file system with the longest path that is a prefix of the given one, and the path within it.
/// Like MCO's converter, it compares plain strings.
fn filesystem_path(path: &str, filesystems: &[&str]) -> (String, String) {
    let mut best = "";
    for filesystem in filesystems {
        if path.starts_with(filesystem) && filesystem.len() > best.len() {
            best = filesystem;
        }
    }
    match best {
        "" => ("root".to_owned(), path.to_owned()),
        best => (best.to_owned(), path[best.len()..].to_owned()),
    }
}

fn node_user(user: &v3::NodeUser) -> Option<Owner> {
    (!user.is_zero()).then(|| Owner { id: user.id, name: text(user.name.as_ref()) })
}

fn node_group(group: &v3::NodeGroup) -> Option<Owner> {
    (!group.is_zero()).then(|| Owner { id: group.id, name: text(group.name.as_ref()) })
}

/// Splits a file of 3.2 into one for its contents and one for each part to append. A file with
/// neither is dropped, as in MCO's converter.
fn split_file(file: &v3::File, filesystems: &[&str]) -> Vec<File> {
    let (filesystem, path) = filesystem_path(&file.path, filesystems);
    let piece = |resource: &v3::Resource, append: bool| File {
        filesystem: filesystem.clone(),
        group: node_group(&file.group),
        // Unset means no in 3.2 and yes in 2.2; and a part to append never overwrites.
        overwrite: Some(!append && file.overwrite.unwrap_or(false)),
        path: path.clone(),
        user: node_user(&file.user),
        append,
        contents: FileContents {
            compression: text(resource.compression.as_ref()),
            source: text(resource.source.as_ref()),
            verification: verification(&resource.verification),
        },
        mode: file.mode,
    };
    let contents = file.contents.source.is_some().then(|| piece(&file.contents, false));
    contents.into_iter().chain(file.append.iter().map(|resource| piece(resource, true))).collect()
}

fn directory(directory: &v3::Directory, filesystems: &[&str]) -> Directory {
    let (filesystem, path) = filesystem_path(&directory.path, filesystems);
    Directory {
        filesystem,
        group: node_group(&directory.group),
        overwrite: directory.overwrite,
        path,
        user: node_user(&directory.user),
        mode: directory.mode,
    }
}

fn link(link: &v3::Link, filesystems: &[&str]) -> Link {
    let (filesystem, path) = filesystem_path(&link.path, filesystems);
    Link {
        filesystem,
        group: node_group(&link.group),
        overwrite: link.overwrite,
        path,
        user: node_user(&link.user),
        hard: link.hard == Some(true),
        target: text(link.target.as_ref()),
    }
}

#[cfg(test)]
mod tests;
