//! Selects and reads the files of manifests: limits their size and requires UTF-8.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

/// The maximum size of a file.
pub(super) const MAX_FILE_SIZE: u64 = 32 << 20;

/// How many directories are read below each other, and how many files in all.
const MAX_DEPTH: usize = 20;
const MAX_FILES: usize = 10_000;

/// The text of one file.
#[derive(Debug, Clone)]
pub struct ManifestText {
    /// The file, or `-`.
    pub file: PathBuf,
    /// The text of the file.
    pub text: String,
}

/// Reads files, directories (their `.yaml`, `.yml` and `.json` files, by name) and `-`.
pub fn read_paths(paths: &[PathBuf]) -> Result<Vec<ManifestText>> {
    let mut texts = Vec::new();
    for path in paths {
        if path == Path::new("-") {
            let what = "standard input";
            texts.push(to_text(path, read_limited(io::stdin().lock(), what)?)?);
        } else if fs::metadata(path).with_context(|| path.display().to_string())?.is_dir() {
            for file in manifests_in(path)? {
                texts.push(read_file(&file)?);
            }
        } else {
            texts.push(read_file(path)?);
        }
    }
    Ok(texts)
}

/// The same with the directories below. A link to a directory is not followed: it could lead back.
pub(super) fn read_paths_recursively(paths: &[PathBuf]) -> Result<Vec<ManifestText>> {
    let mut texts = Vec::new();
    for path in paths {
        if path != Path::new("-") && fs::metadata(path).is_ok_and(|found| found.is_dir()) {
            let mut files = Vec::new();
            collect_manifests(path, 0, &mut files)?;
            if files.is_empty() {
                bail!("{}: no .yaml, .yml or .json files in it or below", path.display());
            }
            for file in files {
                texts.push(read_file(&file)?);
            }
        } else {
            texts.extend(read_paths(std::slice::from_ref(path))?);
        }
    }
    Ok(texts)
}

fn collect_manifests(directory: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<()> {
    if depth > MAX_DEPTH {
        bail!("{}: more than {MAX_DEPTH} directories deep", directory.display());
    }
    for path in sorted_entries(directory)? {
        if path.is_dir() && !path.is_symlink() {
            collect_manifests(&path, depth + 1, files)?;
        } else if is_manifest(&path) {
            files.push(path);
        }
        if files.len() > MAX_FILES {
            bail!("{}: more than {MAX_FILES} manifests", directory.display());
        }
    }
    Ok(())
}

/// The directories in these directories, which are only read recursively.
#[must_use]
pub fn skipped_directories(paths: &[PathBuf]) -> Vec<PathBuf> {
    let directories = paths.iter().filter(|path| path.is_dir());
    let entries = directories.filter_map(|path| sorted_entries(path).ok()).flatten();
    entries.filter(|path| path.is_dir()).collect()
}

fn sorted_entries(directory: &Path) -> Result<Vec<PathBuf>> {
    let context = || directory.display().to_string();
    let entries = fs::read_dir(directory).with_context(context)?;
    let mut paths = entries
        .map(|entry| Ok(entry.with_context(context)?.path()))
        .collect::<Result<Vec<PathBuf>>>()?;
    paths.sort();
    Ok(paths)
}

fn is_manifest(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    matches!(ending, "yaml" | "yml" | "json") && path.is_file()
}

fn manifests_in(directory: &Path) -> Result<Vec<PathBuf>> {
    let files: Vec<PathBuf> =
        sorted_entries(directory)?.into_iter().filter(|path| is_manifest(path)).collect();
    if files.is_empty() {
        bail!("{}: no .yaml, .yml or .json files in this directory", directory.display());
    }
    Ok(files)
}

fn read_file(path: &Path) -> Result<ManifestText> {
    let name = path.display().to_string();
    let file = fs::File::open(path).with_context(|| name.clone())?;
    let size = file.metadata().with_context(|| name.clone())?.len();
    if size > MAX_FILE_SIZE {
        bail!("{name}: {}", too_large(size));
    }
    to_text(path, read_limited(file, &name)?)
}

fn too_large(size: u64) -> String {
    format!(
        "{size} bytes is more than a manifest may have ({MAX_FILE_SIZE}); an object larger than 1.5 MB cannot be stored anyway"
    )
}

/// Reads at most the maximum size, because a file may be larger than its metadata says.
fn read_limited(reader: impl io::Read, name: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(MAX_FILE_SIZE + 1).read_to_end(&mut bytes).with_context(|| name.to_owned())?;
    if bytes.len() as u64 > MAX_FILE_SIZE {
        bail!("{name}: {}", too_large(MAX_FILE_SIZE + 1));
    }
    Ok(bytes)
}

fn to_text(path: &Path, bytes: Vec<u8>) -> Result<ManifestText> {
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let line = error.as_bytes()[..at].iter().filter(|b| **b == b'\n').count() + 1;
        anyhow::anyhow!("{}: line {line}: not UTF-8 text (byte {at})", path.display())
    })?;
    Ok(ManifestText { file: path.to_owned(), text })
}
