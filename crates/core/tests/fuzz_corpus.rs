//! The regression corpus of the fuzz targets.

use machinist_core::ignition::robustness;

fn run(target: &str, check: fn(&[u8])) {
    let directory = format!("{}/../../tests/cases/fuzz/{target}", env!("CARGO_MANIFEST_DIR"));
    let mut count = 0;
    for entry in std::fs::read_dir(&directory).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        check(&bytes);
        count += 1;
    }
    assert!(count > 0, "{directory} is empty");
}

#[test]
fn parse() {
    run("parse", robustness::parse_any);
}

#[test]
fn convert() {
    run("convert", robustness::convert_any);
}

#[test]
fn merge() {
    run("merge", robustness::merge_any);
}

#[test]
fn yaml() {
    run("yaml", robustness::yaml_any);
}
