//! The comfort without kubectl, on both homes: `machinist get|apply|delete|describe|label|annotate|wait`
//! beside the real kubectl.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    unreachable_pub,
    reason = "helpers of tests may panic as tests do, and nothing of a test is reachable"
)]

mod apply_and_delete;
mod get_and_describe;
mod wait;

use machinist_e2e::command::ExitOutput;
use machinist_e2e::{ApiServer, Lab, binary};
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

/// Where pools are.
pub const POOLS: &str = "/apis/machineconfiguration.openshift.io/v1/machineconfigpools";

/// Runs our program; it has to succeed.
#[track_caller]
pub fn machinist(home: &ApiServer, arguments: &[&str]) -> String {
    let answer = home.machinist(arguments).unwrap();
    assert!(answer.succeeded(), "{}: machinist {arguments:?}: {answer:?}", home.name);
    answer.stdout
}

/// Runs our program; it has to end with this code. What it says is given.
#[track_caller]
pub fn machinist_fails(home: &ApiServer, arguments: &[&str], code: i32) -> String {
    let answer = home.machinist(arguments).unwrap();
    assert_eq!(answer.code, code, "{}: machinist {arguments:?}: {answer:?}", home.name);
    answer.stderr
}

/// Runs the real kubectl; it has to succeed.
#[track_caller]
pub fn kubectl(home: &ApiServer, arguments: &[&str]) -> String {
    let answer = home.kubectl(arguments).unwrap();
    assert!(answer.succeeded(), "{}: kubectl {arguments:?}: {answer:?}", home.name);
    answer.stdout
}

/// Writes a manifest for both programs to read.
pub fn manifest(home: &ApiServer, name: &str, text: &str) -> String {
    let path = home.dir().join(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Every example in a `--help` works as it stands.
fn examples(home: &ApiServer) {
    for command in ["apply", "get", "describe", "label", "annotate", "wait", "delete"] {
        let help = machinist(home, &[command, "--help"]);
        let mut lines = help.lines().filter_map(|line| line.strip_prefix("  machinist "));
        let example = lines.next().unwrap_or_else(|| panic!("{command}: no example in:\n{help}"));
        let words: Vec<&str> = example.split(' ').collect();
        assert!(!machinist(home, &words).is_empty(), "{example}");
    }
}

fn run_checks(home: &ApiServer) {
    examples(home);
    apply_and_delete::run_checks(home);
    get_and_describe::run_checks(home);
    wait::run_checks(home);
}

#[test]
fn kubectl_parity_on_kube_apiserver() {
    run_checks(&ApiServer::kubernetes().unwrap());
}

#[test]
fn kubectl_parity_on_the_hub() {
    let home = ApiServer::hub().unwrap();
    run_checks(&home);
    finds_the_hub(&home);
}

/// Our program without any kubeconfig in its environment.
fn machinist_without_kubeconfig(state_home: &std::path::Path, arguments: &[&str]) -> ExitOutput {
    let mut command = Command::new(binary::machinist_binary().unwrap());
    command.env_remove("KUBECONFIG").env("HOME", "/nonexistent").env("XDG_STATE_HOME", state_home);
    command.env_remove("KUBERNETES_SERVICE_HOST").args(arguments);
    machinist_e2e::command::output(&mut command).unwrap()
}

/// A hub that runs on this machine needs no kubeconfig.
fn finds_the_hub(home: &ApiServer) {
    let state_home = home.kubeconfig().ancestors().nth(2).unwrap();
    let found = machinist_without_kubeconfig(state_home, &["get", "mcp", "-o", "name"]);
    assert_eq!(found.stdout, machinist(home, &["get", "mcp", "-o", "name"]), "{found:?}");
    let named = home.kubeconfig().to_str().unwrap();
    let missing = home.dir().join("nowhere");
    let found = machinist_without_kubeconfig(
        &missing,
        &["get", "--kubeconfig", named, "--context", "machinist", "mcp"],
    );
    assert!(found.succeeded(), "{found:?}");
    let wrong = machinist_without_kubeconfig(
        &missing,
        &["get", "--kubeconfig", named, "--context", "other", "mcp"],
    );
    assert_eq!(wrong.code, 1);
    let wrong = machinist_without_kubeconfig(state_home, &["get", "--context", "other", "mcp"]);
    assert!(wrong.stderr.contains("has no context other"), "{wrong:?}");
}

#[test]
fn without_an_api_server_the_error_says_what_to_do() {
    let lab = Lab::new().unwrap();
    let state_home = lab.create_dir("state").unwrap();
    let none = machinist_without_kubeconfig(&state_home, &["get", "mcp"]);
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
    let dead = machinist_without_kubeconfig(
        &state_home,
        &["get", "mcp", "--kubeconfig", file.to_str().unwrap()],
    );
    assert_eq!(dead.code, 1);
    for part in [server.as_str(), "does not answer", "machinist up"] {
        assert!(dead.stderr.contains(part), "{part}: {dead:?}");
    }
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    // A hub that was stopped is passed over, and told.
    let folder = lab.create_dir("state/machinist").unwrap();
    fs::rename(&file, folder.join("kubeconfig")).unwrap();
    let stopped = machinist_without_kubeconfig(&state_home, &["get", "mcp"]);
    assert!(stopped.stderr.contains("nothing listens on"), "{stopped:?}");
}
