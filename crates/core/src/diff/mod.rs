//! The differences between two configs, as data: files, units, drop-ins, users, kernel arguments,
//! OS image and more. Never contains secrets.

mod text;
mod types;

use std::collections::{BTreeMap, BTreeSet};

use crate::api::{MachineConfig, MachineConfigSpec};
use crate::ignition::schema::{Config, File, PasswdUser, Unit};
use crate::ignition::{self, contents};
use crate::reconcile_check::ConfigChange;
use crate::secrets;

pub use text::{DiffLine, DiffLineKind, line_diff};
pub use types::{
    ChangeFlags, ChangeKind, ConfigDiff, ContentChange, ItemChange, ListChange, ShownContents,
    ValueChange,
};

/// Contents larger than this are compared by digest only.
const MAX_SHOWN_BYTES: u64 = 1 << 20;

/// Parses the Ignition configs of two MachineConfigs, whether or not one may follow the other.
/// `None` if one of them is invalid.
#[must_use]
pub fn parse_both(old: &MachineConfig, new: &MachineConfig) -> Option<ConfigChange> {
    let read = |machine_config: &MachineConfig| match &machine_config.spec.config {
        Some(raw) => ignition::parse_and_upgrade(raw).ok().map(|(config, _)| config),
        None => Some(ignition::empty_config()),
    };
    Some(ConfigChange { old: read(old)?, new: read(new)? })
}

/// The differences between two MachineConfigs with parsed Ignition configs.
#[must_use]
pub fn diff(old: &MachineConfig, new: &MachineConfig, change: &ConfigChange) -> ConfigDiff {
    let (from, to) = (&change.old, &change.new);
    ConfigDiff {
        flags: flags(&old.spec, &new.spec, from, to),
        files: files(from, to),
        units: units(from, to),
        dropins: dropins(from, to),
        users: users(from, to),
        ssh_keys: list_change(&core_keys(from), &core_keys(to)),
        kernel_arguments: list_change(
            &list(&old.spec.kernel_arguments),
            &list(&new.spec.kernel_arguments),
        ),
        extensions: list_change(&list(&old.spec.extensions), &list(&new.spec.extensions)),
        fields: plain_fields(&old.spec, &new.spec),
        other_sections: other_sections(from, to),
    }
}

fn list(list: &Option<Vec<String>>) -> Vec<String> {
    list.clone().unwrap_or_default()
}

fn kernel(spec: &MachineConfigSpec) -> &str {
    spec.kernel_type.as_deref().filter(|kernel| !kernel.is_empty()).unwrap_or("default")
}

fn flags(
    old: &MachineConfigSpec,
    new: &MachineConfigSpec,
    from: &Config,
    to: &Config,
) -> ChangeFlags {
    let image = |spec: &MachineConfigSpec| spec.os_image_url.clone().unwrap_or_default();
    ChangeFlags {
        os_update: image(old) != image(new),
        kargs: list(&old.kernel_arguments) != list(&new.kernel_arguments),
        fips: old.fips.unwrap_or_default() != new.fips.unwrap_or_default(),
        passwd: from.passwd != to.passwd,
        files: from.storage.files != to.storage.files,
        units: from.systemd.units != to.systemd.units,
        kernel_type: kernel(old) != kernel(new),
        extensions: list(&old.extensions) != list(&new.extensions),
    }
}

/// Pairs the entries of two lists by name, in the order of the names.
fn pair_by_name<'a, T>(
    old: &'a [T],
    new: &'a [T],
    name: impl Fn(&T) -> &str,
) -> Vec<(String, Option<&'a T>, Option<&'a T>)> {
    let index = |items: &'a [T]| -> BTreeMap<String, &'a T> {
        items.iter().map(|item| (name(item).to_owned(), item)).collect()
    };
    let (old, new) = (index(old), index(new));
    let names: BTreeSet<String> = old.keys().chain(new.keys()).cloned().collect();
    names
        .into_iter()
        .map(|name| {
            let (old, new) = (old.get(&name).copied(), new.get(&name).copied());
            (name, old, new)
        })
        .collect()
}

fn change_kind<T: PartialEq>(old: Option<&T>, new: Option<&T>) -> Option<ChangeKind> {
    match (old, new) {
        (None, Some(_)) => Some(ChangeKind::Added),
        (Some(_), None) => Some(ChangeKind::Removed),
        (Some(old), Some(new)) if old != new => Some(ChangeKind::Changed),
        _ => None,
    }
}

fn files(from: &Config, to: &Config) -> Vec<ItemChange> {
    let mut changes = Vec::new();
    for (name, old, new) in pair_by_name(&from.storage.files, &to.storage.files, |file| &file.path)
    {
        let Some(verb) = change_kind(old, new) else { continue };
        let secret = [old, new].into_iter().flatten().any(is_secret);
        let same_contents = old.zip(new).is_some_and(|(o, n)| o.contents == n.contents);
        let contents = (!same_contents).then(|| ContentChange {
            old: old.map_or(ShownContents::Nothing, |file| shown_file(file, secret)),
            new: new.map_or(ShownContents::Nothing, |file| shown_file(file, secret)),
        });
        let contents = contents
            .filter(|change| secret || change.old != change.new || verb != ChangeKind::Changed);
        let mut fields = file_fields(old, new);
        if contents.is_none() && fields.is_empty() {
            // The same bytes with another encoding or compression still change the config.
            let encoding = |file: &File| {
                Some(
                    if file.contents.compression.is_some() { "compressed" } else { "plain" }
                        .to_owned(),
                )
            };
            fields.insert(
                "encoding".to_owned(),
                ValueChange { old: old.and_then(encoding), new: new.and_then(encoding) },
            );
        }
        changes.push(ItemChange { name, verb, contents, fields });
    }
    changes
}

fn is_secret(file: &File) -> bool {
    let bytes = contents::decode(&file.contents, MAX_SHOWN_BYTES).unwrap_or_default();
    secrets::is_secret_file(&file.path, file.mode, &bytes)
}

fn shown_file(file: &File, secret: bool) -> ShownContents {
    if secret {
        return ShownContents::Secret;
    }
    match contents::decode(&file.contents, MAX_SHOWN_BYTES) {
        Ok(bytes) => ShownContents::of_bytes(bytes),
        Err(error) => ShownContents::Undecodable { reason: error.to_string() },
    }
}

fn file_fields(old: Option<&File>, new: Option<&File>) -> BTreeMap<String, ValueChange> {
    let owner = |id: Option<i64>, name: &Option<String>| {
        id.map(|id| id.to_string()).or_else(|| name.clone())
    };
    let mut fields = BTreeMap::new();
    let mut compare = |name: &str, value: &dyn Fn(&File) -> Option<String>| {
        add_change(&mut fields, name, old.and_then(value), new.and_then(value));
    };
    compare("mode", &|file| file.mode.map(|mode| format!("{mode:04o}")));
    compare("user", &|file| owner(file.user.id, &file.user.name));
    compare("group", &|file| owner(file.group.id, &file.group.name));
    compare("overwrite", &|file| file.overwrite.map(|overwrite| overwrite.to_string()));
    compare("append", &|file| {
        (!file.append.is_empty()).then(|| format!("{} parts", file.append.len()))
    });
    fields
}

fn add_change(
    fields: &mut BTreeMap<String, ValueChange>,
    name: &str,
    old: Option<String>,
    new: Option<String>,
) {
    if old != new {
        fields.insert(name.to_owned(), ValueChange { old, new });
    }
}

fn text_change(old: Option<&String>, new: Option<&String>) -> Option<ContentChange> {
    let shown = |text: Option<&String>| {
        text.map_or(ShownContents::Nothing, |text| ShownContents::Text { text: text.clone() })
    };
    (old != new).then(|| ContentChange { old: shown(old), new: shown(new) })
}

fn units(from: &Config, to: &Config) -> Vec<ItemChange> {
    let mut changes = Vec::new();
    for (name, old, new) in pair_by_name(&from.systemd.units, &to.systemd.units, |unit| &unit.name)
    {
        let contents = text_change(
            old.and_then(|unit| unit.contents.as_ref()),
            new.and_then(|unit| unit.contents.as_ref()),
        );
        let mut fields = BTreeMap::new();
        let mut compare = |name: &str, value: fn(&Unit) -> Option<bool>| {
            let text = |unit| value(unit).map(|value| value.to_string());
            add_change(&mut fields, name, old.and_then(text), new.and_then(text));
        };
        compare("enabled", |unit| unit.enabled);
        compare("mask", |unit| unit.mask);
        let verb = match (old, new) {
            (None, _) => ChangeKind::Added,
            (_, None) => ChangeKind::Removed,
            _ if contents.is_none() && fields.is_empty() => continue,
            _ => ChangeKind::Changed,
        };
        changes.push(ItemChange { name, verb, contents, fields });
    }
    changes
}

fn dropins(from: &Config, to: &Config) -> Vec<ItemChange> {
    let all = |config: &Config| -> Vec<(String, Option<String>)> {
        let units = config.systemd.units.iter();
        let of_unit = |unit: &Unit| -> Vec<(String, Option<String>)> {
            let name = |dropin: &str| format!("{}/{dropin}", unit.name);
            unit.dropins.iter().map(|d| (name(&d.name), d.contents.clone())).collect()
        };
        units.flat_map(of_unit).collect()
    };
    let (old, new) = (all(from), all(to));
    let mut changes = Vec::new();
    for (name, old, new) in pair_by_name(&old, &new, |(name, _)| name) {
        let Some(verb) = change_kind(old, new) else { continue };
        let contents =
            text_change(old.and_then(|(_, c)| c.as_ref()), new.and_then(|(_, c)| c.as_ref()));
        changes.push(ItemChange { name, verb, contents, fields: BTreeMap::new() });
    }
    changes
}

fn core_keys(config: &Config) -> Vec<String> {
    let core = config.passwd.users.iter().find(|user| user.name == "core");
    core.map(|user| user.ssh_authorized_keys.to_vec()).unwrap_or_default()
}

fn users(from: &Config, to: &Config) -> Vec<ItemChange> {
    let mut changes = Vec::new();
    for (name, old, new) in pair_by_name(&from.passwd.users, &to.passwd.users, |user| &user.name) {
        let Some(verb) = change_kind(old, new) else { continue };
        let mut fields = BTreeMap::new();
        let hash = |user: &PasswdUser| user.password_hash.clone();
        if old.and_then(hash) != new.and_then(hash) {
            // Hashes are secrets: only their presence is shown.
            let set =
                |user: Option<&PasswdUser>| user.and_then(hash).map(|_| "(secret)".to_owned());
            let change = ValueChange { old: set(old), new: set(new) };
            fields.insert("passwordHash".to_owned(), change);
        }
        let mut compare = |name: &str, value: fn(&PasswdUser) -> Option<String>| {
            add_change(&mut fields, name, old.and_then(value), new.and_then(value));
        };
        compare("shell", |user| user.shell.clone());
        compare("homeDir", |user| user.home_dir.clone());
        compare("gecos", |user| user.gecos.clone());
        compare("primaryGroup", |user| user.primary_group.clone());
        compare("uid", |user| user.uid.map(|uid| uid.to_string()));
        compare("groups", |user| (!user.groups.is_empty()).then(|| user.groups.join(",")));
        if name != "core" {
            compare("sshAuthorizedKeys", |user| {
                let count = user.ssh_authorized_keys.len();
                (count > 0).then(|| format!("{count} keys"))
            });
        }
        if verb != ChangeKind::Changed || !fields.is_empty() {
            changes.push(ItemChange { name, verb, contents: None, fields });
        }
    }
    changes
}

fn list_change(old: &[String], new: &[String]) -> ListChange {
    let mut removed: Vec<String> = old.to_vec();
    let mut added = Vec::new();
    for entry in new {
        match removed.iter().position(|other| other == entry) {
            Some(at) => {
                removed.remove(at);
            }
            None => added.push(entry.clone()),
        }
    }
    let reordered = added.is_empty() && removed.is_empty() && old != new;
    ListChange { added, removed, reordered }
}

fn plain_fields(old: &MachineConfigSpec, new: &MachineConfigSpec) -> BTreeMap<String, ValueChange> {
    let mut fields = BTreeMap::new();
    let text = |value: &Option<String>| value.clone().filter(|value| !value.is_empty());
    add_change(&mut fields, "osImageURL", text(&old.os_image_url), text(&new.os_image_url));
    add_change(
        &mut fields,
        "baseOSExtensionsContainerImage",
        text(&old.base_os_extensions_container_image),
        text(&new.base_os_extensions_container_image),
    );
    let kernel = |spec: &MachineConfigSpec| Some(kernel(spec).to_owned());
    add_change(&mut fields, "kernelType", kernel(old), kernel(new));
    let fips = |spec: &MachineConfigSpec| Some(spec.fips.unwrap_or_default().to_string());
    add_change(&mut fields, "fips", fips(old), fips(new));
    fields
}

fn other_sections(from: &Config, to: &Config) -> Vec<&'static str> {
    let (old, new) = (&from.storage, &to.storage);
    let sections = [
        ("ignition", {
            let mut same_version = from.ignition.clone();
            same_version.version.clone_from(&to.ignition.version);
            same_version != to.ignition
        }),
        ("kernelArguments", from.kernel_arguments != to.kernel_arguments),
        ("passwd.groups", from.passwd.groups != to.passwd.groups),
        ("storage.directories", old.directories != new.directories),
        ("storage.disks", old.disks != new.disks),
        ("storage.filesystems", old.filesystems != new.filesystems),
        ("storage.links", old.links != new.links),
        ("storage.luks", old.luks != new.luks),
        ("storage.raid", old.raid != new.raid),
    ];
    sections.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
}
