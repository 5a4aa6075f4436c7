//! Selects and reads the files of manifests: limits their size and requires UTF-8.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

/// The maximum size of a file.
pub(super) const MAX_FILE_SIZE: u64 = 32 << 20;

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

fn manifests_in(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let context = || directory.display().to_string();
    for entry in fs::read_dir(directory).with_context(context)? {
        let path = entry.with_context(context)?.path();
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        if matches!(ending, "yaml" | "yml" | "json") && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
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
