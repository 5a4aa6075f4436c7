//! A home with a controller, pools and machines, and the words of the tests about it.

use anyhow::{Context as _, Result, ensure};
use machinist_e2e::checker::{Slack, WatchLog, check};
use machinist_e2e::fleet::{Behaviour, Plan};
use machinist_e2e::lab::Process;
use machinist_e2e::{Fleet, Home, Lab, cache, program, wait_within};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// How long a rollout of a few machines may take on a machine that is busy with other tests.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// A home with a controller.
pub(crate) struct Site {
    pub(crate) home: Home,
    pub(crate) fleet: Option<Fleet>,
    log: Option<WatchLog>,
    controllers: Vec<Process>,
    started: usize,
    lab: Lab,
}

impl Site {
    /// `machinist up`: the controller is inside.
    pub(crate) fn hub() -> Self {
        Self::of(Home::hub().unwrap())
    }

    fn of(home: Home) -> Self {
        let lab = Lab::new().unwrap();
        Self { home, fleet: None, log: None, controllers: Vec::new(), started: 0, lab }
    }

    /// A real kube-apiserver with OpenShift's own CRDs, and a controller beside it.
    pub(crate) fn openshift() -> Self {
        let mut site = Self::of(Home::openshift().unwrap());
        for pool in ["master", "worker"] {
            site.apply(&pool_of(pool));
        }
        site.start_controller();
        site
    }

    /// Starts one more controller.
    pub(crate) fn start_controller(&mut self) {
        let kubeconfig = self.home.kubeconfig().to_owned();
        self.spawn(Command::new(program::machinist().unwrap()), &kubeconfig);
    }

    /// Starts one more controller that reaches the API in another way.
    pub(crate) fn start_controller_with(&mut self, kubeconfig: &Path) {
        self.spawn(Command::new(program::machinist().unwrap()), kubeconfig);
    }

    /// Starts one more controller, whose clock is off.
    pub(crate) fn start_controller_at(&mut self, offset: &str) {
        let mut faked = Command::new("faketime");
        faked.args(["--exclude-monotonic", "-f", offset]).arg(program::machinist().unwrap());
        let kubeconfig = self.home.kubeconfig().to_owned();
        self.spawn(faked, &kubeconfig);
    }

    fn spawn(&mut self, mut controller: Command, kubeconfig: &Path) {
        controller.args(["controller", "--metrics-listen-address", "127.0.0.1:0"]);
        controller.args(["--lease-duration", "5s", "--lease-renew-deadline", "3s"]);
        controller.args(["--lease-retry-period", "500ms", "--kubeconfig"]).arg(kubeconfig);
        let name = format!("controller-{}", self.started);
        self.started += 1;
        self.controllers.push(self.lab.spawn(&name, &controller).unwrap());
    }

    /// Kills the controller that has run for longest.
    pub(crate) fn kill_controller(&mut self) {
        drop(self.controllers.remove(0));
    }

    /// Lets machines live, on the config that their pool has now, and begins to write down what happens to them.
    pub(crate) fn populate(&mut self, machines: usize, behaviour: Behaviour) {
        let config = self.rendered("worker", "");
        let plan = Plan { machines, config, behaviour, ..Plan::default() };
        self.fleet = Some(Fleet::start(self.home.client(), plan).unwrap());
        self.updated("worker");
        self.watch();
    }

    /// Begins to write down what happens to machines.
    pub(crate) fn watch(&mut self) {
        self.log = Some(WatchLog::start(&self.home.client()).unwrap());
    }

    /// Lets machines live on a config that need not be all that their pool wants.
    pub(crate) fn populate_without_waiting(&mut self, machines: usize, config: &str) {
        let plan = Plan { machines, config: config.to_owned(), ..Plan::default() };
        self.fleet = Some(Fleet::start(self.home.client(), plan).unwrap());
    }

    /// Nothing that happened since the machines came broke a rule.
    pub(crate) fn nothing_was_broken(&mut self) {
        let log = self.log.take().unwrap().stop().unwrap();
        let broken = check(&log, Slack::default());
        assert_eq!(broken, [], "on {}", self.home.name);
        self.log = Some(WatchLog::start(&self.home.client()).unwrap());
    }

    /// `kubectl` that has to succeed.
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> String {
        let answer = self.home.kubectl(arguments).unwrap();
        assert!(answer.ok(), "kubectl {arguments:?} on {}: {answer:?}", self.home.name);
        answer.stdout
    }

    /// `kubectl apply` of manifests as JSON.
    pub(crate) fn apply(&self, manifest: &Value) {
        let name = manifest["metadata"]["name"].as_str().unwrap_or("manifest");
        let path = self.home.dir().join(format!("{name}.json"));
        fs::write(&path, manifest.to_string()).unwrap();
        self.kubectl(&["apply", "-f", path.to_str().unwrap()]);
    }

    /// `kubectl apply` of one of the project's examples.
    pub(crate) fn apply_example(&self, name: &str) {
        let path = cache::root().join("examples").join(name);
        self.kubectl(&["apply", "-f", path.to_str().unwrap()]);
    }

    /// An object.
    pub(crate) fn get(&self, kind: &str, name: &str) -> Value {
        serde_json::from_str(&self.kubectl(&["get", kind, name, "-o", "json"])).unwrap()
    }

    /// The config that a pool points at, once it is another than `before`.
    pub(crate) fn rendered(&self, pool: &str, before: &str) -> String {
        let mut name = String::new();
        self.until(&format!("{pool} to have a new config"), || {
            let object = self.get("mcp", pool);
            let text = object["spec"]["configuration"]["name"].as_str().unwrap_or_default();
            ensure!(!text.is_empty() && text != before, "it has {text:?}");
            text.clone_into(&mut name);
            Ok(())
        });
        name
    }

    /// Waits until all machines of a pool have its config.
    pub(crate) fn updated(&self, pool: &str) {
        let target = format!("mcp/{pool}");
        let timeout = format!("--timeout={}s", PATIENCE.as_secs());
        self.until(&format!("{pool} to be updated"), || {
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

    /// Waits until something holds.
    pub(crate) fn until(&self, what: &str, mut holds: impl FnMut() -> Result<()>) {
        let what = format!("{what} on {}", self.home.name);
        let mut last = None;
        let result = wait_within(PATIENCE, &what, || {
            last = holds().err();
            Ok(last.is_none())
        });
        result.with_context(|| format!("{last:?}")).unwrap();
    }

    /// The status of a condition of a pool, and its message.
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
pub(crate) fn pool_of(name: &str) -> Value {
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
