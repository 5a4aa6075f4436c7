//! `machinist up`: hub, controller and machine config server in one process.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use super::daily_backup_args::DailyBackupArgs;
use super::log_args::LogArgs;
use super::metrics_args::MetricsSecurityArgs;
use super::template_args::TemplateArgs;
use super::{CommandOutcome, output};
use crate::data_dir::DataDirectory;
use crate::metrics::MetricsOptions;
use crate::server::ListenAddresses;
use crate::systemd_notify;
use crate::up::{RunningSystem, UpConfig, kubeconfig};

/// Run a hub: API server, store, controller and, optionally, the machine config server in one process
///
/// The first start creates the data directory with a CA, certificates and a kubeconfig, and the pools
/// master and worker. A later start continues with what is there. Ctrl-C and SIGTERM stop the hub.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  machinist up --data-dir /tmp/machinist --api-listen 127.0.0.1:0"
)]
pub(super) struct UpArgs {
    #[command(flatten)]
    data_dir: DataDirArgs,

    /// Serve the API on this address; port 0 selects any free port
    ///
    /// With 0.0.0.0 or [::], the server's certificate gets all addresses of this host
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:6443", value_parser = parse_listen_address)]
    api_listen: SocketAddr,

    /// Another host name or address of this machine for the server's certificate (repeatable)
    #[arg(long, value_name = "NAME", value_parser = parse_san)]
    san: Vec<String>,

    /// The number of changes that are kept for watches; a client that is further behind lists again
    #[arg(long, value_name = "EVENTS", hide = true, env = "MACHINIST_HISTORY")]
    history: Option<usize>,

    #[command(flatten)]
    templates: TemplateArgs,

    #[command(flatten)]
    log: LogArgs,

    /// Run the machine config server with TLS on this address, such as 0.0.0.0:22623 [default: not served]
    #[arg(long, value_name = "ADDR:PORT")]
    server_listen: Option<SocketAddr>,

    /// Run the machine config server without TLS on this address, such as 0.0.0.0:22624 [default: not served]
    #[arg(long, value_name = "ADDR:PORT")]
    server_insecure_listen: Option<SocketAddr>,

    /// Serve configs to machines without a provisioning token: anyone on the network can then read every config
    #[arg(long)]
    server_anonymous: bool,

    /// A file with the provisioning token for the pointer configs of all pools; it is read again when it changes
    #[arg(long, value_name = "FILE", requires = "server_listen")]
    server_token_file: Option<PathBuf>,

    /// Serve sealed configs: only enrolled machines get secrets. The URL at which machines reach the
    /// machine config server, such as https://10.0.0.1:22623
    #[arg(long, alias = "server-sealed", value_name = "URL", requires = "server_listen", value_parser = parse_url)]
    server_sealed_url: Option<String>,

    /// Serve /metrics (of hub, controller and machine config server), /healthz and /readyz on this address, such as 127.0.0.1:8797 [default: not served]
    #[arg(long, value_name = "ADDR:PORT", help_heading = "Metrics")]
    metrics_listen: Option<SocketAddr>,

    #[command(flatten)]
    metrics_security: MetricsSecurityArgs,

    /// Make machines download machinist from the machine config server, complete their first boot with it
    /// (kernel arguments, the OS image) and join. The URL at which machines reach the server
    #[arg(
        long,
        alias = "server-first-boot",
        value_name = "URL",
        requires = "server_join_token_file"
    )]
    server_first_boot_url: Option<String>,

    /// A file with the bootstrap token that new machines join with (machinist hub token --role bootstrap).
    /// Anyone who can read a config can read the token; with --server-sealed-url, only enrolled machines.
    /// The file is read again when it changes
    #[arg(long, value_name = "FILE")]
    server_join_token_file: Option<PathBuf>,

    #[command(flatten)]
    backup: DailyBackupArgs,

    /// Make a new CA although machines have certificates of a lost one: every machine has to join again.
    /// A CA that exists is kept
    #[arg(long)]
    new_ca: bool,

    /// Run no controller: another one, such as `machinist controller` or MCO's, drives the pools of this hub
    #[arg(long)]
    no_controller: bool,
}

/// The directory that contains everything the hub stores.
#[derive(Debug, Args)]
pub(super) struct DataDirArgs {
    /// The data directory [default: $XDG_STATE_HOME/machinist, else ~/.local/state/machinist]
    #[arg(long, alias = "data", value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

impl DataDirArgs {
    /// The directory that the flag or the environment selects.
    pub(super) fn directory(&self) -> Result<DataDirectory> {
        if let Some(path) = &self.data_dir {
            let path = std::path::absolute(path).context("--data-dir")?;
            return Ok(DataDirectory::at(path));
        }
        let variable = |name| std::env::var(name).ok();
        let (state, home) = (variable("XDG_STATE_HOME"), variable("HOME"));
        DataDirectory::user_default(state.as_deref(), home.as_deref())
    }
}

fn parse_url(text: &str) -> Result<String, String> {
    match text.starts_with("https://") {
        true => Ok(text.to_owned()),
        false => Err("it must start with https://".to_owned()),
    }
}

fn parse_san(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | ':' | '*');
    if text.is_empty() || !text.chars().all(plain) {
        return Err("not a host name or address".to_owned());
    }
    Ok(text.to_ascii_lowercase())
}

impl UpArgs {
    /// Whether anyone on the network could read the token that machines join with.
    fn exposes_join_token(&self) -> bool {
        let is_open = self.server_anonymous && self.server_sealed_url.is_none();
        is_open && self.server_join_token_file.is_some()
    }

    pub(super) fn run(&self) -> Result<CommandOutcome> {
        self.log.init();
        ensure!(
            !self.exposes_join_token(),
            "--server-join-token-file: with --server-anonymous everyone on the network could read the token: add --server-sealed-url, so that only enrolled machines get it, or leave --server-anonymous out"
        );
        let config = UpConfig {
            directory: self.data_dir.directory()?,
            api_listen: self.api_listen,
            sans: self.san.clone(),
            history: self.history,
            templates: Arc::new(self.templates.read()?),
            server_listen: self.server_listen,
            server_insecure_listen: self.server_insecure_listen,
            server_anonymous: self.server_anonymous,
            server_token_file: self.server_token_file.clone(),
            server_sealed: self.server_sealed_url.clone(),
            metrics: self.metrics_listen.map(|listen| MetricsOptions {
                listen,
                security: self.metrics_security.security(),
            }),
            server_first_boot: self.server_first_boot_url.clone(),
            server_join_token_file: self.server_join_token_file.clone(),
            daily_backup: self.backup.config()?,
            new_ca: self.new_ca,
            no_controller: self.no_controller,
        };
        let runtime = tokio::runtime::Runtime::new().context("cannot start the async runtime")?;
        runtime.block_on(async {
            let mut system = RunningSystem::start(config.clone()).await?;
            output::print_progress(&banner(
                &config.directory,
                system.address,
                system.listening,
                system.is_new,
            ));
            system.run().await?;
            systemd_notify::stopping();
            output::print_progress("Stopping.\n");
            system.stop().await;
            Ok(CommandOutcome::Done)
        })
    }
}

/// Where to find things, and what to try next.
fn banner(
    directory: &DataDirectory,
    address: SocketAddr,
    listening: ListenAddresses,
    is_new: bool,
) -> String {
    let mut server = String::new();
    for (scheme, address) in [("https", listening.secure), ("http", listening.insecure)] {
        if let Some(address) = address {
            server += &format!("  machines    {scheme}://{address}/config/POOL\n");
        }
    }
    let heading = output::HEADING;
    let kubeconfig_path = directory.kubeconfig();
    let state = if is_new { "created" } else { "existing" };
    format!(
        "{heading}Machinist is up.{heading:#}\n\
         \x20 API         {}\n\
         \x20 kubeconfig  {}\n\
         \x20 data        {} ({state})\n\
         \x20 audit log   {}\n\
         {server}\n\
         {heading}Try next, in another terminal:{heading:#}\n\
         \x20 export KUBECONFIG={}\n\
         \x20 kubectl get machineconfigpools\n\
         \x20 kubectl apply -f examples/chrony.yaml\n\
         \x20 machinist hub backup --data-dir {} hub.backup\n\n\
         Ctrl-C stops the hub.\n",
        kubeconfig::url(address),
        kubeconfig_path.display(),
        directory.path().display(),
        directory.audit().display(),
        kubeconfig_path.display(),
        directory.path().display(),
    )
}

/// An address to listen on, for clap. `localhost` is the loopback address.
fn parse_listen_address(text: &str) -> Result<SocketAddr, String> {
    let loopback = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    loopback.as_deref().unwrap_or(text).parse().map_err(|_| {
        "write an address and a port, such as 127.0.0.1:6443, 0.0.0.0:6443, [::]:6443 or localhost:6443"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subject_alternative_names_are_checked() {
        assert_eq!(parse_san("Hub.example.com").as_deref(), Ok("hub.example.com"));
        assert_eq!(parse_san("10.0.0.1").as_deref(), Ok("10.0.0.1"));
        assert!(parse_san("a b").is_err());
        assert!(parse_san("").is_err());
    }

    #[test]
    fn the_banner_shows_addresses_and_paths() {
        let text = "127.0.0.1:1".parse().unwrap();
        let listening = ListenAddresses { secure: "0.0.0.0:2".parse().ok(), insecure: None };
        let text = banner(&DataDirectory::at("/d".into()), text, listening, true);
        assert!(text.contains("https://0.0.0.0:2/config/POOL"), "{text}");
        for part in ["https://127.0.0.1:1", "/d/kubeconfig", "created", "KUBECONFIG="] {
            assert!(text.contains(part), "{part}");
        }
    }

    #[test]
    fn listen_addresses() {
        for (text, expected) in [
            ("localhost:6443", Some("127.0.0.1:6443")),
            ("127.0.0.1:0", Some("127.0.0.1:0")),
            ("[::]:6443", Some("[::]:6443")),
            ("localhost", None),
            ("hub.example:6443", None),
            ("127.0.0.1", None),
            ("https://localhost:6443", None),
        ] {
            let expected = expected.map(|it| it.parse::<SocketAddr>().unwrap());
            assert_eq!(parse_listen_address(text).ok(), expected, "{text}");
        }
        assert!(parse_listen_address("x").unwrap_err().contains("localhost:6443"));
    }
}
