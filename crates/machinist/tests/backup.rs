//! Backups of a running hub from the outside: encrypted, with the CA, every day; and a hub that lost its CA.
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

use crate::daemon::fixture::{DaemonProcess, wait_for_text};
use crate::up::{UpProcess, join, machinist};

const IDENTITY: &str = "AGE-SECRET-KEY-1SY6ERM45Z4ZEXZG2GARU63GYMLGV4Z3F5D0FECHCZZVN3QR5JWPQP4VVXS";
const RECIPIENT: &str = "age1l6k64fqnnu9dyt69jny52eygzaukr966uzykynevtg7dcr2zsukq0j8une";

fn text(output: &Output) -> String {
    let all = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8_lossy(&all).into_owned()
}

#[track_caller]
fn succeed(arguments: &[&str]) -> String {
    let output = machinist(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output));
    text(&output)
}

#[track_caller]
fn fail(arguments: &[&str]) -> String {
    let output = machinist(arguments);
    assert!(!output.status.success(), "{arguments:?}: {}", text(&output));
    text(&output)
}

fn extended<'a>(start: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    [start, more].concat()
}

fn refused_start(data: &Path) -> String {
    fail(&["up", "--api-listen", "127.0.0.1:0", "--data-dir", data.to_str().unwrap()])
}

/// A machine stays a machine of the hub if the CA is in the backup; without it the hub refuses to start.
#[test]
fn the_ca_decides_whether_machines_stay() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("key.txt"), format!("# created: today\n{IDENTITY}\n")).unwrap();
    fs::write(path("passphrase"), "correct horse battery staple\n").unwrap();
    let data = directory.path().join("data");
    let up = UpProcess::start(&data, &[]);
    let data_dir = path("data");
    let token = machinist(&["hub", "token", "--data-dir", &data_dir, "--role", "bootstrap"]);
    let token = String::from_utf8(token.stdout).unwrap().trim().to_owned();
    let joined = join(&data, &token, &directory.path().join("w1"), "w1", "worker");
    assert!(joined.status.success(), "{}", text(&joined));

    let backup = ["hub", "backup", "--data-dir", &data_dir];
    let error = fail(&extended(&backup, &["--include-pki", &path("never")]));
    assert!(error.contains("add --recipient or --passphrase-file"), "{error}");
    let error = fail(&extended(&backup, &["--recipient", "ssh-ed25519 AAAA", &path("never")]));
    assert!(error.contains("starts with age1"), "{error}");
    assert!(!directory.path().join("never").exists());
    let note = succeed(&extended(&backup, &[&path("plain")]));
    assert!(note.contains("is not encrypted") && note.contains("The CA is not in it"), "{note}");
    let note = succeed(&extended(
        &backup,
        &["--include-pki", "--recipient", RECIPIENT, &path("full.age")],
    ));
    assert!(note.contains("verified") && !note.contains("The CA is not in it"), "{note}");
    let passphrase = path("passphrase");
    succeed(&extended(&backup, &["--passphrase-file", &passphrase, &path("passphrase.age")]));
    for name in ["plain", "full.age", "passphrase.age"] {
        let mode = fs::metadata(path(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{name}");
    }
    assert!(!fs::read(path("full.age")).unwrap().windows(11).any(|part| part == b"PRIVATE KEY"));
    up.stop();
    let audit = fs::read_to_string(data.join("audit.log")).unwrap();
    let lines: Vec<&str> = audit.lines().filter(|line| line.contains("\"backup\"")).collect();
    assert_eq!(lines.len(), 3, "{audit}");
    for part in ["\"user\":\"admin\"", "\"sourceIP\":\"127.0.0.1\"", "\"includesSecrets\":true"] {
        assert!(lines[0].contains(part), "{part}: {}", lines[0]);
    }

    let restore = |name: &str, more: &[&str]| {
        let target = path(&format!("restored-{name}"));
        let mut arguments = vec!["hub", "restore", "--data-dir", &target];
        arguments.extend(more);
        let file = path(name);
        arguments.push(&file);
        succeed(&arguments)
    };
    let note = restore("full.age", &["--identity-file", &path("key.txt")]);
    assert!(!note.contains("join again"), "{note}");
    let full = directory.path().join("restored-full.age");
    let ca = |data: &Path| fs::read_to_string(data.join("pki/ca.crt")).unwrap();
    UpProcess::start(&full, &[]).stop();
    assert_eq!(ca(&full), ca(&data));

    let note = restore("passphrase.age", &["--passphrase-file", &passphrase]);
    for part in ["every machine has to join again", "kubeconfigs of", "tokens", "--new-ca"] {
        assert!(note.contains(part), "{part}: {note}");
    }
    let lost = directory.path().join("restored-passphrase.age");
    let error = refused_start(&lost);
    assert!(error.contains("but a machine has a certificate") && error.contains("w1"), "{error}");
    assert!(error.contains("--include-pki") && error.contains("--new-ca"), "{error}");
    assert!(!lost.join("pki/ca.crt").exists());
    UpProcess::start(&lost, &["--new-ca"]).stop();
    assert_ne!(ca(&lost), ca(&data));
    UpProcess::start(&lost, &[]).stop();
}

/// The caches of a daemon know a later state of everything, and the disk has a later config than the hub knows.
#[test]
fn machines_take_the_restored_state() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let (data, root) = (directory.path().join("data"), directory.path().join("w1"));
    let up = UpProcess::start_at(&free, &data, &[]);
    let token = succeed(&["hub", "token", "--data-dir", &path("data"), "--role", "bootstrap"]);
    let token = token.lines().find(|line| line.contains('.')).unwrap().trim().to_owned();
    let joined = join(&data, &token, &root, "w1", "worker");
    assert!(joined.status.success(), "{}", text(&joined));
    let daemon = DaemonProcess::start(&root, "w1");

    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/up");
    let kubeconfig = path("data/kubeconfig");
    let apply = |name: &str| {
        let file = examples.join(name);
        succeed(&["apply", "--kubeconfig", &kubeconfig, "-f", file.to_str().unwrap()]);
    };
    let issue = root.join("etc/issue");
    apply("banner.yaml");
    wait_for_text(&issue, "managed by Machinist.\n");
    let backup = ["hub", "backup", "--data-dir", &path("data"), "--include-pki"];
    succeed(&extended(&backup, &["--recipient", RECIPIENT, &path("backup")]));
    apply("banner-changed.yaml");
    wait_for_text(&issue, "Local changes");
    up.stop();

    fs::write(path("key.txt"), IDENTITY).unwrap();
    let restore = ["hub", "restore", "--identity-file", &path("key.txt")];
    succeed(&extended(&restore, &["--data-dir", &path("restored"), &path("backup")]));
    let up = UpProcess::start_at(&free, &directory.path().join("restored"), &[]);
    wait_for_text(&issue, "managed by Machinist.\n");
    drop(daemon);
    up.stop();
}

#[test]
fn a_hub_backs_itself_up() {
    let directory = tempfile::tempdir().unwrap();
    let (data, backups) = (directory.path().join("data"), directory.path().join("backups"));
    let flags = ["--backup-dir", backups.to_str().unwrap(), "--backup-recipient", RECIPIENT];
    // A directory that is missing does not keep the hub from starting.
    UpProcess::start(&data, &flags).stop();
    fs::create_dir(&backups).unwrap();
    let up = UpProcess::start(&data, &[&flags[..], &["--backup-include-pki"]].concat());
    let complete = || {
        let files = fs::read_dir(&backups).unwrap().map(|file| file.unwrap().path());
        let mut files = files.filter(|path| path.extension().is_some_and(|end| end == "age"));
        files.next()
    };
    let start = Instant::now();
    while complete().is_none() {
        assert!(start.elapsed() < Duration::from_secs(30), "there is no backup");
        std::thread::sleep(Duration::from_millis(50));
    }
    up.stop();
    let file = complete().unwrap();
    let (key, other) = (directory.path().join("key.txt"), directory.path().join("other"));
    fs::write(&key, IDENTITY).unwrap();
    succeed(&[
        "hub",
        "restore",
        "--data-dir",
        other.to_str().unwrap(),
        "--identity-file",
        key.to_str().unwrap(),
        file.to_str().unwrap(),
    ]);
    let ca = |data: &Path| fs::read(data.join("pki/ca.key")).unwrap();
    assert_eq!(ca(&data), ca(&other));
}

/// A hub that was restored without its CA: the machine joins again as itself, and keeps what it has.
#[test]
fn machines_join_again_after_the_ca_was_lost() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let (data, root) = (directory.path().join("data"), directory.path().join("w1"));
    let up = UpProcess::start_at(&free, &data, &[]);
    let new_token = |data: &str| {
        let token = succeed(&["hub", "token", "--data-dir", data, "--role", "bootstrap"]);
        token.lines().find(|line| line.contains('.')).unwrap().trim().to_owned()
    };
    let joined = join(&data, &new_token(&path("data")), &root, "w1", "worker");
    assert!(joined.status.success(), "{}", text(&joined));
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/up");
    let apply = |data: &str, name: &str| {
        let (file, kubeconfig) = (examples.join(name), path(&format!("{data}/kubeconfig")));
        succeed(&["apply", "--kubeconfig", &kubeconfig, "-f", file.to_str().unwrap()]);
    };
    let issue = root.join("etc/issue");
    let daemon = DaemonProcess::start(&root, "w1");
    apply("data", "banner.yaml");
    wait_for_text(&issue, "managed by Machinist.\n");
    drop(daemon);
    succeed(&["hub", "backup", "--data-dir", &path("data"), &path("backup")]);
    up.stop();

    let restored = directory.path().join("restored");
    let note = succeed(&["hub", "restore", "--data-dir", &path("restored"), &path("backup")]);
    assert!(note.contains("machinist hub readmit --all"), "{note}");
    let _up = UpProcess::start_at(&free, &restored, &["--new-ca"]);
    let identity = root.join("var/lib/machinist/kubeconfig");
    let old = fs::read_to_string(&identity).unwrap();
    // Whoever has a token for new machines does not get the name of an existing one.
    let refused = join(&restored, &new_token(&path("restored")), &root, "w1", "worker");
    assert!(!refused.status.success(), "{}", text(&refused));
    assert_eq!(fs::read_to_string(&identity).unwrap(), old);
    let unknown = ["hub", "readmit", "--data-dir", &path("restored"), "w1", "w2"];
    assert!(fail(&unknown).contains("Node w2 does not exist"));
    let line = succeed(&["hub", "readmit", "--data-dir", &path("restored"), "--all"]);
    let token = line.trim().strip_prefix("w1 ").unwrap();
    let elsewhere = join(&restored, token, &directory.path().join("w2"), "w2", "worker");
    assert!(!elsewhere.status.success(), "{}", text(&elsewhere));
    let joined = join(&restored, token, &root, "w1", "worker");
    let said = text(&joined);
    assert!(joined.status.success() && said.contains("was of another CA"), "{said}");
    let again = join(&restored, token, &directory.path().join("thief"), "w1", "worker");
    assert!(!again.status.success(), "{}", text(&again));

    assert!(fs::read_to_string(&issue).unwrap().contains("managed by Machinist.\n"));
    let _daemon = DaemonProcess::start(&root, "w1");
    apply("restored", "banner-changed.yaml");
    wait_for_text(&issue, "Local changes");
}
