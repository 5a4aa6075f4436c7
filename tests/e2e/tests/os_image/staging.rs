//! Kernel arguments alone, and changes that are reverted.

use super::fixture::{ImageFixture, arguments, machinist_os, machinist_os_succeeds, status};

#[test]
fn arguments_are_added_and_removed_and_others_stay() {
    let fixture = ImageFixture::new();
    let machine = fixture.machine().karg("console=tty0").karg("console=ttyS0").boot().unwrap();
    let first = status(&machine);
    let huge = "hugepagesz=1G hugepages=4 hugepagesz=2M hugepages=4";
    machinist_os_succeeds(
        &machine,
        &["stage", "--delete", "console=tty0 not.there=1", "--append", huge],
    );
    // Another one replaces it: changes are relative to the running system.
    machinist_os_succeeds(&machine, &["stage", "--delete", "console=tty0", "--append", huge]);
    machine.reboot().unwrap();
    let second = status(&machine);
    let expected = [
        "root=LABEL=root",
        "rw",
        "testkit.first=1",
        "console=ttyS0",
        "hugepagesz=1G",
        "hugepages=4",
        "hugepagesz=2M",
        "hugepages=4",
    ];
    assert_eq!(arguments(&second["booted"]), expected);
    assert_eq!(second["booted"]["checksum"], first["booted"]["checksum"]);
    let line = machine.sh("cat /proc/cmdline").unwrap();
    assert!(line.contains(huge) && line.contains("root=LABEL=root"), "{line}");

    for now in [&[][..], &["--now"]] {
        machinist_os_succeeds(&machine, &[&["stage", "--append", "never=1"], now].concat());
        assert_eq!(arguments(&status(&machine)["next"]).last().unwrap(), "never=1");
        machinist_os_succeeds(&machine, &["unstage"]);
        let after = status(&machine);
        assert_eq!((&after["booted"], after["next"].is_null()), (&second["booted"], true));
    }
    machine.reboot().unwrap();
    assert_eq!(arguments(&status(&machine)["booted"]), expected);
    let refused = machinist_os(&machine, &["stage", "--append", "ostree=/x"]);
    assert_eq!(refused.code, 3, "{refused:?}");
}
