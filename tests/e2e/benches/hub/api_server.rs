//! The two API servers that the benchmark compares.

use anyhow::{Context, Result};
use machinist_e2e::lab::LabProcess;
use machinist_e2e::{Cluster, Lab, binary, block_on, cache, cluster, wait_for};
use std::path::PathBuf;
use std::process::Command;

/// A running API server.
pub(crate) struct BenchApiServer {
    pub(crate) name: &'static str,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) address: String,
    keep: BenchBackend,
}

enum BenchBackend {
    Cluster(Box<Cluster>),
    Hub(LabProcess, #[expect(dead_code, reason = "it owns the process")] Lab),
}

impl BenchApiServer {
    /// `machinist up`.
    pub(crate) fn hub() -> Result<Self> {
        let lab = Lab::on_disk()?;
        let data = lab.create_dir("hub")?;
        let kubeconfig = data.join("kubeconfig");
        let address = format!("{}:6443", lab.loopback());
        let mut up = Command::new(binary::machinist_binary()?);
        up.arg("up").arg("--data").arg(&data).arg("--api-listen").arg(&address);
        let mut process = lab.spawn("machinist-up", &up)?;
        wait_for("the hub to be ready", || {
            process.check_alive()?;
            let client = cluster::client(&kubeconfig)?;
            let request = http::Request::get("/readyz").body(Vec::new())?;
            Ok(block_on(client.request_text(request)).is_ok())
        })?;
        Ok(Self { name: "hub", kubeconfig, address, keep: BenchBackend::Hub(process, lab) })
    }

    /// kube-apiserver with etcd, which does not sync its writes to disk here.
    pub(crate) fn kubernetes() -> Result<Self> {
        let cluster = Cluster::start()?;
        let crds = cache::source_root().join("deploy/crds");
        cluster.install_crds(&[crds.as_path()])?;
        let address = cluster.url().strip_prefix("https://").context("no https")?.to_owned();
        let kubeconfig = cluster.kubeconfig();
        let keep = BenchBackend::Cluster(Box::new(cluster));
        Ok(Self { name: "kube-apiserver + etcd", kubeconfig, address, keep })
    }

    /// Memory in use, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        match &self.keep {
            BenchBackend::Hub(process, _) => process.memory(),
            BenchBackend::Cluster(cluster) => {
                let (etcd, api) = cluster.memory();
                etcd + api
            }
        }
    }

    pub(crate) fn processes(&self) -> Vec<u32> {
        match &self.keep {
            BenchBackend::Hub(process, _) => vec![process.id()],
            BenchBackend::Cluster(cluster) => cluster.processes(),
        }
    }
}
