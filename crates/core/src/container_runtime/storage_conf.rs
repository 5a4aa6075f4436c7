//! `storage.conf`: how containers are stored (containers-storage.conf(5)).

use toml_edit::{Array, DocumentMut, Item, Table, TableLike, value};

/// Where the file is.
pub(super) const STORAGE_CONF: &str = "/etc/containers/storage.conf";

/// The file that we begin with when no template gives one.
pub(super) const DEFAULT_STORAGE_CONF: &str = r#"[storage]
driver = "overlay"
runroot = "/run/containers/storage"
graphroot = "/var/lib/containers/storage"

[storage.options]
"#;

/// What is to be changed.
#[derive(Debug, Default)]
pub(super) struct StorageConfChanges {
    /// How large a container's own file system may become.
    pub(super) size: Option<String>,
    /// Further places of layers.
    pub(super) layer_stores: Vec<String>,
    /// Further places of images.
    pub(super) image_stores: Vec<String>,
}

/// A base with changes; everything else in it stays as it is.
pub(super) fn apply_changes(base: &str, changes: &StorageConfChanges) -> Result<String, String> {
    let mut document: DocumentMut = base
        .parse()
        .map_err(|error: toml_edit::TomlError| format!("it is no TOML: {}", error.message()))?;
    let storage = table(document.as_table_mut(), "storage")?;
    let options = table(storage, "options")?;
    if let Some(size) = &changes.size {
        options.insert("size", value(size));
    }
    for (name, stores) in [
        ("additionallayerstores", &changes.layer_stores),
        ("additionalimagestores", &changes.image_stores),
    ] {
        if !stores.is_empty() {
            options.insert(name, value(stores.iter().collect::<Array>()));
        }
    }
    Ok(document.to_string())
}

/// The table of this name, made if there is none.
fn table<'a>(parent: &'a mut dyn TableLike, name: &str) -> Result<&'a mut dyn TableLike, String> {
    if !parent.contains_key(name) {
        parent.insert(name, Item::Table(Table::new()));
    }
    let found = parent.get_mut(name).and_then(Item::as_table_like_mut);
    found.ok_or_else(|| format!("{name} has to be a table"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_asked_for_changes() {
        let changes = StorageConfChanges {
            size: Some("8G".to_owned()),
            layer_stores: vec!["/l:ref".to_owned()],
            image_stores: Vec::new(),
        };
        let base = "# ours\n[storage]\ndriver = \"overlay\"\n[storage.options]\n[storage.options.overlay]\nx = 1\n";
        let text = apply_changes(base, &changes).unwrap();
        assert!(text.starts_with("# ours\n[storage]\ndriver = \"overlay\"\n"), "{text}");
        assert!(text.contains("size = \"8G\"\nadditionallayerstores = [\"/l:ref\"]\n"), "{text}");
        assert!(text.contains("[storage.options.overlay]\nx = 1\n"), "{text}");
        assert!(
            apply_changes(DEFAULT_STORAGE_CONF, &changes)
                .unwrap()
                .contains("[storage.options]\nsize = \"8G\"\n")
        );
        assert!(apply_changes("", &changes).unwrap().contains("size = \"8G\""));
        assert!(apply_changes("storage = 1", &changes).is_err());
        assert!(apply_changes("[", &changes).is_err());
    }
}
