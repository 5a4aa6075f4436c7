//! Checks the documentation: links resolve, tables match the code, examples work.
//!
//! `make reference` (`MACHINIST_UPDATE=1`) writes the generated pages.
mod alerts;
mod architecture;
mod events;
mod examples;
mod fields;
mod limits;
mod line_length;
mod links;
mod log_lines;
mod markdown;
mod metrics;
mod names;
mod source;
mod toolchain;
mod troubleshooting;

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A file of the project.
fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// All files in a directory of the project with one of these endings, relative to the root.
fn files(directory: &str, endings: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    let mut directories = vec![root().join(directory)];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if endings.iter().any(|ending| path.to_string_lossy().ends_with(ending)) {
                found.push(path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    found.sort();
    found
}

/// Compares a generated page with what it should be, or writes it.
fn assert_up_to_date(path: &str, text: &str) {
    if std::env::var_os("MACHINIST_UPDATE").is_some() {
        fs::write(root().join(path), text).unwrap();
    }
    let found = fs::read_to_string(root().join(path)).unwrap_or_default();
    let line = text.lines().zip(found.lines()).position(|(new, old)| new != old);
    assert!(
        found == text,
        "{path} is stale (line {:?}): run `make reference`",
        line.map(|n| n + 1)
    );
}
