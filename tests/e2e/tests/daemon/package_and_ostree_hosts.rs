//! The operating system below the files, on hosts with fake tools: a real update-grub needs a real disk, and rpm-ostree
//! is not packaged for Debian. The calls to these tools and the reactions to their results are real.

use super::fixture::{HubFixture, file, files};
use machinist_e2e::{Machine, wait_for};
use serde_json::{Value, json};

const BOOT: &str = include_str!("fakes/boot");
const BOOT_UNIT: &str = include_str!("fakes/boot.service");
const A: &str = "registry.example/os@sha256:aaaa";
const B: &str = "registry.example/os@sha256:bbbb";

/// A machine with a boot loader that shows `/var/fakes/cmdline` as the kernel's command line.
fn with_loader(fixture: &HubFixture, name: &str, tool: &str, text: &str) -> Machine {
    let machine = fixture.machine(name);
    machine.sh("mkdir -p /var/fakes /etc/default/grub.d").unwrap();
    machine.write_file("/var/fakes/boot", BOOT).unwrap();
    machine.write_file("/var/fakes/cmdline", "root=/dev/vda ro\n").unwrap();
    machine.write_file("/etc/systemd/system/fake-boot.service", BOOT_UNIT).unwrap();
    machine.write_file(tool, text).unwrap();
    machine.sh(&format!("chmod 755 {tool} && systemctl enable fake-boot.service")).unwrap();
    machine
}

fn read(machine: &Machine, path: &str) -> String {
    String::from_utf8(machine.read_file(path).unwrap()).unwrap()
}

fn arguments(list: &[&str], motd: &str) -> Value {
    let mut spec = json!({"kernelArguments": list, "config": files(&[file("/etc/motd", motd)])});
    spec["config"]["ignition"] = json!({"version": "3.5.0"});
    spec
}

#[track_caller]
fn wait_reason(fixture: &HubFixture, machine: &Machine, state: &str, expected: &str) {
    fixture.wait_state(machine, state, |fixture, name| {
        let reason = fixture.annotation(name, "reason");
        anyhow::ensure!(reason.contains(expected), "{reason}");
        Ok(true)
    });
}

fn status(machine: &Machine) -> Value {
    let output = machine.exec(&["machinist", "daemon", "status", "-o", "json"]).unwrap();
    serde_json::from_str(&output.stdout).unwrap()
}

#[test]
fn a_host_of_packages_gets_kernel_arguments_and_refuses_images() {
    let fixture = HubFixture::start();
    let machine =
        with_loader(&fixture, "p", "/usr/sbin/update-grub", include_str!("fakes/update-grub"));
    machine.reboot().unwrap();
    fixture.join(&machine);
    fixture.wait_done(&machine, "mco-empty-mc");
    let system = status(&machine)["os"].clone();
    assert_eq!(system["backEnd"], "plain");
    assert!(system["reason"].as_str().unwrap().contains("90-machinist.cfg"), "{system}");

    // They arrive with one reboot, even a value that contains a space.
    let boots = machine.boots();
    let config = fixture.apply_config_spec("50-kargs", &arguments(&["a=1 b=\"c d\""], "one\n"));
    fixture.wait_done(&machine, &config);
    assert_eq!(machine.boots(), boots + 1);
    assert_eq!(read(&machine, "/proc/cmdline"), "root=/dev/vda ro a=1 b=\"c d\"\n");
    wait_for("all events, in this order", || {
        let events = fixture.events("p");
        let mut rest = events.iter();
        for reason in ["OSUpdateStarted", "Drain", "OSUpdateStaged", "Reboot", "NodeDone"] {
            let found = rest.any(|event| event == reason);
            anyhow::ensure!(found, "no {reason} in its place: {events:?}");
        }
        Ok(true)
    })
    .unwrap();

    // A tool that fails leaves everything unchanged, and the machine in service.
    machine.write_file("/var/fakes/loader-fails", "").unwrap();
    let config = fixture.apply_config_spec("50-kargs", &arguments(&["a=2"], "two\n"));
    wait_reason(&fixture, &machine, "Degraded", "cannot find a device for /boot");
    machine.wait_for("the rollback", |m| Ok(read(m, "/etc/motd") == "one\n")).unwrap();
    assert_eq!(machine.boots(), boots + 1);
    machine.sh("rm /var/fakes/loader-fails").unwrap();
    fixture.wait_done(&machine, &config);
    assert_eq!(read(&machine, "/proc/cmdline"), "root=/dev/vda ro a=2\n");

    // Arguments that do not reach the kernel are a failed change: the machine rolls back once.
    let boots = machine.boots();
    machine.write_file("/var/fakes/loader-is-deaf", "").unwrap();
    fixture.apply_config_spec("50-kargs", &arguments(&["a=3"], "three\n"));
    wait_reason(&fixture, &machine, "Degraded", "missing expected kernel arguments: [a=3]");
    machine.wait_for("the rollback", |m| Ok(read(m, "/etc/motd") == "two\n")).unwrap();
    let drop_in = "/etc/default/grub.d/90-machinist.cfg";
    machine.wait_for("the rollback", |m| Ok(read(m, drop_in).contains("LINUX a=2\""))).unwrap();
    fixture.wait_state(&machine, "Degraded", |fixture, name| {
        Ok(fixture.annotation(name, "lastAppliedDrain").starts_with("uncordon-"))
    });
    assert_eq!(machine.boots(), boots + 2);
    machine.sh("rm /var/fakes/loader-is-deaf").unwrap();

    // An image is refused before anything is written.
    let mut image = arguments(&["a=4"], "four\n");
    image["osImageURL"] = json!(A);
    fixture.apply_config_spec("50-kargs", &image);
    wait_reason(
        &fixture,
        &machine,
        "Unreconcilable",
        "spec.osImageURL: this host is package-based",
    );
    assert_eq!(read(&machine, "/etc/motd"), "two\n");
    assert_eq!(machine.boots(), boots + 2);

    // Unwanted arguments are removed.
    let config = fixture.apply_config_spec("50-kargs", &arguments(&[], "five\n"));
    fixture.wait_done(&machine, &config);
    assert_eq!(read(&machine, "/proc/cmdline"), "root=/dev/vda ro\n");
    assert!(!machine.exists(drop_in).unwrap());
    assert!(status(&machine)["os"]["status"]["next"].is_null());
}

#[test]
fn a_host_without_a_boot_loader_refuses_kernel_arguments() {
    let fixture = HubFixture::start();
    let machine = fixture.machine("n");
    fixture.join(&machine);
    fixture.wait_done(&machine, "mco-empty-mc");
    let boots = machine.boots();
    fixture.apply_config_spec("50-kargs", &arguments(&["a=1"], "one\n"));
    let refused = "spec.kernelArguments: this host is package-based and cannot set a=1: it has no boot loader";
    wait_reason(&fixture, &machine, "Unreconcilable", refused);
    assert_eq!(read(&machine, "/etc/motd"), "as it was packaged\n");
    assert_eq!(machine.boots(), boots);
    let reason = status(&machine)["os"]["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains("no boot loader that accepts kernel arguments"), "{reason}");

    // The plan for another config is shown without applying it.
    let plan = |spec: &Value| {
        let config = json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
            "metadata": {"name": "other"}, "spec": spec,
        });
        machine.write_file("/run/config.json", config.to_string()).unwrap();
        machine.exec(&["machinist", "daemon", "plan", "-f", "/run/config.json"]).unwrap()
    };
    let output = plan(&arguments(&["b=1"], "one\n"));
    assert!(output.code == 3 && output.stdout.contains("cannot set b=1"), "{output:?}");
    let mut image = arguments(&[], "one\n");
    image["osImageURL"] = json!(A);
    let output = plan(&image);
    assert!(output.code == 3 && output.stdout.contains("spec.osImageURL: "), "{output:?}");
}

/// The pool's own image overrides the config's, and returning to the config's image is a change too.
fn layered(fixture: &HubFixture, machine: &Machine) {
    let (boots, config) = (machine.boots(), fixture.annotation("r", "currentConfig"));
    // Writes by hand what the controller of a pool that builds images writes.
    fixture.patch_pool(&json!({"spec": {"paused": true}}));
    fixture.annotate("r", &[("desiredImage", A)]);
    fixture.wait_state(machine, "Done", |fixture, name| {
        Ok(fixture.annotation(name, "currentImage") == A)
    });
    assert_eq!(fixture.annotation("r", "currentConfig"), config);
    assert_eq!(status(machine)["os"]["status"]["booted"]["image"], A);
    assert_eq!(read(machine, "/etc/machine-config-daemon/currentimage"), A);
    assert_eq!(machine.boots(), boots + 1);
    // Without its own image the pool has the image of its config again.
    fixture.patch_pool(&json!({"spec": {"paused": false}}));
    fixture.wait_state(machine, "Done", |fixture, name| {
        Ok(fixture.annotation(name, "currentImage").is_empty())
    });
    assert_eq!(status(machine)["os"]["status"]["booted"]["image"], B);
    assert_eq!(read(machine, "/etc/machine-config-daemon/currentimage"), "");
    assert_eq!(machine.boots(), boots + 2);
    assert!(read(machine, "/proc/cmdline").contains("x=1 y"));
}

#[test]
fn rpm_ostree_is_called_as_mco_calls_it() {
    let fixture = HubFixture::start();
    let machine =
        with_loader(&fixture, "r", "/usr/bin/rpm-ostree", include_str!("fakes/rpm-ostree"));
    let release = "ID=rhel\\nVARIANT_ID=coreos\\nPRETTY_NAME=\"RHCOS 9.6\"\\n";
    machine.sh(&format!("rm /etc/os-release && printf '{release}' >/etc/os-release")).unwrap();
    machine.write_file("/var/fakes/booted", A).unwrap();
    machine.reboot().unwrap();
    fixture.join(&machine);
    fixture.wait_done(&machine, "mco-empty-mc");
    assert_eq!(status(&machine)["os"]["backEnd"], "rpm-ostree");
    let calls = || read(&machine, "/var/fakes/calls");

    // Downloaded before the drain; image and kernel arguments with one reboot.
    let boots = machine.boots();
    let mut spec = arguments(&["x=1", "y"], "one\n");
    spec["osImageURL"] = json!(B);
    let config = fixture.apply_config_spec("50-os", &spec);
    fixture.wait_done(&machine, &config);
    assert_eq!(machine.boots(), boots + 1);
    let rebase = "rebase --experimental";
    let image = format!("ostree-unverified-registry:{B}");
    let expected = format!(
        "{rebase} --download-only {image}\ncleanup -p\n{rebase} {image}\nkargs --append=x=1 --append=y\n"
    );
    assert_eq!(calls(), expected);
    let system = status(&machine)["os"].clone();
    assert_eq!(system["status"]["booted"]["image"], B, "{system}");

    layered(&fixture, &machine);
    let boots = machine.boots();

    // What is lost during shutdown is staged again.
    machine.sh("rm /var/fakes/calls; touch /var/fakes/lose-staged").unwrap();
    let mut spec = arguments(&["x=2"], "two\n");
    spec["osImageURL"] = json!(B);
    let config = fixture.apply_config_spec("50-os", &spec);
    fixture.wait_done(&machine, &config);
    assert_eq!(machine.boots(), boots + 2);
    let kargs = "cleanup -p\nkargs --delete-if-present=x=1 --delete-if-present=y --append=x=2\n";
    assert_eq!(calls(), kargs.repeat(2));

    // A failed call discards what is staged, and the files are rolled back.
    machine.sh("rm /var/fakes/calls; touch /var/fakes/kargs-fail").unwrap();
    let mut spec = arguments(&["x=3"], "three\n");
    spec["osImageURL"] = json!(A);
    let config = fixture.apply_config_spec("50-os", &spec);
    wait_reason(&fixture, &machine, "Degraded", "no space left");
    machine.wait_for("the rollback", |m| Ok(read(m, "/etc/motd") == "two\n")).unwrap();
    assert!(!machine.exists("/var/fakes/staged").unwrap());
    machine.sh("rm /var/fakes/kargs-fail").unwrap();
    fixture.wait_done(&machine, &config);
    assert_eq!(status(&machine)["os"]["status"]["booted"]["image"], A);

    // An image that the boot loader does not start is rolled back automatically and is not retried.
    let boots = machine.boots();
    machine.sh("touch /var/fakes/falls-back").unwrap();
    let mut spec = arguments(&["x=3"], "four\n");
    spec["osImageURL"] = json!(B);
    fixture.apply_config_spec("50-os", &spec);
    wait_reason(&fixture, &machine, "Degraded", "expected target osImageURL");
    machine.wait_for("the rollback", |m| Ok(read(m, "/etc/motd") == "three\n")).unwrap();
    fixture.wait_state(&machine, "Degraded", |fixture, name| {
        Ok(fixture.annotation(name, "lastAppliedDrain").starts_with("uncordon-"))
    });
    assert_eq!(machine.boots(), boots + 2);
    assert!(read(&machine, "/proc/cmdline").contains("x=3"));

    // What only another kind of host can do is refused.
    machine.sh("rm /var/fakes/falls-back").unwrap();
    let mut spec = arguments(&["x=3"], "five\n");
    spec["kernelType"] = json!("64k-pages");
    spec["osImageURL"] = json!(A);
    fixture.apply_config_spec("50-os", &spec);
    wait_reason(&fixture, &machine, "Unreconcilable", "64k-pages is only supported for aarch64");
    assert_eq!(read(&machine, "/etc/motd"), "three\n");
}
