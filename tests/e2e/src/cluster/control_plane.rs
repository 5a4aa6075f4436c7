//! The processes of the control plane.

use crate::environment;
use crate::lab::{Lab, LabProcess};
use crate::pki::TestCa;
use anyhow::Result;
use std::path::Path;
use std::process::Command;

/// The client port of etcd on the lab's loopback address.
fn etcd_url(lab: &Lab) -> String {
    format!("http://{}:2379", lab.loopback())
}

/// Starts etcd without syncing: the data of a test need not survive a crash of the host.
pub(super) fn start_etcd(lab: &Lab, dir: &Path) -> Result<LabProcess> {
    let client = etcd_url(lab);
    let peer = format!("http://{}:2380", lab.loopback());
    let mut etcd = Command::new(environment::find_tool("etcd")?);
    etcd.arg("--data-dir").arg(dir.join("etcd")).arg("--unsafe-no-fsync").args([
        "--name=default",
        "--log-level=warn",
        "--quota-backend-bytes=4294967296",
        &format!("--listen-client-urls={client}"),
        &format!("--advertise-client-urls={client}"),
        &format!("--listen-peer-urls={peer}"),
        &format!("--initial-advertise-peer-urls={peer}"),
        &format!("--initial-cluster=default={peer}"),
    ]);
    // An etcd that runs on this host may have set these variables for itself.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ETCD_") {
            etcd.env_remove(name);
        }
    }
    lab.spawn("etcd", &etcd)
}

/// Where the API listens.
#[derive(Debug, Clone)]
pub(super) struct ApiEndpoint {
    pub(super) address: String,
    pub(super) port: u16,
    /// The addresses of services; the first one is the API's own.
    pub(super) services: String,
    /// Whether watches are served from the watch cache.
    pub(super) watch_cache: bool,
}

impl ApiEndpoint {
    /// The API on the lab's loopback address, for a cluster without machines.
    pub(super) fn loopback(lab: &Lab) -> Self {
        let services = "10.96.0.0/24".to_owned();
        Self { address: lab.loopback(), port: 6443, services, watch_cache: true }
    }

    /// The API on the first service address, which becomes an address of the lab's bridge. Clients in pods find the API
    /// where Kubernetes says it is, without kube-proxy and DNS.
    pub(super) fn service(lab: &Lab) -> Self {
        let number = lab.number();
        let services = format!("10.79.{number}.0/24");
        Self { address: format!("10.79.{number}.1"), port: 443, services, watch_cache: true }
    }

    pub(super) fn url(&self) -> String {
        format!("https://{}:{}", self.address, self.port)
    }
}

/// Starts kube-apiserver. It accepts requests a little later.
pub(super) fn start_apiserver(
    lab: &Lab,
    dir: &Path,
    authority: &TestCa,
    endpoint: &ApiEndpoint,
) -> Result<LabProcess> {
    let names = [endpoint.address.as_str(), "localhost", "kubernetes.default.svc"];
    let (certificate, key) =
        authority.issue("kube-apiserver", &[], &names)?.write_files(dir, "api")?;
    let (kubelet_certificate, kubelet_key) = authority
        .issue("kube-apiserver", &["system:masters"], &[])?
        .write_files(dir, "api-kubelet")?;
    let (ca, ca_key) = authority.identity().write_files(dir, "ca")?;
    let mut server = Command::new(environment::kubernetes_binary("kube-apiserver")?);
    server.args([
        format!("--etcd-servers={}", etcd_url(lab)),
        format!("--bind-address={}", endpoint.address),
        format!("--secure-port={}", endpoint.port),
        format!("--service-cluster-ip-range={}", endpoint.services),
        format!("--advertise-address={}", lab.address()),
        format!("--watch-cache={}", endpoint.watch_cache),
        option("tls-cert-file", &certificate),
        option("tls-private-key-file", &key),
        option("client-ca-file", &ca),
        option("kubelet-client-certificate", &kubelet_certificate),
        option("kubelet-client-key", &kubelet_key),
        option("kubelet-certificate-authority", &ca),
        // The CA's key signs tokens too: any key will do, and this one exists.
        option("service-account-key-file", &ca),
        option("service-account-signing-key-file", &ca_key),
        option("cert-dir", dir),
    ]);
    server.args([
        "--allow-privileged=true",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--enable-bootstrap-token-auth",
        "--kubelet-preferred-address-types=InternalIP",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--endpoint-reconciler-type=none",
        "--profiling=false",
        // The test is the only client, so fair sharing is not needed. Estimating the cost of lists needs more than
        // Debian's etcd supports and only fills the log.
        "--enable-priority-and-fairness=false",
        "--feature-gates=SizeBasedListCostEstimate=false",
        "--max-requests-inflight=3000",
        "--max-mutating-requests-inflight=1000",
    ]);
    lab.spawn("kube-apiserver", &server)
}

/// Starts kube-controller-manager. A silent node becomes NotReady sooner than by default, because tests wait for it.
pub(super) fn start_controller_manager(
    lab: &Lab,
    dir: &Path,
    kubeconfig: &Path,
) -> Result<LabProcess> {
    let (ca, key) = (dir.join("ca.crt"), dir.join("ca.key"));
    let mut manager = Command::new(environment::kubernetes_binary("kube-controller-manager")?);
    manager.args([
        option("kubeconfig", kubeconfig),
        option("root-ca-file", &ca),
        option("service-account-private-key-file", &key),
        option("cluster-signing-cert-file", &ca),
        option("cluster-signing-key-file", &key),
        option("cert-dir", dir),
        format!("--bind-address={}", lab.loopback()),
    ]);
    manager.args([
        "--leader-elect=false",
        "--use-service-account-credentials=true",
        "--node-monitor-grace-period=20s",
        "--node-monitor-period=2s",
    ]);
    lab.spawn("kube-controller-manager", &manager)
}

/// Starts kube-scheduler.
pub(super) fn start_scheduler(lab: &Lab, dir: &Path, kubeconfig: &Path) -> Result<LabProcess> {
    let mut scheduler = Command::new(environment::kubernetes_binary("kube-scheduler")?);
    scheduler.args([option("kubeconfig", kubeconfig), option("cert-dir", dir)]);
    scheduler.arg(format!("--bind-address={}", lab.loopback())).arg("--leader-elect=false");
    lab.spawn("kube-scheduler", &scheduler)
}

fn option(name: &str, path: &Path) -> String {
    format!("--{name}={}", path.display())
}
