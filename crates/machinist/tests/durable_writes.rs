//! No file that must survive a power loss is written without a sync: only the modules that sync may write files.

use std::fs;
use std::path::{Path, PathBuf};

/// Calls that write files or change names.
const WRITES: [&str; 7] = [
    "fs::write(",
    "fs::rename(",
    "File::create(",
    "OpenOptions::new()",
    "fs::remove_file(",
    "fs::hard_link(",
    " symlink(",
];

/// The files that may use them, and why.
const ALLOWED: [(&str, &str); 10] = [
    ("durable_file.rs", "syncs"),
    ("bootstrap.rs", "syncs each file, and the directories after the last one"),
    ("up/pki.rs", "only removes files that nothing reads any more"),
    ("cli/man.rs", "the output of a command"),
    ("cli/generate.rs", "the output of a command"),
    ("cli/server.rs", "the message of a container that failed"),
    ("daemon/status.rs", "in /run"),
    ("daemon/running.rs", "locks in /run"),
    ("daemon/os/ostree", "in /run, or checked by its digest before it is used"),
    ("daemon/os/extensions_repo.rs", "removed when the update ends"),
];

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn files_that_must_survive_are_synced() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut all = Vec::new();
    sources(&root, &mut all);
    assert!(all.len() > 100);
    let mut found = Vec::new();
    for path in all {
        let name = path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
        let is_test = name.ends_with("tests.rs") || name.ends_with("_test.rs");
        if is_test || ALLOWED.iter().any(|(allowed, _)| name.starts_with(allowed)) {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]\n").next().unwrap_or_default();
        for (number, line) in code.lines().enumerate() {
            let is_comment = line.trim_start().starts_with("//");
            if !is_comment && WRITES.iter().any(|write| line.contains(write)) {
                found.push(format!("{name}:{}: {}", number + 1, line.trim()));
            }
        }
    }
    assert!(
        found.is_empty(),
        "write files with durable_file or HostRoot::write_file:\n{}",
        found.join("\n")
    );
}
