//! `machinist os`: shows and changes the operating system of this machine by hand.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand};
use machinist_core::os::kernel_arguments::split;
use machinist_core::os::{KernelArgumentsChange, OsChange, OsDeployment, OsStatus};

use super::once::printable;
use super::output::{ERROR, OutputFormat};
use super::{CommandOutcome, output};
use crate::daemon::os::{HostOs, detect};

/// Show and change the OS image and the kernel arguments of this machine by hand
///
/// The daemon does this by itself. These commands are for machines without a daemon, and to find out why a
/// change is not applied.
#[derive(Debug, Subcommand)]
pub(super) enum OsCommand {
    Status(OsStatusArgs),
    Fetch(OsFetchArgs),
    Stage(OsStageArgs),
    Unstage(OsUnstageArgs),
    Confirm(OsConfirmArgs),
}

impl OsCommand {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        match self {
            Self::Status(command) => command.run(),
            Self::Fetch(command) => command.run(),
            Self::Stage(command) => command.run(),
            Self::Unstage(command) => command.run(),
            Self::Confirm(command) => command.run(),
        }
    }
}

#[derive(Debug, Args)]
struct RootArgs {
    /// The root directory of the machine
    #[arg(long, value_name = "DIR", default_value = "/", alias = "root-mount")]
    root: PathBuf,
}

impl RootArgs {
    fn host_os(&self) -> Box<dyn HostOs> {
        detect::detect(&self.root).os
    }
}

/// Show the booted deployment, the one of the next boot, and the kept ones
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist os status -o json")]
pub(super) struct OsStatusArgs {
    #[command(flatten)]
    root: RootArgs,

    /// The output format
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,
}

impl OsStatusArgs {
    fn run(&self) -> Result<CommandOutcome> {
        let os = self.root.host_os();
        let status = os.status()?;
        match self.output {
            OutputFormat::Json => output::print_json(&status)?,
            OutputFormat::Text => output::print(&text(os.backend_name(), &status))?,
        }
        Ok(CommandOutcome::Done)
    }
}

fn text(kind: &str, status: &OsStatus) -> String {
    let mut text = format!("KIND    {kind}\n");
    let booted = std::iter::once(("BOOTED", &status.booted));
    let next = status.next.iter().map(|next| ("NEXT", next));
    let kept = status.kept.iter().map(|kept| ("KEPT", kept));
    for (name, deployment) in booted.chain(next).chain(kept) {
        let _ = writeln!(text, "{name:<7} {}", line(deployment));
        let _ = writeln!(text, "        {}", printable(&deployment.kernel_arguments.join(" ")));
    }
    text
}

fn line(deployment: &OsDeployment) -> String {
    let version = deployment.version.as_deref().unwrap_or("-");
    let image = deployment.image.as_deref().unwrap_or("no image");
    format!("{:.12} {} {}", deployment.checksum, printable(version), printable(image))
}

/// Download an image to this machine, without using it
///
/// Layers that are already here are not downloaded again. The running system does not change.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  machinist os fetch registry.example.com/os/debian@sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
)]
pub(super) struct OsFetchArgs {
    #[command(flatten)]
    root: RootArgs,

    /// The image, by digest: NAME@sha256:…
    #[arg(value_name = "IMAGE")]
    image: String,
}

impl OsFetchArgs {
    fn run(&self) -> Result<CommandOutcome> {
        let change = OsChange { image: Some(self.image.clone()), ..OsChange::default() };
        apply_change(&self.root, &change, |os| {
            os.fetch(&change)?;
            output::print(&format!("{} is on this machine.\n", self.image))
        })
    }
}

/// Use an image or kernel arguments from the next boot on
///
/// All other kernel arguments stay. The image is downloaded first, if necessary.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  machinist os stage --append 'hugepagesz=1G hugepages=4' --delete quiet"
)]
#[group(id = "what", required = true, multiple = true, args = ["image", "checksum", "append", "delete"])]
pub(super) struct OsStageArgs {
    #[command(flatten)]
    root: RootArgs,

    /// The image, by digest: NAME@sha256:…
    #[arg(long, value_name = "IMAGE", conflicts_with = "checksum")]
    image: Option<String>,

    /// A deployment that is already on this machine, by its checksum
    #[arg(long, value_name = "CHECKSUM")]
    checksum: Option<String>,

    /// Append these kernel arguments (repeatable)
    #[arg(long, value_name = "ARGUMENTS", allow_hyphen_values = true)]
    append: Vec<String>,

    /// Delete these kernel arguments, if present (repeatable)
    #[arg(long, value_name = "ARGUMENTS", allow_hyphen_values = true)]
    delete: Vec<String>,

    /// Finish the deployment now, instead of during the shutdown
    #[arg(long)]
    now: bool,
}

impl OsStageArgs {
    fn run(&self) -> Result<CommandOutcome> {
        let arguments = |lines: &[String]| lines.iter().flat_map(|line| split(line)).collect();
        let kernel_arguments = KernelArgumentsChange {
            delete: arguments(&self.delete),
            append: arguments(&self.append),
        };
        let (image, checksum) = (self.image.clone(), self.checksum.clone());
        let change = OsChange { image, checksum, kernel_arguments, ..OsChange::default() };
        apply_change(&self.root, &change, |os| {
            os.fetch(&change)?;
            os.stage(&change, self.now)?;
            output::print("The next boot uses it.\n")
        })
    }
}

/// Runs `act`, unless this machine cannot apply the change.
fn apply_change(
    root: &RootArgs,
    change: &OsChange,
    act: impl FnOnce(&dyn HostOs) -> Result<()>,
) -> Result<CommandOutcome> {
    let os = root.host_os();
    if let Some(reason) = os.refusal(change) {
        output::print(&format!("{ERROR}Refused, nothing was changed:{ERROR:#} {reason}\n"))?;
        return Ok(CommandOutcome::Refused);
    }
    act(os.as_ref())?;
    Ok(CommandOutcome::Done)
}

/// Discard the staged deployment: the next boot starts the running system again
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist os unstage")]
pub(super) struct OsUnstageArgs {
    #[command(flatten)]
    root: RootArgs,
}

impl OsUnstageArgs {
    fn run(&self) -> Result<CommandOutcome> {
        self.root.host_os().unstage()?;
        output::print("The next boot starts the running system.\n")?;
        Ok(CommandOutcome::Done)
    }
}

/// Accept the running system: remove downloads and all older deployments but the previous one
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist os confirm")]
pub(super) struct OsConfirmArgs {
    #[command(flatten)]
    root: RootArgs,
}

impl OsConfirmArgs {
    fn run(&self) -> Result<CommandOutcome> {
        self.root.host_os().confirm()?;
        output::print("Downloads and old deployments are removed.\n")?;
        Ok(CommandOutcome::Done)
    }
}
