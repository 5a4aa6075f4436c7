//! The comfort without kubectl, on both homes: `machinist get|apply|delete|describe|label|annotate|wait`
//! beside the real kubectl.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    unreachable_pub,
    reason = "helpers of tests may panic as tests do, and nothing of a test is reachable"
)]

mod changes;
mod looks;
mod waits;

use machinist_e2e::command::Answer;
use machinist_e2e::{Home, Lab, program};
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

/// Where pools are.
pub const POOLS: &str = "/apis/machineconfiguration.openshift.io/v1/machineconfigpools";

/// Runs our program; it has to succeed.
#[track_caller]
pub fn machinist(home: &Home, arguments: &[&str]) -> String {
    let answer = home.machinist(arguments).unwrap();
    assert!(answer.ok(), "{}: machinist {arguments:?}: {answer:?}", home.name);
    answer.stdout
}

/// Runs our program; it has to end with this code. What it says is given.
#[track_caller]
pub fn refused(home: &Home, arguments: &[&str], code: i32) -> String {
    let answer = home.machinist(arguments).unwrap();
    assert_eq!(answer.code, code, "{}: machinist {arguments:?}: {answer:?}", home.name);
    answer.stderr
}

/// Runs the real kubectl; it has to succeed.
#[track_caller]
pub fn kubectl(home: &Home, arguments: &[&str]) -> String {
    let answer = home.kubectl(arguments).unwrap();
    assert!(answer.ok(), "{}: kubectl {arguments:?}: {answer:?}", home.name);
    answer.stdout
}

/// Writes a manifest for both programs to read.
pub fn manifest(home: &Home, name: &str, text: &str) -> String {
    let path = home.dir().join(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Every example in a `--help` works as it stands.
fn examples(home: &Home) {
    for command in ["apply", "get", "describe", "label", "annotate", "wait", "delete"] {
        let help = machinist(home, &[command, "--help"]);
        let mut lines = help.lines().filter_map(|line| line.strip_prefix("  machinist "));
        let example = lines.next().unwrap_or_else(|| panic!("{command}: no example in:\n{help}"));
        let words: Vec<&str> = example.split(' ').collect();
        assert!(!machinist(home, &words).is_empty(), "{example}");
    }
}

fn walk(home: &Home) {
    examples(home);
    changes::walk(home);
    looks::walk(home);
    waits::walk(home);
}

#[test]
fn a_real_kube_apiserver_is_as_comfortable() {
    walk(&Home::kubernetes().unwrap());
}

#[test]
fn the_hub_is_as_comfortable() {
    let home = Home::hub().unwrap();
    walk(&home);
    finds_the_hub(&home);
}

/// Our program without any kubeconfig in its environment.
fn bare(state_home: &std::path::Path, arguments: &[&str]) -> Answer {
    let mut command = Command::new(program::machinist().unwrap());
    command.env_remove("KUBECONFIG").env("HOME", "/nonexistent").env("XDG_STATE_HOME", state_home);
    command.env_remove("KUBERNETES_SERVICE_HOST").args(arguments);
    machinist_e2e::command::answer(&mut command).unwrap()
}

/// A hub that runs on this machine needs no kubeconfig.
fn finds_the_hub(home: &Home) {
    let state_home = home.kubeconfig().ancestors().nth(2).unwrap();
    let found = bare(state_home, &["get", "mcp", "-o", "name"]);
    assert_eq!(found.stdout, machinist(home, &["get", "mcp", "-o", "name"]), "{found:?}");
    let named = home.kubeconfig().to_str().unwrap();
    let missing = home.dir().join("nowhere");
    let found = bare(&missing, &["get", "--kubeconfig", named, "--context", "machinist", "mcp"]);
    assert!(found.ok(), "{found:?}");
    let wrong = bare(&missing, &["get", "--kubeconfig", named, "--context", "other", "mcp"]);
    assert_eq!(wrong.code, 1);
    let wrong = bare(state_home, &["get", "--context", "other", "mcp"]);
    assert!(wrong.stderr.contains("has no context other"), "{wrong:?}");
}

#[test]
fn without_a_home_the_error_says_what_to_do() {
    let lab = Lab::new().unwrap();
    let state_home = lab.folder("state").unwrap();
    let none = bare(&state_home, &["get", "mcp"]);
    assert_eq!(none.code, 1);
    for part in ["machinist/kubeconfig", ".kube/config", "machinist up", "--kubeconfig"] {
        assert!(none.stderr.contains(part), "{part}: {none:?}");
    }
    // Nothing listens there: told at once, with the address.
    let server = format!("https://{}:1", lab.loopback());
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\n\
         clusters: [{{name: a, cluster: {{server: '{server}'}}}}]\n\
         contexts: [{{name: a, context: {{cluster: a, user: a}}}}]\nusers: [{{name: a, user: {{}}}}]\n"
    );
    let file = lab.dir().join("dead.kubeconfig");
    fs::write(&file, text).unwrap();
    let start = Instant::now();
    let dead = bare(&state_home, &["get", "mcp", "--kubeconfig", file.to_str().unwrap()]);
    assert_eq!(dead.code, 1);
    for part in [server.as_str(), "does not answer", "machinist up"] {
        assert!(dead.stderr.contains(part), "{part}: {dead:?}");
    }
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    // A hub that was stopped is passed over, and told.
    let folder = lab.folder("state/machinist").unwrap();
    fs::rename(&file, folder.join("kubeconfig")).unwrap();
    let stopped = bare(&state_home, &["get", "mcp"]);
    assert!(stopped.stderr.contains("nothing listens on"), "{stopped:?}");
}
