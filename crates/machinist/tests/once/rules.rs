//! The rules of applying a config, one by one.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{XattrFlags, getxattr, setxattr};
use serde_json::{Value, json};

use super::fixture::{
    OnceFixture, TreeSnapshot, config, difference, everything, files, nothing, units,
};

/// Removes the daemon's files, which stay when a config manages nothing.
fn without_daemon_files(mut snapshot: TreeSnapshot) -> TreeSnapshot {
    let own = "/etc/machine-config-daemon";
    for path in [own.to_owned(), format!("{own}/currentconfig"), format!("{own}/currentimage")] {
        snapshot.remove(&path);
    }
    snapshot
}

#[test]
fn an_empty_config_restores_all_files() {
    let [old, new] = everything();
    for sequence in [vec![&old], vec![&new], vec![&old, &new], vec![&new, &old, &new]] {
        let site = OnceFixture::new();
        let before = site.snapshot();
        for config in sequence {
            site.apply(config);
        }
        site.apply(&nothing());
        let after = without_daemon_files(site.snapshot());
        assert_eq!(difference(&before, &after), Vec::<String>::new());
    }
}

/// An ACL entry: tag, permissions, id.
fn acl_entry(tag: u16, permissions: u16, id: u32) -> Vec<u8> {
    [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &id.to_le_bytes()].concat()
}

#[test]
fn attributes_and_acls_survive_a_rewrite_and_the_mode_is_the_configs() {
    let site = OnceFixture::on_disk();
    let motd = site.path("etc/motd");
    let write = |text: &str, mode: u32| {
        let contents = json!({"source": format!("data:,{text}")});
        let file = json!([{"path": "/etc/motd", "contents": contents, "mode": mode}]);
        site.apply(&files(text, &file));
    };
    write("one", 0o640);
    setxattr(&motd, "user.team", b"net", XattrFlags::empty()).unwrap();
    setxattr(&motd, "system.posix_acl_access", &acl_for_user(), XattrFlags::empty()).unwrap();
    for (text, mode) in [("two", 0o640), ("three", 0o600)] {
        write(text, mode);
        assert_eq!(site.read("etc/motd"), text);
        let mut value = [0; 256];
        let length = getxattr(&motd, "user.team", &mut value).unwrap();
        assert_eq!(&value[..length], b"net");
        let length = getxattr(&motd, "system.posix_acl_access", &mut value).unwrap();
        let named_user = acl_entry(2, 6, 1000);
        assert!(value[..length].windows(8).any(|entry| entry == named_user), "{text}");
        // With an ACL the bits of the group are its mask: they limit what the ACL grants.
        assert_eq!(fs::metadata(&motd).unwrap().permissions().mode() & 0o777, mode);
    }
}

/// An ACL for the owner, the user 1000, the group, the mask and others: the user may read and write.
fn acl_for_user() -> Vec<u8> {
    const NO_ID: u32 = u32::MAX;
    let entries = [(1, 6, NO_ID), (2, 6, 1000), (4, 4, NO_ID), (0x10, 6, NO_ID), (0x20, 4, NO_ID)];
    let entries = entries.into_iter().flat_map(|(tag, bits, id)| acl_entry(tag, bits, id));
    2u32.to_le_bytes().into_iter().chain(entries).collect()
}

#[test]
fn a_default_acl_of_the_directory_grants_nothing_on_files_that_had_no_acl() {
    let site = OnceFixture::on_disk();
    let (motd, etc) = (site.path("etc/motd"), site.path("etc"));
    let has_acl = || getxattr(&motd, "system.posix_acl_access", &mut [0; 256]).is_ok();
    let write = |text: &str| {
        let contents = json!({"source": format!("data:,{text}")});
        let file = json!([{"path": "/etc/motd", "contents": contents, "mode": 0o664}]);
        site.apply(&files(text, &file));
    };
    setxattr(&etc, "system.posix_acl_default", &acl_for_user(), XattrFlags::empty()).unwrap();
    for text in ["one", "two"] {
        write(text);
        assert!(!has_acl(), "{text}");
    }
    // The original comes back without one, too.
    site.apply(&nothing());
    assert_eq!(site.read("etc/motd"), "welcome\n");
    assert!(!has_acl());
    // The default itself stays.
    getxattr(&etc, "system.posix_acl_default", &mut [0; 256]).unwrap();
}

#[test]
fn originals_are_kept_and_restored() {
    let site = OnceFixture::new();
    let motd = |text: &str| {
        files(
            text,
            &json!([{"path": "/etc/motd", "contents": {"source": format!("data:,{text}")}, "mode": 256}]),
        )
    };
    let orig = "etc/machine-config-daemon/orig/etc/motd.mcdorig";
    site.apply(&motd("one"));
    assert_eq!(site.read(orig), "welcome\n");
    site.apply(&motd("two"));
    assert_eq!((site.read("etc/motd").as_str(), site.read(orig).as_str()), ("two", "welcome\n"));
    let other = files("other", &json!([{"path": "/etc/other", "contents": {"source": "data:,x"}}]));
    site.apply(&other);
    assert_eq!(site.read("etc/motd"), "welcome\n");
    assert!(!site.path(orig).exists());
    let mark = "etc/machine-config-daemon/noorig/etc/other.mcdnoorig";
    assert_eq!(site.read(mark), "");
    site.apply(&nothing());
    assert!(!site.path("etc/other").exists() && !site.path(mark).exists());
}

#[test]
fn the_current_config_has_the_format_of_mco() {
    let site = OnceFixture::new();
    site.apply(&files("a", &json!([{"path": "/etc/x", "contents": {"source": "data:,a&b"}}])));
    let expected = r#"{"metadata":{"name":"a"},"spec":{"osImageURL":"","baseOSExtensionsContainerImage":"","config":{"ignition":{"version":"3.5.0"},"passwd":{},"storage":{"files":[{"contents":{"source":"data:,a\u0026b"},"path":"/etc/x"}]},"systemd":{}},"kernelArguments":null,"extensions":null,"fips":false,"kernelType":""}}"#;
    assert_eq!(site.read("etc/machine-config-daemon/currentconfig"), expected);
    assert_eq!(site.read("etc/machine-config-daemon/currentimage"), "");
}

#[test]
fn a_refused_change_writes_nothing() {
    let site = OnceFixture::new();
    site.apply(&files("a", &json!([])));
    let before = site.snapshot();
    let users = json!({"users": [{"name": "other", "sshAuthorizedKeys": ["k"]}]});
    let output = site.once(&config("b", &json!({}), &json!({}), &users));
    assert_eq!(output.status.code(), Some(3));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["refused"].as_str().unwrap().contains("non-core user"), "{report}");
    assert_eq!(site.snapshot(), before);
}

#[test]
fn an_ignition_config_is_accepted() {
    let site = OnceFixture::new();
    let ignition = json!({"ignition": {"version": "3.2.0"}, "storage": {"files": [
        {"path": "/etc/x", "contents": {"source": "data:,x"}}
    ]}});
    let report = site.apply(&ignition);
    assert!(report["to"].as_str().unwrap().starts_with("ignition-"), "{report}");
    assert_eq!(site.read("etc/x"), "x");
    assert_eq!(site.apply(&ignition)["changes"], json!([]));
}

#[test]
fn a_path_that_moves_between_files_and_units_stays() {
    let unit = "[Service]\nExecStart=/bin/true\n";
    let path = "/etc/systemd/system/x.service";
    let source =
        format!("data:,{}", unit.replace('\n', "%0A").replace('[', "%5B").replace(']', "%5D"));
    let as_file = files("file", &json!([{"path": path, "contents": {"source": source}}]));
    let as_unit = units("unit", &json!([{"name": "x.service", "contents": unit}]));
    let site = OnceFixture::new();
    for config in [&as_file, &as_unit, &as_file, &as_unit] {
        site.apply(config);
        assert_eq!(site.read(path), unit);
    }
}

#[test]
fn masks_and_contents_that_are_dropped_go() {
    let site = OnceFixture::new();
    let path = site.path("etc/systemd/system/x.service");
    let with = |unit: Value| units(&unit.to_string(), &json!([unit]));
    site.apply(&with(json!({"name": "x.service", "mask": true})));
    assert_eq!(fs::read_link(&path).unwrap().to_str(), Some("/dev/null"));
    site.apply(&with(json!({"name": "x.service"})));
    assert!(path.symlink_metadata().is_err());
    site.apply(&with(json!({"name": "x.service", "contents": "[Service]\nType=oneshot\n"})));
    assert!(path.is_file());
    site.apply(&with(json!({"name": "x.service", "mask": false})));
    assert!(path.symlink_metadata().is_err());
}

#[test]
fn a_unit_of_the_vendor_is_linked_as_systemd_links_it() {
    let site = OnceFixture::new();
    // Debian's systemd names its units by /lib.
    site.write("etc/os-release", "ID=debian\nVERSION_ID=\"12\"\n", 0o644);
    site.apply(&units("on", &json!([{"name": "vendor.service", "enabled": true}])));
    let link = site.path("etc/systemd/system/multi-user.target.wants/vendor.service");
    assert_eq!(fs::read_link(&link).unwrap().to_str(), Some("/lib/systemd/system/vendor.service"));
    site.apply(&units("off", &json!([{"name": "vendor.service", "enabled": false}])));
    assert!(link.symlink_metadata().is_err());
}

#[test]
fn links_of_the_system_are_followed_beneath_the_root() {
    let site = OnceFixture::new();
    fs::create_dir_all(site.path("var/opt")).unwrap();
    symlink("var/opt", site.path("opt")).unwrap();
    symlink("/../../../var/opt", site.path("abs")).unwrap();
    let list = json!([
        {"path": "/opt/a", "contents": {"source": "data:,a"}},
        {"path": "/abs/b", "contents": {"source": "data:,b"}}
    ]);
    site.apply(&files("links", &list));
    assert_eq!((site.read("var/opt/a"), site.read("var/opt/b")), ("a".to_owned(), "b".to_owned()));
}

#[test]
fn a_thousand_files_take_little_time() {
    let site = OnceFixture::on_disk();
    let list: Vec<Value> = (0..1000)
        .map(|i| json!({"path": format!("/etc/many/{}/{i}", i % 10), "contents": {"source": format!("data:,{i}")}}))
        .collect();
    let started = std::time::Instant::now();
    let report = site.apply(&files("many", &json!(list)));
    let took = started.elapsed();
    println!("1,000 files in {} ms", took.as_millis());
    assert!(report["changes"].as_array().unwrap().len() > 2000);
    // The budget is 2 s on a quiet machine; here other tests use the same disk.
    assert!(took.as_millis() < 20_000, "{took:?}");
}

#[test]
fn the_example_in_the_help_works() {
    let help =
        Command::new(env!("CARGO_BIN_EXE_machinist")).args(["once", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let (_, example) = help.split_once("Example:\n").unwrap();
    let site = OnceFixture::new();
    let script = example
        .replace("/tmp/machine", site.root().to_str().unwrap())
        .replace("machinist once", &format!("{} once", env!("CARGO_BIN_EXE_machinist")));
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let status = Command::new("sh").arg("-ec").arg(&script).current_dir(root).status().unwrap();
    assert!(status.success(), "{script}");
}

/// Finds the files with a text that group or others may read, wherever they are.
fn find_readable(text: &str, directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let meta = fs::symlink_metadata(&path).unwrap();
        if meta.is_dir() {
            // Nobody else gets into a directory of root.
            if meta.permissions().mode() & 0o011 != 0 {
                find_readable(text, &path, found);
            }
        } else if meta.is_file()
            && meta.permissions().mode() & 0o044 != 0
            && String::from_utf8_lossy(&fs::read(&path).unwrap()).contains(text)
        {
            found.push(path);
        }
    }
}

/// The current config holds the contents of files that only root may read.
#[test]
fn only_root_can_read_what_the_daemon_stores() {
    let secret = files(
        "secret",
        &json!([{"path": "/etc/motd", "contents": {"source": "data:,swordfish"}, "mode": 384}]),
    );
    let own = "etc/machine-config-daemon";
    let mode = |site: &OnceFixture, path: &str| {
        fs::metadata(site.path(path)).unwrap().permissions().mode() & 0o7777
    };
    let assert_private = |site: &OnceFixture| {
        for directory in [own.to_owned(), format!("{own}/orig"), format!("{own}/orig/etc")] {
            assert_eq!(mode(site, &directory), 0o700, "{directory}");
        }
        for file in ["currentconfig", "currentimage", "machinist-before.json"] {
            assert_eq!(mode(site, &format!("{own}/{file}")), 0o600, "{file}");
        }
    };
    let site = OnceFixture::new();
    site.apply(&secret);
    assert_private(&site);
    let mut holders = Vec::new();
    find_readable("swordfish", &site.path(""), &mut holders);
    assert!(holders.is_empty(), "others can read the secret in {holders:?}");

    // As an older version left it.
    let site = OnceFixture::new();
    site.apply(&secret);
    let loosen = |path: &str, mode| {
        fs::set_permissions(site.path(path), fs::Permissions::from_mode(mode)).unwrap();
    };
    loosen(own, 0o755);
    loosen(&format!("{own}/currentconfig"), 0o644);
    site.write("etc/ignition-machine-config-encapsulated.json.bak", "{}", 0o644);
    site.apply(&secret);
    assert_private(&site);
    assert_eq!(mode(&site, "etc/ignition-machine-config-encapsulated.json.bak"), 0o600);
}
