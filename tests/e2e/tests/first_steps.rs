//! The first how-to, copied line by line from its page, ends with a configured machine.

use machinist_e2e::{Lab, Machine, binary, cache, command, wait_with_timeout};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A timeout for a busy host.
const TIMEOUT: Duration = Duration::from_secs(240);

/// The commands at the prompts of a page, and the output that it shows.
fn console(page: &str) -> (Vec<String>, Vec<String>) {
    let (mut commands, mut output, mut is_console) = (Vec::new(), Vec::new(), false);
    for line in page.lines() {
        if line.starts_with("```") {
            is_console = line == "```console";
        } else if is_console {
            match line.strip_prefix("$ ") {
                Some(command) => commands.push(command.to_owned()),
                None => output.push(line.to_owned()),
            }
        }
    }
    (commands, output)
}

/// A machine that accepts the reader's SSH key for root, as the page requires.
fn machine(lab: &Lab, home_dir: &Path) -> Machine {
    let key = home_dir.join("key");
    let mut keygen = Command::new("ssh-keygen");
    command::run(keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key)).unwrap();
    let public = fs::read(home_dir.join("key.pub")).unwrap();
    let machine = lab.machine("first").file("/root/.ssh/authorized_keys", public);
    let machine = machine.boot().unwrap();
    machine.sh("ssh-keygen -A && systemctl enable --now ssh.service").unwrap();
    machine
}

/// A directory for the `PATH`: our binary, and ssh and scp as the reader has configured them.
fn create_path_dir(home_dir: &Path) -> PathBuf {
    let dir = home_dir.join("bin");
    fs::create_dir_all(&dir).unwrap();
    symlink(binary::machinist_binary().unwrap(), dir.join("machinist")).unwrap();
    let options = format!(
        "-i {} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR",
        home_dir.join("key").display()
    );
    for name in ["ssh", "scp"] {
        let script = format!("#!/bin/sh\nexec /usr/bin/{name} {options} \"$@\"\n");
        fs::write(dir.join(name), script).unwrap();
    }
    let mut chmod = Command::new("chmod");
    command::run(chmod.arg("755").arg(dir.join("ssh")).arg(dir.join("scp"))).unwrap();
    dir
}

#[test]
fn the_first_how_to_ends_with_a_configured_machine() {
    let lab = Lab::new().unwrap();
    lab.create_bridge().unwrap();
    let home_dir = lab.create_dir("reader").unwrap();
    let machine = machine(&lab, &home_dir);
    let page = fs::read_to_string(cache::source_root().join("docs/first-steps.md")).unwrap();
    let (mut commands, output) = console(&page);
    assert!(commands[0].contains("HUB=192.0.2.10 MACHINE=192.0.2.11"), "{}", commands[0]);
    commands[0] =
        commands[0].replace("192.0.2.10", &lab.address()).replace("192.0.2.11", machine.address());
    let script = format!("set -euo pipefail\n{}\n", commands.join("\n"));
    let mut shell = Command::new("bash");
    shell.args(["-x", "-c", &script]).current_dir(cache::source_root()).env("HOME", &home_dir);
    shell.env("XDG_STATE_HOME", home_dir.join("state")).env_remove("KUBECONFIG");
    shell.env("MACHINIST_BIN", binary::machinist_binary().unwrap());
    let path = std::env::var("PATH").unwrap();
    shell.env("PATH", format!("{}:{path}", create_path_dir(&home_dir).display()));
    let mut reader = lab.spawn("reader", &shell).unwrap();
    wait_with_timeout(TIMEOUT, "the reader to reach the end of the page", || reader.has_ended())
        .unwrap();
    let log = reader.log();
    assert!(reader.wait().unwrap().success(), "{log}");
    for line in output.iter().filter(|line| !line.contains('…')) {
        assert!(log.contains(line), "the page shows {line:?}, which is not in:\n{log}");
    }
    let motd = String::from_utf8(machine.read_file("/etc/motd").unwrap()).unwrap();
    assert_eq!(motd, "Managed by Machinist: manual changes are reported.\n");
    assert!(machine.exec(&["systemctl", "is-active", "machinist-daemon"]).unwrap().succeeded());
    assert_eq!(machine.boots(), 1, "no config of the page costs a reboot");
}
