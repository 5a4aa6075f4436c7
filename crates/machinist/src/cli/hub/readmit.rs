//! `machinist hub readmit`: tokens with which machines that a hub knows join it again, after its CA was lost.

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use super::super::up::DataDirArgs;
use super::super::{CommandOutcome, output};
use super::{hub_client, runtime};

/// The prefix of the labels with the roles of a Node.
const ROLE_LABEL_PREFIX: &str = "node-role.kubernetes.io/";
/// How many Nodes one request lists.
const PAGE: u32 = 500;

/// Print a token for each machine that has to join again, because the CA of its hub was lost
///
/// Prints a line with the name and the token of each machine. A token is valid for its machine only, once, within its
/// pools, and for 24 hours. Run machinist join with it on the machine, with the new CA: the machine keeps its name, its
/// config and its files. Certificates of the lost CA are never accepted, whoever has them.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  machinist hub readmit w1 w2\n  machinist hub readmit --all >tokens"
)]
pub(in crate::cli) struct ReadmitArgs {
    #[command(flatten)]
    data_dir: DataDirArgs,

    /// Every Node that the hub has. Delete the Nodes of machines that were lost or stolen first
    #[arg(long, conflicts_with = "nodes", required_unless_present = "nodes")]
    all: bool,

    /// The names of the machines' Nodes
    #[arg(value_name = "NODE")]
    nodes: Vec<String>,
}

impl ReadmitArgs {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        runtime()?.block_on(async {
            let client = hub_client(&self.data_dir).await?;
            // All are read before the first token is made: a wrong name costs nothing.
            for node in self.find(&client).await? {
                let name = node.name_any();
                let token = create_token(&client, &node)
                    .await
                    .with_context(|| format!("Node {name}: the hub did not create a token"))?;
                output::print(&format!("{name} {token}\n"))?;
            }
            Ok(CommandOutcome::Done)
        })
    }

    async fn find(&self, client: &Client) -> Result<Vec<Node>> {
        let api: Api<Node> = Api::all(client.clone());
        let mut found = Vec::new();
        for name in &self.nodes {
            let node = api.get_opt(name).await.with_context(|| format!("Node {name}"))?;
            found.push(node.with_context(|| format!("Node {name} does not exist"))?);
        }
        let mut next = self.all.then(|| ListParams::default().limit(PAGE));
        while let Some(params) = next.take() {
            let page = api.list(&params).await.context("cannot list the Nodes")?;
            found.extend(page.items);
            let token = page.metadata.continue_.filter(|token| !token.is_empty());
            next = token.map(|token| params.continue_token(&token));
        }
        ensure!(!found.is_empty(), "the hub has no Nodes");
        for node in &found {
            // A token without pools is for the default one, whose configs this machine could not read before.
            let name = node.name_any();
            ensure!(
                !roles(node).is_empty(),
                "Node {name} has no role: give it one with machinist label node {name} {ROLE_LABEL_PREFIX}POOL=, or \
                 create a token with machinist hub token --role bootstrap --replace {name} --pool POOL"
            );
        }
        Ok(found)
    }
}

fn roles(node: &Node) -> Vec<&str> {
    let labels = node.labels().keys();
    labels.filter_map(|label| label.strip_prefix(ROLE_LABEL_PREFIX)).collect()
}

/// A token with which one machine may join under the name of its Node, in the Node's pools.
async fn create_token(client: &Client, node: &Node) -> Result<String> {
    let body = json!({
        "role": "bootstrap", "name": "readmit", "replaces": node.name_any(), "pools": roles(node),
    });
    let request = http::Request::post("/machinist/v1/tokens")
        .header("content-type", "application/json")
        .body(serde_json::to_vec(&body)?)?;
    let made: Value = client.request(request).await?;
    Ok(made["token"].as_str().unwrap_or_default().to_owned())
}
