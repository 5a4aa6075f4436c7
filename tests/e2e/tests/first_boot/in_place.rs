//! A machine without Ignition and without a server takes the same path: bootstrap in place.

use crate::first_boot::fixture::{file, machine_config, second_system};
use crate::first_boot::read;
use machinist_e2e::Lab;
use serde_json::{Value, json};

#[test]
fn a_machine_without_a_server_gets_files_image_and_kargs_with_one_reboot() {
    let lab = Lab::new().unwrap();
    lab.create_bridge().unwrap();
    let (_registry, image, registry_files) = second_system(&lab);
    let mut files = vec![file("/etc/greeting", 0o644, "hello\n")];
    files.extend(registry_files);
    let spec = json!({"osImageURL": image, "kernelArguments": ["firstboot=4"], "fips": true});
    let config = machine_config("rendered-worker-1", spec, &files);
    let machine = lab.ostree_machine("alone").with_machinist().unwrap().boot().unwrap();
    machine.write_file("/var/config.json", config.to_string()).unwrap();
    let command = "machinist daemon start --once-from /var/config.json";
    machine
        .wait_for_reboot_during(|machine| {
            let output = machine.exec(&["sh", "-c", command])?;
            // The machine may be gone before the command returns.
            assert!(output.succeeded() || output.code > 3, "{output:?}");
            Ok(())
        })
        .unwrap();
    assert_eq!(machine.boots(), 2, "one restart, and no other");
    assert_eq!(read(&machine, "/usr/lib/testkit-version"), "v2\n");
    assert_eq!(read(&machine, "/etc/greeting"), "hello\n");
    let line = read(&machine, "/proc/cmdline");
    assert!(line.contains(" firstboot=4 fips=1"), "{line}");
    // The unit is enabled, and was not started before the first boot was complete.
    assert_eq!(read(&machine, "/var/kubelet.log"), "in order\n");
    let current: Value =
        serde_json::from_str(&read(&machine, "/etc/machine-config-daemon/currentconfig")).unwrap();
    assert_eq!(current["metadata"]["name"], "rendered-worker-1");
    // A second run changes nothing and does not reboot.
    let output = machine.sh("machinist firstboot --file /var/config.json --write -o json").unwrap();
    let output: Value = serde_json::from_str(&output).unwrap();
    assert_eq!((&output["change"], &output["written"]), (&Value::Null, &json!(0)), "{output}");
    assert_eq!(machine.boots(), 2);
}
