//! Working without kubectl, on both API servers: `machinist get|apply|delete|describe|label|annotate|wait` compared to
//! the real kubectl.
mod apply_and_delete;
mod get_and_describe;
mod wait;

use machinist_e2e::command::ExitOutput;
use machinist_e2e::{ApiServer, Lab, binary};
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

/// The path of the pools.
pub const POOLS: &str = "/apis/machineconfiguration.openshift.io/v1/machineconfigpools";

/// Runs `machinist`, which must succeed.
#[track_caller]
pub fn machinist(api_server: &ApiServer, arguments: &[&str]) -> String {
    let output = api_server.machinist(arguments).unwrap();
    assert!(output.succeeded(), "{}: machinist {arguments:?}: {output:?}", api_server.name);
    output.stdout
}

/// Runs `machinist`, which must exit with this code. Returns its output.
#[track_caller]
pub fn machinist_fails(api_server: &ApiServer, arguments: &[&str], code: i32) -> String {
    let output = api_server.machinist(arguments).unwrap();
    assert_eq!(output.code, code, "{}: machinist {arguments:?}: {output:?}", api_server.name);
    output.stderr
}

/// Runs the real kubectl, which must succeed.
#[track_caller]
pub fn kubectl(api_server: &ApiServer, arguments: &[&str]) -> String {
    let output = api_server.kubectl(arguments).unwrap();
    assert!(output.succeeded(), "{}: kubectl {arguments:?}: {output:?}", api_server.name);
    output.stdout
}

/// Writes a manifest for both commands.
pub fn manifest(api_server: &ApiServer, name: &str, text: &str) -> String {
    let path = api_server.dir().join(name);
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Every example in a `--help` works as it stands.
fn examples(api_server: &ApiServer) {
    for command in ["apply", "get", "describe", "label", "annotate", "wait", "delete"] {
        let help = machinist(api_server, &[command, "--help"]);
        let mut lines = help.lines().filter_map(|line| line.strip_prefix("  machinist "));
        let example = lines.next().unwrap_or_else(|| panic!("{command}: no example in:\n{help}"));
        let args: Vec<&str> = example.split(' ').collect();
        assert!(!machinist(api_server, &args).is_empty(), "{example}");
    }
}

fn run_checks(api_server: &ApiServer) {
    examples(api_server);
    apply_and_delete::run_checks(api_server);
    get_and_describe::run_checks(api_server);
    wait::run_checks(api_server);
}

#[test]
fn kubectl_parity_on_kube_apiserver() {
    run_checks(&ApiServer::kubernetes().unwrap());
}

#[test]
fn kubectl_parity_on_the_hub() {
    let api_server = ApiServer::hub().unwrap();
    run_checks(&api_server);
    finds_the_hub(&api_server);
}

/// Runs `machinist` without a kubeconfig in its environment.
fn machinist_without_kubeconfig(state_home: &std::path::Path, arguments: &[&str]) -> ExitOutput {
    let mut command = Command::new(binary::machinist_binary().unwrap());
    command.env_remove("KUBECONFIG").env("HOME", "/nonexistent").env("XDG_STATE_HOME", state_home);
    command.env_remove("KUBERNETES_SERVICE_HOST").args(arguments);
    machinist_e2e::command::output(&mut command).unwrap()
}

/// A hub on the same host needs no kubeconfig.
fn finds_the_hub(api_server: &ApiServer) {
    let state_home = api_server.kubeconfig().ancestors().nth(2).unwrap();
    let found = machinist_without_kubeconfig(state_home, &["get", "mcp", "-o", "name"]);
    assert_eq!(found.stdout, machinist(api_server, &["get", "mcp", "-o", "name"]), "{found:?}");
    let named = api_server.kubeconfig().to_str().unwrap();
    let missing = api_server.dir().join("nowhere");
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
    // Nothing listens there: the error is immediate and names the address.
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
    // A stopped hub is skipped, and the error says so.
    let dir = lab.create_dir("state/machinist").unwrap();
    fs::rename(&file, dir.join("kubeconfig")).unwrap();
    let stopped = machinist_without_kubeconfig(&state_home, &["get", "mcp"]);
    assert!(stopped.stderr.contains("nothing listens on"), "{stopped:?}");
}
