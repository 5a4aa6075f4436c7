//! `machinist join` and `machinist leave`: a machine and its home.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::{ArgGroup, Args};
use machinist_core::api::names::label::NODE_ROLE_PREFIX;
use serde_json::Value;

use super::daemon::host_name;
use super::output::OutputFormat;
use super::{CommandOutcome, output};
use crate::daemon::join::{self, JoinOptions, credentials};
use crate::telemetry::{self, LogFormat};

/// Have this machine join a hub or a Kubernetes: an identity of its own, a service, a Node
///
/// The machine asks for a client certificate with the token or the kubeconfig that is given, and
/// keeps nothing else of it. From then on machinist-daemon.service makes the machine as its pool says:
/// the first config is a change like any other, with the drain and the restart that it costs.
#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("any_token").multiple(true),
    after_help = "Example:\n  machinist join --server https://hub.example:6443 --ca-file ca.crt --token-file token --pool worker\n  machinist join --kubeconfig admin.kubeconfig --pool worker"
)]
pub(super) struct JoinArgs {
    /// A kubeconfig to join with: of an administrator, or of the machine
    #[arg(long, value_name = "PATH", required_unless_present = "server")]
    kubeconfig: Option<PathBuf>,

    /// The address of the API
    #[arg(
        long,
        value_name = "URL",
        conflicts_with = "kubeconfig",
        requires = "any_token",
        requires = "ca_file"
    )]
    server: Option<String>,

    /// A bootstrap token: machinist hub token --role bootstrap. Others on this host may see it: prefer --token-file
    #[arg(
        long,
        value_name = "TOKEN",
        group = "any_token",
        env = "MACHINIST_TOKEN",
        hide_env_values = true
    )]
    token: Option<String>,

    /// A file with the bootstrap token, or - for standard input
    #[arg(long, value_name = "PATH", group = "any_token")]
    token_file: Option<PathBuf>,

    /// The certificate that the API is known by
    #[arg(long, value_name = "PATH")]
    ca_file: Option<PathBuf>,

    /// The pool that the machine is to be in: its Node gets the label of that role
    #[arg(long, value_name = "NAME", alias = "role", default_value = "worker")]
    pool: String,

    /// A further label of the Node (repeatable)
    #[arg(long, value_name = "KEY=VALUE", value_parser = super::daemon::parse_label)]
    label: Vec<(String, String)>,

    /// The name of the machine's Node [default: the name of the host]
    #[arg(long, value_name = "NAME")]
    node_name: Option<String>,

    /// A kubelet runs on this machine and looks after its Node
    #[arg(long)]
    kubelet: bool,

    /// Keep the identity of the kubeconfig instead of asking for a certificate
    #[arg(long, requires = "kubeconfig")]
    keep_identity: bool,

    /// The program that the service runs [default: this one]
    #[arg(long, alias = "program", value_name = "PATH")] // words: keep
    binary: Option<PathBuf>,

    /// Where the daemon serves /metrics and /healthz, such as 127.0.0.1:8797 [default: nowhere]
    #[arg(long, alias = "listen", value_name = "ADDR:PORT")]
    metrics_listen: Option<String>,

    /// The root of the machine
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,

    /// The form of the answer
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,
}

impl JoinArgs {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        telemetry::init_logging(LogFormat::Text);
        let given = self.join_kubeconfig()?;
        let name = self.node_name.clone().map_or_else(host_name, Ok)?;
        let mut labels: BTreeMap<String, String> = self.label.iter().cloned().collect();
        labels.insert(format!("{NODE_ROLE_PREFIX}{}", self.pool), String::new());
        let binary = match &self.binary {
            Some(binary) => std::path::absolute(binary)?,
            None => std::env::current_exe()
                .context("cannot find the path of this binary: name it with --binary")?,
        };
        let joining = JoinOptions {
            name,
            root: self.root.clone(),
            labels,
            has_kubelet: self.kubelet,
            keep_identity: self.keep_identity,
            binary,
            metrics_listen: self.metrics_listen.clone(),
            start_now: true,
        };
        let joined = runtime()?.block_on(join::join(&given, &joining))?;
        match self.output {
            OutputFormat::Json => output::print_json(&joined)?,
            OutputFormat::Text => {
                let runs = if joined.is_started { "runs" } else { "starts at the next boot" };
                output::print(&format!(
                    "{} has joined pool {}; {} {runs}. See: machinist daemon status\n",
                    joined.node, self.pool, joined.service
                ))?;
            }
        }
        Ok(CommandOutcome::Done)
    }

    /// What to join with.
    fn join_kubeconfig(&self) -> Result<Value> {
        if let Some(path) = &self.kubeconfig {
            return credentials::read_flattened(path);
        }
        let read = |path: &Path| {
            std::fs::read_to_string(path).with_context(|| format!("--ca-file {}", path.display()))
        };
        let authority = read(self.ca_file.as_deref().context("--ca-file is missing")?)?;
        let server = self.server.as_deref().unwrap_or_default();
        Ok(credentials::token_kubeconfig(server, &self.token()?, &authority))
    }

    /// The token, from wherever it is.
    fn token(&self) -> Result<String> {
        let Some(path) = &self.token_file else {
            return Ok(self.token.clone().unwrap_or_default());
        };
        let text = if path == Path::new("-") {
            std::io::read_to_string(std::io::stdin())
        } else {
            std::fs::read_to_string(path)
        };
        let text = text.with_context(|| format!("--token-file {}", path.display()))?;
        let token = text.trim();
        anyhow::ensure!(
            !token.is_empty() && !token.contains(char::is_whitespace),
            "--token-file {}: there has to be one token in it, as machinist hub token prints it",
            path.display()
        );
        Ok(token.to_owned())
    }
}

/// Have this machine leave its home: every managed file is given back as it was before
///
/// The service is stopped, files, units and keys are as they were before the machine joined (byte,
/// mode, owner), and the daemon's own files, its identity and its Node are removed. A home that does
/// not answer keeps no machine from leaving.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist leave")]
pub(super) struct LeaveArgs {
    /// A kubeconfig to let the Node go with [default: the machine's own]
    #[arg(long, value_name = "PATH")]
    kubeconfig: Option<PathBuf>,

    /// The name of the machine's Node [default: the name of the host]
    #[arg(long, value_name = "NAME")]
    node_name: Option<String>,

    /// The root of the machine
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,

    /// The form of the answer
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,
}

impl LeaveArgs {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        telemetry::init_logging(LogFormat::Text);
        let name = self.node_name.clone().map_or_else(host_name, Ok)?;
        let left = runtime()?.block_on(async {
            let client = match &self.kubeconfig {
                Some(path) => {
                    Some(credentials::client_for(&credentials::read_flattened(path)?).await?)
                }
                None => None,
            };
            join::leave(&self.root, &name, client).await
        })?;
        match self.output {
            OutputFormat::Json => output::print_json(&left)?,
            OutputFormat::Text => {
                let mut text = String::new();
                for change in &left.changes {
                    let _ = writeln!(text, "gave back {}", change.path.escape_default());
                }
                let _ = writeln!(text, "{name} has left; its Node: {}", left.node);
                output::print(&text)?;
            }
        }
        Ok(CommandOutcome::Done)
    }
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().context("cannot start the runtime")
}
