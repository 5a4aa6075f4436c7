//! The daemon as a privileged pod on a node of a real Kubernetes cluster: the kubelet owns the Node, the machine's root
//! is mounted, and the machine reboots while the pod runs.

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use machinist_e2e::{Cluster, Lab, Machine, binary, block_on, wait_for};
use std::fs;
use std::process::Command;

/// The binary comes from the machine, with the libraries that it was linked with.
const DAEMON: &str = r#"
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: machine-config-daemon, namespace: default}
spec:
  selector: {matchLabels: {k8s-app: machine-config-daemon}}
  template:
    metadata: {labels: {k8s-app: machine-config-daemon}}
    spec:
      hostPID: true
      hostNetwork: true
      tolerations: [{operator: Exists}]
      containers:
      - name: daemon
        image: localhost/busybox:1
        imagePullPolicy: Never
        command:
        - /rootfs/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2
        - --library-path
        - /rootfs/usr/lib/x86_64-linux-gnu
        - /rootfs/usr/local/bin/machinist
        - daemon
        - --kubeconfig=/rootfs/etc/kubernetes/kubelet.kubeconfig
        - --root-mount=/rootfs
        env: [{name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]
        securityContext: {privileged: true}
        volumeMounts: [{name: root, mountPath: /rootfs, mountPropagation: HostToContainer}]
      volumes: [{name: root, hostPath: {path: /}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: machine-config-daemon}
rules:
- apiGroups: [machineconfiguration.openshift.io]
  resources: [machineconfigs, machineconfigpools, controllerconfigs]
  verbs: [get, list, watch]
- apiGroups: [machineconfiguration.openshift.io]
  resources: [machineconfignodes, machineconfignodes/status]
  verbs: [get, create, update, patch]
- apiGroups: [operator.openshift.io]
  resources: [machineconfigurations]
  verbs: [get]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: machine-config-daemon}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: machine-config-daemon}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:nodes"}]
---
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfigPool
metadata: {name: worker}
spec:
  machineConfigSelector: {matchLabels: {machineconfiguration.openshift.io/role: worker}}
  nodeSelector: {matchLabels: {node-role.kubernetes.io/worker: ""}}
"#;

const CONFIG: &str = r#"
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata: {name: 50-file, labels: {machineconfiguration.openshift.io/role: worker}}
spec:
  config:
    ignition: {version: 3.5.0}
    storage: {files: [{path: /etc/from-pod, mode: 384, contents: {source: "data:,pod"}}]}
"#;

fn annotation(cluster: &Cluster, key: &str) -> anyhow::Result<String> {
    let node = block_on(Api::<Node>::all(cluster.client()).get("n1"))?;
    let key = format!("machineconfiguration.openshift.io/{key}");
    Ok(node.metadata.annotations.unwrap_or_default().get(&key).cloned().unwrap_or_default())
}

/// The logs of the pod and the controller.
fn logs(cluster: &Cluster, machine: &Machine) -> String {
    let pod =
        machine.sh("cat /var/log/pods/default_machine-config-daemon*/daemon/*.log | tail -40");
    let pods = cluster.kubectl_output(&["describe", "pods"]).map(|output| output.stdout);
    format!("{}\n{}", pod.unwrap_or_default(), pods.unwrap_or_default())
}

#[test]
fn a_daemon_pod_manages_its_node() {
    let lab = Lab::new().unwrap();
    let cluster = Cluster::with_nodes(&lab).unwrap();
    cluster.install_our_crds().unwrap();
    let mut controller = Command::new(binary::machinist_binary().unwrap());
    controller.arg("controller").arg("--kubeconfig").arg(cluster.kubeconfig());
    controller.arg("--metrics-listen-address").arg(format!("{}:8797", lab.loopback()));
    let _controller = lab.spawn("controller", &controller).unwrap();
    let machine = cluster.boot_node("n1").unwrap();
    let binary = fs::read(binary::machinist_binary().unwrap()).unwrap();
    machine.write_executable("/usr/local/bin/machinist", binary).unwrap();
    cluster.apply(DAEMON).unwrap();
    cluster.kubectl(&["label", "node", "n1", "node-role.kubernetes.io/worker="]).unwrap();
    let wait = |what: &str, condition: &dyn Fn() -> anyhow::Result<bool>| {
        if let Err(error) = wait_for(what, condition) {
            panic!("{error:#}\n{}", logs(&cluster, &machine));
        }
    };
    wait("the machine to introduce itself", &|| Ok(annotation(&cluster, "state")? == "Done"));
    let boots = machine.boots();
    cluster.apply(CONFIG).unwrap();
    wait("the machine to have its config", &|| {
        let (state, current) =
            (annotation(&cluster, "state")?, annotation(&cluster, "currentConfig")?);
        anyhow::ensure!(state == "Done", "{state}: {}", annotation(&cluster, "reason")?);
        Ok(current.starts_with("rendered-worker-"))
    });
    assert_eq!(machine.boots(), boots + 1);
    assert_eq!(machine.read_file("/etc/from-pod").unwrap(), b"pod");
    assert_eq!(machine.sh("stat -c %a /etc/from-pod").unwrap(), "600\n");
    cluster.wait_ready(&machine).unwrap();
    let node = block_on(Api::<Node>::all(cluster.client()).get("n1")).unwrap();
    assert_ne!(node.spec.unwrap().unschedulable, Some(true));
    let events = cluster.kubectl(&["get", "events", "-o", "jsonpath={.items[*].reason}"]).unwrap();
    for reason in ["Drain", "Reboot", "NodeDone"] {
        assert!(events.contains(reason), "no {reason}: {events}");
    }
}
