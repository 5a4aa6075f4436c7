//! An API server with a controller, pools and machines, and helpers for tests about them.

use anyhow::{Context as _, Result, ensure};
use machinist_e2e::fleet::{FleetSpec, MachineBehaviour};
use machinist_e2e::lab::LabProcess;
use machinist_e2e::rollout_checker::{ReactionTime, WatchLog, check};
use machinist_e2e::{ApiServer, Fleet, Lab, binary, cache, contents, wait_with_timeout};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Timeout for a rollout of a few machines on a host that runs other tests.
pub(crate) const ROLLOUT_TIMEOUT: Duration = Duration::from_secs(90);

/// An API server with a controller.
pub(crate) struct ControllerFixture {
    pub(crate) api_server: ApiServer,
    pub(crate) fleet: Option<Fleet>,
    log: Option<WatchLog>,
    controllers: Vec<LabProcess>,
    controllers_started: usize,
    lab: Lab,
}

impl ControllerFixture {
    /// `machinist up`, which includes the controller.
    pub(crate) fn hub() -> Self {
        Self::with_api_server(ApiServer::hub().unwrap())
    }

    fn with_api_server(api_server: ApiServer) -> Self {
        let lab = Lab::new().unwrap();
        Self {
            api_server,
            fleet: None,
            log: None,
            controllers: Vec::new(),
            controllers_started: 0,
            lab,
        }
    }

    /// A real kube-apiserver with OpenShift's CRDs, and a separate controller.
    pub(crate) fn openshift() -> Self {
        let mut fixture = Self::with_api_server(ApiServer::openshift().unwrap());
        for pool in ["master", "worker"] {
            fixture.apply(&openshift_pool(pool));
        }
        fixture.start_controller();
        fixture
    }

    /// Starts another controller.
    pub(crate) fn start_controller(&mut self) {
        let kubeconfig = self.api_server.kubeconfig().to_owned();
        self.spawn(Command::new(binary::machinist_binary().unwrap()), &kubeconfig);
    }

    /// Starts another controller that reaches the API through another kubeconfig.
    pub(crate) fn start_controller_with(&mut self, kubeconfig: &Path) {
        self.spawn(Command::new(binary::machinist_binary().unwrap()), kubeconfig);
    }

    /// Starts another controller with a shifted clock.
    pub(crate) fn start_controller_at(&mut self, offset: &str) {
        let mut faked = Command::new("faketime");
        faked.args(["--exclude-monotonic", "-f", offset]).arg(binary::machinist_binary().unwrap());
        let kubeconfig = self.api_server.kubeconfig().to_owned();
        self.spawn(faked, &kubeconfig);
    }

    fn spawn(&mut self, mut controller: Command, kubeconfig: &Path) {
        controller.args(["controller", "--metrics-listen-address", "127.0.0.1:0"]);
        controller.args(["--lease-duration", "5s", "--lease-renew-deadline", "3s"]);
        controller.args(["--lease-retry-period", "500ms", "--kubeconfig"]).arg(kubeconfig);
        let name = format!("controller-{}", self.controllers_started);
        self.controllers_started += 1;
        self.controllers.push(self.lab.spawn(&name, &controller).unwrap());
    }

    /// Kills the oldest controller.
    pub(crate) fn kill_controller(&mut self) {
        drop(self.controllers.remove(0));
    }

    /// Starts machines on the current config of their pool, and records what happens to them.
    pub(crate) fn populate(&mut self, machines: usize, behaviour: MachineBehaviour) {
        let config = self.wait_for_new_config("worker", "");
        let spec = FleetSpec { machines, config, behaviour, ..FleetSpec::default() };
        self.fleet = Some(Fleet::start(self.api_server.client(), spec).unwrap());
        self.wait_updated("worker");
        self.start_watch_log();
    }

    /// Starts to record what happens to machines.
    pub(crate) fn start_watch_log(&mut self) {
        self.log = Some(WatchLog::start(&self.api_server.client()).unwrap());
    }

    /// Starts machines on a config that may differ from the one their pool wants.
    pub(crate) fn populate_without_waiting(&mut self, machines: usize, config: &str) {
        let spec = FleetSpec { machines, config: config.to_owned(), ..FleetSpec::default() };
        self.fleet = Some(Fleet::start(self.api_server.client(), spec).unwrap());
    }

    /// Asserts that nothing since the machines started violates a rule.
    pub(crate) fn assert_no_violations(&mut self) {
        let log = self.log.take().unwrap().stop().unwrap();
        let violations = check(&log, ReactionTime::default());
        assert_eq!(violations, [], "on {}", self.api_server.name);
        self.log = Some(WatchLog::start(&self.api_server.client()).unwrap());
    }

    /// Runs `kubectl`, which must succeed.
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> String {
        let output = self.api_server.kubectl(arguments).unwrap();
        assert!(
            output.succeeded(),
            "kubectl {arguments:?} on {}: {output:?}",
            self.api_server.name
        );
        output.stdout
    }

    /// Applies manifests as JSON with `kubectl apply`.
    pub(crate) fn apply(&self, manifest: &Value) {
        let name = manifest["metadata"]["name"].as_str().unwrap_or("manifest");
        let path = self.api_server.dir().join(format!("{name}.json"));
        fs::write(&path, manifest.to_string()).unwrap();
        self.kubectl(&["apply", "-f", path.to_str().unwrap()]);
    }

    /// Applies one of the project's examples with `kubectl apply`.
    pub(crate) fn apply_example(&self, name: &str) {
        let path = cache::source_root().join("examples").join(name);
        self.kubectl(&["apply", "-f", path.to_str().unwrap()]);
    }

    /// Reads an object.
    pub(crate) fn get(&self, kind: &str, name: &str) -> Value {
        serde_json::from_str(&self.kubectl(&["get", kind, name, "-o", "json"])).unwrap()
    }

    /// The config that a pool points at, once it differs from `before`.
    pub(crate) fn wait_for_new_config(&self, pool: &str, before: &str) -> String {
        let mut name = String::new();
        self.wait_until(&format!("{pool} to have a new config"), || {
            let object = self.get("mcp", pool);
            let text = object["spec"]["configuration"]["name"].as_str().unwrap_or_default();
            ensure!(!text.is_empty() && text != before, "it has {text:?}");
            text.clone_into(&mut name);
            Ok(())
        });
        name
    }

    /// The contents of a file in the rendered config of the workers.
    pub(crate) fn rendered_file(&self, path: &str) -> Result<String> {
        contents(&self.get("mc", &self.wait_for_new_config("worker", "")), path)
    }

    /// Waits until the workers have exactly the config `base` again, and no generated MachineConfig is left whose name
    /// contains `generated`.
    pub(crate) fn wait_restored(&self, base: &str, generated: &str) {
        self.wait_until("the first config to be back", || {
            let rendered = self.wait_for_new_config("worker", "");
            ensure!(rendered == base, "{rendered} is not {base}");
            Ok(())
        });
        let left = self.kubectl(&["get", "mc", "-o", "name"]);
        assert!(!left.contains(generated), "{left}");
        self.wait_updated("worker");
    }

    /// Starts two machines that apply and reboot quickly. Returns their config.
    pub(crate) fn populate_quick(&mut self) -> String {
        let quick =
            MachineBehaviour { apply: 0..=10, reboot: Some(0..=10), ..MachineBehaviour::default() };
        self.populate(2, quick);
        self.wait_for_new_config("worker", "")
    }

    /// Waits until all machines of a pool have its config.
    pub(crate) fn wait_updated(&self, pool: &str) {
        let target = format!("mcp/{pool}");
        let timeout = format!("--timeout={}s", ROLLOUT_TIMEOUT.as_secs());
        self.wait_until(&format!("{pool} to be updated"), || {
            let object = self.get("mcp", pool);
            let (spec, status) =
                (&object["spec"]["configuration"], &object["status"]["configuration"]);
            ensure!(
                spec["name"] == status["name"],
                "{} is not {} yet",
                status["name"],
                spec["name"]
            );
            Ok(())
        });
        self.kubectl(&["wait", "--for=condition=Updated", &target, &timeout]);
    }

    /// Waits until a condition holds.
    pub(crate) fn wait_until(&self, what: &str, mut holds: impl FnMut() -> Result<()>) {
        let what = format!("{what} on {}", self.api_server.name);
        let mut last = None;
        let result = wait_with_timeout(ROLLOUT_TIMEOUT, &what, || {
            last = holds().err();
            Ok(last.is_none())
        });
        result.with_context(|| format!("{last:?}")).unwrap();
    }

    /// The status and message of a pool's condition.
    pub(crate) fn condition(&self, pool: &str, type_: &str) -> (String, String) {
        let object = self.get("mcp", pool);
        let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.iter().find(|condition| condition["type"] == type_);
        let text =
            |key: &str| found.and_then(|found| found[key].as_str()).unwrap_or_default().to_owned();
        (text("status"), text("message"))
    }
}

/// A pool as OpenShift installs it.
pub(crate) fn openshift_pool(name: &str) -> Value {
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfigPool",
        "metadata": {"name": name},
        "spec": {
            "machineConfigSelector": {"matchLabels": {"machineconfiguration.openshift.io/role": name}},
            "nodeSelector": {"matchLabels": {format!("node-role.kubernetes.io/{name}"): ""}},
        },
    })
}

/// A MachineConfig with a file.
pub(crate) fn file(name: &str, role: &str, path: &str, text: &str) -> Value {
    let source = format!("data:,{}", text.replace(' ', "%20"));
    machine_config(
        name,
        role,
        &json!({"config": {
            "ignition": {"version": "3.2.0"},
            "storage": {"files": [{"path": path, "mode": 420, "contents": {"source": source}}]},
        }}),
    )
}

/// A MachineConfig.
pub(crate) fn machine_config(name: &str, role: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {"name": name, "labels": {"machineconfiguration.openshift.io/role": role}},
        "spec": spec,
    })
}
