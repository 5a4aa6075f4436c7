//! An ostree machine: a second image is deployed, booted and rolled back.

use machinist_e2e::{Lab, Machine, measurements};

fn version(machine: &Machine) -> String {
    machine.sh("cat /usr/lib/testkit-version").unwrap().trim().to_owned()
}

#[test]
fn an_update_merges_etc_boots_and_rolls_back() {
    let lab = Lab::new().unwrap();
    let machine = lab.ostree_machine("a").boot().unwrap();
    assert_eq!(version(&machine), "v1");
    assert_eq!(machine.failed_units().unwrap(), Vec::<String>::new());
    assert!(machine.exec(&["touch", "/usr/new"]).unwrap().stderr.contains("Read-only"));
    machine.write_file("/etc/local", "mine\n").unwrap();

    machine.pull("debian/v2").unwrap();
    machine.sh("ostree admin deploy --stage --karg-append=testkit=v2 debian/v2").unwrap();
    // systemd starts this service when it sees the staged update, and finalizes it at shutdown. A reboot before that
    // has nothing to finalize.
    let armed = ["systemctl", "is-active", "ostree-finalize-staged.service"];
    machine.wait_for("the staged update to be seen", |m| Ok(m.exec(&armed)?.succeeded())).unwrap();
    assert_eq!(version(&machine), "v1");
    measurements::measure("reboot-into-a-staged-update", || machine.reboot()).unwrap();
    assert_eq!(version(&machine), "v2");
    assert_eq!(machine.read_file("/etc/local").unwrap(), b"mine\n");
    assert_eq!(machine.read_file("/etc/testkit-untouched").unwrap(), b"from v2\n");
    assert_eq!(machine.read_file("/etc/testkit-new").unwrap(), b"new in v2\n");
    assert!(machine.sh("cat /proc/cmdline").unwrap().contains("testkit=v2"));

    machine.boot_entry_once(1).unwrap();
    machine.reboot().unwrap();
    assert_eq!(version(&machine), "v1");
    assert!(!machine.sh("cat /proc/cmdline").unwrap().contains("testkit=v2"));
    machine.sh("ostree admin undeploy 0").unwrap();
    machine.reboot().unwrap();
    assert_eq!(version(&machine), "v1");
    assert!(!machine.exists("/etc/testkit-new").unwrap());
}

#[test]
fn a_staged_update_is_gone_after_a_power_cut() {
    let lab = Lab::new().unwrap();
    let machine = lab.ostree_machine("a").disk(2048).boot().unwrap();
    machine.pull("debian/v2").unwrap();
    machine.sh("ostree admin deploy --stage debian/v2").unwrap();
    machine.power_cut().unwrap();
    machine.power_on().unwrap();
    assert_eq!(version(&machine), "v1");
    assert!(machine.exec(&["ostree", "fsck", "--quiet"]).unwrap().succeeded());
}
