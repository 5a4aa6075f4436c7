//! A hub whose disk and clock fail: no acknowledged write is lost, and it works again by itself once the fault is gone.
use crate::hub_support::HubProcess;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt};
use machinist_e2e::{Lab, LoopDisk, SyscallFault, block_on, command, wait_for, wait_with_timeout};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Renewed certificates are noticed within this, with a busy host.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(90);

/// A hub on a disk of its own, and the names of all objects whose creation it acknowledged.
struct HubOnDisk {
    hub: HubProcess,
    disk: LoopDisk,
    acknowledged: BTreeSet<String>,
}

impl HubOnDisk {
    fn new(megabytes: u32) -> Self {
        let lab = Lab::new().unwrap();
        let disk = LoopDisk::new(&lab, "disk", megabytes).unwrap();
        let hub = HubProcess::in_directory(&lab, disk.path().join("hub"));
        Self { hub, disk, acknowledged: BTreeSet::new() }
    }

    fn started(megabytes: u32) -> Self {
        let mut fixture = Self::new(megabytes);
        fixture.hub.launch().unwrap();
        fixture.hub.wait_until_ready().unwrap();
        fixture
    }

    fn api(&self) -> Result<Api<ConfigMap>> {
        Ok(Api::default_namespaced(self.hub.client()?))
    }

    /// Creates an object. The answer may be an error, but it must come.
    fn create(&mut self) -> Result<()> {
        let mut map = ConfigMap::default();
        map.metadata.name = Some(format!("m{}", uuid()));
        let created = block_on(self.api()?.create(&PostParams::default(), &map))?;
        self.acknowledged.insert(created.name_any());
        Ok(())
    }

    fn names(&self) -> Result<BTreeSet<String>> {
        let list = block_on(self.api()?.list(&ListParams::default()))?;
        Ok(list.items.iter().map(ResourceExt::name_any).collect())
    }

    fn assert_nothing_lost(&self, when: &str) {
        self.assert_all_found(&self.names().unwrap(), when);
    }

    fn assert_all_found(&self, found: &BTreeSet<String>, when: &str) {
        let lost: Vec<_> = self.acknowledged.difference(found).collect();
        assert!(lost.is_empty(), "{when}: lost {lost:?}");
    }

    /// Waits until the running hub accepts writes again, without a restart, and answers a read after that: a certificate
    /// that it renews meanwhile may refuse connections for a moment.
    fn wait_until_writable(&mut self, when: &str) {
        let mut found = BTreeSet::new();
        wait_with_timeout(RECOVERY_TIMEOUT, &format!("the hub to accept writes {when}"), || {
            self.hub.check_alive()?;
            self.create()?;
            found = self.names()?;
            Ok(true)
        })
        .unwrap();
        self.assert_all_found(&found, when);
    }

    fn restart(&mut self, when: &str) {
        self.hub.kill_all();
        self.hub.launch().unwrap();
        self.hub.wait_until_ready().unwrap();
        self.assert_nothing_lost(when);
    }

    fn remount(&self, option: &str) {
        let mut mount = Command::new("mount");
        command::run(mount.args(["-o", option]).arg(self.disk.path())).unwrap();
    }
}

fn uuid() -> String {
    fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap().trim().to_owned()
}

#[test]
fn a_read_only_disk_refuses_writes_until_it_is_writable() {
    let mut fixture = HubOnDisk::started(128);
    fixture.create().unwrap();
    // The kernel refuses to remount while a file is open for writing.
    fixture.hub.kill_all();
    fixture.remount("remount,ro");
    fixture.hub.launch().unwrap();
    let text = fixture.hub.wait_until_ready_or_ended().unwrap().expect("it cannot start");
    assert!(text.contains("Read-only file system") && text.contains("/hub"), "{text}");
    fixture.remount("remount,rw");
    fixture.restart("after the disk was read-only");
    fixture.wait_until_writable("after the disk was read-only");
}

/// Creates empty files until the disk has no inode left.
fn use_all_inodes(directory: &Path) -> Vec<PathBuf> {
    fs::create_dir_all(directory).unwrap();
    let paths = (0..).map(|n| directory.join(n.to_string()));
    paths.take_while(|path| File::create(path).is_ok()).collect()
}

#[test]
fn without_inodes_a_hub_goes_on_and_starts() {
    let mut fixture = HubOnDisk::started(64);
    fixture.create().unwrap();
    let fillers = use_all_inodes(&fixture.disk.path().join("fillers"));
    for _ in 0..20 {
        fixture.create().unwrap();
    }
    fixture.restart("without inodes");
    fixture.create().unwrap();
    for filler in fillers {
        fs::remove_file(filler).unwrap();
    }
    fixture.wait_until_writable("with inodes again");
    fixture.restart("with inodes again");
}

/// Leaves this many bytes on a disk.
fn fill_disk(filler: &Path, leave: u64) {
    let mut file = File::create(filler).unwrap();
    for size in [1 << 20, 64 << 10, 4 << 10] {
        while file.write_all(&vec![1; size]).and_then(|()| file.sync_all()).is_ok() {}
    }
    let length = file.metadata().unwrap().len();
    file.set_len(length.saturating_sub(leave)).unwrap();
    file.sync_all().unwrap();
}

/// Every write of a first start meets the end of the disk in one of the rounds.
#[test]
fn a_first_start_on_a_full_disk_is_completed_when_there_is_space() {
    let mut fixture = HubOnDisk::new(96);
    let filler = fixture.disk.path().join("filler");
    let data = fixture.disk.path().join("hub");
    let mut failures = 0;
    for leave in [0, 4, 8, 12, 16, 24, 32, 64, 256, 1024, 4096, 16 << 10].map(|kib| kib << 10) {
        fill_disk(&filler, leave);
        fixture.hub.launch().unwrap();
        if let Some(text) = fixture.hub.wait_until_ready_or_ended().unwrap() {
            failures += 1;
            assert!(text.contains("No space left on device"), "{leave} bytes: {text}");
            assert!(text.contains("hub") && !text.contains("panicked"), "{leave} bytes: {text}");
        }
        fixture.hub.kill_all();
        fs::remove_file(&filler).unwrap();
        fixture.hub.launch().unwrap();
        fixture.hub.wait_until_ready().unwrap();
        fixture.create().unwrap();
        fixture.assert_nothing_lost(&format!("{leave} bytes were free"));
        fixture.hub.kill_all();
        fixture.acknowledged.clear();
        fs::remove_dir_all(&data).unwrap();
    }
    assert!(failures >= 3, "only {failures} starts met the end of the disk");
}

/// The n-th write, sync, rename or new directory of the hub fails, for every n that it gets to.
#[test]
fn every_failed_write_is_reported_and_nothing_acknowledged_is_lost() {
    const CALLS: &str =
        "pwrite64,ftruncate,fallocate,fsync,fdatasync,rename,renameat,renameat2,mkdir,mkdirat";
    for error in ["ENOSPC", "EIO"] {
        let mut fixture = HubOnDisk::new(96);
        let mut refused = 0;
        for n in [1, 2, 3, 5, 8, 13, 21, 34, 55, 89] {
            let when = format!("{error} at call {n}");
            let fault = SyscallFault::error(CALLS, error).nth(n);
            fixture.hub.launch_wrapped(|up| fault.wrap(&up)).unwrap();
            if let Some(text) = fixture.hub.wait_until_ready_or_ended().unwrap() {
                assert!(text.contains("os error"), "{when}: {text}");
                assert!(!text.contains("panicked"), "{when}: {text}");
                refused += 1;
            } else {
                for _ in 0..10 {
                    refused += u32::from(fixture.create().is_err());
                }
                fixture.wait_until_writable(&when);
            }
            fixture.restart(&when);
            fixture.hub.kill_all();
        }
        assert!(refused > 0, "no fault had an effect");
    }
}

/// A hub whose clock follows a file.
fn launch_with_clock(hub: &mut HubProcess, clock: &Path) -> Result<()> {
    hub.launch_wrapped(|up| {
        let library = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";
        ensure!(Path::new(library).exists(), "{library}: install the package faketime");
        let mut up = up;
        up.env("LD_PRELOAD", library).env("FAKETIME_TIMESTAMP_FILE", clock);
        up.env("FAKETIME_NO_CACHE", "1").env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        Ok(up)
    })
}

fn set_clock(clock: &Path, offset: &str) {
    let new = clock.with_extension("new");
    fs::write(&new, format!("{offset}\n")).unwrap();
    fs::rename(new, clock).unwrap();
}

#[test]
fn a_clock_that_jumps_ten_years_loses_nothing_and_nobody() {
    let mut fixture = HubOnDisk::new(128);
    let clock = fixture.disk.path().join("clock");
    set_clock(&clock, "+0");
    launch_with_clock(&mut fixture.hub, &clock).unwrap();
    fixture.hub.wait_until_ready().unwrap();
    fixture.create().unwrap();
    let ca = fs::read(fixture.disk.path().join("hub/pki/ca.crt")).unwrap();
    for offset in ["+3660d", "-3660d"] {
        let pem = fixture.disk.path().join("hub/pki/server.pem");
        let before = fs::read(&pem).unwrap();
        set_clock(&clock, offset);
        wait_with_timeout(RECOVERY_TIMEOUT, "the hub to notice its clock", || {
            fixture.hub.check_alive()?;
            Ok(fs::read(&pem)? != before)
        })
        .unwrap();
        set_clock(&clock, "+0");
        fixture.wait_until_writable(&format!("after a jump of {offset} and back"));

        // A restart while the clock is wrong.
        set_clock(&clock, offset);
        fixture.hub.kill_all();
        launch_with_clock(&mut fixture.hub, &clock).unwrap();
        wait_for("the hub to serve", || {
            fixture.hub.check_alive()?;
            Ok(std::net::TcpStream::connect(fixture.hub.address()).is_ok())
        })
        .unwrap();
        set_clock(&clock, "+0");
        fixture.wait_until_writable(&format!("after a start at {offset}"));
        assert_eq!(fs::read(fixture.disk.path().join("hub/pki/ca.crt")).unwrap(), ca);
    }
}
