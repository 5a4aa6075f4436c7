//! A real Kubernetes control plane: etcd and kube-apiserver, within seconds.
//!
//! [`Cluster::start`] starts the API alone, on the lab's loopback address, with TLS from its own CA, Node and RBAC
//! authorisation, and certificates for any user and group. [`Cluster::with_nodes`] adds controller-manager and
//! scheduler, on the lab's bridge; its nodes are machines ([`Cluster::boot_node`]).

mod control_plane;
pub mod crds;
mod kubeconfig;
mod node;

pub use kubeconfig::KubeconfigTls;

use crate::command::{self, ExitOutput};
use crate::lab::{Lab, LabProcess};
use crate::pki::TestCa;
use crate::{block_on, environment, wait_for};
use anyhow::{Context, Result};
use control_plane::ApiEndpoint;
use kube::config::{KubeConfigOptions, Kubeconfig};
use parking_lot::{Mutex, MutexGuard};
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A Kubernetes control plane that stops when its handle is dropped.
pub struct Cluster {
    url: String,
    endpoint: ApiEndpoint,
    authority: TestCa,
    dir: PathBuf,
    client: kube::Client,
    // Fields are dropped in this order, so the processes stop in this order.
    controllers: Vec<LabProcess>,
    api: Mutex<Option<LabProcess>>,
    etcd: Mutex<Option<LabProcess>>,
    lab: Lab,
}

impl Cluster {
    /// etcd and kube-apiserver in a lab of their own.
    pub fn start() -> Result<Self> {
        Self::start_in(&Lab::new()?)
    }

    /// etcd and kube-apiserver in the given lab.
    pub fn start_in(lab: &Lab) -> Result<Self> {
        Self::start_at(lab, &ApiEndpoint::loopback(lab))
    }

    /// etcd and kube-apiserver whose watches can resume from any version, even after a restart: they read from etcd,
    /// which is slower than the watch cache.
    pub fn start_with_etcd_watches() -> Result<Self> {
        let lab = Lab::new()?;
        Self::start_at(&lab, &ApiEndpoint { watch_cache: false, ..ApiEndpoint::loopback(&lab) })
    }

    /// A whole control plane in the given lab. Machines can join it as nodes.
    pub fn with_nodes(lab: &Lab) -> Result<Self> {
        node::prepare_host(lab)?;
        let mut cluster = Self::start_at(lab, &ApiEndpoint::service(lab))?;
        let dir = cluster.dir.clone();
        let account = cluster.kubeconfig_as("system:kube-controller-manager", &[])?;
        cluster.controllers.push(control_plane::start_controller_manager(lab, &dir, &account)?);
        let account = cluster.kubeconfig_as("system:kube-scheduler", &[])?;
        cluster.controllers.push(control_plane::start_scheduler(lab, &dir, &account)?);
        Ok(cluster)
    }

    fn start_at(lab: &Lab, endpoint: &ApiEndpoint) -> Result<Self> {
        let dir = lab.create_dir("cluster")?;
        let authority = TestCa::new("machinist-testkit")?;
        let etcd = control_plane::start_etcd(lab, &dir)?;
        let api = control_plane::start_apiserver(lab, &dir, &authority, endpoint)?;
        let url = endpoint.url();
        let admin = dir.join("admin.kubeconfig");
        kubeconfig::write(&admin, &url, &authority, "admin", &["system:masters"])?;
        let client = client(&admin)?;
        let (etcd, api, controllers) = (Mutex::new(Some(etcd)), Mutex::new(Some(api)), Vec::new());
        let cluster = Self {
            url,
            endpoint: endpoint.clone(),
            authority,
            dir,
            client,
            controllers,
            api,
            etcd,
            lab: lab.clone(),
        };
        cluster.wait_until_ready()?;
        Ok(cluster)
    }

    fn wait_until_ready(&self) -> Result<()> {
        wait_for("kube-apiserver to be ready", || {
            for process in [&self.etcd, &self.api] {
                if let Some(process) = lock_process(process).as_mut() {
                    process.check_alive()?;
                }
            }
            let request = http::Request::get("/readyz").body(Vec::new())?;
            Ok(block_on(self.client.request_text(request))? == "ok")
        })
    }

    /// Kills kube-apiserver and starts it again.
    pub fn restart_api(&self) -> Result<()> {
        // The old process must be gone before the new one takes its name.
        lock_process(&self.api).take();
        let api =
            control_plane::start_apiserver(&self.lab, &self.dir, &self.authority, &self.endpoint)?;
        *lock_process(&self.api) = Some(api);
        self.wait_until_ready()
    }

    /// Kills etcd and starts it again with its data.
    pub fn restart_etcd(&self) -> Result<()> {
        lock_process(&self.etcd).take();
        *lock_process(&self.etcd) = Some(control_plane::start_etcd(&self.lab, &self.dir)?);
        self.wait_until_ready()
    }

    /// An administrator's kubeconfig with another address, such as that of a [`TcpProxy`](crate::TcpProxy).
    pub fn kubeconfig_through(&self, address: SocketAddr) -> Result<PathBuf> {
        let path = self.dir.join(format!("through-{}.kubeconfig", address.port()));
        let url = format!("https://{address}");
        kubeconfig::write(&path, &url, &self.authority, "admin", &["system:masters"])?;
        Ok(path)
    }

    /// A client with cluster-admin rights.
    pub fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// A client for a user in groups, with its own certificate.
    pub fn client_as(&self, user: &str, groups: &[&str]) -> Result<kube::Client> {
        client(&self.kubeconfig_as(user, groups)?)
    }

    /// The address of the API.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The CA that signed the API's certificate.
    pub fn authority(&self) -> &TestCa {
        &self.authority
    }

    /// The lab in which the cluster runs.
    pub fn lab(&self) -> &Lab {
        &self.lab
    }

    /// The administrator's kubeconfig, for `kubectl` and `machinist`.
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.join("admin.kubeconfig")
    }

    /// A kubeconfig of a user in groups.
    pub fn kubeconfig_as(&self, user: &str, groups: &[&str]) -> Result<PathBuf> {
        let path = self.dir.join(format!("{}.kubeconfig", user.replace([':', '/'], "-")));
        kubeconfig::write(&path, &self.url, &self.authority, user, groups)?;
        Ok(path)
    }

    /// A token of a service account, which is created if it is missing.
    pub fn token(&self, namespace: &str, account: &str) -> Result<String> {
        let exists = self.kubectl_output(&["-n", namespace, "get", "serviceaccount", account])?;
        if !exists.succeeded() {
            self.kubectl(&["-n", namespace, "create", "serviceaccount", account])?;
        }
        Ok(self.kubectl(&["-n", namespace, "create", "token", account])?.trim().to_owned())
    }

    /// Runs `kubectl` as the administrator. It must succeed.
    pub fn kubectl(&self, args: &[&str]) -> Result<String> {
        command::run(self.kubectl_command()?.args(args))
    }

    /// Runs `kubectl` as the administrator. Any exit code is accepted.
    pub fn kubectl_output(&self, args: &[&str]) -> Result<ExitOutput> {
        command::output(self.kubectl_command()?.args(args))
    }

    /// Applies manifests given as text.
    pub fn apply(&self, manifests: &str) -> Result<String> {
        let mut kubectl = self.kubectl_command()?;
        kubectl.args(["apply", "--server-side", "-f", "-"]);
        let output = command::output_with_stdin(&mut kubectl, manifests.as_bytes())?;
        command::check_success(&kubectl, &output)?;
        Ok(output.stdout)
    }

    fn kubectl_command(&self) -> Result<Command> {
        let mut kubectl = Command::new(environment::kubernetes_binary("kubectl")?);
        kubectl.env("KUBECONFIG", self.kubeconfig()).env("HOME", &self.dir);
        kubectl.env("KUBECACHEDIR", self.dir.join("kubectl"));
        Ok(kubectl)
    }

    /// The process ids of etcd and kube-apiserver.
    pub fn processes(&self) -> Vec<u32> {
        let ids = [&self.etcd, &self.api]
            .map(|process| lock_process(process).as_ref().map(LabProcess::id));
        ids.into_iter().flatten().collect()
    }

    /// Memory in use by etcd and by kube-apiserver, in bytes.
    pub fn memory(&self) -> (u64, u64) {
        let of = |process| lock_process(process).as_ref().map_or(0, LabProcess::memory);
        (of(&self.etcd), of(&self.api))
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("url", &self.url).field("lab", &self.lab).finish()
    }
}

/// Locks a process, even if a thread has panicked while it held the lock.
fn lock_process(process: &Mutex<Option<LabProcess>>) -> MutexGuard<'_, Option<LabProcess>> {
    process.lock()
}

/// A client from a kubeconfig file.
pub fn client(kubeconfig: &Path) -> Result<kube::Client> {
    let config = Kubeconfig::read_from(kubeconfig)?;
    block_on(async {
        let options = KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(config, &options).await?;
        kube::Client::try_from(config).context("make a client")
    })
}
