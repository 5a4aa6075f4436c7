//! Writes the directory that `machinist server bootstrap` serves, so that a reader never sees half of it.
//!
//! All files are written and synced in a staging directory and then renamed, configs before the pools that
//! name them. The directory may be written again while it is served. Called by `machinist bootstrap`.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use anyhow::{Context as _, Result};
use machinist_core::api::names::object::RENDERED_PREFIX;
use machinist_core::bootstrap::{BootstrapFile, DIRECTORIES};

use crate::durable_file;

/// Rendered configs contain pull secrets and keys, so other users must not read them.
const DIRECTORY_MODE: u32 = 0o750;
const FILE_MODE: u32 = 0o640;

/// Writes the files, and removes stale files of an earlier run. Other files in the directory, such as
/// certificates and tokens, stay.
///
/// # Errors
/// A file cannot be written. Each existing file is then either the old or the new version.
pub fn write(out: &Path, files: &[BootstrapFile]) -> Result<()> {
    let is_new = !out.exists();
    fs::create_dir_all(out).with_context(|| format!("cannot create {}", out.display()))?;
    let stage = out.join(format!(".bootstrap-{}", std::process::id()));
    let done = stage_all(&stage, files).and_then(|()| move_into_place(&stage, out, files));
    // A staging directory that cannot be removed does no harm.
    let _ = fs::remove_dir_all(&stage);
    if done.is_err() && is_new {
        let _ = fs::remove_dir(out);
    }
    done?;
    remove_stale(out, files)
}

fn stage_all(stage: &Path, files: &[BootstrapFile]) -> Result<()> {
    create_directory(stage)?;
    for directory in DIRECTORIES {
        create_directory(&stage.join(directory))?;
    }
    for BootstrapFile { directory, name, text } in files {
        let path = stage.join(directory).join(name);
        let mut options = OpenOptions::new();
        let options = options.write(true).create_new(true).mode(FILE_MODE);
        let written = options.open(&path).and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()
        });
        written.with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn move_into_place(stage: &Path, out: &Path, files: &[BootstrapFile]) -> Result<()> {
    for directory in DIRECTORIES {
        let selected: Vec<&BootstrapFile> =
            files.iter().filter(|file| file.directory == directory).collect();
        if selected.is_empty() {
            continue;
        }
        let target = out.join(directory);
        create_directory(&target)?;
        for file in selected {
            let to = target.join(&file.name);
            fs::rename(stage.join(directory).join(&file.name), &to)
                .with_context(|| format!("cannot write {}", to.display()))?;
        }
        fsync_directory(&target)?;
    }
    fsync_directory(out)
}

/// Removes stale pools first, then the configs that they named.
fn remove_stale(out: &Path, files: &[BootstrapFile]) -> Result<()> {
    for directory in DIRECTORIES.iter().rev() {
        let expected: BTreeSet<&str> = files
            .iter()
            .filter(|file| file.directory == *directory)
            .map(|it| it.name.as_str())
            .collect();
        let target = out.join(directory);
        let entries = match fs::read_dir(&target) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            entries => entries.with_context(|| target.display().to_string())?,
        };
        for entry in entries {
            let entry = entry.with_context(|| target.display().to_string())?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            let is_ours = *directory != "machine-configs" || name.starts_with(RENDERED_PREFIX);
            if is_ours && name.ends_with(".yaml") && !expected.contains(name) {
                let path = entry.path();
                fs::remove_file(&path)
                    .with_context(|| format!("cannot remove {}", path.display()))?;
            }
        }
    }
    Ok(())
}

fn create_directory(path: &Path) -> Result<()> {
    match DirBuilder::new().mode(DIRECTORY_MODE).create(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        made => made.with_context(|| format!("cannot create {}", path.display())),
    }
}

fn fsync_directory(directory: &Path) -> Result<()> {
    durable_file::fsync_directory(directory)
        .with_context(|| format!("cannot sync {}", directory.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(directory: &'static str, name: &str, text: &str) -> BootstrapFile {
        BootstrapFile { directory, name: name.to_owned(), text: text.to_owned() }
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_second_run_replaces_the_first_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let out = directory.path().join("new/bootstrap");
        write(
            &out,
            &[
                file("machine-configs", "rendered-a-1.yaml", "1"),
                file("api-server", "api-server.yaml", "x"),
                file("machine-pools", "a.yaml", "a"),
                file("machine-pools", "b.yaml", "b"),
            ],
        )
        .unwrap();
        fs::write(out.join("registry.crt"), "mine").unwrap();
        fs::write(out.join("machine-configs/mine.yaml"), "mine").unwrap();
        let second = [
            file("machine-configs", "rendered-a-2.yaml", "2"),
            file("machine-pools", "a.yaml", "a2"),
        ];
        write(&out, &second).unwrap();
        assert_eq!(names(&out), ["api-server", "machine-configs", "machine-pools", "registry.crt"]);
        assert_eq!(names(&out.join("machine-configs")), ["mine.yaml", "rendered-a-2.yaml"]);
        assert_eq!(names(&out.join("machine-pools")), ["a.yaml"]);
        assert_eq!(names(&out.join("api-server")), Vec::<String>::new());
        assert_eq!(fs::read_to_string(out.join("machine-pools/a.yaml")).unwrap(), "a2");
    }

    #[test]
    fn what_cannot_be_written_leaves_nothing_behind() {
        let directory = tempfile::tempdir().unwrap();
        let out = directory.path().join("out");
        let error =
            write(&out, &[file("machine-pools", "no/such/directory.yaml", "a")]).unwrap_err();
        assert!(format!("{error:#}").contains("cannot write"), "{error:#}");
        assert!(!out.exists());
        // A file in place of a directory: the existing files stay.
        fs::write(&out, "file").unwrap();
        assert!(write(&out, &[file("machine-pools", "a.yaml", "a")]).is_err());
        assert_eq!(fs::read_to_string(&out).unwrap(), "file");
    }
}
