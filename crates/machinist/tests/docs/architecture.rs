//! `ARCHITECTURE.md` is true: every path it names exists, and its module tables list every top-level module.

use crate::docs::{read, root};

const PAGE: &str = "ARCHITECTURE.md";

/// The texts between backticks, outside of code blocks.
fn quoted(page: &str) -> Vec<String> {
    let mut in_block = false;
    let lines = page.lines().filter(|line| {
        let is_fence = line.starts_with("```");
        in_block ^= is_fence;
        !in_block && !is_fence
    });
    lines.flat_map(|line| line.split('`').skip(1).step_by(2).map(str::to_owned)).collect()
}

#[test]
fn every_path_of_the_walk_exists() {
    let roots = ["crates/", "tests/", "docs/", "deploy/", "packaging/", "fuzz/"];
    let is_path = |text: &String| roots.iter().any(|root| text.starts_with(root));
    let paths: Vec<String> = quoted(&read(PAGE)).into_iter().filter(is_path).collect();
    assert!(paths.len() > 40, "the walk is gone: {paths:?}");
    let missing: Vec<&String> = paths.iter().filter(|path| !root().join(path).exists()).collect();
    assert!(missing.is_empty(), "{PAGE} names paths that do not exist: {missing:?}");
}

#[test]
fn every_top_level_module_is_described() {
    let page = read(PAGE);
    for library in ["core", "hub", "machinist"] {
        let start = page.find(&format!("\n## `crates/{library}`")).unwrap();
        let section = &page[start + 1..];
        let section = &section[..section.find("\n## ").unwrap_or(section.len())];
        let named = quoted(section);
        let lib = read(&format!("crates/{library}/src/lib.rs"));
        let modules = lib.lines().filter_map(|line| {
            let line = line.strip_prefix("pub ").unwrap_or(line);
            line.strip_prefix("mod ")?.strip_suffix(';')
        });
        let missing: Vec<&str> =
            modules.filter(|module| !named.iter().any(|name| name == module)).collect();
        assert!(missing.is_empty(), "{PAGE} does not describe {missing:?} of crates/{library}");
    }
}
