//! After a crash at any point of `join` or `leave`, the machine is in a state that the command knows, and running it again
//! leads to the same end as without the crash.

use std::path::Path;
use std::process::{Command, Output};

use crate::once::fixture::{OnceFixture, TreeSnapshot, difference, everything};
use crate::up::{UpProcess, join_command, machinist};

/// Names the point at which the process dies.
const FAULT: &str = "MACHINIST_FAULT_POINT";
/// The identity differs with each join.
const KUBECONFIG: &str = "/var/lib/machinist/kubeconfig";

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn leave_command(root: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_machinist"));
    command.args(["leave", "--root"]).arg(root);
    command
}

/// A hub, and what machines join it with.
struct Hub {
    data: tempfile::TempDir,
    token: String,
    _up: UpProcess,
}

impl Hub {
    fn start() -> Self {
        let data = tempfile::tempdir().unwrap();
        let up = UpProcess::start(data.path(), &[]);
        let path = data.path().to_str().unwrap();
        let output = machinist(&["hub", "token", "--data-dir", path, "--role", "bootstrap"]);
        let token = String::from_utf8(output.stdout).unwrap().trim().to_owned();
        Self { data, token, _up: up }
    }

    fn join(&self, site: &OnceFixture, name: &str) -> Command {
        join_command(self.data.path(), &self.token, site.root(), name, "worker")
    }
}

/// A snapshot without what differs between two machines.
fn comparable(site: &OnceFixture, name: &str) -> TreeSnapshot {
    let unit = "/etc/systemd/system/machinist-daemon.service";
    let mut found = site.snapshot();
    if site.path(unit).exists() {
        found.insert(unit.to_owned(), site.read(unit).replace(name, "NAME"));
    }
    for path in [KUBECONFIG, "/var/lib/machinist/last-good"] {
        found.entry(path.to_owned()).and_modify(|entry| entry.truncate(6));
    }
    found
}

#[test]
fn a_join_that_was_interrupted_anywhere_is_completed_by_the_next_one() {
    let hub = Hub::start();
    let whole = OnceFixture::new();
    let output = hub.join(&whole, "whole").output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let expected = comparable(&whole, "whole");
    let mut point = 1;
    loop {
        let (site, name) = (OnceFixture::new(), format!("w{point}"));
        let output = hub.join(&site, &name).env(FAULT, point.to_string()).output().unwrap();
        if output.status.success() {
            break;
        }
        assert_eq!(output.status.code(), None, "point {point}: {}", stderr(&output));
        let again = hub.join(&site, &name).output().unwrap();
        assert!(again.status.success(), "point {point}: {}", stderr(&again));
        let differences = difference(&expected, &comparable(&site, &name));
        assert_eq!(differences, Vec::<String>::new(), "point {point}");
        let status = machinist(&["daemon", "status", "--root", site.root().to_str().unwrap()]);
        assert_eq!(status.status.code(), Some(0), "point {point}: {status:?}");
        point += 1;
    }
    println!("{} points", point - 1);
    assert!(point > 8, "{point}");
}

#[test]
fn a_leave_that_was_interrupted_anywhere_is_completed_by_the_next_one() {
    let hub = Hub::start();
    let [config, _] = everything();
    let mut expected = None;
    let mut point = 1;
    loop {
        let (site, name) = (OnceFixture::new(), format!("w{point}"));
        let before = site.snapshot();
        let joined = hub.join(&site, &name).output().unwrap();
        assert!(joined.status.success(), "point {point}: {}", stderr(&joined));
        site.apply(&config);
        if expected.is_none() {
            let reference = OnceFixture::new();
            assert!(hub.join(&reference, "whole").output().unwrap().status.success());
            reference.apply(&config);
            assert!(leave_command(reference.root()).output().unwrap().status.success());
            let left = reference.snapshot();
            assert_eq!(difference(&before, &left), Vec::<String>::new());
            expected = Some(left);
        }
        let output = leave_command(site.root()).env(FAULT, point.to_string()).output().unwrap();
        if output.status.success() {
            break;
        }
        assert_eq!(output.status.code(), None, "point {point}: {}", stderr(&output));
        let again = leave_command(site.root()).output().unwrap();
        let has_left = stderr(&again).contains("this machine has not joined");
        assert!(again.status.success() || has_left, "point {point}: {}", stderr(&again));
        let mut found = site.snapshot();
        // Empty: whoever leaves it does no harm.
        found.remove("/var/lib/machinist");
        let differences = difference(expected.as_ref().unwrap(), &found);
        assert_eq!(differences, Vec::<String>::new(), "point {point}");
        point += 1;
    }
    println!("{} points", point - 1);
    assert!(point > 40, "{point}");
}
