//! The container image. Any static binary can be packed here, and the kit has one.

use crate::packages::{run_script, script};
use machinist_e2e::Lab;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A static binary with its own path, as if it had just been built.
fn binary(lab: &Lab, name: &str) -> PathBuf {
    let path = lab.create_dir(name).unwrap().join("machinist");
    let busybox =
        ["/usr/bin/busybox", "/bin/busybox"].into_iter().find(|it| Path::new(it).exists());
    fs::copy(busybox.unwrap(), &path).unwrap();
    path
}

#[test]
fn two_builds_of_the_image_have_one_digest() {
    let lab = Lab::new().unwrap();
    let build = |name: &str, change: &dyn Fn(&Path)| {
        let (binary, out) = (binary(&lab, name), lab.create_dir(&format!("{name}-out")).unwrap());
        change(&binary);
        run_script("image", Some(&binary), &out);
        fs::read_to_string(out.join("machinist-image.digest")).unwrap()
    };
    let one = build("one", &|_| {});
    assert!(one.starts_with("sha256:"), "{one}");
    assert_eq!(build("two", &|_| {}), one);
    let other = build("other", &|binary| {
        let mut bytes = fs::read(binary).unwrap();
        let at = bytes.windows(7).position(|it| it == b"BusyBox").unwrap();
        bytes[at] = b'X';
        fs::write(binary, bytes).unwrap();
    });
    assert_ne!(other, one, "another binary is another image");

    let archive =
        format!("oci-archive:{}", lab.dir().join("one-out/machinist-image.tar").display());
    let output = Command::new("skopeo").args(["inspect", "--config", &archive]).output().unwrap();
    let config: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(config["config"]["Entrypoint"], serde_json::json!(["/usr/bin/machinist"]));
    assert_eq!(config["rootfs"]["diff_ids"].as_array().map(Vec::len), Some(1), "{config}");
    assert_eq!(config["created"], "2023-11-14T22:13:20Z");
    assert_eq!(config["config"]["Labels"]["org.opencontainers.image.title"], "machinist");
}

#[test]
fn a_dynamically_linked_binary_is_refused() {
    let lab = Lab::new().unwrap();
    let output = script("image", Some(Path::new("/bin/ls")), &lab.create_dir("out").unwrap());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && stderr.contains("needs shared libraries"), "{stderr}");
    let output = script("image", Some(Path::new("/nonexistent")), &lab.create_dir("out").unwrap());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && stderr.contains("BINARY=/nonexistent"), "{stderr}");
}
