//! The cache outside the source tree: artifacts that `scripts/testkit/prepare` has built, keyed by a hash of their
//! inputs.

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// The cache directory, the same as in `scripts/testkit/lib.sh`.
pub fn cache_dir() -> Result<PathBuf> {
    let read = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
    let base = match (read("MACHINIST_CACHE"), read("XDG_CACHE_HOME"), read("HOME")) {
        (Some(cache), _, _) => PathBuf::from(cache),
        (None, Some(cache), _) => PathBuf::from(cache).join("machinist"),
        (None, None, Some(home)) => PathBuf::from(home).join(".cache/machinist"),
        (None, None, None) => bail!("environment: HOME is missing, so there is no cache directory"),
    };
    Ok(base.join("testkit"))
}

/// The source directory of the kit, with its scripts and the inputs of the artifacts.
pub fn kit_dir() -> PathBuf {
    source_root().join("scripts/testkit")
}

/// The root of the source tree.
pub fn source_root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.ancestors().nth(2).unwrap_or(manifest).to_owned()
}

/// The directory of a ready artifact. A missing or stale one is an "environment" error.
pub fn artifact(name: &str) -> Result<PathBuf> {
    let path = cache_dir()?.join(format!("{name}-{}", artifact_key(name)?));
    if !path.is_dir() {
        bail!("environment: {name} missing, run make testkit");
    }
    Ok(path)
}

/// The key of an artifact: a hash over the names and contents of all its inputs.
fn artifact_key(name: &str) -> Result<String> {
    let mut dirs = BTreeSet::new();
    collect_inputs(name, &mut dirs)?;
    let mut listing = String::new();
    for dir in dirs {
        let mut files = Vec::new();
        walk(&kit_dir().join(&dir), &dir, &mut files)?;
        files.sort();
        for file in files {
            let bytes = fs::read(kit_dir().join(&file)).with_context(|| format!("read {file}"))?;
            writeln!(listing, "{}  {file}", hex(&Sha256::digest(&bytes)))?;
        }
    }
    Ok(hex(&Sha256::digest(&listing))[..16].to_owned())
}

fn collect_inputs(name: &str, found: &mut BTreeSet<String>) -> Result<()> {
    found.insert(name.to_owned());
    let needs = kit_dir().join(name).join("needs");
    if needs.exists() {
        for need in fs::read_to_string(&needs)?.lines() {
            collect_inputs(need, found)?;
        }
    }
    Ok(())
}

fn walk(dir: &Path, name: &str, files: &mut Vec<String>) -> Result<()> {
    let entries = fs::read_dir(dir).with_context(|| format!("read directory {name}"))?;
    for entry in entries {
        let entry = entry?;
        let below = format!("{name}/{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            walk(&entry.path(), &below, files)?;
        } else {
            files.push(below);
        }
    }
    Ok(())
}

/// Lower-case hexadecimal. The kit depends on no crate of the product, so that it cannot share its mistakes.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing into a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::run_args;

    #[test]
    fn the_script_and_the_crate_agree_on_every_key() {
        let script = kit_dir().join("lib.sh");
        let command =
            format!(". '{}'; for a in ${{artifacts[@]}}; do artifact $a; done", script.display());
        let listed = run_args("bash", ["-c", &command]).unwrap();
        assert!(listed.lines().count() >= 5, "{listed}");
        for line in listed.lines() {
            let (name, _) =
                Path::new(line).file_name().unwrap().to_str().unwrap().rsplit_once('-').unwrap();
            let ours = cache_dir().unwrap().join(format!("{name}-{}", artifact_key(name).unwrap()));
            assert_eq!(Path::new(line), ours);
        }
    }
}
