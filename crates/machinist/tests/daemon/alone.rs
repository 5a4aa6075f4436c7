//! A machine that is a directory: no systemd ends its daemon when it leaves, and it cannot reboot.

use super::fixture::{DaemonFixture, DaemonProcess, wait_until};
use crate::up::machinist;

#[test]
fn a_directory_refuses_a_reboot_and_its_daemon_ends_when_it_leaves() {
    let fixture = DaemonFixture::start();
    let root = fixture.join("a");
    let mut daemon = DaemonProcess::start(&root, "a");
    fixture.wait_done("a");
    wait_until("the abilities of the host", || {
        match fixture.annotation("a", "machinist.dev/host") {
            report if report.contains(r#""init":"none""#) => Ok(()),
            report => Err(report),
        }
    });
    let kubeconfig = fixture.data().join("kubeconfig");
    let refused = machinist(&["reboot", "a", "--kubeconfig", kubeconfig.to_str().unwrap()]);
    let error = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
    assert!(error.contains("a cannot reboot: no systemd runs on it"), "{error}");

    // Whoever writes the annotation by hand gets an event, not a degraded machine.
    fixture.machinist(&["annotate", "node", "a", "machinist.dev/reboot-requested=now"]);
    let event = fixture.wait_for_event("a", "RebootRefused");
    assert!(event.contains("the request was removed"), "{event}");
    assert_eq!(fixture.annotation("a", "machinist.dev/reboot-requested"), "");
    fixture.wait_done("a");

    let left = machinist(&["leave", "--root", root.to_str().unwrap()]);
    assert!(left.status.success(), "{left:?}");
    let text = String::from_utf8_lossy(&left.stdout);
    assert!(text.contains("a has left; Node: removed"), "{text}");
    // It has released its lock before `leave` went on; its exit follows.
    wait_until("the end of the daemon", || match daemon.has_ended() {
        true => Ok(()),
        false => Err("it runs".to_owned()),
    });
    assert!(!root.join("run/machinist/daemon.lock").exists());

    // Nothing of the last time ends the next daemon.
    fixture.join("a");
    let mut daemon = DaemonProcess::start(&root, "a");
    fixture.wait_done("a");
    std::thread::sleep(std::time::Duration::from_millis(1500));
    daemon.assert_runs();
}
