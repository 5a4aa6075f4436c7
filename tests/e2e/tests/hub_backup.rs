//! Encrypted backups and the tool `age`: each decrypts what the other one wrote.
use crate::hub_support::HubProcess;
use machinist_e2e::{binary, command};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const PASSPHRASE: &str = "correct horse battery staple";

fn machinist(arguments: &[&str]) -> String {
    let mut machinist = Command::new(binary::machinist_binary().unwrap());
    command::run(machinist.args(arguments)).unwrap()
}

fn age(arguments: &[&str]) -> String {
    command::run(Command::new("age").args(arguments)).unwrap()
}

/// `age` reads passphrases from a terminal only: `script` gives it one.
fn age_with_passphrase(arguments: &str) {
    let input = format!("{PASSPHRASE}\n{PASSPHRASE}\n");
    let mut script = Command::new("script");
    script.args(["-qec", &format!("age {arguments}"), "/dev/null"]);
    let output = command::output_with_stdin(&mut script, input.as_bytes()).unwrap();
    assert!(output.succeeded(), "age {arguments}: {output:?}");
}

#[test]
fn age_and_machinist_read_each_others_backups() {
    let mut hub = HubProcess::start().unwrap();
    let data = hub.kubeconfig().parent().unwrap().to_owned();
    let work = hub.lab().create_dir("backups").unwrap();
    let path = |name: &str| work.join(name).to_str().unwrap().to_owned();
    let (key, passphrase) = (path("key.txt"), path("passphrase"));
    command::run(Command::new("age-keygen").args(["-o", &key])).unwrap();
    fs::write(&passphrase, format!("{PASSPHRASE}\n")).unwrap();
    let recipient = command::run(Command::new("age-keygen").args(["-y", &key])).unwrap();
    let recipient = recipient.trim();
    let backup = |more: &[&str]| {
        let common = ["hub", "backup", "--data-dir", data.to_str().unwrap()];
        machinist(&[&common[..], more].concat());
    };
    backup(&["--include-pki", "--recipient", recipient, &path("ours.age")]);
    backup(&["--passphrase-file", &passphrase, &path("ours-passphrase.age")]);
    backup(&[&path("plain")]);
    hub.terminate().unwrap();

    // What we encrypt, age decrypts; a restore takes the result, too.
    age(&["--decrypt", "-i", &key, "-o", &path("ours"), &path("ours.age")]);
    let target = path("ours-passphrase");
    age_with_passphrase(&format!("--decrypt -o {target} {}", path("ours-passphrase.age")));
    // What age encrypts, we decrypt.
    age(&["-r", recipient, "-o", &path("theirs.age"), &path("ours")]);
    let target = path("theirs-passphrase.age");
    age_with_passphrase(&format!("--passphrase -o {target} {}", path("plain")));

    let restored = |name: &str, more: &[&str]| -> PathBuf {
        let target = path(&format!("restored-{name}"));
        let common = ["hub", "restore", "--data-dir", &target];
        machinist(&[&common[..], more, &[&path(name)]].concat());
        machinist(&["hub", "check", "--data-dir", &target]);
        target.into()
    };
    let ca = |data: &Path| fs::read_to_string(data.join("pki/ca.key")).ok();
    let identity = ["--identity-file", key.as_str()];
    let passphrase = ["--passphrase-file", passphrase.as_str()];
    let ours = ca(&data);
    assert!(ours.is_some());
    assert_eq!(ca(&restored("ours.age", &identity)), ours);
    assert_eq!(ca(&restored("ours", &[])), ours);
    assert_eq!(ca(&restored("theirs.age", &identity)), ours);
    assert_eq!(ca(&restored("ours-passphrase.age", &passphrase)), None);
    assert_eq!(ca(&restored("ours-passphrase", &[])), None);
    assert_eq!(ca(&restored("theirs-passphrase.age", &passphrase)), None);
}
