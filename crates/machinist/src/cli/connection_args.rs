//! The flags that say which home is meant; every command that asks one has them.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use crate::kubernetes::{ConnectionOptions, connect};

/// Which home of the API is meant.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct ConnectionArgs {
    /// The kubeconfig of the home [default: $KUBECONFIG, else a hub that runs on this machine, else
    /// ~/.kube/config, else the cluster around this process]
    #[arg(long, value_name = "PATH", help_heading = "The home")]
    kubeconfig: Option<PathBuf>,

    /// The context in the kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME", help_heading = "The home")]
    context: Option<String>,
}

impl ConnectionArgs {
    /// A client for the home, which has answered once.
    ///
    /// # Errors
    /// There is none, or it does not answer; the text says what was looked for and what to do.
    pub(super) async fn client(&self) -> Result<kube::Client> {
        connect::client(&self.options()).await
    }

    /// A client for a process that runs for long.
    ///
    /// # Errors
    /// There is no home.
    pub(super) async fn long_running_client(&self) -> Result<kube::Client> {
        connect::long_running_client(&self.options()).await
    }

    /// Whether a kubeconfig is the one that is meant.
    pub(super) fn is_kubeconfig(&self, path: &std::path::Path) -> bool {
        self.kubeconfig.as_deref() == Some(path)
    }

    fn options(&self) -> ConnectionOptions {
        ConnectionOptions { kubeconfig: self.kubeconfig.clone(), context: self.context.clone() }
    }
}
