//! A disk that does not answer: the daemon cannot end the call, but says so, and goes on when the disk answers.

use super::fixture::{InterferenceFixture, NODE};
use super::host_faults::host_pid;
use machinist_e2e::environment::find_tool;
use machinist_e2e::wait_for;
use std::fs;
use std::process::{Child, Command, Stdio};

/// Lets every sync of a process wait for as long as this lives.
struct StalledSyncs(Child);

impl StalledSyncs {
    fn of(pid: u32) -> Self {
        let mut strace = Command::new(find_tool("strace").unwrap());
        strace.args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync"]);
        strace.args(["-e", "inject=fsync:delay_enter=3600000000", "-p", &pid.to_string()]);
        Self(strace.stdin(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for StalledSyncs {
    fn drop(&mut self) {
        // The process goes on when its tracer is gone.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_disk_that_does_not_answer_is_reported_until_it_does() {
    let fixture = InterferenceFixture::start(None);
    let machine = &fixture.machine;
    fixture.desire("first", &[("/etc/one", "first\n")]);
    fixture.hub.wait_done(machine, "first");
    let pid = host_pid(machine);
    let stalled = StalledSyncs::of(pid);
    wait_for("the daemon to be traced", || {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        Ok(status.lines().any(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0")))
    })
    .unwrap();
    fixture.desire("second", &[("/etc/one", "second\n")]);
    fixture.wait_degraded(&["the disk has not answered for 60 s, at"]);
    // It is still there for everyone else.
    assert!(fixture.hub.is_ready(NODE));
    drop(stalled);
    fixture.hub.wait_done(machine, "second");
    assert_eq!(fixture.read("/etc/one"), "second\n");
    fixture.assert_daemon_never_exited();
}
