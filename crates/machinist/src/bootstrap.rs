//! The folder that a first control plane is served from, written so that nobody ever finds half of it.
//!
//! Everything is written and synced beside its place first, and then moved there, in an order in which
//! whoever reads a pool finds what it points at. A folder may be written again while it is served.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use anyhow::{Context as _, Result};
use machinist_core::api::names::object::RENDERED_PREFIX;
use machinist_core::bootstrap::{BootstrapFile, DIRECTORIES};

/// Rendered configs hold pull secrets and keys: they are not for everyone.
const DIRECTORY_MODE: u32 = 0o750;
const FILE_MODE: u32 = 0o640;

/// Writes the files, and removes those of an earlier run that are no longer wanted. Other files in the
/// folder, such as certificates and tokens, are left alone.
///
/// # Errors
/// Something cannot be written; what is there is then as it was, or newer file by file.
pub fn write(out: &Path, files: &[BootstrapFile]) -> Result<()> {
    let is_new = !out.exists();
    fs::create_dir_all(out).with_context(|| format!("cannot create {}", out.display()))?;
    let stage = out.join(format!(".bootstrap-{}", std::process::id()));
    let done = stage_all(&stage, files).and_then(|()| move_into_place(&stage, out, files));
    // Nothing is left to be done about what cannot be removed.
    let _ = fs::remove_dir_all(&stage);
    if done.is_err() && is_new {
        let _ = fs::remove_dir(out);
    }
    done?;
    remove_stale(out, files)
}

fn stage_all(stage: &Path, files: &[BootstrapFile]) -> Result<()> {
    create_directory(stage)?;
    for folder in DIRECTORIES {
        create_directory(&stage.join(folder))?;
    }
    for BootstrapFile { directory: folder, name, text } in files {
        let path = stage.join(folder).join(name);
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
    for folder in DIRECTORIES {
        let ours: Vec<&BootstrapFile> =
            files.iter().filter(|file| file.directory == folder).collect();
        if ours.is_empty() {
            continue;
        }
        let place = out.join(folder);
        create_directory(&place)?;
        for file in ours {
            let to = place.join(&file.name);
            fs::rename(stage.join(folder).join(&file.name), &to)
                .with_context(|| format!("cannot write {}", to.display()))?;
        }
        fsync_directory(&place)?;
    }
    fsync_directory(out)
}

/// Pools that are gone, then the configs that nobody points at any more.
fn remove_stale(out: &Path, files: &[BootstrapFile]) -> Result<()> {
    for folder in DIRECTORIES.iter().rev() {
        let wanted: BTreeSet<&str> = files
            .iter()
            .filter(|file| file.directory == *folder)
            .map(|it| it.name.as_str())
            .collect();
        let place = out.join(folder);
        let entries = match fs::read_dir(&place) {
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            entries => entries.with_context(|| place.display().to_string())?,
        };
        for entry in entries {
            let entry = entry.with_context(|| place.display().to_string())?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            let is_ours = *folder != "machine-configs" || name.starts_with(RENDERED_PREFIX);
            if is_ours && name.ends_with(".yaml") && !wanted.contains(name) {
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

fn fsync_directory(folder: &Path) -> Result<()> {
    let synced = fs::File::open(folder).and_then(|folder| folder.sync_all());
    synced.with_context(|| format!("cannot sync {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(folder: &'static str, name: &str, text: &str) -> BootstrapFile {
        BootstrapFile { directory: folder, name: name.to_owned(), text: text.to_owned() }
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_second_run_replaces_the_first_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("new/bootstrap");
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
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out");
        let error = write(&out, &[file("machine-pools", "no/such/folder.yaml", "a")]).unwrap_err();
        assert!(format!("{error:#}").contains("cannot write"), "{error:#}");
        assert!(!out.exists());
        // A file in the place of a folder: what is there stays as it is.
        fs::write(&out, "file").unwrap();
        assert!(write(&out, &[file("machine-pools", "a.yaml", "a")]).is_err());
        assert_eq!(fs::read_to_string(&out).unwrap(), "file");
    }
}
