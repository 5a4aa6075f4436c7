//! `machinist server`: Ignition configs for machines on their first boot.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, Subcommand};
use machinist_core::api::config::APIServer;
use machinist_core::api::names::{object, port};
use machinist_core::serve::network::IpNetwork;
use machinist_core::tls_profile;
use machinist_hub::failure_log::FailureLog;
use tokio_util::sync::CancellationToken;

use super::CommandOutcome;
use super::connection_args::ConnectionArgs;
use super::log_args::LogArgs;
use super::metrics_args::MetricsSecurityArgs;
use super::signals::shutdown_signal;
use crate::kubernetes::connect::server_address;
use crate::liveness::Liveness;
use crate::manifests;
use crate::server::{
    self, AccessOptions, ApiAccess, EnrolmentOptions, ListenAddress, ListenOptions,
    ManifestDirectory, ServedBinary, ServerOptions, ServingIdentity, tls,
};
use crate::serving_certificate::CertificateFiles;
use crate::systemd_notify;
use crate::up::raise_file_limit;

/// Where the installer writes the APIServer object, whose TLS profile applies before the API exists.
const API_SERVER: &str = "/etc/mcs/bootstrap/api-server/api-server.yaml";
/// Kubernetes reads the reason for the exit of a container here.
const TERMINATION_LOG: &str = "/dev/termination-log";

/// Serve Ignition configs to machines on their first boot
#[derive(Debug, Subcommand)]
pub(super) enum ServerCommand {
    Start(Box<ServerStartArgs>),
    Bootstrap(Box<ServerBootstrapArgs>),
}

impl ServerCommand {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        match self {
            Self::Start(command) => command.run(),
            Self::Bootstrap(command) => command.run(),
        }
    }
}

/// The flags that both ways of serving share.
#[derive(Debug, Args)]
struct ListenArgs {
    /// Listen on this port with TLS; 0 selects any free port
    #[arg(long, value_name = "PORT", default_value_t = port::SERVER_TLS)]
    secure_port: u16,

    /// Listen on this port without TLS; 0 selects any free port
    #[arg(long, value_name = "PORT", default_value_t = port::SERVER_HTTP)]
    insecure_port: u16,

    /// Listen on this address [default: all addresses]
    #[arg(long, value_name = "ADDR")]
    listen_address: Option<IpAddr>,

    /// The TLS certificate of the server; it is read again when it changes
    #[arg(long, value_name = "FILE", default_value = "/etc/ssl/mcs/tls.crt")]
    cert: PathBuf,

    /// The private key of the TLS certificate
    #[arg(long, value_name = "FILE", default_value = "/etc/ssl/mcs/tls.key")]
    key: PathBuf,

    /// The allowed TLS cipher suites, by IANA name [default: all secure ones]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    tls_cipher_suites: Vec<String>,

    /// The lowest allowed TLS version: VersionTLS12 or VersionTLS13; lower ones are read as VersionTLS12
    /// [default: VersionTLS12]
    #[arg(long, value_name = "VERSION", value_parser = parse_tls_version)]
    tls_min_version: Option<String>,

    /// The release to name in the log
    #[arg(long, value_name = "VERSION")]
    payload_version: Option<String>,

    #[command(flatten)]
    log: LogArgs,

    /// Ignored; accepted for compatibility with MCO
    #[arg(long, value_name = "LEVEL", hide = true)]
    v: Option<i32>,

    /// Ignored; accepted for compatibility with MCO
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true)]
    logtostderr: Option<Option<bool>>,

    /// Serve /metrics, /healthz and /readyz on this address [default: not served]
    #[arg(
        long,
        alias = "metrics-listen-address",
        value_name = "ADDR:PORT",
        help_heading = "Metrics"
    )]
    metrics_listen: Option<SocketAddr>,

    #[command(flatten)]
    metrics_security: MetricsSecurityArgs,

    /// The HTTP status for an unknown pool: 404, or 500 or 503, on which Ignition retries
    #[arg(long, value_name = "STATUS", default_value_t = 404, value_parser = parse_unknown_pool)]
    unknown_pool: u16,

    /// Accept requests only from this network (repeatable) [default: all networks]
    #[arg(long, value_name = "NETWORK", help_heading = "Access")]
    allow_from: Vec<IpNetwork>,

    /// Reject requests from this network (repeatable)
    #[arg(long, value_name = "NETWORK", help_heading = "Access")]
    deny_from: Vec<IpNetwork>,

    /// The number of requests per minute from one address; further ones get 503, on which Ignition retries
    #[arg(long, value_name = "COUNT", help_heading = "Access")]
    rate_limit: Option<u32>,

    /// The number of connections from one address to a port; further ones are closed
    #[arg(long, value_name = "COUNT", help_heading = "Access")]
    connection_limit: Option<usize>,

    /// Serve configs only to machines that send a provisioning token; see machinist token
    #[arg(long, help_heading = "Access")]
    require_token: bool,

    /// Serve sealed configs: anyone gets the part without secrets, only enrolled machines get the rest.
    /// The URL at which machines reach this server, such as https://api-int.example.com:22623
    #[arg(long, value_name = "URL", help_heading = "Access", requires = "sealed_ca_file")]
    sealed_url: Option<String>,

    /// The CA certificates that machines trust at --sealed-url; the file is read again when it changes
    #[arg(
        long,
        alias = "sealed-ca",
        value_name = "FILE",
        help_heading = "Access",
        requires = "sealed_url"
    )]
    sealed_ca_file: Option<PathBuf>,

    /// Make machines download machinist from this server and complete their first boot with it: kernel
    /// arguments and the OS image. The URL at which machines reach this server
    #[arg(long, value_name = "URL", help_heading = "First boot")]
    first_boot_url: Option<String>,

    /// Make machines join on their first boot: no kubelet creates their Nodes
    #[arg(long, help_heading = "First boot", requires = "first_boot_url")]
    first_boot_join: bool,
}

fn parse_unknown_pool(text: &str) -> Result<u16, String> {
    match text {
        "404" => Ok(404),
        "500" => Ok(500),
        "503" => Ok(503),
        _ => Err("must be 404, 500 or 503".to_owned()),
    }
}

/// A mistyped version must not become a lower one.
fn parse_tls_version(text: &str) -> Result<String, String> {
    match text {
        "VersionTLS10" | "VersionTLS11" | "VersionTLS12" | "VersionTLS13" => Ok(text.to_owned()),
        _ => Err("must be VersionTLS12 or VersionTLS13 (or VersionTLS10, VersionTLS11)".to_owned()),
    }
}

impl ListenArgs {
    fn listen(&self) -> Result<ListenOptions> {
        let version = self.payload_version.as_deref().unwrap_or(env!("CARGO_PKG_VERSION"));
        tracing::info!(version, "machine config server");
        let address = self.listen_address.unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED));
        let suites = self.tls_cipher_suites.iter().map(|name| name.trim().to_owned());
        let at = |port: u16| Some(ListenAddress::Address(SocketAddr::new(address, port)));
        let metrics = self.metrics_listen.map(ListenAddress::Address);
        let (secure, insecure, metrics) = match server::inherited_sockets()? {
            Some(opened) => (opened.secure, opened.insecure, opened.metrics.or(metrics)),
            None => (at(self.secure_port), at(self.insecure_port), metrics),
        };
        Ok(ListenOptions {
            secure,
            insecure,
            metrics_listen: metrics,
            metrics_security: self.metrics_security.security(),
            metrics_registry: server::ServerMetrics::default(),
            failures: FailureLog::default().of_server(server_address()),
            liveness: Liveness::default(),
            tls: tls::ServerTlsSettings {
                min_version: self.tls_min_version.clone().unwrap_or_default(),
                cipher_suites: suites.filter(|name| !name.is_empty()).collect(),
            },
            unknown_pool_status: self.unknown_pool,
            access: AccessOptions {
                require_token: self.require_token,
                allowed: self.allow_from.clone(),
                denied: self.deny_from.clone(),
                max_requests_per_minute: self.rate_limit,
                max_connections: self.connection_limit,
            },
        })
    }

    fn enrolment(&self) -> Result<Option<EnrolmentOptions>> {
        let (Some(url), Some(file)) = (&self.sealed_url, &self.sealed_ca_file) else {
            return Ok(None);
        };
        ensure!(url.starts_with("https://"), "--sealed-url {url}: it must start with https://");
        let authority = std::fs::read_to_string(file)
            .with_context(|| format!("--sealed-ca-file: cannot read {}", file.display()))?;
        let authority_file = Some(file.clone());
        Ok(Some(EnrolmentOptions {
            url: url.trim_end_matches('/').to_owned(),
            ca: authority,
            ca_file: authority_file,
        }))
    }

    fn binary(&self) -> Result<Option<ServedBinary>> {
        let binary = |url: &String| ServedBinary::current(url, self.first_boot_join);
        self.first_boot_url.as_ref().map(binary).transpose()
    }

    fn identity(&self) -> ServingIdentity {
        let files = CertificateFiles { certificate: self.cert.clone(), key: self.key.clone() };
        ServingIdentity::Files(files)
    }
}

/// Serve the configs of the pools of a hub or a Kubernetes cluster
///
/// The server prepares responses when objects change and serves them from memory. While the API server
/// is down, it serves what it has.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  machinist server start --apiserver-url https://api-int.example.com:6443 --cert tls.crt --key tls.key"
)]
pub(super) struct ServerStartArgs {
    #[command(flatten)]
    connection: ConnectionArgs,

    #[command(flatten)]
    listen: ListenArgs,

    /// The URL at which new machines reach the API server
    #[arg(long, value_name = "URL", default_value = "")]
    apiserver_url: String,

    /// A directory with the files token and ca.crt, with which new machines connect to the API server
    #[arg(long, value_name = "DIR", default_value = "/etc/mcs/bootstrap-token")]
    bootstrap_token_dir: PathBuf,

    /// The namespace of Machinist's own objects
    #[arg(long, value_name = "NAME", default_value = object::NAMESPACE)]
    namespace: String,

    /// The namespace of provisioning tokens and enrolments, the only one in which the server needs access
    /// to Secrets [default: that of Machinist's own objects]
    #[arg(long, value_name = "NAME", help_heading = "Access")]
    access_namespace: Option<String>,

    /// Start without a ControllerConfig, which a hub does not have; machines then get no certificates from it
    #[arg(long)]
    allow_missing_controller_config: bool,
}

impl ServerStartArgs {
    fn run(&self) -> Result<CommandOutcome> {
        self.listen.log.init();
        ensure!(!self.apiserver_url.is_empty(), "--apiserver-url cannot be empty");
        let options = ServerOptions {
            namespace: self.namespace.clone(),
            access_namespace: self.access_namespace.as_ref().unwrap_or(&self.namespace).clone(),
            api_access: ApiAccess::Files {
                api_server: self.apiserver_url.clone(),
                directory: self.bootstrap_token_dir.clone(),
            },
            controller_config_optional: self.allow_missing_controller_config,
            enrolment: self.listen.enrolment()?,
            binary: self.listen.binary()?,
        };
        let (listen, identity) = (self.listen.listen()?, self.listen.identity());
        let done = run_until_signal(listen.liveness.clone(), |stop| async {
            let client = self.connection.long_running_client().await?;
            let ready = |_| systemd_notify::ready();
            server::start(client, options, listen, identity, ready, stop).await
        });
        if let Err(error) = &done {
            write_termination_log(error);
        }
        done
    }
}

/// Reports an error to Kubernetes. Outside of a container the file does not exist.
fn write_termination_log(error: &anyhow::Error) {
    if Path::new(TERMINATION_LOG).exists() {
        let _ = std::fs::write(TERMINATION_LOG, format!("{error:#}\n"));
    }
}

/// Serve the first control-plane machines of a new cluster from a directory of manifests
///
/// The directory contains machine-pools/NAME.yaml, machine-configs/NAME.yaml and
/// controller-config/machine-config-controller.yaml; with --require-token also provisioning-tokens.yaml,
/// which machinist token create --tokens-file writes.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  machinist server bootstrap --server-basedir bootstrap --bootstrap-kubeconfig kubeconfig --cert tls.crt --key tls.key"
)]
pub(super) struct ServerBootstrapArgs {
    #[command(flatten)]
    listen: ListenArgs,

    /// The directory of manifests
    #[arg(long, value_name = "DIR", default_value = "/etc/mcs/bootstrap")]
    server_basedir: PathBuf,

    /// The kubeconfig for the machines
    #[arg(long, value_name = "FILE", default_value = "/etc/kubernetes/kubeconfig")]
    bootstrap_kubeconfig: PathBuf,

    /// A CA certificate for an image registry; FILE is relative to --server-basedir (repeatable)
    #[arg(long, value_name = "NAME=FILE")]
    bootstrap_certs: Vec<String>,

    /// Serve all pools in the directory, not only those of the control plane
    #[arg(long)]
    all_pools: bool,
}

impl ServerBootstrapArgs {
    fn run(&self) -> Result<CommandOutcome> {
        self.listen.log.init();
        if !self.bootstrap_kubeconfig.exists() {
            bail!("kubeconfig not found at location: {}", self.bootstrap_kubeconfig.display());
        }
        let mut directory = ManifestDirectory::new(
            self.server_basedir.clone(),
            self.bootstrap_kubeconfig.clone(),
            self.bootstrap_certs.clone(),
            self.all_pools,
        );
        directory.enrolment = self.listen.enrolment()?;
        directory.binary = self.listen.binary()?;
        let (mut listen, identity) = (self.listen.listen()?, self.listen.identity());
        if self.listen.tls_cipher_suites.is_empty() {
            let installer = installer_tls_settings(Path::new(API_SERVER));
            let min_version = self.listen.tls_min_version.clone();
            listen.tls = tls::ServerTlsSettings {
                // Who names a version on the command line gets that one.
                min_version: min_version.unwrap_or(installer.min_version),
                cipher_suites: installer.cipher_suites,
            };
        }
        run_until_signal(listen.liveness.clone(), |stop| {
            server::bootstrap(directory, listen, identity, |_| systemd_notify::ready(), stop)
        })
    }
}

/// The TLS settings in the APIServer object of the new cluster, or the defaults.
fn installer_tls_settings(path: &Path) -> tls::ServerTlsSettings {
    let mut found: Option<APIServer> = None;
    if path.exists() {
        let documents = manifests::read(&[path.to_owned()]);
        let first = documents.map(|documents| documents.into_iter().next());
        match first.and_then(|first| first.map(|it| it.typed()).transpose()) {
            Ok(object) => found = object,
            Err(error) => {
                tracing::warn!(
                    error = format!("{error:#}"),
                    "cannot read the TLS profile, using the defaults"
                );
            }
        }
    }
    let profile = found.as_ref().and_then(|object| object.spec.tls_security_profile.as_ref());
    let parameters = tls_profile::tls_parameters(profile);
    tls::ServerTlsSettings {
        min_version: parameters.min_version,
        cipher_suites: parameters.cipher_suites,
    }
}

/// Runs a server until a stop signal arrives.
fn run_until_signal<F: Future<Output = Result<()>>>(
    liveness: Liveness,
    serve: impl FnOnce(CancellationToken) -> F,
) -> Result<CommandOutcome> {
    raise_file_limit();
    let runtime = tokio::runtime::Runtime::new().context("cannot start the async runtime")?;
    runtime.block_on(async {
        let stop = CancellationToken::new();
        let (signal, stopped) = (shutdown_signal()?, stop.clone());
        tokio::spawn(async move {
            signal.await;
            stopped.cancel();
        });
        systemd_notify::start_watchdog(move || std::future::ready(liveness.is_alive()));
        serve(stop).await.context("Machine Config Server exited with error")?;
        Ok(CommandOutcome::Done)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tls_settings_come_from_the_apiserver_object() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("api-server.yaml");
        assert_eq!(installer_tls_settings(&path).min_version, "VersionTLS12");
        let object = "apiVersion: config.openshift.io/v1\nkind: APIServer\nmetadata: {name: cluster}\n\
                      spec: {tlsSecurityProfile: {type: Modern, modern: {}}}\n";
        std::fs::write(&path, object).unwrap();
        assert_eq!(installer_tls_settings(&path).min_version, "VersionTLS13");
        std::fs::write(&path, "junk").unwrap();
        assert_eq!(installer_tls_settings(&path).min_version, "VersionTLS12");
    }
}
