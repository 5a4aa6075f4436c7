//! `storage.conf`: how containers are stored (containers-storage.conf(5)).
//!
//! The file is read into the fields that `containers/storage` knows and written again, byte for byte
//! like MCO: comments and unknown keys are gone, and numbers are written even where they are zero.

mod format;

use std::fmt::Write as _;

use toml_edit::{Document, TableLike};

use format::{OPTIONS, StoragePart, write_part};

use super::toml_text::quoted;

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

/// The file with the changes.
pub(super) fn apply_changes(base: &str, changes: &StorageConfChanges) -> Result<String, String> {
    let document =
        Document::parse(base).map_err(|error| format!("it is no TOML: {}", error.message()))?;
    let storage = StoragePart::root(document.as_table()).part("storage")?;
    let options = storage.part("options")?;
    let mut text = "[storage]\n".to_owned();
    for name in ["driver", "runroot", "graphroot"] {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {name} = {}", quoted(&storage.text(name)?));
    }
    text.push_str("  [storage.options]\n");
    write_part(&mut text, &options, OPTIONS, changes)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_written_like_mco() {
        // Recorded from MCO.
        let base = "# ours\n[storage]\ndriver = \"overlay\"\nrunroot = \"/run/containers/storage\"\n\
            graphroot = \"/var/lib/containers/storage\"\n[storage.options]\n\
            additionalimagestores = [\n]\n[storage.options.pull_options]\n\
            use_hard_links = \"false\"\nenable_partial_images = \"false\"\nostree_repos = \"\"\n\
            [storage.options.overlay]\nskip_mount_home = \"true\"\nsize = \"\"\n";
        let changes = StorageConfChanges { size: Some("3G".to_owned()), ..Default::default() };
        let expected = r#"[storage]
  driver = "overlay"
  runroot = "/run/containers/storage"
  graphroot = "/var/lib/containers/storage"
  [storage.options]
    size = "3G"
    force_mask = 0
    auto-userns-min-size = 0
    auto-userns-max-size = 0
    [storage.options.overlay]
      skip_mount_home = "true"
    [storage.options.pull_options]
      enable_partial_images = "false"
      ostree_repos = ""
      use_hard_links = "false"
"#;
        assert_eq!(apply_changes(base, &changes).unwrap(), expected);
    }

    #[test]
    fn a_wrong_type_is_an_error_that_names_the_key() {
        for (base, expected) in [
            ("[", "it is no TOML"),
            ("storage = 1", "storage has to be a table"),
            ("[storage]\ndriver = 1", "storage.driver has to be a text"),
            ("[storage.options]\nforce_mask = \"shared\"", "storage.options.force_mask"),
            ("[storage.options]\nforce_mask = -1", "storage.options.force_mask"),
            ("[storage.options]\ndisable-volatile = 1", "storage.options.disable-volatile"),
            ("[storage.options.overlay]\nsize = 1", "storage.options.overlay.size"),
            ("[storage.options.pull_options]\nx = true", "storage.options.pull_options.x"),
            ("[storage.options]\nadditionalimagestores = [1]", "additionalimagestores"),
        ] {
            let error = apply_changes(base, &StorageConfChanges::default()).unwrap_err();
            assert!(error.contains(expected), "{base}: {error}");
        }
    }
}
