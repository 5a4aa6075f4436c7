//! The power fails at every step of a change: the machine boots either the old system or the new one.

use super::fixture::{ImageFixture, machinist_os_succeeds, second_image, status, version};
use machinist_e2e::{Machine, measurements};

/// Replaces `ostree`, `skopeo` and `systemctl`: stops before the step that a file names, so that the power can be cut
/// exactly there.
const STEP: &str = r#"#!/bin/sh
name=$(basename "$0")
case "$name $*" in
    "ostree commit"*|"ostree admin deploy"*|"ostree admin cleanup"*|skopeo*|"systemctl start"*|"ostree refs"*)
        count=$(($(cat /run/steps 2>/dev/null || echo 0) + 1))
        echo $count >/run/steps
        if [ "$count" = "$(cat /run/stop-before 2>/dev/null)" ]; then
            echo "$name $1 $2" >/run/stopped
            exec sleep infinity
        fi;;
esac
exec "/usr/bin/$name" "$@"
"#;

/// Replaces `ostree commit`: stops when some of the files have moved into the repository.
const HALFWAY: &str = r#"#!/bin/sh
[ "$1" = commit ] || exec /usr/bin/ostree "$@"
count() { find /var/lib/machinist/images/*/tree/usr -type f | wc -l; }
all=$(count)
/usr/bin/ostree "$@" &
while [ "$(count)" -gt $((all - 200)) ]; do kill -0 $! || exit 1; done
kill -STOP $!
echo commit >/run/stopped
exec sleep infinity
"#;

/// Starts a change that will stop, and cuts the power when it has. Returns the step, or `None` if the change completed.
fn cut_before(machine: &Machine, step: usize, args: &[&str]) -> Option<String> {
    machine.sh(&format!("rm -f /run/steps /run/stopped; echo {step} >/run/stop-before")).unwrap();
    let args = [&["machinist", "os"], args].concat();
    let mut change = machine.command_inside(&args).unwrap();
    let mut change = change.stdout(std::process::Stdio::null()).spawn().unwrap();
    let mut ended = None;
    let stopped = machine.wait_within(std::time::Duration::from_secs(180), "the step", |m| {
        ended = change.try_wait()?;
        Ok(ended.is_some() || m.exists("/run/stopped")?)
    });
    stopped.unwrap();
    if let Some(end) = ended {
        assert!(end.success(), "{end:?}");
        return None;
    }
    let at = machine.sh("cat /run/stopped").unwrap().trim().to_owned();
    machine.power_cut().unwrap();
    let _ = change.wait();
    machine.power_on().unwrap();
    Some(at)
}

fn put_steps(machine: &Machine) {
    for name in ["ostree", "skopeo", "systemctl"] {
        machine.write_executable(&format!("/var/usrlocal/bin/{name}"), STEP).unwrap();
    }
    machine.sh("sync").unwrap();
}

#[test]
fn a_power_cut_at_any_step_leaves_the_old_or_the_new_system() {
    let fixture = ImageFixture::new();
    let machine = fixture.machine().disk(4096).boot().unwrap();
    let before = status(&machine);
    let image = fixture.push("os/debian:2", &second_image());
    put_steps(&machine);
    let change = ["stage", "--image", &image, "--append", "testkit.second=2"];
    let mut cut_points = Vec::new();
    // One step further each time.
    let mut step = 1;
    while let Some(at) = cut_before(&machine, step, &change) {
        assert_eq!(version(&machine), "v1", "{at}");
        assert_eq!(status(&machine)["booted"], before["booted"], "{at}");
        assert_eq!(status(&machine)["next"], serde_json::Value::Null, "{at}");
        step += 1;
        if at.starts_with("ostree commit") {
            cut_halfway(&machine, &image);
            machinist_os_succeeds(&machine, &["fetch", &image]);
            // From here on the image is complete.
            step = 1;
        }
        cut_points.push(at);
        assert!(cut_points.len() < 10, "{cut_points:?}");
    }
    measurements::record("os-power-cuts", cut_points.len()).unwrap();
    for expected in
        ["skopeo inspect", "skopeo copy", "ostree commit", "ostree admin deploy", "systemctl start"]
    {
        assert!(
            cut_points.iter().any(|cut_point| cut_point.starts_with(expected)),
            "{expected}: {cut_points:?}"
        );
    }
    machine.reboot().unwrap();
    assert_eq!(version(&machine), "v2");

    // What was staged is lost with the power; what was deployed immediately is not.
    let checksum = before["booted"]["checksum"].as_str().unwrap();
    machinist_os_succeeds(&machine, &["stage", "--checksum", checksum]);
    machine.power_cut().unwrap();
    machine.power_on().unwrap();
    assert_eq!(version(&machine), "v2");
    machinist_os_succeeds(&machine, &["stage", "--now", "--checksum", checksum]);
    machine.power_cut().unwrap();
    machine.power_on().unwrap();
    assert_eq!(version(&machine), "v1");
}

/// Cuts the power while files are moved into the repository.
fn cut_halfway(machine: &Machine, image: &str) {
    machine.write_executable("/var/usrlocal/bin/ostree", HALFWAY).unwrap();
    machine.sh("sync").unwrap();
    let at = cut_before(machine, 0, &["fetch", image]);
    assert_eq!(at.as_deref(), Some("commit"));
    assert_eq!(version(machine), "v1");
    put_steps(machine);
    assert!(machine.exec(&["ostree", "fsck", "--quiet"]).unwrap().succeeded());
}
