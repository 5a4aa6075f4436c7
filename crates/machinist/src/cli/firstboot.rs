//! `machinist firstboot`: the part of a first boot that Ignition cannot do.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use machinist_core::api::names::label::NODE_ROLE_PREFIX;
use machinist_core::api::names::object;

use super::daemon::host_name;
use super::log_args::LogArgs;
use super::output::OutputFormat;
use super::{CommandOutcome, once, output};
use crate::daemon::first_boot::{FirstBootOptions, FirstBootRefused, FirstBootReport, complete};
use crate::daemon::join::{JoinOptions, SERVICE, credentials};

/// The pool of machines without `--pool`.
const DEFAULT_POOL: &str = object::POOL_WORKER;

/// Complete the first boot of this machine: kernel arguments, the OS image, FIPS mode, joining
///
/// Ignition writes files, units and users. This command applies the rest of the config, which Ignition
/// leaves in /etc/ignition-machine-config-encapsulated.json, and reboots the machine if that changed
/// anything. Without that file it does nothing. The exit code is 3 if this host cannot apply the config.
///
/// With --write it applies a whole config without Ignition and without a server: bootstrap in place.
#[derive(Debug, Args)]
#[command(
    alias = "firstboot-complete-machineconfig",
    after_help = "Example:\n  machinist firstboot --skip-reboot --root /tmp/machine\n  machinist firstboot -f config.yaml --write"
)]
pub(super) struct FirstBootArgs {
    /// Apply this MachineConfig instead: a file, or - for standard input
    #[arg(short, long, aliases = ["file", "machineconfig-file"], value_name = "PATH")]
    filename: Option<PathBuf>,

    /// Also write the files, units and users of the config, as Ignition would; then the machine reboots
    #[arg(long, requires = "filename")]
    write: bool,

    /// Join the API server in /etc/kubernetes/kubeconfig, with a client certificate for this machine
    #[arg(long)]
    join: bool,

    /// The pool of this machine
    #[arg(long, value_name = "NAME", default_value = DEFAULT_POOL)]
    pool: String,

    /// The name of this machine's Node [default: the host name]
    #[arg(long, value_name = "NAME")]
    node_name: Option<String>,

    /// Do not reboot the machine; with another root than /, there is never a reboot
    #[arg(long, alias = "no-reboot")]
    skip_reboot: bool,

    /// The root directory of the machine
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,

    /// The output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,

    #[command(flatten)]
    log: LogArgs,
}

impl FirstBootArgs {
    /// The arguments for `machinist daemon start --once-from`: apply a whole config, then reboot.
    pub(super) fn once_from(
        filename: PathBuf,
        root: PathBuf,
        skip_reboot: bool,
        log: LogArgs,
    ) -> Self {
        Self {
            filename: Some(filename),
            write: true,
            join: false,
            pool: DEFAULT_POOL.to_owned(),
            node_name: None,
            skip_reboot,
            root,
            output: OutputFormat::Text,
            log,
        }
    }

    pub(super) fn run(&self) -> Result<CommandOutcome> {
        self.log.init();
        let join = self.join.then(|| self.join_options()).transpose()?;
        let config = self.filename.as_deref().map(once::read_config).transpose()?;
        let options =
            FirstBootOptions { root: self.root.clone(), config, write_files: self.write, join };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let report =
            runtime.context("cannot start the async runtime")?.block_on(complete(&options));
        let report = match report {
            Err(error) if error.is::<FirstBootRefused>() => {
                tracing::error!(error = format!("{error:#}"), "this host cannot apply the config");
                return Ok(CommandOutcome::Refused);
            }
            report => report?,
        };
        // A report that cannot be written must not leave the machine between two boots.
        let printed = match self.output {
            OutputFormat::Json => output::print_json(&report),
            OutputFormat::Text => {
                output::print_progress(&text(&report));
                Ok(())
            }
        };
        match &report {
            // Another root belongs to a machine that does not run here.
            _ if self.root != Path::new("/") => {}
            report if report.needs_reboot() => self.reboot()?,
            // --no-block: the daemon is ordered after the service that runs this command.
            FirstBootReport { node: Some(_), .. } => {
                systemctl(&["daemon-reload"])?;
                systemctl(&["start", "--no-block", SERVICE])?;
            }
            _ => {}
        }
        printed.map(|()| CommandOutcome::Done)
    }

    fn reboot(&self) -> Result<()> {
        if self.skip_reboot { Ok(()) } else { systemctl(&["reboot"]) }
    }

    fn join_options(&self) -> Result<JoinOptions> {
        let name = self.node_name.clone().map_or_else(host_name, Ok)?;
        let label = format!("{NODE_ROLE_PREFIX}{}", self.pool);
        Ok(JoinOptions {
            name,
            root: self.root.clone(),
            labels: BTreeMap::from([(label, String::new())]),
            has_kubelet: false,
            keep_identity: false,
            binary: std::env::current_exe().context("cannot find the path of this binary")?,
            daemon_arguments: self.log.arguments(),
            approval_timeout: credentials::CERTIFICATE_TIMEOUT,
            pool: self.pool.clone(),
            confirm: None,
            start_now: false,
        })
    }
}

fn systemctl(arguments: &[&str]) -> Result<()> {
    let status = Command::new("systemctl").args(arguments).status();
    let status = status.with_context(|| format!("systemctl {}", arguments.join(" ")))?;
    ensure!(status.success(), "systemctl {}: {status}", arguments.join(" "));
    Ok(())
}

fn text(report: &FirstBootReport) -> String {
    let Some(config) = &report.config else {
        return "Nothing to do.\n".to_owned();
    };
    let mut text = String::new();
    if let Some(node) = &report.node {
        let _ = writeln!(text, "{node} has joined.");
    }
    let _ = match (&report.change, report.written) {
        (Some(change), _) => writeln!(text, "{config} takes effect on the next boot: {change}."),
        (None, 0) => writeln!(text, "The machine matches {config}; no reboot is needed."),
        (None, count) => {
            writeln!(
                text,
                "{config} is written ({count} changes) and takes effect on the next boot."
            )
        }
    };
    text
}
