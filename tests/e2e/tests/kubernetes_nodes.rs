//! The kit's cluster with nodes that are machines.

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::ListParams;
use machinist_e2e::{
    Cluster, ContainerImage, ImageRegistry, Lab, block_on, measurements, wait_for,
};

/// A privileged pod on every node, with the machine's root at /rootfs.
const DAEMON: &str = r#"
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: daemon, namespace: default}
spec:
  selector: {matchLabels: {app: daemon}}
  template:
    metadata: {labels: {app: daemon}}
    spec:
      hostPID: true
      hostNetwork: true
      tolerations: [{operator: Exists}]
      containers:
      - name: daemon
        image: localhost/busybox:1
        imagePullPolicy: Never
        securityContext: {privileged: true}
        volumeMounts: [{name: root, mountPath: /rootfs, mountPropagation: HostToContainer}]
      volumes: [{name: root, hostPath: {path: /}}]
"#;

/// Two pods that a budget protects, with an image from a registry.
const GUARDED: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: guarded, namespace: default}
spec:
  replicas: 2
  selector: {matchLabels: {app: guarded}}
  template:
    metadata: {labels: {app: guarded}}
    spec:
      nodeSelector: {guarded: "yes"}
      containers: [{name: app, image: "IMAGE"}]
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: guarded, namespace: default}
spec:
  minAvailable: 2
  selector: {matchLabels: {app: guarded}}
"#;

fn pod_on(cluster: &Cluster, app: &str, node: &str) -> String {
    let pods = Api::<Pod>::namespaced(cluster.client(), "default");
    let params = ListParams::default()
        .labels(&format!("app={app}"))
        .fields(&format!("spec.nodeName={node}"));
    let mut name = None;
    wait_for(&format!("a pod of {app} on {node}"), || {
        name = block_on(pods.list(&params))?.items.pop().and_then(|pod| pod.metadata.name);
        Ok(name.is_some())
    })
    .unwrap();
    name.unwrap()
}

#[test]
fn a_daemon_pod_reboots_its_machine_and_a_budget_holds_a_drain() {
    let lab = Lab::new().unwrap();
    let cluster =
        measurements::measure("control-plane-start", || Cluster::with_nodes(&lab)).unwrap();
    cluster.apply(DAEMON).unwrap();
    let nodes =
        measurements::measure("three-nodes-ready", || cluster.boot_nodes(&["n1", "n2", "n3"]))
            .unwrap();
    let listed = block_on(Api::<Node>::all(cluster.client()).list(&ListParams::default())).unwrap();
    assert_eq!(listed.items.len(), 3);

    // The pod manages its machine and reboots it.
    let pod = pod_on(&cluster, "daemon", "n1");
    cluster.wait_pod("default", &pod, 0).unwrap();
    let inside = |script: &str| {
        cluster.kubectl(&["exec", &pod, "--", "chroot", "/rootfs", "sh", "-c", script])
    };
    inside("echo pod >/etc/from-pod").unwrap();
    assert_eq!(nodes[0].read_file("/etc/from-pod").unwrap(), b"pod\n");
    assert_eq!(inside("systemctl is-active kubelet").unwrap().trim(), "active");
    nodes[0].wait_for_reboot_during(|_| inside("systemctl --no-block reboot").map(drop)).unwrap();
    cluster.wait_ready(&nodes[0]).unwrap();
    cluster.wait_pod("default", &pod, 1).unwrap();

    // Images are loaded into a node without a registry.
    cluster.load_image(&nodes[1], "localhost/own:1", &ContainerImage::sleeping().unwrap()).unwrap();
    let images = nodes[1].sh("ctr -n k8s.io images ls -q").unwrap();
    assert!(images.contains("localhost/own:1"), "{images}");

    // A drain that would violate the budget waits; without the budget it completes.
    cluster.kubectl(&["label", "node", "n2", "n3", "guarded=yes"]).unwrap();
    let registry = ImageRegistry::start(&lab).unwrap();
    let image = registry.push("test/app:1", &ContainerImage::sleeping().unwrap()).unwrap();
    cluster.apply(&GUARDED.replace("IMAGE", &image)).unwrap();
    cluster
        .kubectl(&["wait", "--for=condition=Available", "--timeout=60s", "deployment/guarded"])
        .unwrap();
    let pods = Api::<Pod>::namespaced(cluster.client(), "default");
    let one =
        block_on(pods.list(&ListParams::default().labels("app=guarded"))).unwrap().items.remove(0);
    let node = one.spec.unwrap().node_name.unwrap();
    let drain = |timeout: &str| {
        let timeout = format!("--timeout={timeout}");
        cluster.kubectl_output(&["drain", &node, "--ignore-daemonsets", &timeout]).unwrap()
    };
    let held = drain("3s");
    assert!(!held.succeeded() && held.stderr.contains("disruption budget"), "{held:?}");
    cluster.kubectl(&["delete", "poddisruptionbudget", "guarded"]).unwrap();
    let done = drain("60s");
    assert!(done.succeeded(), "{done:?}");
}

#[test]
fn a_daemon_pod_updates_the_image_of_its_machine() {
    let lab = Lab::new().unwrap();
    let cluster = Cluster::with_nodes(&lab).unwrap();
    cluster.apply(DAEMON).unwrap();
    let node = cluster.boot_ostree_node("n1").unwrap();
    let pod = pod_on(&cluster, "daemon", "n1");
    cluster.wait_pod("default", &pod, 0).unwrap();
    let inside = |script: &str| {
        cluster.kubectl(&["exec", &pod, "--", "chroot", "/rootfs", "sh", "-c", script])
    };
    inside("echo mine >/etc/local").unwrap();
    node.pull("debian-node/v2").unwrap();
    inside("ostree admin deploy --stage --karg-append=testkit=v2 debian-node/v2").unwrap();
    // Not before systemd has seen the staged update, because it finalizes only what it has seen.
    inside("until systemctl is-active --quiet ostree-finalize-staged.service; do sleep 0.1; done")
        .unwrap();
    node.wait_for_reboot_during(|_| inside("systemctl --no-block reboot").map(drop)).unwrap();
    cluster.wait_ready(&node).unwrap();
    cluster.wait_pod("default", &pod, 1).unwrap();
    let found = inside("cat /usr/lib/testkit-version /etc/local /proc/cmdline").unwrap();
    assert!(found.starts_with("v2\nmine\n") && found.contains("testkit=v2"), "{found}");
}
