//! kubectl 1.26, which validates and applies with the OpenAPI 2 document of the server.

use machinist_e2e::api_server::ApiServer;
use machinist_e2e::{cache, command};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const POOL: &str = "\
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfigPool
metadata: {name: old}
spec: {paused: PAUSED, nodeSelector: {matchLabels: {a: b}}}
";

fn build(dir: &Path) -> PathBuf {
    let binary = dir.join("old-kubectl");
    let mut go = Command::new("go");
    go.current_dir(cache::source_root().join("tests/e2e/old-kubectl"));
    go.env("CGO_ENABLED", "0").env("GOFLAGS", "-mod=readonly -buildvcs=false");
    command::run(go.args(["build", "-o"]).arg(&binary).arg(".")).unwrap();
    binary
}

fn check(api_server: &ApiServer) {
    let binary = build(api_server.dir());
    let run = |arguments: &[&str]| {
        let mut kubectl = Command::new(&binary);
        kubectl.env("KUBECONFIG", api_server.kubeconfig()).env("HOME", api_server.dir());
        command::output(kubectl.args(arguments)).unwrap()
    };
    let file = api_server.dir().join("old.yaml");
    let path = file.to_str().unwrap();
    for (paused, expected) in [("true", "created"), ("true", "unchanged"), ("false", "configured")]
    {
        fs::write(&file, POOL.replace("PAUSED", paused)).unwrap();
        let output = run(&["apply", "-f", path]);
        assert!(output.succeeded() && output.stdout.contains(expected), "{output:?}");
    }
    let output = run(&["explain", "machineconfigpools.spec.paused"]);
    assert!(output.stdout.contains("paused <boolean>"), "{output:?}");
    fs::write(&file, POOL.replace("paused: PAUSED", "pausedd: true")).unwrap();
    let output = run(&["apply", "-f", path]);
    assert!(output.stderr.contains("unknown field \"spec.pausedd\""), "{output:?}");
    fs::write(&file, "apiVersion: example.com/v1\nkind: Foo\nmetadata: {name: x}\n").unwrap();
    let output = run(&["apply", "-f", path]);
    assert!(output.stderr.contains("ensure CRDs are installed first"), "{output:?}");
}

#[test]
#[ignore = "nightly: builds kubectl 1.26, which takes minutes"]
fn kubectl_1_26_works_as_on_kube_apiserver() {
    check(&ApiServer::kubernetes().unwrap());
    check(&ApiServer::hub().unwrap());
}
