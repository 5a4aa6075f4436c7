//! `machinist hub revoke`: the certificates of a machine stop to work.

use anyhow::{Context as _, Result};
use clap::Args;
use serde_json::Value;

use super::super::up::DataDirArgs;
use super::super::{CommandOutcome, output};
use super::{hub_client, runtime};

/// Revoke the certificates of machines that were lost or stolen
///
/// Takes effect with the machine's next request, also on open connections. Its Node stays: delete it with
/// machinist delete node NAME. The machine can join again with a new token.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist hub revoke w1")]
pub(in crate::cli) struct RevokeMachineArgs {
    #[command(flatten)]
    data_dir: DataDirArgs,

    /// The names of the machines' Nodes
    #[arg(required = true, value_name = "NODE")]
    nodes: Vec<String>,
}

impl RevokeMachineArgs {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        runtime()?.block_on(async {
            let client = hub_client(&self.data_dir).await?;
            for node in &self.nodes {
                let path = format!("/machinist/v1/machines/{node}");
                let request = http::Request::delete(path)
                    .body(Vec::new())
                    .with_context(|| format!("Node {node:?}: this is not a name"))?;
                let revoked: kube::Result<Value> = client.request(request).await;
                revoked.with_context(|| format!("cannot revoke the certificates of {node}"))?;
                output::print(&format!("the certificates of {node} are revoked\n"))?;
            }
            Ok(CommandOutcome::Done)
        })
    }
}
