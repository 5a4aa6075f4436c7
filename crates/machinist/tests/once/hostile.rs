//! Hostile configs and trees are refused or applied below the root directory, never outside.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::fixture::{OnceFixture, config, files, nothing, units};

fn file(path: &str) -> Value {
    files("hostile", &json!([{"path": path, "contents": {"source": "data:,x"}}]))
}

/// The change is refused with a reason that names the path, and nothing is written.
#[track_caller]
fn assert_refused(site: &OnceFixture, config: &Value, reason: &str) {
    let before = site.snapshot();
    let output = site.once(config);
    assert!(matches!(output.status.code(), Some(1 | 3)), "{output:?}");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains(reason), "{said}");
    assert_eq!(site.snapshot(), before);
}

#[test]
fn paths_that_leave_the_root_or_belong_to_the_daemon_are_refused() {
    for (path, reason) in [
        ("/etc/../../x", "storage.files.0.path"),
        ("/etc/..", "storage.files.0.path"),
        ("/../x", "storage.files.0.path"),
        ("etc/x", "storage.files.0.path"),
        ("/etc/x/", "storage.files.0.path"),
        ("/", "names a "),
        ("/etc/machine-config-daemon/currentconfig", "the daemon itself"),
        ("/etc/machine-config-daemon/orig/etc/x", "the daemon itself"),
        ("/etc/.machinist-journal", "the daemon itself"),
        ("/etc/machine-config-daemon/machinist-failed.json", "the daemon itself"),
    ] {
        assert_refused(&OnceFixture::new(), &file(path), reason);
    }
}

#[test]
fn unit_names_with_slashes_are_refused() {
    for name in ["../../x.service", "a/b.service"] {
        let unit = json!([{"name": name, "contents": "[Service]\nType=oneshot\n"}]);
        assert_refused(&OnceFixture::new(), &units("hostile", &unit), "slashes");
    }
    let unit = json!([{"name": "a.service", "dropins": [{"name": "../../../x.conf", "contents": "[Unit]\nA=b"}]}]);
    assert_refused(&OnceFixture::new(), &units("hostile", &unit), "slashes");
}

#[test]
fn a_symlink_out_of_the_root_stays_inside() {
    let (site, outside) = (OnceFixture::new(), TempDir::new().unwrap());
    symlink(outside.path(), site.path("etc/out")).unwrap();
    symlink(format!("../../../../../../..{}", outside.path().display()), site.path("etc/up"))
        .unwrap();
    let list = json!([
        {"path": "/etc/out/a", "contents": {"source": "data:,a"}},
        {"path": "/etc/up/b", "contents": {"source": "data:,b"}}
    ]);
    site.apply(&files("links", &list));
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    let inside = site.path(outside.path().to_str().unwrap());
    assert_eq!(fs::read(inside.join("a")).unwrap(), b"a");
}

#[test]
fn a_symlink_at_the_target_is_replaced_not_followed() {
    let (site, outside) = (OnceFixture::new(), TempDir::new().unwrap());
    let target = outside.path().join("target");
    fs::write(&target, "untouched").unwrap();
    symlink(&target, site.path("etc/link")).unwrap();
    site.apply(&file("/etc/link"));
    assert_eq!(fs::read_to_string(&target).unwrap(), "untouched");
    assert!(site.path("etc/link").symlink_metadata().unwrap().is_file());
}

#[test]
fn symlinks_of_a_user_are_not_followed() {
    let site = OnceFixture::new();
    symlink("/etc", site.path("home/core/.ssh")).unwrap();
    std::os::unix::fs::lchown(site.path("home/core/.ssh"), Some(1000), Some(1000)).unwrap();
    let users = json!({"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 A"]}]});
    let keys = config("keys", &json!({}), &json!({}), &users);
    assert_refused(&site, &keys, "/home/core/.ssh");
    assert_refused(&site, &file("/home/core/.ssh/x"), "belongs to user 1000");
}

#[test]
fn symlink_cycles_are_refused() {
    let site = OnceFixture::new();
    symlink("b", site.path("etc/a")).unwrap();
    symlink("a", site.path("etc/b")).unwrap();
    assert_refused(&site, &file("/etc/a/x"), "too many links");
}

#[test]
fn the_error_names_what_is_in_the_way() {
    let site = OnceFixture::new();
    fs::create_dir(site.path("etc/sub")).unwrap();
    assert!(
        Command::new("mknod")
            .arg(site.path("etc/device"))
            .args(["c", "1", "3"])
            .status()
            .unwrap()
            .success()
    );
    assert!(Command::new("mkfifo").arg(site.path("etc/pipe")).status().unwrap().success());
    assert_refused(&site, &file("/etc/sub"), "\"/etc/sub\" is a ");
    assert_refused(&site, &file("/etc/device"), "a device");
    assert_refused(&site, &file("/etc/pipe"), "a device, socket or pipe");
    assert_refused(&site, &file("/etc/motd/x"), "not a directory");
    assert_refused(&site, &file("/etc/device/x"), "not a directory");
    let long = format!("/etc/{}", "x".repeat(300));
    assert_refused(&site, &file(&long), "has a name of 300 bytes");
}

#[test]
fn unusual_file_names_work() {
    let site = OnceFixture::new();
    let before = site.snapshot();
    let names = [
        "/etc/a\nb",
        "/etc/ä 漢",
        "/etc/-rf",
        "/etc/a\u{1b}[31m",
        "/etc/\"q\"",
        "/etc/...",
        "/etc/x/. ",
    ];
    let list: Vec<Value> =
        names.iter().map(|name| json!({"path": name, "contents": {"source": "data:,x"}})).collect();
    site.apply(&files("odd", &json!(list)));
    for name in names {
        assert_eq!(site.read(name), "x");
    }
    site.apply(&nothing());
    let mut after = site.snapshot();
    after.retain(|path, _| !path.starts_with("/etc/machine-config-daemon"));
    assert_eq!(after, before);
}

#[test]
fn invalid_owners_and_hashes_are_refused() {
    let site = OnceFixture::new();
    let owned = |owner: Value| {
        let mut file = json!({"path": "/etc/x", "contents": {"source": "data:,x"}});
        for (key, value) in owner.as_object().unwrap() {
            file[key] = value.clone();
        }
        files("owned", &json!([file]))
    };
    assert_refused(
        &site,
        &owned(json!({"user": {"name": "nobody-here"}})),
        "UserID for username: nobody-here",
    );
    assert_refused(
        &site,
        &owned(json!({"group": {"name": "nobody-here"}})),
        "GroupID for group: nobody-here",
    );
    assert_refused(&site, &owned(json!({"user": {"id": -1}})), "-1");
    let users = json!({"users": [{"name": "core", "passwordHash": "x\nroot2::0:0:::::"}]});
    let output = site.once(&config("hash", &json!({}), &json!({}), &users));
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("passwordHash") && !said.contains("root2"), "{said}");
}

#[test]
fn contents_that_cannot_be_decoded_are_refused() {
    let with =
        |contents: Value| files("contents", &json!([{"path": "/etc/x", "contents": contents}]));
    let site = OnceFixture::new();
    assert_refused(&site, &with(json!({"source": "https://example.com/x"})), "/etc/x");
    assert_refused(&site, &with(json!({"source": "data:,x", "compression": "gzip"})), "/etc/x");
}

#[test]
fn a_masked_unit_cannot_be_enabled() {
    let unit = json!([{"name": "x.service", "contents": "[Service]\nType=oneshot\n", "mask": true, "enabled": true}]);
    assert_refused(&OnceFixture::new(), &units("masked", &unit), "masked");
}

/// A user links a file of root's into a directory of theirs, under a name that a config manages. The
/// contents are the same, so only permissions change.
#[test]
fn permissions_do_not_follow_hard_links() {
    let site = OnceFixture::new();
    site.write("etc/shadow", "root:*:19000:0:99999:7:::\n", 0o600);
    fs::hard_link(site.path("etc/shadow"), site.path("home/core/mine")).unwrap();
    let wanted = json!([{"path": "/home/core/mine", "mode": 0o666, "user": {"name": "core"},
        "contents": {"source": "data:,root:*:19000:0:99999:7:::%0A"}}]);
    let untouched = |site: &OnceFixture| {
        let meta = fs::metadata(site.path("etc/shadow")).unwrap();
        assert_eq!((meta.mode() & 0o7777, meta.uid()), (0o600, 0));
    };
    let report = site.apply(&files("links", &wanted));
    let actions: Vec<_> = report["changes"].as_array().unwrap().iter().collect();
    assert!(
        actions
            .iter()
            .any(|change| change["action"] == "setPermissions"
                && change["path"] == "/home/core/mine"),
        "{actions:?}"
    );
    untouched(&site);
    let mine = fs::metadata(site.path("home/core/mine")).unwrap();
    assert_eq!((mine.mode() & 0o7777, mine.uid(), mine.nlink()), (0o666, 1000, 1));
    site.apply(&nothing());
    untouched(&site);
}
