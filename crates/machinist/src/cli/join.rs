//! `machinist join` and `machinist leave`: a machine starts or stops being managed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead as _, IsTerminal as _, Read as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{ArgGroup, Args};
use machinist_core::api::names::label::NODE_ROLE_PREFIX;
use machinist_core::duration::parse_duration;
use serde_json::Value;

use super::daemon::host_name;
use super::log_args::LogArgs;
use super::metrics_args::MetricsSecurityArgs;
use super::output::OutputFormat;
use super::{CommandOutcome, output};
use crate::daemon::join::{self, FirstConfig, JoinOptions, credentials, privilege};
use crate::daemon::transaction::FsAction;

/// Join this machine to a hub or a Kubernetes cluster
///
/// With the given token or kubeconfig, the machine requests a client certificate of its own; the token
/// is not stored. machinist-daemon.service then applies the config of the machine's pool. The first
/// config is a change like any other, with the drain and the reboot that it requires: join shows
/// its cost, and asks on a terminal before a join that leads to a reboot.
///
/// On a machine that has joined the same server under the same name, join repairs the service and starts it.
#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("any_token").multiple(true),
    after_help = "Example:\n  machinist join --apiserver-url https://hub.example:6443 --ca-file ca.crt --token-file token --pool worker\n  machinist join --kubeconfig admin.kubeconfig --pool worker"
)]
pub(super) struct JoinArgs {
    /// The kubeconfig to join with: of an administrator, or of this machine
    #[arg(long, value_name = "PATH", required_unless_present = "apiserver_url")]
    kubeconfig: Option<PathBuf>,

    /// The URL of the API server
    #[arg(
        long,
        alias = "server",
        value_name = "URL",
        conflicts_with = "kubeconfig",
        requires = "any_token",
        requires = "ca_file"
    )]
    apiserver_url: Option<String>,

    /// A bootstrap token of machinist hub token --role bootstrap. Other users can see it: prefer --token-file
    #[arg(
        long,
        value_name = "TOKEN",
        group = "any_token",
        env = "MACHINIST_TOKEN",
        hide_env_values = true
    )]
    token: Option<String>,

    /// A file with the bootstrap token, or - for standard input
    #[arg(long, value_name = "FILE", group = "any_token")]
    token_file: Option<PathBuf>,

    /// The CA certificate of the API server
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,

    /// The pool of this machine; its Node gets the label of that role
    #[arg(long, value_name = "NAME", alias = "role", default_value = "worker")]
    pool: String,

    /// Another label for the Node (repeatable)
    #[arg(long, value_name = "KEY=VALUE", value_parser = super::daemon::parse_label)]
    label: Vec<(String, String)>,

    /// The name of this machine's Node [default: the host name]
    #[arg(long, value_name = "NAME")]
    node_name: Option<String>,

    /// A kubelet runs on this machine and maintains its Node
    #[arg(long)]
    kubelet: bool,

    /// Use the identity in the kubeconfig instead of requesting a certificate
    #[arg(long, requires = "kubeconfig")]
    keep_identity: bool,

    /// The machinist binary that the service runs [default: this one]
    #[arg(long, alias = "program", value_name = "PATH")] // words: keep
    binary: Option<PathBuf>,

    /// Make the daemon serve /metrics, /healthz and /readyz on this address, such as 127.0.0.1:8797 [default: not served]
    #[arg(long, alias = "listen", value_name = "ADDR:PORT", help_heading = "Metrics")]
    metrics_listen: Option<SocketAddr>,

    #[command(flatten)]
    metrics_security: MetricsSecurityArgs,

    /// How long to wait for an approval if the API server does not approve this machine automatically, such as 1h
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = parse_duration)]
    approval_timeout: Duration,

    /// Show what the first config of the pool would change and cost, and write nothing. Needs a kubeconfig that may
    /// read the pool
    #[arg(long)]
    dry_run: bool,

    /// Do not ask before a join whose first config reboots the machine
    #[arg(long, short)]
    yes: bool,

    /// The root directory of the machine
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,

    /// The output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,

    #[command(flatten)]
    log: LogArgs,
}

impl JoinArgs {
    /// The flags of the daemon for its log and its metrics.
    fn daemon_arguments(&self) -> Vec<String> {
        let mut arguments = self.log.arguments();
        if let Some(listen) = self.metrics_listen {
            arguments.extend(["--metrics-listen".to_owned(), listen.to_string()]);
            arguments.extend(self.metrics_security.arguments());
        }
        arguments
    }

    pub(super) fn run(&self) -> Result<CommandOutcome> {
        self.log.init();
        privilege::check("join", &self.root)?;
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
            daemon_arguments: self.daemon_arguments(),
            approval_timeout: self.approval_timeout,
            pool: self.pool.clone(),
            confirm: Some(if self.yes { show_cost } else { show_cost_and_ask }),
            start_now: true,
        };
        if self.dry_run {
            let first = runtime()?.block_on(join::look_before(&given, &joining))?;
            match self.output {
                OutputFormat::Json => output::print_json(&first)?,
                OutputFormat::Text => output::print(&format!("{}\n", first.describe()))?,
            }
            return Ok(CommandOutcome::Done);
        }
        let joined = runtime()?.block_on(join::join(&given, &joining))?;
        match self.output {
            OutputFormat::Json => output::print_json(&joined)?,
            OutputFormat::Text => {
                let state =
                    if joined.is_started { "is running" } else { "starts on the next boot" };
                let mut text = String::new();
                for fault in &joined.repaired {
                    let _ = writeln!(text, "repaired: {fault}");
                }
                let has_joined = match (joined.has_joined_before, joined.repaired.is_empty()) {
                    (false, _) => format!("has joined pool {}", self.pool),
                    (true, true) => "had joined before, and nothing is to be repaired".to_owned(),
                    (true, false) => "had joined before, and is repaired".to_owned(),
                };
                let (node, service) = (&joined.node, joined.service);
                let next = "Next: machinist daemon status";
                let _ = writeln!(text, "{node} {has_joined}; {service} {state}. {next}");
                output::print(&text)?;
            }
        }
        Ok(CommandOutcome::Done)
    }

    /// The kubeconfig that the flags describe.
    fn join_kubeconfig(&self) -> Result<Value> {
        if let Some(path) = &self.kubeconfig {
            return credentials::read_flattened(path);
        }
        let read = |path: &Path| {
            std::fs::read_to_string(path).with_context(|| format!("--ca-file {}", path.display()))
        };
        let authority = read(self.ca_file.as_deref().context("--ca-file is missing")?)?;
        let server = self.apiserver_url.as_deref().unwrap_or_default();
        let server = &server_url(server)?;
        Ok(credentials::token_kubeconfig(server, &self.token()?, &authority))
    }

    /// The token of `--token` or `--token-file`.
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
            "--token-file {}: it must contain exactly one token, as machinist hub token prints it",
            path.display()
        );
        Ok(token.to_owned())
    }
}

/// Shows what the first config costs.
fn show_cost(first: &FirstConfig) -> Result<bool> {
    output::print_note(&first.describe());
    Ok(true)
}

/// Asks before a reboot, if somebody is there to answer.
fn show_cost_and_ask(first: &FirstConfig) -> Result<bool> {
    show_cost(first)?;
    if !first.needs_reboot() || !std::io::stdin().is_terminal() {
        return Ok(true);
    }
    output::print("Join now? The machine reboots when its pool allows it. [y/N] ")?;
    let mut answer = String::new();
    std::io::stdin().lock().take(16).read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// The URL of `--apiserver-url`. A host with a port is enough: nothing else is served there.
fn server_url(text: &str) -> Result<String> {
    let url = if text.contains("://") { text.to_owned() } else { format!("https://{text}") };
    let parsed: Result<http::Uri, _> = url.parse();
    let is_usable = parsed.as_ref().is_ok_and(|uri| {
        uri.scheme_str() == Some("https") && uri.host().is_some_and(|host| !host.is_empty())
    });
    anyhow::ensure!(
        is_usable,
        "--apiserver-url {text}: write https://HOST:PORT, such as https://hub.example:6443"
    );
    Ok(url)
}

/// Make this machine leave: managed files become what they were before it joined
///
/// Stops the service, restores files, units and keys (contents, mode, owner), and removes the daemon's
/// files, its identity and its Node. A machine can leave while the API server is down.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist leave")]
pub(super) struct LeaveArgs {
    /// The kubeconfig to delete the Node with [default: that of this machine]
    #[arg(long, value_name = "PATH")]
    kubeconfig: Option<PathBuf>,

    /// The name of this machine's Node [default: the one it joined as]
    #[arg(long, value_name = "NAME")]
    node_name: Option<String>,

    /// The root directory of the machine
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,

    /// The output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,

    #[command(flatten)]
    log: LogArgs,
}

impl LeaveArgs {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        self.log.init();
        privilege::check("leave", &self.root)?;
        let name = self.node_name.clone().or_else(|| join::joined_name(&self.root));
        let name = name.map_or_else(host_name, Ok)?;
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
                    let verb = match change.action {
                        FsAction::Remove => "removed",
                        _ => "restored",
                    };
                    let _ = writeln!(text, "{verb} {}", change.path.escape_default());
                }
                for path in &left.not_restored {
                    let _ = writeln!(text, "not restored: {}", path.escape_default());
                }
                let _ = writeln!(text, "{name} has left; Node: {}", left.node);
                output::print(&text)?;
            }
        }
        Ok(CommandOutcome::Done)
    }
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().context("cannot start the async runtime")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_is_a_url_or_a_host_with_a_port() {
        for (text, expected) in [
            ("https://hub:6443", Some("https://hub:6443")),
            ("hub.example:6443", Some("https://hub.example:6443")),
            ("192.0.2.1:6443", Some("https://192.0.2.1:6443")),
            ("[2001:db8::1]:6443", Some("https://[2001:db8::1]:6443")),
            ("http://hub:6443", None),
            ("ftp://hub", None),
            ("", None),
            ("hub with spaces", None),
            ("https://", None),
        ] {
            assert_eq!(server_url(text).ok().as_deref(), expected, "{text}");
        }
    }
}
