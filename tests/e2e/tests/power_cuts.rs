//! The kit's power cuts: what is synced stays, the rest is lost.

use machinist_e2e::mounts::is_mounted;
use machinist_e2e::{Lab, LoopDisk, SyscallFault, command, wait_for};
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

/// How often a test may find that its unsynced data was synced by somebody else: `sync(2)` reaches every disk of the
/// host, and every machine that shuts down calls it.
const ATTEMPTS: usize = 10;

#[test]
fn a_synced_file_stays_and_an_unsynced_one_goes() {
    let lab = Lab::new().unwrap();
    let disk = LoopDisk::new(&lab, "disk", 64).unwrap();
    let (kept, lost) = (disk.path().join("kept"), disk.path().join("lost"));
    let mut file = File::create(&kept).unwrap();
    file.write_all(b"kept").unwrap();
    file.sync_all().unwrap();
    File::open(disk.path()).unwrap().sync_all().unwrap();
    drop(file);
    let is_lost = (0..ATTEMPTS).any(|_| {
        fs::write(&lost, "lost").unwrap();
        disk.power_cycle().unwrap();
        assert_eq!(fs::read(&kept).unwrap(), b"kept");
        let found = fs::read(&lost).unwrap_or_default();
        let _ = fs::remove_file(&lost);
        found.is_empty()
    });
    assert!(is_lost);
}

#[test]
fn a_disk_that_was_cut_comes_back_when_nothing_holds_its_old_mount() {
    let lab = Lab::new().unwrap();
    let disk = LoopDisk::new(&lab, "disk", 64).unwrap();
    // A mount namespace with a mount of its own of the disk, until its input ends.
    let mut holder = Command::new("unshare");
    holder.args(["--mount", "--propagation", "private", "sh", "-c", "echo ready; read -r _"]);
    let mut holder = holder.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = [0; 6];
    holder.stdout.take().unwrap().read_exact(&mut ready).unwrap();
    let input = holder.stdin.take().unwrap();
    std::thread::scope(|scope| {
        let cycle = scope.spawn(|| disk.power_cycle());
        let unmounted = wait_for("the disk to be unmounted", || Ok(!is_mounted(disk.path())?));
        drop(input);
        holder.wait().unwrap();
        unmounted.unwrap();
        cycle.join().unwrap().unwrap();
    });
    let mut file = File::create(disk.path().join("new")).unwrap();
    file.write_all(b"new").unwrap();
    file.sync_all().unwrap();
}

#[test]
fn a_machine_on_a_disk_loses_unsynced_data() {
    let lab = Lab::new().unwrap();
    let machine = lab.machine("a").disk(256).boot().unwrap();
    let is_lost = (0..ATTEMPTS).any(|attempt| {
        let write = format!("echo kept >/etc/kept; sync /etc/kept /etc; echo lost >/etc/{attempt}");
        machine.sh(&write).unwrap();
        machine.power_cut().unwrap();
        machine.power_on().unwrap();
        assert_eq!(machine.read_file("/etc/kept").unwrap(), b"kept\n");
        machine.sh(&format!("cat /etc/{attempt} 2>/dev/null || true")).unwrap().is_empty()
    });
    assert!(is_lost);
}

#[test]
fn the_nth_system_call_fails_or_kills() {
    let lab = Lab::new().unwrap();
    let (one, two) = (lab.dir().join("one"), lab.dir().join("two"));
    fs::write(&one, "1").unwrap();
    let rename = || {
        let mut command = Command::new("mv");
        command.arg("-T").arg(&one).arg(&two);
        command
    };
    let calls = "rename,renameat,renameat2";
    let full = SyscallFault::error(calls, "ENOSPC").wrap(&rename()).unwrap();
    let output = command::output(&mut { full }).unwrap();
    assert!(output.stderr.contains("No space left"), "{output:?}");
    let killed = SyscallFault::kill(calls).wrap(&rename()).unwrap();
    assert_eq!(command::output(&mut { killed }).unwrap().code, 128 + 9);
    assert!(one.exists() && !two.exists());
    let later = SyscallFault::kill(calls).nth(2).wrap(&rename()).unwrap();
    assert!(command::output(&mut { later }).unwrap().succeeded());
    assert!(two.exists());
}
