//! Paths that cannot be changed: a change is refused before anything is written, and what cannot be undone is
//! set aside and tried again.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

use super::fixture::{OnceFixture, difference, everything, files, nothing};

const FAULT: &str = "MACHINIST_FAULT_POINT";

/// An attribute of a path, until it is dropped: a directory with an immutable file cannot be removed.
struct Attribute {
    path: PathBuf,
    letter: char,
}

impl Attribute {
    fn set(path: PathBuf, letter: char) -> Self {
        assert!(chattr('+', letter, &path), "chattr +{letter} {}", path.display());
        Self { path, letter }
    }
}

impl Drop for Attribute {
    fn drop(&mut self) {
        chattr('-', self.letter, &self.path);
    }
}

fn chattr(sign: char, letter: char, path: &Path) -> bool {
    let mut command = Command::new("chattr");
    command.arg(format!("{sign}{letter}")).arg(path).status().unwrap().success()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned()
}

fn recover(site: &OnceFixture) -> (Option<i32>, Value) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_machinist"));
    command.args(["once", "-o", "json", "--recover", "--root"]).arg(site.root());
    let output = command.output().unwrap();
    let report = serde_json::from_slice(&output.stdout);
    (output.status.code(), report.unwrap_or_else(|_| panic!("{}", text(&output))))
}

fn file(path: &str, contents: &str) -> Value {
    json!({"path": path, "contents": {"source": format!("data:,{contents}")}})
}

#[test]
fn every_name_that_linux_allows_is_applied_and_restored() {
    for length in [245, 246, 247, 248, 255] {
        let site = OnceFixture::new();
        let [mine, new] = ["m", "n"].map(|letter| format!("/etc/{}", letter.repeat(length)));
        site.write(&mine, "mine", 0o640);
        site.apply(&nothing());
        let before = site.snapshot();
        let both = files("both", &json!([file(&mine, "1"), file(&new, "2")]));
        site.apply(&both);
        assert_eq!((site.read(&mine).as_str(), site.read(&new).as_str()), ("1", "2"));
        assert_eq!(site.apply(&both)["changes"], json!([]), "{length}");
        site.apply(&nothing());
        assert_eq!(difference(&before, &site.snapshot()), Vec::<String>::new(), "{length}");
    }
    let site = OnceFixture::new();
    let before = site.snapshot();
    let output = site.once(&files("x", &json!([file(&format!("/etc/{}", "n".repeat(256)), "x")])));
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output).contains("has a name of 256 bytes (shorten it"), "{}", text(&output));
    assert_eq!(site.snapshot(), before);
}

#[test]
fn a_crash_with_a_long_name_is_recovered() {
    let name = format!("/etc/{}", "n".repeat(255));
    let config = files("long", &json!([file(&name, "1"), file("/etc/other", "2")]));
    for point in 1.. {
        let site = OnceFixture::new();
        let before = site.snapshot();
        if site.command(&config).env(FAULT, point.to_string()).output().unwrap().status.success() {
            assert!(point > 10, "{point}");
            break;
        }
        let (code, report) = recover(&site);
        assert_eq!((code, &report["quarantined"]), (Some(0), &json!([])), "point {point}");
        let is_undone = site.snapshot() == before;
        assert!(is_undone || site.read(&name) == "1", "point {point}: {report}");
    }
}

#[test]
fn a_change_of_an_immutable_path_is_refused_before_anything_is_written() {
    for (path, letter, named) in [
        ("etc/motd", 'i', "/etc/motd"),
        ("etc/motd", 'a', "/etc/motd"),
        ("var/lib", 'i', "/var/lib"),
    ] {
        let site = OnceFixture::new();
        site.apply(&everything()[0]);
        let before = site.snapshot();
        let attribute = Attribute::set(site.path(path), letter);
        let list =
            json!([file("/etc/first", "1"), file("/etc/motd", "2"), file("/var/lib/x", "3")]);
        let output = site.once(&files("next", &list));
        assert_eq!(output.status.code(), Some(3), "{}", text(&output));
        let remedy = format!("run chattr -{letter} {named}");
        assert!(text(&output).contains(&remedy), "{}", text(&output));
        assert_eq!(difference(&before, &site.snapshot()), Vec::<String>::new());
        // A config that does not change the path is applied.
        if path == "etc/motd" {
            let mut other = everything()[0].clone();
            other["metadata"]["name"] = json!("other");
            other["spec"]["config"]["storage"]["files"][1]["contents"]["source"] =
                json!("data:,other");
            site.apply(&other);
            assert_eq!(site.read("etc/leaves"), "other");
        }
        drop(attribute);
        site.apply(&files("next", &list));
        assert_eq!(site.read("etc/motd"), "2");
    }
}

#[test]
fn a_change_below_a_read_only_or_busy_mount_is_refused_before_anything_is_written() {
    let config = files("next", &json!([file("/etc/first", "1"), file("/etc/d/x", "2")]));
    for (mount, expected) in [
        (
            "mount --bind etc/d etc/d && mount -o remount,bind,ro etc/d",
            "is on a read-only file system",
        ),
        ("mount --bind etc/motd etc/d/x", "run umount /etc/d/x"),
    ] {
        let site = OnceFixture::new();
        site.write("etc/d/x", "mine", 0o644);
        let before = site.snapshot();
        let once = site.command(&config);
        let mut command = Command::new("unshare");
        // In a mount namespace of its own, which ends with the process.
        command.args(["-m", "sh", "-c", &format!("{mount} && exec \"$@\""), "sh"]);
        command.arg(once.get_program()).args(once.get_args()).current_dir(site.root());
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{}", text(&output));
        assert!(text(&output).contains(expected), "{}", text(&output));
        assert!(text(&output).contains("/etc/d/x"), "{}", text(&output));
        assert_eq!(difference(&before, &site.snapshot()), Vec::<String>::new());
    }
}

/// A file becomes immutable while a change is interrupted, at every point of the change: everything else is
/// undone, the machine goes on, and the file is restored when that is possible.
#[test]
fn what_cannot_be_undone_is_set_aside_and_holds_up_nothing_else() {
    let [old, new] = everything();
    let mut other = old.clone();
    other["metadata"]["name"] = json!("other");
    other["spec"]["config"]["storage"]["files"][1]["contents"]["source"] = json!("data:,other");
    let mut quarantined = 0;
    for point in 1.. {
        let site = OnceFixture::new();
        site.apply(&old);
        let before = site.snapshot();
        if site.command(&new).env(FAULT, point.to_string()).output().unwrap().status.success() {
            break;
        }
        let attribute = Attribute::set(site.path("etc/motd"), 'i');
        let (code, report) = recover(&site);
        if report["quarantined"] == json!([]) {
            assert_eq!(code, Some(0), "point {point}: {report}");
            continue;
        }
        quarantined += 1;
        assert_eq!(code, Some(3), "point {point}: {report}");
        let reason = report["quarantined"][0].as_str().unwrap();
        assert!(reason.contains("run chattr -i /etc/motd"), "point {point}: {reason}");
        // Everything else is as it was.
        let own =
            |line: &String| line.starts_with("/etc/motd:") || line.starts_with("/etc/.machinist-");
        let left: Vec<String> = difference(&before, &site.snapshot());
        assert_eq!(left.iter().filter(|line| !own(line)).count(), 0, "point {point}: {left:?}");
        // A config that does not touch it is applied, one that does is refused.
        site.apply(&other);
        assert_eq!(site.read("etc/leaves"), "other");
        let refused = site.once(&new);
        assert_eq!(refused.status.code(), Some(3), "{}", text(&refused));
        assert!(text(&refused).contains("run chattr -i /etc/motd"), "{}", text(&refused));
        drop(attribute);
        assert_eq!(recover(&site).1["quarantined"], json!([]), "point {point}");
        site.apply(&old);
        assert_eq!(difference(&before, &site.snapshot()), Vec::<String>::new(), "point {point}");
    }
    assert!(quarantined > 3, "{quarantined}");
}
