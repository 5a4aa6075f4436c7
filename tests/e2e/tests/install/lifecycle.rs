//! The whole lifecycle in a real Kubernetes cluster, from our own image: install, a change with drain and reboot, an
//! upgrade that touches no machine, and an uninstallation that keeps what users created.

use crate::install::image;
use crate::install::support::{
    CONTROLLER, DAEMON, NAMESPACE, OPERATOR, SERVER, client_at, deploy, get, install, merge,
    wait_condition,
};
use crate::metrics_access::https_get;
use anyhow::{Context as _, Result, ensure};
use base64::prelude::{BASE64_STANDARD, Engine as _};
use machinist_e2e::{Cluster, Lab, Machine, binary, block_on, command, wait_for};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Where the server stores tokens and enrolments, and the Role that allows it.
const ACCESS: &str = "extras/server-access.yaml";
const USERS: &str = r#"
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata: {name: 50-file, labels: {machineconfiguration.openshift.io/role: worker}}
spec:
  config:
    ignition: {version: 3.5.0}
    storage: {files: [{path: /etc/from-cluster, mode: 384, contents: {source: "data:,cluster"}}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: app, namespace: default}
spec:
  selector: {matchLabels: {app: a}}
  template:
    metadata: {labels: {app: a}}
    spec:
      terminationGracePeriodSeconds: 1
      nodeSelector: {node-role.kubernetes.io/worker: ""}
      containers: [{name: a, image: "localhost/busybox:1", imagePullPolicy: Never}]
"#;

fn node(cluster: &Cluster, name: &str) -> Result<Value> {
    get(cluster, &format!("/api/v1/nodes/{name}"))
}

fn annotation(cluster: &Cluster, name: &str, key: &str) -> Result<String> {
    let key = format!("machineconfiguration.openshift.io/{key}");
    let node = node(cluster, name)?;
    Ok(node["metadata"]["annotations"][key].as_str().unwrap_or_default().to_owned())
}

/// The logs of the pods, for debugging.
fn logs(cluster: &Cluster, machines: &[Machine]) -> String {
    let mut all = String::new();
    for machine in machines {
        let logs = machine.sh(&format!(
            "for f in /var/log/pods/{NAMESPACE}_*/*/*.log; do echo \"== $f\"; tail -15 $f; done"
        ));
        all += &format!("{}:\n{}\n", machine.name(), logs.unwrap_or_default());
    }
    let pods = cluster.kubectl_output(&["-n", NAMESPACE, "get", "pods", "-o", "wide"]);
    let events = cluster.kubectl_output(&["-n", NAMESPACE, "get", "events"]);
    for output in [pods, events].into_iter().flatten() {
        all += &output.stdout;
    }
    all
}

#[test]
fn install_update_and_uninstall_on_kubernetes() {
    let lab = Lab::new().unwrap();
    let cluster = Cluster::with_nodes(&lab).unwrap();
    let machines = cluster.boot_nodes(&["n1", "n2"]).unwrap();
    image::load(&lab, &cluster, &machines).unwrap();
    let boots = machines.iter().map(Machine::boots).collect();
    let life = InstallLifecycle { cluster: &cluster, machines: &machines, boots };
    if let Err(error) = life.run_lifecycle() {
        panic!("{error:#}\n{}", logs(&cluster, &machines));
    }
}

/// A cluster of one machine: its pods, ours included, have nowhere to go, so it reboots without a drain.
#[test]
fn a_single_node_cluster_reboots_without_a_drain() {
    let lab = Lab::new().unwrap();
    let cluster = Cluster::with_nodes(&lab).unwrap();
    let machines = cluster.boot_nodes(&["n2"]).unwrap();
    image::load(&lab, &cluster, &machines).unwrap();
    cluster.kubectl(&["label", "node", "n2", "node-role.kubernetes.io/worker="]).unwrap();
    install(&cluster).unwrap();
    let boots = machines[0].boots();
    let alone = || -> Result<()> {
        wait_condition(&cluster, "Progressing", "False AsExpected: Cluster version is 0.1.0")?;
        cluster.apply(USERS)?;
        has_its_config(&cluster)?;
        ensure!(machines[0].boots() == boots + 1);
        let output = cluster.kubectl(&["get", "events", "-o", "jsonpath={.items[*].message}"])?;
        ensure!(
            output.contains("Drain not required") && !output.contains("Draining node"),
            "{output}"
        );
        Ok(())
    };
    if let Err(error) = alone() {
        panic!("{error:#}\n{}", logs(&cluster, &machines));
    }
}

/// Waits until the worker has the config of its pool.
fn has_its_config(cluster: &Cluster) -> Result<()> {
    wait_for("the machine to have its config", || {
        let state = annotation(cluster, "n2", "state")?;
        ensure!(state == "Done", "{state}: {}", annotation(cluster, "n2", "reason")?);
        Ok(annotation(cluster, "n2", "currentConfig")?.starts_with("rendered-worker-"))
    })
}

struct InstallLifecycle<'a> {
    cluster: &'a Cluster,
    machines: &'a [Machine],
    /// How often each machine had booted before the installation.
    boots: Vec<u32>,
}

impl InstallLifecycle<'_> {
    fn run_lifecycle(&self) -> Result<()> {
        self.check_install().context("install")?;
        self.check_metrics().context("metrics")?;
        self.check_config_change().context("change")?;
        self.check_server_auth().context("settings of the server")?;
        self.check_upgrade().context("upgrade")?;
        self.check_uninstall().context("deinstall")
    }

    /// The addresses behind a Service, as the cluster has published them.
    fn endpoints(&self, service: &str) -> Result<Vec<String>> {
        let slices = format!("/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices");
        let found = get(self.cluster, &slices)?;
        let all = found["items"].as_array().into_iter().flatten();
        let own =
            all.filter(|it| it["metadata"]["labels"]["kubernetes.io/service-name"] == service);
        let endpoint = |slice: &Value| {
            let port = slice["ports"][0]["port"].clone();
            let endpoints = slice["endpoints"].as_array().cloned().unwrap_or_default();
            endpoints
                .into_iter()
                .filter_map(move |it| Some(format!("{}:{port}", it["addresses"][0].as_str()?)))
        };
        Ok(own.flat_map(endpoint).collect())
    }

    /// Every component has a Service that finds its pods; those on the network of their hosts serve who has a token.
    fn check_metrics(&self) -> Result<()> {
        // There are more while pods are replaced, and fewer until the cluster has seen that a pod is ready.
        for (service, least) in [(OPERATOR, 1), (CONTROLLER, 2), (SERVER, 1), (DAEMON, 2)] {
            wait_for(&format!("{least} addresses of {service}"), || {
                let found = self.endpoints(service)?;
                ensure!(found.len() >= least, "{service}: {found:?}");
                Ok(true)
            })?;
        }
        self.cluster.kubectl(&["create", "serviceaccount", "prometheus"])?;
        let token = self.cluster.token("default", "prometheus")?;
        let (role, account) =
            ("--clusterrole=machinist-metrics-reader", "--serviceaccount=default:prometheus");
        let server = self.endpoints(SERVER)?.remove(0);
        wait_for("the server to refuse metrics without the right", || {
            let refused = https_get(&server, "/metrics", Some(&token), None)?;
            ensure!(refused.0 == 403, "{refused:?}");
            Ok(true)
        })?;
        self.cluster.kubectl(&["create", "clusterrolebinding", "prometheus", role, account])?;
        for (service, metric) in
            [(SERVER, "machinist_server_changed_seconds"), (DAEMON, "mcd_state")]
        {
            for address in self.endpoints(service)? {
                wait_for(&format!("the metrics of {service} at {address}"), || {
                    let (status, text) = https_get(&address, "/metrics", Some(&token), None)?;
                    ensure!(status == 200 && text.contains(metric), "{status}: {text}");
                    Ok(true)
                })?;
                let anonymous = https_get(&address, "/metrics", None, None)?;
                ensure!(anonymous.0 == 401, "{anonymous:?}");
            }
        }
        Ok(())
    }

    /// How often each machine has rebooted since.
    fn reboots(&self) -> Vec<u32> {
        let now = self.machines.iter().map(Machine::boots);
        now.zip(&self.boots).map(|(now, before)| now - before).collect()
    }

    fn check_install(&self) -> Result<()> {
        let cluster = self.cluster;
        let role = "node-role.kubernetes.io";
        cluster.kubectl(&["label", "node", "n1", &format!("{role}/control-plane=")])?;
        cluster.kubectl(&["label", "node", "n2", &format!("{role}/worker=")])?;
        install(cluster)?;
        let server = format!("https://{}:22623", self.machines[0].address());
        cluster.kubectl(&[
            "-n",
            NAMESPACE,
            "create",
            "configmap",
            "machinist-settings",
            &format!("--from-literal=apiServerURL={}", cluster.url()),
            &format!("--from-literal=serverURL={server}"),
        ])?;
        wait_condition(cluster, "Progressing", "False AsExpected: Cluster version is 0.1.0")?;
        wait_condition(cluster, "Available", "True AsExpected: Cluster has deployed 0.1.0")?;
        wait_condition(cluster, "Degraded", "False")?;
        for name in ["n1", "n2"] {
            wait_for("the machines to introduce themselves", || {
                Ok(annotation(cluster, name, "state")? == "Done")
            })?;
        }
        ensure!(self.reboots() == [0, 0], "installing restarts nothing: {:?}", self.reboots());
        Ok(())
    }

    fn check_config_change(&self) -> Result<()> {
        let (cluster, machine) = (self.cluster, &self.machines[1]);
        cluster.apply(USERS)?;
        has_its_config(cluster)?;
        ensure!(
            self.reboots() == [0, 1],
            "the worker restarted, and nobody else: {:?}",
            self.reboots()
        );
        ensure!(machine.read_file("/etc/from-cluster")? == b"cluster");
        wait_for("the machine to take pods again", || {
            Ok(node(cluster, "n2")?["spec"]["unschedulable"].is_null())
        })?;
        cluster.kubectl(&[
            "wait",
            "deployment/app",
            "--for=condition=Available",
            "--timeout=60s",
        ])?;
        let events = cluster.kubectl(&["get", "events", "-o", "jsonpath={.items[*].reason}"])?;
        for reason in ["Drain", "Reboot", "NodeDone"] {
            ensure!(events.contains(reason), "no {reason}: {events}");
        }
        self.check_server()
    }

    /// A new machine gets the same config, and trusts the server by the CA that the cluster publishes.
    fn check_server(&self) -> Result<()> {
        wait_for("the server to serve the config", || {
            Ok(self.config("none")?.contains("/etc/from-cluster"))
        })?;
        wait_for("the pointer config", || Ok(!self.pointer_config()?.is_empty()))
    }

    /// The response for a new worker that sends a token.
    fn config(&self, token: &str) -> Result<String> {
        let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps/machine-config-server-ca");
        let bundle = get(self.cluster, &path)?["data"]["ca-bundle.crt"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        let url = format!("https://{}:22623", self.machines[0].address());
        let request = http::Request::get("/config/worker")
            .header("accept", "application/vnd.coreos.ignition+json;version=3.5.0")
            .body(Vec::new())?;
        Ok(block_on(client_at(&url, &bundle, token)?.request_text(request))?)
    }

    /// The URL for workers, or empty if there is none.
    fn pointer_config(&self) -> Result<String> {
        let secret = format!("/api/v1/namespaces/{NAMESPACE}/secrets/worker-user-data-managed");
        let secret = get(self.cluster, &secret)?;
        let data = secret["data"]["userData"].as_str().unwrap_or_default();
        Ok(String::from_utf8(BASE64_STANDARD.decode(data)?)?)
    }

    /// The settings of the server: it requires the token that pointer configs contain, serves no secret, and serves the
    /// binary for the first boot.
    fn check_server_auth(&self) -> Result<()> {
        let cluster = self.cluster;
        cluster.kubectl(&["apply", "-f", &path(&deploy(ACCESS))])?;
        let mut create = Command::new(binary::machinist_binary()?);
        create.args(["token", "create", "--all-pools", "--namespace", "machinist-access"]);
        let token = command::run(create.arg("--kubeconfig").arg(cluster.kubeconfig()))?;
        let token = token.trim();
        let literal = format!("--from-literal=token={token}");
        cluster.kubectl(&["-n", NAMESPACE, "create", "secret", "generic", "pointer", &literal])?;
        let settings = format!("/api/v1/namespaces/{NAMESPACE}/configmaps/machinist-settings");
        let data = json!({"serverToken": "pointer", "sealed": "true", "firstBoot": "true"});
        merge(cluster, &settings, &json!({"data": data}))?;
        wait_for("the server to want a token", || {
            ensure!(self.config("none").is_err(), "everyone is answered");
            let open = self.config(token)?;
            for part in ["machinist-enrol.service", "machinist-firstboot.service"] {
                ensure!(open.contains(part), "no {part}");
            }
            // Only root may read it.
            Ok(!open.contains("/etc/from-cluster"))
        })?;
        wait_for("the token in the pointer config", || Ok(self.pointer_config()?.contains(token)))
    }

    fn check_upgrade(&self) -> Result<()> {
        let cluster = self.cluster;
        let before = (self.reboots(), annotation(cluster, "n2", "currentConfig")?);
        for machine in self.machines {
            let tag =
                "ctr -n k8s.io images tag localhost/machinist:0.1.0 localhost/machinist:0.2.0";
            machine.sh(tag)?;
        }
        let flat = fs::read_to_string(deploy("install.yaml"))?;
        // The binary is the same, so it must be given another release version.
        let flat = flat.replace("localhost/machinist:0.1.0", "localhost/machinist:0.2.0").replace(
            "        - {name: POD_NAME,",
            "        - {name: RELEASE_VERSION, value: 0.2.0}\n        - {name: POD_NAME,",
        );
        let file = cluster.lab().dir().join("install.yaml");
        fs::write(&file, flat)?;
        cluster.kubectl(&["apply", "-f", &path(&file)])?;
        wait_condition(cluster, "Progressing", "False AsExpected: Cluster version is 0.2.0")?;
        wait_for("two controllers, operator, server and two daemons of the new release", || {
            let images = cluster.kubectl(&[
                "-n",
                NAMESPACE,
                "get",
                "pods",
                "--field-selector=status.phase=Running",
                "-o",
                "jsonpath={.items[*].spec.containers[*].image}",
            ])?;
            ensure!(images.matches(":0.2.0").count() >= 6, "{images}");
            Ok(true)
        })?;
        let after = (self.reboots(), annotation(cluster, "n2", "currentConfig")?);
        ensure!(before == after, "no machine is touched: {before:?}, then {after:?}");
        ensure!(annotation(cluster, "n2", "state")? == "Done");
        Ok(())
    }

    fn check_uninstall(&self) -> Result<()> {
        let cluster = self.cluster;
        cluster.kubectl(&[
            "delete",
            "-k",
            &path(&deploy("system")),
            "--ignore-not-found",
            "--timeout=120s",
        ])?;
        let kinds = "clusterroles,clusterrolebindings,validatingadmissionpolicies,\
                     validatingadmissionpolicybindings,controllerconfigs,machineconfigurations,machineconfigpools";
        wait_for("what the operator made to go with its namespace", || {
            let label = ["get", kinds, "-l", "app.kubernetes.io/part-of=machinist", "-o", "name"];
            let left = cluster.kubectl(&label)?;
            ensure!(left.is_empty(), "left: {left}");
            let configs = cluster.kubectl(&["get", "machineconfigs", "-o", "name"])?;
            ensure!(configs.trim().ends_with("/50-file"), "left: {configs}");
            Ok(configs.lines().count() == 1)
        })?;
        for other_namespace in ["default", "kube-public"] {
            let label = [
                "-n",
                other_namespace,
                "get",
                "roles,rolebindings",
                "-l",
                "app.kubernetes.io/part-of=machinist",
            ];
            let left = cluster.kubectl(&[&label[..], &["-o", "name"]].concat())?;
            ensure!(left.is_empty(), "left: {left}");
        }
        ensure!(
            self.machines[1].read_file("/etc/from-cluster")? == b"cluster",
            "machines stay as they are"
        );
        ensure!(self.reboots() == [0, 1], "{:?}", self.reboots());
        cluster.kubectl(&["delete", "-f", &path(&deploy(ACCESS)), "--timeout=120s"])?;
        let everything =
            ["delete", "-k", &path(&deploy("")), "--ignore-not-found", "--timeout=120s"];
        cluster.kubectl(&everything)?;
        let kinds = cluster.kubectl(&["get", "crds", "-o", "name"])?;
        ensure!(kinds.is_empty(), "left: {kinds}");
        Ok(())
    }
}

fn path(path: &Path) -> String {
    path.display().to_string()
}
