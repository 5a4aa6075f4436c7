//! The fields of `[storage.options]` in the order of `containers/storage`'s structure, and how
//! `BurntSushi/toml` writes them: keys before tables, two spaces for each level, no empty lines.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use toml_edit::Item;

use super::{StorageConfChanges, TableLike};
use crate::container_runtime::toml_text::{key, list, quoted};

/// A field.
pub(super) struct StorageField {
    name: &'static str,
    kind: FieldKind,
}

/// The type of a field.
enum FieldKind {
    /// A text, left out if empty.
    Text,
    /// A list of texts, left out if empty.
    Texts,
    /// A number of 32 bits. Always written: `omitempty` does not cover numbers.
    Number,
    /// Left out if false.
    Flag,
    /// A table of texts with these names, left out if all are empty.
    Table(&'static [&'static str]),
    /// A table of texts with any names, left out if there are none.
    TextMap,
}

const fn field(name: &'static str, kind: FieldKind) -> StorageField {
    StorageField { name, kind }
}

/// The fields of `[storage.options]`.
pub(super) const OPTIONS: &[StorageField] = &[
    field("additionalimagestores", FieldKind::Texts),
    field("imagestore", FieldKind::Text),
    field("additionallayerstores", FieldKind::Texts),
    field("size", FieldKind::Text),
    field("ignore_chown_errors", FieldKind::Text),
    field("use_composefs", FieldKind::Text),
    field("force_mask", FieldKind::Number),
    field("root-auto-userns-user", FieldKind::Text),
    field("auto-userns-min-size", FieldKind::Number),
    field("auto-userns-max-size", FieldKind::Number),
    field("skip_mount_home", FieldKind::Text),
    field("mount_program", FieldKind::Text),
    field("mountopt", FieldKind::Text),
    field("disable-volatile", FieldKind::Flag),
    field("aufs", FieldKind::Table(&["mountopt"])),
    field("btrfs", FieldKind::Table(&["min_space", "size"])),
    field("thinpool", FieldKind::Table(&[])),
    field(
        "overlay",
        FieldKind::Table(&[
            "ignore_chown_errors",
            "mountopt",
            "mount_program",
            "size",
            "inodes",
            "skip_mount_home",
            "use_composefs",
            "force_mask",
        ]),
    ),
    field("vfs", FieldKind::Table(&["ignore_chown_errors"])),
    field("zfs", FieldKind::Table(&["mountopt", "fsname", "size"])),
    field("pull_options", FieldKind::TextMap),
];

/// A table of the file, and its path.
pub(super) struct StoragePart<'a> {
    table: Option<&'a dyn TableLike>,
    path: String,
}

impl<'a> StoragePart<'a> {
    /// The whole file.
    pub(super) fn root(table: &'a dyn TableLike) -> Self {
        Self { table: Some(table), path: String::new() }
    }

    /// The table of this name; empty if it is missing.
    pub(super) fn part(&self, name: &str) -> Result<Self, String> {
        let table = match self.get(name) {
            None => None,
            Some(item) => match item.as_table_like() {
                None => return Err(self.type_error(name, "a table")),
                found => found,
            },
        };
        Ok(Self { table, path: format!("{}{name}.", self.path) })
    }

    /// The text of this name; empty if it is missing.
    pub(super) fn text(&self, name: &str) -> Result<String, String> {
        let Some(item) = self.get(name) else { return Ok(String::new()) };
        item.as_str().map(str::to_owned).ok_or_else(|| self.type_error(name, "a text"))
    }

    fn texts(&self, name: &str) -> Result<Vec<String>, String> {
        let Some(item) = self.get(name) else { return Ok(Vec::new()) };
        let texts = item.as_array().and_then(|array| {
            array.iter().map(|text| text.as_str().map(str::to_owned)).collect::<Option<_>>()
        });
        texts.ok_or_else(|| self.type_error(name, "a list of texts"))
    }

    fn number(&self, name: &str) -> Result<u32, String> {
        let Some(item) = self.get(name) else { return Ok(0) };
        let number = item.as_integer().and_then(|number| u32::try_from(number).ok());
        number.ok_or_else(|| self.type_error(name, "a number from 0 to 4294967295"))
    }

    fn flag(&self, name: &str) -> Result<bool, String> {
        let Some(item) = self.get(name) else { return Ok(false) };
        item.as_bool().ok_or_else(|| self.type_error(name, "true or false"))
    }

    /// The key, else one that differs only in case: so does Go's library.
    fn get(&self, name: &str) -> Option<&'a Item> {
        let table = self.table?;
        table.get(name).or_else(|| {
            let mut all = table.iter();
            all.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, item)| item)
        })
    }

    /// All texts, by their exact names.
    fn all_texts(&self) -> Result<BTreeMap<String, String>, String> {
        let entries = self.table.into_iter().flat_map(|table| table.iter());
        entries
            .map(|(name, item)| match item.as_str() {
                Some(text) => Ok((name.to_owned(), text.to_owned())),
                None => Err(self.type_error(name, "a text")),
            })
            .collect()
    }

    fn type_error(&self, name: &str, expected: &str) -> String {
        format!("{}{name} has to be {expected}", self.path)
    }
}

/// Writes `[storage.options]` with the changes.
pub(super) fn write_part(
    text: &mut String,
    options: &StoragePart<'_>,
    fields: &[StorageField],
    changes: &StorageConfChanges,
) -> Result<(), String> {
    for StorageField { name, kind } in fields {
        let value = match kind {
            FieldKind::Text => {
                let read = options.text(name)?;
                let changed = changes.size.clone().filter(|_| *name == "size");
                Some(changed.unwrap_or(read)).filter(|text| !text.is_empty()).map(|it| quoted(&it))
            }
            FieldKind::Texts => {
                let read = options.texts(name)?;
                let changed = match *name {
                    "additionallayerstores" => &changes.layer_stores,
                    _ => &changes.image_stores,
                };
                let value = if changed.is_empty() { &read } else { changed };
                (!value.is_empty()).then(|| list(value))
            }
            FieldKind::Number => Some(options.number(name)?.to_string()),
            FieldKind::Flag => options.flag(name)?.then(|| "true".to_owned()),
            FieldKind::Table(names) => {
                let part = options.part(name)?;
                let read = |it: &&'static str| Ok(((*it).to_owned(), part.text(it)?));
                let read: Result<Vec<(String, String)>, String> = names.iter().map(read).collect();
                let set = read?.into_iter().filter(|(_, text)| !text.is_empty());
                write_table(text, name, &set.collect::<Vec<_>>());
                None
            }
            FieldKind::TextMap => {
                let read: Vec<_> = options.part(name)?.all_texts()?.into_iter().collect();
                write_table(text, name, &read);
                None
            }
        };
        if let Some(value) = value {
            // Writing to a String cannot fail, here and below.
            let _ = writeln!(text, "    {name} = {value}");
        }
    }
    Ok(())
}

fn write_table(text: &mut String, name: &str, entries: &[(String, String)]) {
    if entries.is_empty() {
        return;
    }
    let _ = writeln!(text, "    [storage.options.{name}]");
    for (name, value) in entries {
        let _ = writeln!(text, "      {} = {}", key(name), quoted(value));
    }
}
