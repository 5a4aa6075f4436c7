//! The operating system beneath the files, on hosts whose own tools are stood in for: a real update-grub wants a real disk,
//! rpm-ostree is not packaged for Debian. What they are called with, and what follows from what they do, is real.

use super::site::{HubFixture, file, files};
use machinist_e2e::{Machine, wait_for};
use serde_json::{Value, json};

const BOOT: &str = include_str!("fakes/boot");
const BOOT_UNIT: &str = include_str!("fakes/boot.service");
const A: &str = "registry.example/os@sha256:aaaa";
const B: &str = "registry.example/os@sha256:bbbb";

/// A machine with a boot loader that shows `/var/fakes/cmdline` as what the kernel was booted with.
fn with_loader(site: &HubFixture, name: &str, tool: &str, text: &str) -> Machine {
    let machine = site.machine(name);
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
fn wait_reason(site: &HubFixture, machine: &Machine, state: &str, words: &str) {
    site.wait_state(machine, state, |site, name| {
        let reason = site.annotation(name, "reason");
        anyhow::ensure!(reason.contains(words), "{reason}");
        Ok(true)
    });
}

fn status(machine: &Machine) -> Value {
    let said = machine.exec(&["machinist", "daemon", "status", "-o", "json"]).unwrap();
    serde_json::from_str(&said.stdout).unwrap()
}

#[test]
fn a_host_of_packages_gets_kernel_arguments_and_refuses_images() {
    let site = HubFixture::start();
    let machine =
        with_loader(&site, "p", "/usr/sbin/update-grub", include_str!("fakes/update-grub"));
    machine.reboot().unwrap();
    site.join(&machine);
    site.wait_done(&machine, "mco-empty-mc");
    let system = status(&machine)["os"].clone();
    assert_eq!(system["backEnd"], "plain");
    assert!(system["reason"].as_str().unwrap().contains("90-machinist.cfg"), "{system}");

    // They come with one restart, also a value with a space in it.
    let boots = machine.boots();
    let config = site.apply_config_spec("50-kargs", &arguments(&["a=1 b=\"c d\""], "one\n"));
    site.wait_done(&machine, &config);
    assert_eq!(machine.boots(), boots + 1);
    assert_eq!(read(&machine, "/proc/cmdline"), "root=/dev/vda ro a=1 b=\"c d\"\n");
    wait_for("all events", || Ok(site.events("p").iter().any(|it| it == "NodeDone"))).unwrap();
    let events = site.events("p");
    let mut rest = events.iter();
    for reason in ["OSUpdateStarted", "Drain", "OSUpdateStaged", "Reboot", "NodeDone"] {
        assert!(rest.any(|event| event == reason), "no {reason} in its place: {events:?}");
    }

    // A tool that fails leaves everything as it was, and the machine in use.
    machine.write_file("/var/fakes/loader-fails", "").unwrap();
    let config = site.apply_config_spec("50-kargs", &arguments(&["a=2"], "two\n"));
    wait_reason(&site, &machine, "Degraded", "cannot find a device for /boot");
    machine.wait_for("the way back", |m| Ok(read(m, "/etc/motd") == "one\n")).unwrap();
    assert_eq!(machine.boots(), boots + 1);
    machine.sh("rm /var/fakes/loader-fails").unwrap();
    site.wait_done(&machine, &config);
    assert_eq!(read(&machine, "/proc/cmdline"), "root=/dev/vda ro a=2\n");

    // Arguments that do not arrive are a change that failed: the machine goes back, once.
    let boots = machine.boots();
    machine.write_file("/var/fakes/loader-is-deaf", "").unwrap();
    site.apply_config_spec("50-kargs", &arguments(&["a=3"], "three\n"));
    wait_reason(&site, &machine, "Degraded", "missing expected kernel arguments: [a=3]");
    machine.wait_for("the way back", |m| Ok(read(m, "/etc/motd") == "two\n")).unwrap();
    let drop_in = "/etc/default/grub.d/90-machinist.cfg";
    machine.wait_for("the way back", |m| Ok(read(m, drop_in).contains("LINUX a=2\""))).unwrap();
    site.wait_state(&machine, "Degraded", |site, name| {
        Ok(site.annotation(name, "lastAppliedDrain").starts_with("uncordon-"))
    });
    assert_eq!(machine.boots(), boots + 2);
    machine.sh("rm /var/fakes/loader-is-deaf").unwrap();

    // An image is refused before anything is written.
    let mut image = arguments(&["a=4"], "four\n");
    image["osImageURL"] = json!(A);
    site.apply_config_spec("50-kargs", &image);
    wait_reason(
        &site,
        &machine,
        "Unreconcilable",
        "spec.osImageURL: this machine is made of packages",
    );
    assert_eq!(read(&machine, "/etc/motd"), "two\n");
    assert_eq!(machine.boots(), boots + 2);

    // What is not wanted any more goes.
    let config = site.apply_config_spec("50-kargs", &arguments(&[], "five\n"));
    site.wait_done(&machine, &config);
    assert_eq!(read(&machine, "/proc/cmdline"), "root=/dev/vda ro\n");
    assert!(!machine.exists(drop_in).unwrap());
    assert!(status(&machine)["os"]["status"]["next"].is_null());
}

#[test]
fn a_host_without_a_boot_loader_reports_it_and_continues() {
    let site = HubFixture::start();
    let machine = site.machine("n");
    site.join(&machine);
    site.wait_done(&machine, "mco-empty-mc");
    let boots = machine.boots();
    let config = site.apply_config_spec("50-kargs", &arguments(&["a=1"], "one\n"));
    site.wait_done(&machine, &config);
    assert_eq!(machine.boots(), boots + 1);
    let reason = status(&machine)["os"]["reason"].as_str().unwrap().to_owned();
    assert!(reason.contains("no boot loader that can be told of kernel arguments"), "{reason}");

    // What another config would do is told without doing it.
    let plan = |spec: &Value| {
        let config = json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
            "metadata": {"name": "other"}, "spec": spec,
        });
        machine.write_file("/run/config.json", config.to_string()).unwrap();
        machine.exec(&["machinist", "daemon", "plan", "-f", "/run/config.json"]).unwrap()
    };
    let said = plan(&arguments(&["b=1"], "one\n"));
    assert!(said.succeeded() && said.stdout.contains("kernel argument b=1 comes"), "{said:?}");
    assert!(said.stdout.contains("nobody reads kernel arguments here"), "{said:?}");
    let mut image = arguments(&[], "one\n");
    image["osImageURL"] = json!(A);
    let said = plan(&image);
    assert!(said.code == 3 && said.stdout.contains("spec.osImageURL: "), "{said:?}");
}

/// An image of the pool's own counts before the config's, and going back to the config's is a change too.
fn layered(site: &HubFixture, machine: &Machine) {
    let (boots, config) = (machine.boots(), site.annotation("r", "currentConfig"));
    // In the place of a pool that builds images: what its controller writes, by hand.
    site.patch_pool(&json!({"spec": {"paused": true}}));
    site.annotate("r", &[("desiredImage", A)]);
    site.wait_state(machine, "Done", |site, name| Ok(site.annotation(name, "currentImage") == A));
    assert_eq!(site.annotation("r", "currentConfig"), config);
    assert_eq!(status(machine)["os"]["status"]["booted"]["image"], A);
    assert_eq!(read(machine, "/etc/machine-config-daemon/currentimage"), A);
    assert_eq!(machine.boots(), boots + 1);
    // Without images of its own the pool has the image of its config again.
    site.patch_pool(&json!({"spec": {"paused": false}}));
    site.wait_state(machine, "Done", |site, name| {
        Ok(site.annotation(name, "currentImage").is_empty())
    });
    assert_eq!(status(machine)["os"]["status"]["booted"]["image"], B);
    assert_eq!(read(machine, "/etc/machine-config-daemon/currentimage"), "");
    assert_eq!(machine.boots(), boots + 2);
    assert!(read(machine, "/proc/cmdline").contains("x=1 y"));
}

#[test]
fn rpm_ostree_is_called_as_mco_calls_it() {
    let site = HubFixture::start();
    let machine = with_loader(&site, "r", "/usr/bin/rpm-ostree", include_str!("fakes/rpm-ostree"));
    let release = "ID=rhel\\nVARIANT_ID=coreos\\nPRETTY_NAME=\"RHCOS 9.6\"\\n";
    machine.sh(&format!("rm /etc/os-release && printf '{release}' >/etc/os-release")).unwrap();
    machine.write_file("/var/fakes/booted", A).unwrap();
    machine.reboot().unwrap();
    site.join(&machine);
    site.wait_done(&machine, "mco-empty-mc");
    assert_eq!(status(&machine)["os"]["backEnd"], "rpm-ostree");
    let calls = || read(&machine, "/var/fakes/calls");

    // Downloaded before the drain; image and kernel arguments with one restart.
    let boots = machine.boots();
    let mut spec = arguments(&["x=1", "y"], "one\n");
    spec["osImageURL"] = json!(B);
    let config = site.apply_config_spec("50-os", &spec);
    site.wait_done(&machine, &config);
    assert_eq!(machine.boots(), boots + 1);
    let rebase = "rebase --experimental";
    let image = format!("ostree-unverified-registry:{B}");
    let expected = format!(
        "{rebase} --download-only {image}\ncleanup -p\n{rebase} {image}\nkargs --append=x=1 --append=y\n"
    );
    assert_eq!(calls(), expected);
    let system = status(&machine)["os"].clone();
    assert_eq!(system["status"]["booted"]["image"], B, "{system}");

    layered(&site, &machine);
    let boots = machine.boots();

    // What gets lost on the way down is staged once more.
    machine.sh("rm /var/fakes/calls; touch /var/fakes/lose-staged").unwrap();
    let mut spec = arguments(&["x=2"], "two\n");
    spec["osImageURL"] = json!(B);
    let config = site.apply_config_spec("50-os", &spec);
    site.wait_done(&machine, &config);
    assert_eq!(machine.boots(), boots + 2);
    let kargs = "cleanup -p\nkargs --delete-if-present=x=1 --delete-if-present=y --append=x=2\n";
    assert_eq!(calls(), kargs.repeat(2));

    // A call that fails drops what is staged, and the files go back.
    machine.sh("rm /var/fakes/calls; touch /var/fakes/kargs-fail").unwrap();
    let mut spec = arguments(&["x=3"], "three\n");
    spec["osImageURL"] = json!(A);
    let config = site.apply_config_spec("50-os", &spec);
    wait_reason(&site, &machine, "Degraded", "no space left");
    machine.wait_for("the way back", |m| Ok(read(m, "/etc/motd") == "two\n")).unwrap();
    assert!(!machine.exists("/var/fakes/staged").unwrap());
    machine.sh("rm /var/fakes/kargs-fail").unwrap();
    site.wait_done(&machine, &config);
    assert_eq!(status(&machine)["os"]["status"]["booted"]["image"], A);

    // One that the boot loader does not take is gone back from, by itself and for good.
    let boots = machine.boots();
    machine.sh("touch /var/fakes/falls-back").unwrap();
    let mut spec = arguments(&["x=3"], "four\n");
    spec["osImageURL"] = json!(B);
    site.apply_config_spec("50-os", &spec);
    wait_reason(&site, &machine, "Degraded", "expected target osImageURL");
    machine.wait_for("the way back", |m| Ok(read(m, "/etc/motd") == "three\n")).unwrap();
    site.wait_state(&machine, "Degraded", |site, name| {
        Ok(site.annotation(name, "lastAppliedDrain").starts_with("uncordon-"))
    });
    assert_eq!(machine.boots(), boots + 2);
    assert!(read(&machine, "/proc/cmdline").contains("x=3"));

    // What only another kind of machine can do is refused.
    machine.sh("rm /var/fakes/falls-back").unwrap();
    let mut spec = arguments(&["x=3"], "five\n");
    spec["kernelType"] = json!("64k-pages");
    spec["osImageURL"] = json!(A);
    site.apply_config_spec("50-os", &spec);
    wait_reason(&site, &machine, "Unreconcilable", "64k-pages is only supported for aarch64");
    assert_eq!(read(&machine, "/etc/motd"), "three\n");
}
