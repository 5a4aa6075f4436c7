//! `machinist up` from the outside: first start, second start, stop, backup and restore.
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use machinist_core::api::MachineConfigPool;
use machinist_core::api::operator::MachineConfiguration;
use serde_json::json;

/// A running `machinist up`; killed when it is dropped.
pub(crate) struct UpProcess {
    child: Child,
    banner: String,
}

impl UpProcess {
    pub(crate) fn start(data: &Path, more: &[&str]) -> Self {
        Self::start_at("127.0.0.1:0", data, more)
    }

    /// Starts it at an address that machines know.
    pub(crate) fn start_at(address: &str, data: &Path, more: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_machinist"))
            .args(["up", "--api-listen", address, "--data-dir"])
            .arg(data)
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let mut banner = String::new();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        while !banner.contains("Ctrl-C") {
            assert!(lines.read_line(&mut banner).unwrap() > 0, "machinist up exited: {banner}");
        }
        // Keeps the pipe open for the last output.
        std::thread::spawn(move || lines.lines().count());
        Self { child, banner }
    }

    pub(crate) fn stop(mut self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let start = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            assert!(start.elapsed() < Duration::from_secs(20), "machinist up does not stop");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for UpProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) async fn pools(data: &Path) -> Api<MachineConfigPool> {
    Api::all(client(data).await)
}

async fn client(data: &Path) -> kube::Client {
    let file = Kubeconfig::read_from(data.join("kubeconfig")).unwrap();
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(file, &options).await.unwrap();
    kube::Client::try_from(config).unwrap()
}

/// MCO's daemon waits until the status of the MachineConfiguration has the policy of its generation.
#[tokio::test]
async fn the_hub_reports_the_disruption_policy_and_another_controller_may_drive_it() {
    async fn policy_files(data: &Path, about: &str) -> Vec<String> {
        let api: Api<MachineConfiguration> = Api::all(client(data).await);
        let start = Instant::now();
        loop {
            if let Some(found) = api.get_opt("cluster").await.unwrap()
                && let Some(status) = found.status
                && status.observed_generation == found.metadata.generation
                && let Some(policy) = status.node_disruption_policy_status
            {
                let files = policy.cluster_policies.unwrap().files.unwrap();
                return files.into_iter().map(|file| file.path).collect();
            }
            assert!(start.elapsed() < Duration::from_secs(60), "no policy in the status: {about}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let up = UpProcess::start(&data, &["--no-controller"]);
    // Another controller would take the lease; nothing here holds it.
    let leases: Api<Lease> = Api::all(client(&data).await);
    assert!(leases.list(&ListParams::default()).await.unwrap().items.is_empty());
    let settings: Api<MachineConfiguration> = Api::all(client(&data).await);
    assert!(settings.get_opt("cluster").await.unwrap().is_none());
    up.stop();
    let up = UpProcess::start(&data, &[]);
    let files = policy_files(&data, "first start").await;
    assert!(files.iter().any(|path| path == "/etc/containers/policy.json"), "{files:?}");
    let policy = json!({"files": [{"path": "/etc/mine", "actions": [{"type": "None"}]}]});
    let patch = Patch::Merge(json!({"spec": {"nodeDisruptionPolicy": policy}}));
    let settings: Api<MachineConfiguration> = Api::all(client(&data).await);
    settings.patch("cluster", &PatchParams::default(), &patch).await.unwrap();
    let files = policy_files(&data, "after a change").await;
    assert_eq!(files.last().map(String::as_str), Some("/etc/mine"));
    up.stop();
}

pub(crate) fn machinist(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_machinist")).args(arguments).output().unwrap()
}

#[tokio::test]
async fn a_second_start_continues_with_the_data() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let up = UpProcess::start(&data, &[]);
    assert!(up.banner.contains("created"), "{}", up.banner);
    let mode = |name: &str| fs::metadata(data.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(""), mode("kubeconfig"), mode("pki/ca.key")), (0o700, 0o600, 0o600));
    let found = pools(&data).await.list(&ListParams::default()).await.unwrap();
    let names: Vec<_> =
        found.items.iter().map(|pool| pool.metadata.name.clone().unwrap()).collect();
    assert_eq!(names, ["master", "worker"]);
    let pause = Patch::Merge(json!({"spec": {"paused": true}}));
    pools(&data).await.patch("worker", &PatchParams::default(), &pause).await.unwrap();
    let read = |name: &str| fs::read_to_string(data.join("pki").join(name)).unwrap();
    let (ca, server) = (read("ca.crt"), read("server.pem"));
    up.stop();

    let up = UpProcess::start(&data, &["--san", "hub.example.com"]);
    assert!(up.banner.contains("existing"), "{}", up.banner);
    let worker = pools(&data).await.get("worker").await.unwrap();
    assert!(worker.spec.paused == Some(true));
    assert_eq!(ca, read("ca.crt"));
    assert_ne!(server, read("server.pem"), "it has one more name");
    let audit = fs::read_to_string(data.join("audit.log")).unwrap();
    let ours: Vec<&str> = audit.lines().filter(|line| line.contains("\"admin\"")).collect();
    assert_eq!(ours.len(), 1, "{audit}");
    assert!(ours[0].contains("\"verb\":\"patch\"") && !audit.contains("paused"), "{audit}");
    up.stop();
}

#[tokio::test]
async fn a_backup_can_be_restored() {
    let directory = tempfile::tempdir().unwrap();
    let (data, file) = (directory.path().join("data"), directory.path().join("hub.backup"));
    let up = UpProcess::start(&data, &[]);
    let pause = Patch::Merge(json!({"spec": {"paused": true}}));
    pools(&data).await.patch("master", &PatchParams::default(), &pause).await.unwrap();
    let (data_text, file_text) = (data.to_str().unwrap(), file.to_str().unwrap());
    let output = machinist(&["hub", "backup", "--data-dir", data_text, file_text]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    up.stop();

    let other = directory.path().join("other");
    let other_text = other.to_str().unwrap();
    let output = machinist(&["hub", "restore", "--data-dir", other_text, file_text]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let again = machinist(&["hub", "restore", "--data-dir", other_text, file_text]);
    assert_eq!(again.status.code(), Some(1), "a store is not written over");
    let up = UpProcess::start(&other, &[]);
    assert!(pools(&other).await.get("master").await.unwrap().spec.paused == Some(true));
    let token = machinist(&["hub", "token", "--data-dir", other_text, "--role", "viewer"]);
    assert!(String::from_utf8(token.stdout).unwrap().trim().contains('.'));
    let check = || machinist(&["hub", "check", "--data-dir", other_text]);
    let running = check();
    assert_eq!(running.status.code(), Some(1), "the hub is running");
    assert!(String::from_utf8_lossy(&running.stderr).contains("in use by"));
    up.stop();

    let output = check();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && text.contains("all checksums match"), "{text}");
    let store = machinist::data_dir::DataDirectory::at(other.clone()).store().join("store.redb");
    let mut bytes = fs::read(&store).unwrap();
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    bytes.iter_mut().take(used).skip(4096).step_by(512).for_each(|byte| *byte ^= 1);
    fs::write(&store, bytes).unwrap();
    let output = check();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1));
    assert!(text.contains("store.redb") && text.contains("damaged"), "{text}");
}

#[test]
fn two_hubs_cannot_share_a_data_directory() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let up = UpProcess::start(&data, &[]);
    let output =
        machinist(&["up", "--api-listen", "127.0.0.1:0", "--data-dir", data.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("in use"));
    up.stop();
}

/// A hub that makes a new CA cuts off every machine.
#[test]
fn a_hub_without_its_ca_does_not_start() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    UpProcess::start(&data, &[]).stop();
    let ca = fs::read(data.join("pki/ca.crt")).unwrap();
    fs::rename(data.join("pki/ca.key"), data.join("ca.key.backup")).unwrap();
    let up = ["up", "--api-listen", "127.0.0.1:0", "--data-dir", data.to_str().unwrap()];
    let output = machinist(&up);
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("pki/ca.key is missing"), "{stderr}");
    assert!(stderr.contains("Restore it from a backup"), "{stderr}");
    assert_eq!(fs::read(data.join("pki/ca.crt")).unwrap(), ca);
    assert!(!data.join("pki/ca.key").exists());
    fs::rename(data.join("ca.key.backup"), data.join("pki/ca.key")).unwrap();
    UpProcess::start(&data, &[]).stop();
    // A crash of an older version between the renames of key and certificate.
    fs::remove_file(data.join("pki/server.pem")).unwrap();
    fs::copy(data.join("pki/ca.crt"), data.join("pki/server.crt")).unwrap();
    fs::copy(data.join("pki/ca.key"), data.join("pki/server.key")).unwrap();
    UpProcess::start(&data, &[]).stop();
}

/// Joins a directory as a machine to the hub of a data directory.
pub(crate) fn join(data: &Path, token: &str, root: &Path, name: &str, pool: &str) -> Output {
    fs::create_dir_all(root.join("etc")).unwrap();
    join_command(data, token, root, name, pool).output().unwrap()
}

pub(crate) fn join_command(
    data: &Path,
    token: &str,
    root: &Path,
    name: &str,
    pool: &str,
) -> Command {
    let kubeconfig = fs::read_to_string(data.join("kubeconfig")).unwrap();
    let server = kubeconfig.lines().find_map(|line| line.trim().strip_prefix("server: ")).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_machinist"));
    command.args(["join", "--apiserver-url", server, "--node-name", name, "--pool", pool]);
    command.args(["--approval-timeout", "3s", "--ca-file"]).arg(data.join("pki/ca.crt"));
    command.arg("--root").arg(root).env("MACHINIST_TOKEN", token);
    command
}

/// What is wrong with the command or the machine is found before the machine has an identity; leaving knows the name.
#[test]
fn mistakes_of_join_and_leave_cost_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let up = UpProcess::start(&data, &[]);
    let data_text = data.to_str().unwrap();
    let output = machinist(&["hub", "token", "--data-dir", data_text, "--role", "bootstrap"]);
    let token = String::from_utf8(output.stdout).unwrap().trim().to_owned();
    let stderr = |output: Output| String::from_utf8_lossy(&output.stderr).into_owned();

    let ca = data.join("pki/ca.crt");
    let ca = ca.to_str().unwrap();
    let kubeconfig = fs::read_to_string(data.join("kubeconfig")).unwrap();
    let server = kubeconfig.lines().find_map(|line| line.trim().strip_prefix("server: ")).unwrap();
    let plain = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let no_tls = format!("https://{}", plain.local_addr().unwrap());
    std::thread::spawn(move || {
        use std::io::{Read as _, Write as _};
        for stream in plain.incoming() {
            let mut stream = stream.unwrap();
            // Unread bytes would reset the connection before the answer is seen.
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    // Another CA with the same name: signed by nobody that the hub knows.
    let other = directory.path().join("other");
    UpProcess::start(&other, &[]).stop();
    let other_ca = other.join("pki/ca.crt");
    let nowhere = directory.path().join("nowhere");
    fs::create_dir_all(nowhere.join("etc")).unwrap();
    let before = fs::read_dir(&nowhere).unwrap().count();
    for (server, ca, part) in [
        ("127.0.0.1:1", ca, "cannot join https://127.0.0.1:1: nothing listens on this port"),
        ("http://127.0.0.1:1", ca, "write https://HOST:PORT"),
        (server, other_ca.to_str().unwrap(), "signed by another CA"),
        (&no_tls, ca, "does not speak TLS"),
        ("https://no.such.host.invalid:6443", ca, "cannot join https://no.such.host.invalid:6443"),
    ] {
        let to = [
            "join",
            "--apiserver-url",
            server,
            "--token",
            "a.b",
            "--ca-file",
            ca,
            "--node-name",
            "n",
        ];
        let root = ["--root", nowhere.to_str().unwrap()];
        let error = stderr(machinist(&[&to[..], &root].concat()));
        assert!(error.contains(part), "{server}: {error}");
    }
    assert_eq!(fs::read_dir(&nowhere).unwrap().count(), before, "something was left behind");

    // A look at the first config writes nothing, and a pool that does not exist is refused before anything is done.
    let admin = data.join("kubeconfig");
    let look = |pool: &str, more: &[&str]| {
        let to = ["join", "--kubeconfig", admin.to_str().unwrap(), "--node-name", "n", "--pool"];
        machinist(&[&to[..], &[pool, "--root", nowhere.to_str().unwrap()], more].concat())
    };
    let dry = look("worker", &["--dry-run"]);
    assert!(dry.status.success(), "{}", stderr(dry));
    let shown = String::from_utf8_lossy(&dry.stdout).into_owned();
    assert!(shown.starts_with("The pool has no config yet"), "{shown}");
    let error = stderr(look("wroker", &[]));
    assert!(
        error.contains("--pool wroker: there is no MachineConfigPool wroker: name one of"),
        "{error}"
    );
    assert_eq!(fs::read_dir(&nowhere).unwrap().count(), before, "something was left behind");

    let root = directory.path().join("w1");
    fs::write(&root, "not a directory").unwrap();
    let mut command = join_command(&data, &token, &root, "w1", "worker");
    let error = stderr(command.output().unwrap());
    assert!(error.contains("cannot open this directory"), "{error}");
    fs::remove_file(&root).unwrap();
    let joined = join(&data, &token, &root, "w1", "worker");
    assert!(joined.status.success(), "{}", stderr(joined));

    let error = stderr(join(&data, "no.token", &directory.path().join("w2"), "w2", "worker"));
    assert!(error.contains("the API server refuses the token"), "{error}");
    assert!(!error.contains("ListMeta"), "{error}");

    // Again: repaired where it is the same machine, refused where it is not.
    let again =
        |name: &str| join_command(&data, "no.token", &root, name, "worker").output().unwrap();
    let stdout = |output: Output| String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(stdout(again("w1")).contains("nothing is to be repaired"));
    let unit = root.join("etc/systemd/system/machinist-daemon.service");
    fs::write(&unit, "").unwrap();
    let status = || machinist(&["daemon", "status", "--root", root.to_str().unwrap()]);
    let broken = status();
    assert_eq!(broken.status.code(), Some(3));
    assert!(stdout(broken).contains("CANNOT RUN   its unit is empty: run machinist join again"));
    let repaired = stdout(again("w1"));
    assert!(repaired.contains("machinist-daemon.service was empty"), "{repaired}");
    assert!(fs::read_to_string(&unit).unwrap().contains("--node-name w1"));
    assert_eq!(status().status.code(), Some(0));
    let error = stderr(again("w9"));
    assert!(error.contains("as w1 already") && error.contains("machinist leave"), "{error}");

    let leave = || machinist(&["leave", "--root", root.to_str().unwrap()]);
    let left = leave();
    let text = String::from_utf8_lossy(&left.stdout).into_owned();
    assert!(text.contains("w1 has left; Node: removed"), "{text}{}", stderr(left));
    let after = status();
    assert!(after.status.success());
    let after = stdout(after);
    assert!(after.contains("this machine has not joined, or it has left"), "{after}");
    let again = leave();
    assert_eq!(again.status.code(), Some(1));
    assert!(stderr(again).contains("this machine has not joined"));
    up.stop();
}

/// A machine joins, another one cannot take its name without the administrator, and leaving frees the name.
#[test]
fn a_name_in_use_is_not_given_away() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let up = UpProcess::start(&data, &[]);
    let data_text = data.to_str().unwrap();
    let token = |more: &[&str]| {
        let mut arguments = vec!["hub", "token", "--data-dir", data_text, "--role", "bootstrap"];
        arguments.extend(more);
        let output = machinist(&arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let plain = token(&[]);
    let root = |name: &str| directory.path().join(name);
    let check = |output: Output, expected: &[&str]| {
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.success(), expected.is_empty(), "{stderr}");
        for part in expected {
            assert!(stderr.contains(part), "{part}: {stderr}");
        }
    };
    check(join(&data, &plain, &root("w1"), "w1", "worker"), &[]);
    let both_ways = [
        "Node w1 exists already",
        "machinist hub token --role bootstrap --replace w1",
        "kubectl certificate approve",
    ];
    check(join(&data, &plain, &root("intruder"), "w1", "worker"), &both_ways);
    let expected = "the token is for pool worker, not for master";
    check(join(&data, &plain, &root("m1"), "m1", "master"), &[expected]);
    let expected = "belongs to a component of the system";
    let name = "machine-config-controller";
    check(join(&data, &plain, &root("x"), name, "worker"), &[expected]);
    let leave = |name: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_machinist"));
        command.args(["leave", "--node-name", "w1", "--root"]).arg(root(name));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    // The replacement takes over, and the old machine has no access any more.
    check(join(&data, &token(&["--replace", "w1"]), &root("new"), "w1", "worker"), &[]);
    assert!(leave("w1").contains("Node: left alone"));
    assert!(leave("new").contains("Node: removed"));
    check(join(&data, &plain, &root("again"), "w1", "worker"), &[]);
    let listed = machinist(&["hub", "token", "list", "--data-dir", data_text]);
    let text = String::from_utf8(listed.stdout).unwrap();
    assert!(text.contains("worker replacing w1") && text.contains("1/1"), "{text}");
    let id = plain.split('.').next().unwrap();
    let revoked = machinist(&["hub", "token", "revoke", "--data-dir", data_text, id]);
    assert_eq!(String::from_utf8_lossy(&revoked.stdout), format!("token {id} revoked\n"));
    check(join(&data, &plain, &root("late"), "w2", "worker"), &["refuses the token"]);
    let revoked = machinist(&["hub", "revoke", "--data-dir", data_text, "w1"]);
    assert!(revoked.status.success(), "{}", String::from_utf8_lossy(&revoked.stderr));
    assert!(leave("again").contains("Node: left alone"));
    up.stop();
}

/// Anyone who can read a config can read the join token in it, so configs must not be public then.
#[test]
fn the_join_token_is_never_served_to_everyone() {
    let directory = tempfile::tempdir().unwrap();
    let mut up = Command::new(env!("CARGO_BIN_EXE_machinist"));
    up.args(["up", "--api-listen", "127.0.0.1:0", "--server-listen", "127.0.0.1:0", "--data-dir"]);
    up.arg(directory.path().join("data")).args(["--server-anonymous", "--server-join-token-file"]);
    let output = up.arg(directory.path().join("token")).output().unwrap();
    assert!(!output.status.success(), "{output:?}");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("add --server-sealed-url"), "{stderr}");
    assert!(!directory.path().join("data").exists());
}
