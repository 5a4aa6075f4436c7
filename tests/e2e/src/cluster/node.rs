//! Nodes that are machines: containerd, the kubelet and pods on Debian in systemd-nspawn.

use super::{Cluster, kubeconfig};
use crate::lab::{Lab, NetworkPort, ip};
use crate::machine::{Machine, MachineBuilder};
use crate::{ContainerImage, block_on, cache, environment, wait_for};
use anyhow::{Context, Result, anyhow};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use serde_json::json;
use std::fs;
use std::thread;

/// Kernel settings that the kubelet requires. Machines share the host's kernel and cannot change them.
const KERNEL_SETTINGS: [(&str, &str); 7] = [
    ("net/ipv4/ip_forward", "1"),
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

/// The unit of the kubelet's package.
const KUBEADM_UNIT: &str = "[Unit]
Description=kubelet: The Kubernetes Node Agent
Wants=containerd.service
After=containerd.service

[Service]
ExecStart=/usr/local/bin/kubelet
Restart=always
StartLimitInterval=0
RestartSec=1

[Install]
WantedBy=multi-user.target
";

/// The drop-in of kubeadm's package.
const KUBEADM_DROP_IN: &str = r#"[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf"
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart=/usr/local/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
"#;

/// Prepares the host for nodes: kernel settings, and the address of the API on the bridge.
pub(super) fn prepare_host(lab: &Lab) -> Result<()> {
    for (name, value) in KERNEL_SETTINGS {
        let file = format!("/proc/sys/{name}");
        if fs::read_to_string(&file).with_context(|| format!("read {file}"))?.trim() != value {
            fs::write(&file, value)
                .with_context(|| format!("environment: {file} cannot be set to {value}"))?;
        }
    }
    lab.create_bridge()?;
    ip(&format!("addr add 10.79.{}.1/32 dev {}", lab.number(), lab.name()))
}

impl Cluster {
    /// Boots a machine that joins as a node, and waits until it is Ready.
    pub fn boot_node(&self, name: &str) -> Result<Machine> {
        self.boot_with_layout(name, false)
    }

    fn boot_with_layout(&self, name: &str, is_kubeadm: bool) -> Result<Machine> {
        let store = self.lab.create_dir(&format!("{name}-containerd"))?;
        let machine = self
            .lab
            .machine(name)
            .layer(cache::artifact("node")?.join("layer"))
            .bind(&store, "/var/lib/containerd");
        self.join(name, machine, is_kubeadm)
    }

    /// Boots an ostree machine from `debian-node/v1` that joins as a node, and waits until it is Ready.
    pub fn boot_ostree_node(&self, name: &str) -> Result<Machine> {
        self.join(name, self.lab.ostree_machine(name).image("debian-node/v1"), false)
    }

    fn join(&self, name: &str, machine: MachineBuilder, is_kubeadm: bool) -> Result<Machine> {
        let port = self.lab.create_port()?;
        let pods = format!("10.{}.{}.0/24", 70 + u16::from(port.host), self.lab.number());
        ip(&format!("route add {pods} via {}", port.address))?;
        let kubelet = environment::kubernetes_binary("kubelet")?;
        let mut machine = machine.for_kubelet().with_local_binary(&kubelet, "kubelet");
        for (path, contents) in self.node_files(name, &port, &pods)? {
            machine = machine.file(path, contents);
        }
        if is_kubeadm {
            for (path, contents) in self.kubeadm_files(name, &port)? {
                machine = machine.file(path, contents);
            }
        }
        let registry = format!("{}:{}", self.lab.address(), crate::image_registry::PORT);
        let hosts = format!(
            "server = \"http://{registry}\"\n[host.\"http://{registry}\"]\n\
             capabilities = [\"pull\", \"resolve\"]\n"
        );
        machine = machine.file(&format!("/etc/containerd/certs.d/{registry}/hosts.toml"), hosts);
        let machine = machine.with_port(port).boot()?;
        self.wait_ready(&machine)?;
        Ok(machine)
    }

    /// Boots machines that join as nodes, all at once.
    pub fn boot_nodes(&self, names: &[&str]) -> Result<Vec<Machine>> {
        self.boot_all(names, false)
    }

    /// The same with the files that kubeadm would have written: kubeconfig, settings, unit and drop-in.
    pub fn boot_kubeadm_nodes(&self, names: &[&str]) -> Result<Vec<Machine>> {
        self.boot_all(names, true)
    }

    fn boot_all(&self, names: &[&str], is_kubeadm: bool) -> Result<Vec<Machine>> {
        thread::scope(|scope| {
            let boot = |name| scope.spawn(move || self.boot_with_layout(name, is_kubeadm));
            let threads: Vec<_> = names.iter().map(|name| boot(*name)).collect();
            let join = |thread: thread::ScopedJoinHandle<'_, Result<Machine>>| {
                thread.join().map_err(|_| anyhow!("a node's thread panicked"))?
            };
            threads.into_iter().map(join).collect()
        })
    }

    fn node_files(
        &self,
        name: &str,
        port: &NetworkPort,
        pods: &str,
    ) -> Result<Vec<(&'static str, Vec<u8>)>> {
        let user = format!("system:node:{name}");
        let identity = self.authority.issue(&user, &["system:nodes"], &[&port.address, name])?;
        let config = kubeconfig::text(&self.url, &self.authority, &user, &["system:nodes"])?;
        let labels = "kubernetes.io/os=linux";
        let image = ContainerImage::sleeping()?;
        let network = json!({
            "cniVersion": "0.4.0",
            "name": "testkit",
            "plugins": [
                {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false, "ipam": {
                    "type": "host-local", "ranges": [[{"subnet": pods}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                }},
                {"type": "portmap", "capabilities": {"portMappings": true}},
            ],
        });
        Ok(vec![
            ("/etc/hostname", format!("{name}\n").into()),
            ("/etc/resolv.conf", "nameserver 192.0.2.10\n".into()),
            ("/etc/kubernetes/ca.crt", self.authority.certificate().into()),
            ("/etc/kubernetes/kubelet.crt", identity.certificate.into()),
            ("/etc/kubernetes/kubelet.key", identity.key.into()),
            ("/etc/kubernetes/kubelet.kubeconfig", config.into()),
            (
                "/etc/kubernetes/node.env",
                format!("NODE_IP={}\nNODE_LABELS={labels}\n", port.address).into(),
            ),
            ("/etc/cni/net.d/10-testkit.conflist", network.to_string().into()),
            ("/var/lib/testkit/images/busybox.tar", image.archive("localhost/busybox:1")?),
            ("/var/lib/testkit/images/pause.tar", image.archive("localhost/pause:1")?),
        ])
    }

    /// The layout of kubeadm, with its unit and its drop-in.
    fn kubeadm_files(
        &self,
        name: &str,
        port: &NetworkPort,
    ) -> Result<Vec<(&'static str, Vec<u8>)>> {
        let user = format!("system:node:{name}");
        let config = kubeconfig::text(&self.url, &self.authority, &user, &["system:nodes"])?;
        let settings = "scripts/testkit/node/files/etc/kubernetes/kubelet.yaml";
        let arguments = format!(
            "--hostname-override={name} --node-ip={} --node-labels=kubernetes.io/os=linux",
            port.address
        );
        Ok(vec![
            ("/etc/kubernetes/kubelet.conf", config.into()),
            ("/var/lib/kubelet/config.yaml", fs::read(cache::source_root().join(settings))?),
            (
                "/var/lib/kubelet/kubeadm-flags.env",
                format!("KUBELET_KUBEADM_ARGS=\"{arguments}\"\n").into(),
            ),
            ("/etc/default/kubelet", "KUBELET_EXTRA_ARGS=--max-open-files=1000001\n".into()),
            ("/etc/systemd/system/kubelet.service", KUBEADM_UNIT.into()),
            ("/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf", KUBEADM_DROP_IN.into()),
        ])
    }

    /// Waits until a machine's node is Ready in its current boot. The API may still show the previous one.
    pub fn wait_ready(&self, machine: &Machine) -> Result<()> {
        let nodes = Api::<Node>::all(self.client());
        machine.wait_for("its node to be Ready", |machine| {
            let Some(node) = block_on(nodes.get_opt(machine.name()))? else { return Ok(false) };
            let status = node.status.unwrap_or_default();
            let boot = status.node_info.map(|info| info.boot_id).unwrap_or_default();
            let conditions = status.conditions.unwrap_or_default();
            let ready = conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True");
            Ok(ready && boot == machine.boot_id()?)
        })
    }

    /// Waits until a pod runs, all its containers are ready, and it has restarted at least `restarts` times.
    pub fn wait_pod(&self, namespace: &str, pod: &str, restarts: i32) -> Result<Pod> {
        let pods = Api::<Pod>::namespaced(self.client(), namespace);
        let mut found = None;
        wait_for(&format!("pod {pod} to run"), || {
            found = block_on(pods.get_opt(pod))?;
            let status = found.as_ref().and_then(|pod| pod.status.as_ref());
            let containers = status.and_then(|status| status.container_statuses.as_ref());
            Ok(containers.is_some_and(|containers| {
                containers.iter().all(|c| c.ready && c.restart_count >= restarts)
            }))
        })?;
        found.context("the pod is gone again")
    }

    /// Loads an image into a node under a name that pods can use with `imagePullPolicy: Never`.
    pub fn load_image(&self, machine: &Machine, name: &str, image: &ContainerImage) -> Result<()> {
        self.load_archive(machine, &image.archive(name)?)
    }

    /// Loads a tar file as `docker save` writes it. The image name is in the file.
    pub fn load_archive(&self, machine: &Machine, archive: &[u8]) -> Result<()> {
        let file = "/var/lib/testkit/image.tar";
        machine.write_file(file, archive)?;
        machine.sh(&format!("ctr -n k8s.io images import {file} && rm {file}")).map(drop)
    }
}
