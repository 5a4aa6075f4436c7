//! Processes as systemd runs them: readiness, watchdog and JSON logs of the real binary.
use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// No step of these tests takes this long on a working machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A service with a notify socket; killed when it is dropped.
struct ServiceProcess {
    child: Child,
    socket: UnixDatagram,
}

impl ServiceProcess {
    fn start(dir: &Path, arguments: &[&str]) -> Self {
        Self::start_with(dir, arguments, Stdio::null(), Stdio::piped())
    }

    fn start_with(dir: &Path, arguments: &[&str], stdout: Stdio, stderr: Stdio) -> Self {
        let path = dir.join("notify.socket");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_machinist"))
            .args(arguments)
            .env("NOTIFY_SOCKET", &path)
            .env("WATCHDOG_USEC", "400000")
            .env_remove("WATCHDOG_PID")
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(stderr)
            .spawn()
            .unwrap();
        Self { child, socket }
    }

    /// Reads messages until `wanted` arrives.
    fn wait_for(&self, wanted: &str) {
        let start = Instant::now();
        let mut buffer = [0; 4096];
        while start.elapsed() < TIMEOUT {
            let size = self.socket.recv(&mut buffer).unwrap();
            let message = std::str::from_utf8(&buffer[..size]).unwrap();
            if message.lines().any(|line| line == wanted) {
                return;
            }
        }
        panic!("{wanted} did not arrive");
    }

    /// Stops the service; returns its log.
    fn stop(mut self) -> String {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        self.wait_for("STOPPING=1");
        let mut log = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            stderr.read_to_string(&mut log).unwrap();
        }
        assert!(self.child.wait().unwrap().success(), "{log}");
        log
    }
}

impl Drop for ServiceProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_hub_notifies_systemd_and_logs_json() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let service = ServiceProcess::start(
        dir.path(),
        &[
            "up",
            "--api-listen=127.0.0.1:0",
            "--metrics-listen=127.0.0.1:0",
            "--log-format=json",
            "--data-dir",
            data.to_str().unwrap(),
        ],
    );
    service.wait_for("READY=1");
    service.wait_for("WATCHDOG=1");
    service.wait_for("WATCHDOG=1");
    let log = service.stop();
    assert!(!log.is_empty());
    for line in log.lines() {
        let entry: Value = serde_json::from_str(line).expect(line);
        assert!(entry["message"].is_string() && entry["level"].is_string(), "{line}");
    }
}

/// Standard output and error that fail every write: a full disk, and a pipe whose reader is gone.
fn failing_outputs() -> [(Stdio, Stdio); 2] {
    let full = || Stdio::from(OpenOptions::new().write(true).open("/dev/full").unwrap());
    let closed = || Stdio::from(std::io::pipe().unwrap().1);
    [(full(), full()), (closed(), closed())]
}

#[test]
fn the_hub_runs_although_nothing_can_be_logged() {
    for (stdout, stderr) in failing_outputs() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let arguments = ["up", "--api-listen=127.0.0.1:0", "--data-dir", data.to_str().unwrap()];
        let service = ServiceProcess::start_with(dir.path(), &arguments, stdout, stderr);
        service.wait_for("READY=1");
        service.wait_for("WATCHDOG=1");
        service.wait_for("WATCHDOG=1");
        service.stop();
    }
}

#[test]
fn the_daemon_runs_although_nothing_can_be_logged() {
    for (stdout, stderr) in failing_outputs() {
        let dir = tempfile::tempdir().unwrap();
        let (root, kubeconfig) = unreachable_cluster(dir.path());
        let arguments =
            ["daemon", "start", "--kubeconfig", &kubeconfig, "--root", &root, "--node-name=a"];
        let service = ServiceProcess::start_with(dir.path(), &arguments, stdout, stderr);
        service.wait_for("READY=1");
        service.wait_for("WATCHDOG=1");
        service.wait_for("WATCHDOG=1");
        service.stop();
    }
}

/// A port that nothing listens on at the moment.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The response to a GET of this port.
fn get(port: u16, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    Ok(response)
}

/// Whether a GET of this port is answered.
fn answers(port: u16, path: &str) -> bool {
    get(port, path).is_ok_and(|response| response.starts_with("HTTP/1.1 "))
}

/// Waits until `/readyz` has a status and names a failure.
fn wait_for_failure(port: u16, status: &str, failure: &str) {
    let start = Instant::now();
    loop {
        let response = get(port, "/readyz").unwrap_or_default();
        if response.starts_with(&format!("HTTP/1.1 {status} ")) && response.contains(failure) {
            return;
        }
        assert!(start.elapsed() < TIMEOUT, "{failure} is not in /readyz: {response}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn readyz_of_daemon_server_and_hub_names_what_fails() {
    let dir = tempfile::tempdir().unwrap();
    let (root, kubeconfig) = unreachable_cluster(dir.path());
    let ports = [free_port(), free_port(), free_port(), free_port(), free_port()];
    let metrics = |port: u16| format!("--metrics-listen=127.0.0.1:{port}");
    let work = tempfile::tempdir().unwrap();
    let daemon = ServiceProcess::start(
        work.path(),
        &[
            "daemon",
            "--kubeconfig",
            &kubeconfig,
            "--root",
            &root,
            "--node-name=a",
            &metrics(ports[0]),
        ],
    );
    // A daemon is ready without an API server: the machine keeps its config.
    wait_for_failure(ports[0], "200", "list and watch (/api/v1/nodes metadata.name=a)");
    daemon.stop();

    let data = dir.path().join("data");
    let (data, missing) = (data.to_str().unwrap(), dir.path().join("missing"));
    let backups = format!("--backup-dir={}", missing.display());
    let work = tempfile::tempdir().unwrap();
    let arguments =
        ["up", "--api-listen=127.0.0.1:0", "--data-dir", data, &backups, &metrics(ports[1])];
    let hub = ServiceProcess::start(work.path(), &arguments);
    wait_for_failure(ports[1], "200", "take the daily backup");

    let certificate = ["cert", "key"].map(|name| format!("--{name}={data}/pki/server.pem"));
    let listen = [format!("--insecure-port={}", ports[2]), format!("--secure-port={}", ports[3])];
    let work = tempfile::tempdir().unwrap();
    let arguments = [
        "server",
        "start",
        "--listen-address=127.0.0.1",
        "--kubeconfig",
        &kubeconfig,
        &metrics(ports[4]),
        &listen[0],
        &listen[1],
        &certificate[0],
        &certificate[1],
        "--apiserver-url=https://localhost:6443",
    ];
    let server = ServiceProcess::start(work.path(), &arguments);
    // A server without configs is not ready, and says why.
    wait_for_failure(
        ports[4],
        "503",
        "list and watch (/apis/machineconfiguration.openshift.io/v1/",
    );
    server.stop();
    hub.stop();
}

/// The other processes, with a real hub. Each writes a few lines when it starts and stops, and the server one for each
/// refused request.
#[test]
fn controller_server_and_operator_run_although_nothing_can_be_logged() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let data = data.to_str().unwrap();
    let hub = ServiceProcess::start(
        dir.path(),
        &["up", "--api-listen=127.0.0.1:0", "--no-controller", "--data-dir", data],
    );
    hub.wait_for("READY=1");
    let kubeconfig = format!("--kubeconfig={data}/kubeconfig");
    for kind in [0, 1] {
        let [metrics, plain, secure] = [free_port(), free_port(), free_port()];
        let listen = format!("--metrics-listen=127.0.0.1:{metrics}");
        let certificate = ["cert", "key"].map(|name| format!("--{name}={data}/pki/server.pem"));
        let (plain_port, secure_port) =
            (format!("--insecure-port={plain}"), format!("--secure-port={secure}"));
        let server = [
            "server",
            "start",
            "--listen-address=127.0.0.1",
            "--metrics-insecure",
            &kubeconfig,
            &listen,
            &plain_port,
            &secure_port,
            &certificate[0],
            &certificate[1],
            "--apiserver-url=https://localhost:6443",
        ];
        let others = [
            (vec!["controller", &kubeconfig, &listen], metrics, "/healthz"),
            (server.to_vec(), plain, "/config/none"),
            (
                vec!["operator", "--image=localhost/machinist:1", &kubeconfig, &listen],
                metrics,
                "/healthz",
            ),
        ];
        for (arguments, port, path) in others {
            let (stdout, stderr) = failing_outputs().into_iter().nth(kind).unwrap();
            let work = tempfile::tempdir().unwrap();
            let mut service = ServiceProcess::start_with(work.path(), &arguments, stdout, stderr);
            let start = Instant::now();
            for _ in 0..20 {
                while !answers(port, path) {
                    assert!(start.elapsed() < TIMEOUT, "{arguments:?} does not answer");
                    assert_eq!(service.child.try_wait().unwrap(), None, "{arguments:?} ended");
                    std::thread::sleep(Duration::from_millis(20));
                }
            }
            service.stop();
        }
    }
    hub.stop();
}

/// A command that cannot write its result says so with its exit code. It does not panic, and no signal ends it.
#[test]
fn commands_that_cannot_write_fail_without_a_panic() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let data = data.to_str().unwrap();
    let hub =
        ServiceProcess::start(dir.path(), &["up", "--api-listen=127.0.0.1:0", "--data-dir", data]);
    hub.wait_for("READY=1");
    let kubeconfig = format!("--kubeconfig={data}/kubeconfig");
    let commands: [&[&str]; 12] = [
        &["--help"],
        &["version"],
        &["crds"],
        &["completions", "bash"],
        &["no-such-command"],
        &["validate", "/no/such/file"],
        &["get", "nodes", &kubeconfig],
        &["get", "machineconfigpools", "-o", "json", &kubeconfig],
        &["status", &kubeconfig],
        &["rollout", "status", "worker", "--watch=false", &kubeconfig],
        &["hub", "token", "--role=viewer", "--data-dir", data],
        &["hub", "token", "list", "--data-dir", data],
    ];
    for command in commands {
        for (stdout, stderr) in failing_outputs() {
            let status = Command::new(env!("CARGO_BIN_EXE_machinist"))
                .args(command)
                .stdin(Stdio::null())
                .stdout(stdout)
                .stderr(stderr)
                .status()
                .unwrap();
            assert!(status.code().is_some_and(|code| code < 100), "{command:?}: {status}");
        }
    }
    hub.stop();
}

/// A machine's root and a kubeconfig whose API server does not answer.
fn unreachable_cluster(dir: &Path) -> (String, String) {
    let (root, kubeconfig) = (dir.join("root"), dir.join("kubeconfig"));
    let boot_id = root.join("proc/sys/kernel/random");
    std::fs::create_dir_all(&boot_id).unwrap();
    std::fs::create_dir_all(root.join("etc")).unwrap();
    std::fs::write(boot_id.join("boot_id"), "1b4e28ba-2fa1-11d2-883f-0016d3cca427\n").unwrap();
    std::fs::write(
        &kubeconfig,
        "apiVersion: v1\nkind: Config\ncurrent-context: a\n\
         clusters: [{name: a, cluster: {server: 'https://127.0.0.1:9'}}]\n\
         users: [{name: a, user: {token: t}}]\n\
         contexts: [{name: a, context: {cluster: a, user: a}}]\n",
    )
    .unwrap();
    (root.to_str().unwrap().to_owned(), kubeconfig.to_str().unwrap().to_owned())
}

#[test]
fn the_daemon_is_ready_before_it_reaches_the_api_server() {
    let dir = tempfile::tempdir().unwrap();
    let (root, kubeconfig) = unreachable_cluster(dir.path());
    let service = ServiceProcess::start(
        dir.path(),
        &["daemon", "start", "--kubeconfig", &kubeconfig, "--root", &root, "--node-name=a"],
    );
    service.wait_for("READY=1");
    service.wait_for("WATCHDOG=1");
    service.stop();
}

#[test]
fn a_notify_socket_that_does_not_exist_does_no_harm() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_machinist"))
        .args(["up", "--api-listen=127.0.0.1:0", "--data-dir"])
        .arg(dir.path().join("data"))
        .env("NOTIFY_SOCKET", dir.path().join("missing.socket"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("Machinist is up"), "{line}");
    child.kill().unwrap();
    child.wait().unwrap();
}
