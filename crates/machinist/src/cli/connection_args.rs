//! The flags that select the API server: a hub or a Kubernetes cluster.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use crate::kubernetes::bounded_responses::ResponseLimit;
use crate::kubernetes::{ConnectionOptions, connect};

/// Which API server to connect to.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct ConnectionArgs {
    /// The kubeconfig to connect with [default: $KUBECONFIG, else a hub that runs on this machine (of this user, then
    /// the service of the package), else ~/.kube/config, else the cluster that this process runs in]
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
        connect::long_running_client(&self.options(), ResponseLimit::LISTS).await
    }

    /// The same for the daemon of a machine, which reads no long lists.
    pub(super) async fn machine_client(&self) -> Result<kube::Client> {
        connect::long_running_client(&self.options(), ResponseLimit::MACHINE).await
    }

    /// Whether `--kubeconfig` names this file.
    pub(super) fn is_kubeconfig(&self, path: &std::path::Path) -> bool {
        self.kubeconfig.as_deref() == Some(path)
    }

    /// The same with this kubeconfig, if the user names none and the file exists.
    pub(super) fn or_kubeconfig(&self, path: &std::path::Path) -> Self {
        let names_one = self.kubeconfig.is_some()
            || self.context.is_some()
            || std::env::var_os("KUBECONFIG").is_some_and(|list| !list.is_empty());
        let own = Some(path.to_owned()).filter(|path| !names_one && path.exists());
        Self { kubeconfig: own.or_else(|| self.kubeconfig.clone()), context: self.context.clone() }
    }

    fn options(&self) -> ConnectionOptions {
        ConnectionOptions { kubeconfig: self.kubeconfig.clone(), context: self.context.clone() }
    }
}
