//! `machinist firstboot`: what Ignition could not do.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use machinist_core::api::names::label::NODE_ROLE_PREFIX;
use machinist_core::api::names::object;

use super::daemon::host_name;
use super::output::OutputFormat;
use super::{CommandOutcome, once, output};
use crate::daemon::first_boot::{FirstBootOptions, FirstBootRefused, FirstBootReport, complete};
use crate::daemon::join::{JoinOptions, SERVICE};
use crate::telemetry::{self, LogFormat};

/// The pool of machines about which nothing is said.
const DEFAULT_POOL: &str = object::POOL_WORKER;

/// Complete the first boot of this machine: kernel arguments, the OS image, FIPS, joining
///
/// Ignition has written files, units and users. What it cannot do is left in
/// /etc/ignition-machine-config-encapsulated.json, and is done here; the machine restarts if anything
/// has changed. Where the machine is as its config says, there is no restart. Does nothing where
/// nothing is left. The exit code is 3 when this host cannot be as the config says.
///
/// With --write a machine takes the same way without Ignition and without a server: bootstrap in place.
#[derive(Debug, Args)]
#[command(
    alias = "firstboot-complete-machineconfig",
    after_help = "Example:\n  machinist firstboot --skip-reboot --root /tmp/machine\n  machinist firstboot -f config.yaml --write"
)]
pub(super) struct FirstBootArgs {
    /// A MachineConfig to complete instead, in a file or -
    #[arg(short, long, aliases = ["file", "machineconfig-file"], value_name = "PATH")]
    filename: Option<PathBuf>,

    /// Write the files, units and users of FILE too, as Ignition would have; then the machine restarts
    #[arg(long, requires = "filename")]
    write: bool,

    /// Join the home that /etc/kubernetes/kubeconfig describes, with an identity of the machine's own
    #[arg(long)]
    join: bool,

    /// The pool that the machine is to be in
    #[arg(long, value_name = "NAME", default_value = DEFAULT_POOL)]
    pool: String,

    /// The name of the machine's Node [default: the name of the host]
    #[arg(long, value_name = "NAME")]
    node_name: Option<String>,

    /// Do not restart the machine; nor is one whose root is not /
    #[arg(long, alias = "no-reboot")]
    skip_reboot: bool,

    /// The root of the machine
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,

    /// The form of the answer
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,
}

impl FirstBootArgs {
    /// What `machinist daemon start --once-from` is: everything that a config says, and then a restart.
    pub(super) fn once_from(filename: PathBuf, root: PathBuf, skip_reboot: bool) -> Self {
        Self {
            filename: Some(filename),
            write: true,
            join: false,
            pool: DEFAULT_POOL.to_owned(),
            node_name: None,
            skip_reboot,
            root,
            output: OutputFormat::Text,
        }
    }

    pub(super) fn run(&self) -> Result<CommandOutcome> {
        telemetry::init_logging(LogFormat::Text);
        let joining = self.join.then(|| self.join_options()).transpose()?;
        let config = self.filename.as_deref().map(once::read_config).transpose()?;
        let birth = FirstBootOptions {
            root: self.root.clone(),
            config,
            write_files: self.write,
            join: joining,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let born = runtime.context("cannot start the runtime")?.block_on(complete(&birth));
        let born = match born {
            Err(error) if error.is::<FirstBootRefused>() => {
                tracing::error!("{error:#}");
                return Ok(CommandOutcome::Refused);
            }
            born => born?,
        };
        match self.output {
            OutputFormat::Json => output::print_json(&born)?,
            OutputFormat::Text => output::print(&text(&born))?,
        }
        match &born {
            // Another root is that of a machine that does not run here.
            _ if self.root != Path::new("/") => {}
            born if born.needs_reboot() => self.reboot()?,
            // Not waited for: the daemon comes after this very service.
            FirstBootReport { node: Some(_), .. } => {
                systemctl(&["daemon-reload"])?;
                systemctl(&["start", "--no-block", SERVICE])?;
            }
            _ => {}
        }
        Ok(CommandOutcome::Done)
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
            binary: std::env::current_exe().context("cannot tell where this program is")?,
            metrics_listen: None,
            start_now: false,
        })
    }
}

fn systemctl(words: &[&str]) -> Result<()> {
    let status = Command::new("systemctl").args(words).status();
    let status = status.with_context(|| format!("systemctl {}", words.join(" ")))?;
    ensure!(status.success(), "systemctl {}: {status}", words.join(" "));
    Ok(())
}

fn text(born: &FirstBootReport) -> String {
    let Some(config) = &born.config else {
        return "Nothing is left to be done.\n".to_owned();
    };
    let mut text = String::new();
    if let Some(node) = &born.node {
        let _ = writeln!(text, "{node} has joined.");
    }
    let _ = match (&born.change, born.written) {
        (Some(change), _) => writeln!(text, "{config} is in force with the next boot: {change}."),
        (None, 0) => writeln!(text, "The machine is as {config} says; no restart is needed."),
        (None, count) => {
            writeln!(text, "{config} is written ({count} changes); the next boot has all of it.")
        }
    };
    text
}
