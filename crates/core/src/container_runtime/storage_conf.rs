//! `storage.conf`: how containers are stored (containers-storage.conf(5)).

use toml_edit::{Array, DocumentMut, Item, Table, TableLike, value};

/// Its path.
pub(super) const STORAGE_CONF: &str = "/etc/containers/storage.conf";

/// The default file.
pub(super) const DEFAULT_STORAGE_CONF: &str = r#"[storage]
driver = "overlay"
runroot = "/run/containers/storage"
graphroot = "/var/lib/containers/storage"

[storage.options]
"#;

/// The changes.
#[derive(Debug, Default)]
pub(super) struct StorageConfChanges {
    /// The maximum size of a container's file system.
    pub(super) size: Option<String>,
    /// Additional layer stores.
    pub(super) layer_stores: Vec<String>,
    /// Additional image stores.
    pub(super) image_stores: Vec<String>,
}

/// Applies the changes to a file. Everything else, including comments, is kept.
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

/// The table of this name, created if missing.
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
    fn only_the_requested_settings_change() {
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
