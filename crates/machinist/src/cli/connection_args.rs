//! The flags that select the API server: a hub or a Kubernetes cluster.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use crate::kubernetes::{ConnectionOptions, connect};

/// Which API server to connect to.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct ConnectionArgs {
    /// The kubeconfig to connect with [default: $KUBECONFIG, else a hub that runs on this machine, else
    /// ~/.kube/config, else the cluster that this process runs in]
    #[arg(long, value_name = "PATH", help_heading = "API server")]
    kubeconfig: Option<PathBuf>,

    /// The context in the kubeconfig [default: its current context]
    #[arg(long, value_name = "NAME", help_heading = "API server")]
    context: Option<String>,
}

impl ConnectionArgs {
    /// A client for an API server that has responded once.
    ///
    /// # Errors
    /// There is no API server, or it does not respond. The error names the places searched and a remedy.
    pub(super) async fn client(&self) -> Result<kube::Client> {
        connect::client(&self.options()).await
    }

    /// A client for a long-running process. The API server may be down at the start.
    ///
    /// # Errors
    /// No kubeconfig was found.
    pub(super) async fn long_running_client(&self) -> Result<kube::Client> {
        connect::long_running_client(&self.options()).await
    }

    /// Whether `--kubeconfig` names this file.
    pub(super) fn is_kubeconfig(&self, path: &std::path::Path) -> bool {
        self.kubeconfig.as_deref() == Some(path)
    }

    fn options(&self) -> ConnectionOptions {
        ConnectionOptions { kubeconfig: self.kubeconfig.clone(), context: self.context.clone() }
    }
}
