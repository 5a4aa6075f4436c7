//! The oldest supported Rust is one number: `rust-version` of the workspace.

use crate::docs::{files, read};

/// The value of `key = "value"` in a TOML file.
fn value(page: &str, key: &str) -> String {
    let text = read(page);
    let mut values = text.lines().filter_map(|line| line.strip_prefix(&format!("{key} = \"")));
    values.next().unwrap().trim_end_matches('"').to_owned()
}

/// The version of the workspace, such as `1.90`.
fn rust_version() -> String {
    value("Cargo.toml", "rust-version")
}

#[test]
fn all_pages_name_the_oldest_supported_rust() {
    let version = rust_version();
    for page in ["README.md", "CONTRIBUTING.md", "docs/releases.md"] {
        let expected = format!("Rust {version}");
        assert!(read(page).contains(&expected), "{page} does not say {expected:?}");
    }
    let pages = files("docs", &[".md"]);
    let others = pages.iter().map(String::as_str).chain(["README.md", "CONTRIBUTING.md"]);
    for page in others {
        for rest in read(page).split("Rust 1.").skip(1) {
            let minor: String = rest.chars().take_while(char::is_ascii_digit).collect();
            assert_eq!(format!("1.{minor}"), version, "{page}");
        }
    }
}

#[test]
fn crates_toolchain_file_and_script_follow_the_workspace() {
    let version = rust_version();
    for manifest in ["crates/core", "crates/hub", "crates/machinist", "tests/e2e"] {
        let text = read(&format!("{manifest}/Cargo.toml"));
        assert!(text.contains("\nrust-version.workspace = true\n"), "{manifest}");
    }
    let toolchain = read("rust-toolchain.toml");
    assert!(toolchain.contains(&format!("must compile the product is {version}:")), "{toolchain}");
    let channel = value("rust-toolchain.toml", "channel");
    assert!(channel == "stable" || channel.starts_with(&version), "{channel}");
    assert!(read("scripts/msrv").contains("s/^rust-version = "), "scripts/msrv reads Cargo.toml");
}
