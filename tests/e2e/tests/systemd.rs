//! The daemon's systemd client against a real systemd: on the machine itself, and from outside through the machine's
//! root, as a daemon in a pod uses it.
use self::client::{Systemd, TransientUnit};
use futures::future::join_all;
use machinist_e2e::{Lab, Machine, block_on, command};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

// Only this module: building the whole binary again would take a minute.
#[path = "../../../crates/machinist/src/daemon/systemd/mod.rs"]
mod client;

const CLOCK: &str =
    "[Service]\nExecStart=/bin/sleep infinity\nExecReload=/bin/touch /run/reloaded\n";
const PLAIN: &str = "[Service]\nExecStart=/bin/sleep infinity\n";
const BROKEN: &str = "[Service]\nType=oneshot\nExecStart=/bin/false\n";
const SLOW: &str = "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/sleep 0.5\n";

/// Where the machine finds this test binary.
const INSIDE: &str = "/usr/local/bin/inside";

fn machine(lab: &Lab) -> Machine {
    let unit = |name: &str| format!("/etc/systemd/system/{name}.service");
    let builder = lab.machine("a").file(&unit("clock"), CLOCK).file(&unit("plain"), PLAIN);
    let builder = builder.bind_ro(&std::env::current_exe().unwrap(), INSIDE);
    builder.file(&unit("broken"), BROKEN).file(&unit("slow"), SLOW).boot().unwrap()
}

async fn connect(root: &Path) -> Systemd {
    Systemd::connect(root).await.unwrap().unwrap()
}

/// The life of a unit, and everything that can go wrong with it. `sh` runs a script on the machine.
async fn check_unit_lifecycle(sh: &dyn Fn(&str) -> String, systemd: &Systemd) {
    systemd.start("clock").await.unwrap();
    assert_eq!(systemd.active_state("clock.service").await.unwrap(), "active");
    let pid = || sh("systemctl show -P MainPID clock.service");
    let first = pid();
    sh("! test -e /run/reloaded");
    systemd.reload("clock.service").await.unwrap();
    sh("test -e /run/reloaded");
    assert_eq!(pid(), first);
    systemd.restart("clock.service").await.unwrap();
    assert_ne!(pid(), first);
    systemd.stop("clock.service").await.unwrap();
    assert_eq!(systemd.active_state("clock.service").await.unwrap(), "inactive");
    sh("rm /run/reloaded");

    // The client waits until a job is complete.
    systemd.start("slow").await.unwrap();
    sh("systemctl is-active slow");
    systemd.stop("slow").await.unwrap();

    let error = format!("{:#}", systemd.start("broken").await.unwrap_err());
    assert!(error.starts_with("Failed to start broken.service: the job ended with"), "{error}");
    assert!(error.contains("\"failed\"") && error.contains("systemctl status broken"), "{error}");
    assert_eq!(systemd.active_state("broken").await.unwrap(), "failed");
    systemd.reset_failed("broken").await.unwrap();
    assert_eq!(systemd.active_state("broken").await.unwrap(), "inactive");
    systemd.reset_failed("nothing").await.unwrap();
    assert_eq!(systemd.restarts("broken").await.unwrap(), 0);
    assert_eq!(systemd.load_state("broken").await.unwrap(), "loaded");
    assert_eq!(systemd.load_state("nothing").await.unwrap(), "not-found");
    sh("systemctl reset-failed");
    let error = format!("{:#}", systemd.restart("nothing.service").await.unwrap_err());
    assert_eq!(error, "Failed to restart nothing.service: Unit nothing.service not found.");
    let error = format!("{:#}", systemd.reload("plain.service").await.unwrap_err());
    assert!(error.contains("Job type reload is not applicable"), "{error}");
    assert_eq!(systemd.active_state("nothing.service").await.unwrap(), "inactive");

    // A new unit file is seen after a daemon-reload.
    sh("printf '[Service]\\nExecStart=/bin/sleep 1d\\n' >/etc/systemd/system/plain.service");
    systemd.daemon_reload().await.unwrap();
    systemd.start("plain").await.unwrap();
    assert!(sh("systemctl show -P ExecStart plain").contains("sleep 1d"));
    systemd.stop("plain").await.unwrap();
}

#[test]
fn a_root_without_systemd_has_none_and_an_unresponsive_one_is_an_error() {
    let lab = Lab::new().unwrap();
    let root = lab.create_dir("root").unwrap();
    assert!(block_on(Systemd::connect(&root)).unwrap().is_none());
    fs::create_dir_all(root.join("run/systemd/system")).unwrap();
    let error = block_on(Systemd::connect(&root)).unwrap_err().to_string();
    assert!(error.contains("/run/systemd/private: No such file"), "{error}");
    assert!(
        error.contains("/run/dbus/system_bus_socket") && error.contains("run as root"),
        "{error}"
    );
}

#[test]
fn units_are_reloaded_restarted_and_queried_on_the_machine_and_through_its_root() {
    let lab = Lab::new().unwrap();
    let machine = machine(&lab);
    // Over the message bus.
    let bus = lab.create_dir("bus").unwrap();
    fs::create_dir_all(bus.join("run/systemd/system")).unwrap();
    symlink(machine.root().unwrap().join("run/dbus"), bus.join("run/dbus")).unwrap();
    let sh = |script: &str| machine.sh(script).unwrap();
    block_on(async { check_unit_lifecycle(&sh, &connect(&bus).await).await });
    // Over systemd's private socket, where no bus runs.
    machine.sh("systemctl stop dbus.socket dbus.service").unwrap();
    let test = [INSIDE, "--ignored", "--exact", "systemd::inside_machine", "--nocapture"];
    let output = machine.exec(&test).unwrap();
    assert!(output.succeeded() && output.stdout.contains("1 passed"), "{output:?}");
}

#[test]
#[ignore = "the test before this one runs it inside its machine"]
fn inside_machine() {
    let sh = |script: &str| command::run_args("sh", ["-ec", script]).unwrap();
    block_on(async { check_unit_lifecycle(&sh, &connect(Path::new("/")).await).await });
}

#[test]
fn a_transient_command_can_reboot_the_machine() {
    let lab = Lab::new().unwrap();
    let machine = machine(&lab);
    let root = machine.root().unwrap();
    let errand = "systemctl show -P Description errand >/run/errand; exec sleep 1d";
    block_on(async {
        let systemd = connect(&root).await;
        let unit = TransientUnit {
            name: "errand",
            description: "an errand of the test",
            command: &["/bin/sh", "-c", errand],
            requires: &["clock.service"],
            after: &["clock.service"],
            ..TransientUnit::default()
        };
        systemd.run_transient(&unit).await.unwrap();
        assert_eq!(systemd.active_state("clock").await.unwrap(), "active");
        let is_done = |machine: &Machine| machine.read_file("/run/errand").unwrap_or_default();
        let text = b"an errand of the test\n";
        machine.wait_for("the errand", |machine| Ok(is_done(machine) == text)).unwrap();
        let error = format!("{:#}", systemd.run_transient(&unit).await.unwrap_err());
        let expected = "Failed to start transient unit errand.service: Unit errand.service was";
        assert!(error.starts_with(expected), "{error}");
        drop(systemd);
        assert_eq!(connect(&root).await.active_state("errand").await.unwrap(), "active");

        // To completion, with its result.
        let run = async |script: &str, limit: Duration| {
            let command = ["/bin/sh", "-c", script];
            let unit =
                TransientUnit { name: "check", command: &command, ..TransientUnit::default() };
            connect(&root).await.run_and_wait(&unit, limit).await
        };
        let limit = Duration::from_secs(20);
        run("sleep 0.3; touch /run/ended", limit).await.unwrap();
        assert!(machine.exists("/run/ended").unwrap());
        let error = format!("{:#}", run("exit 3", limit).await.unwrap_err());
        assert!(error.contains("the result \"failed\": see \"systemctl status check"), "{error}");
        // A command that exceeds its timeout is stopped and counts as failed.
        let ended = run("sleep 1d; touch /run/endless", Duration::from_millis(300)).await;
        assert!(format!("{:#}", ended.unwrap_err()).contains("the result \"failed\""));

        // Many at once, each on its own connection: all receive the signals of all jobs, and none is blocked.
        let ends = join_all((0..100).map(|number| {
            let root = &root;
            async move {
                let (name, command) = (format!("many-{number}"), ["/bin/true"]);
                let unit =
                    TransientUnit { name: &name, command: &command, ..TransientUnit::default() };
                connect(root).await.run_transient(&unit).await
            }
        }));
        for end in ends.await {
            end.unwrap();
        }
    });
    let reboot = TransientUnit {
        name: "machine-config-daemon-reboot",
        description: "machine-config-daemon: a test",
        command: &["/bin/sh", "-c", "systemctl reboot"],
        ..TransientUnit::default()
    };
    let run = |_: &Machine| block_on(async { connect(&root).await.run_transient(&reboot).await });
    machine.wait_for_reboot_during(run).unwrap();
}
