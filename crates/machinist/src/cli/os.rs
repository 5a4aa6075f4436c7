//! `machinist os`: the operating system of this machine, by hand.

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

/// Look at the operating system of this machine, and change its image and kernel arguments by hand
///
/// The daemon does the same by itself; these commands are for machines without one, and for finding
/// out why a change does not come.
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
    /// The root of the machine
    #[arg(long, value_name = "DIR", default_value = "/", alias = "root-mount")]
    root: PathBuf,
}

impl RootArgs {
    fn host_os(&self) -> Box<dyn HostOs> {
        detect::detect(&self.root).os
    }
}

/// Show what is booted, what the next boot starts, and what is kept
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist os status -o json")]
pub(super) struct OsStatusArgs {
    #[command(flatten)]
    root: RootArgs,

    /// The form of the answer
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
    let image = deployment.image.as_deref().unwrap_or("of no image");
    format!("{:.12} {} {}", deployment.checksum, printable(version), printable(image))
}

/// Bring an image onto this machine, without using it yet
///
/// What is here already is not fetched again. Nothing that runs is touched.
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

/// Make an image or kernel arguments what the next boot starts
///
/// All other kernel arguments stay. The image is fetched first where that has not been done.
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

    /// An operating system that is here already, by its checksum
    #[arg(long, value_name = "CHECKSUM")]
    checksum: Option<String>,

    /// Kernel arguments to add, after the others
    #[arg(long, value_name = "ARGUMENTS", allow_hyphen_values = true)]
    append: Vec<String>,

    /// Kernel arguments to take away, where they are there
    #[arg(long, value_name = "ARGUMENTS", allow_hyphen_values = true)]
    delete: Vec<String>,

    /// Have it all on disk at once, instead of completing it while the machine goes down
    #[arg(long)]
    now: bool,
}

impl OsStageArgs {
    fn run(&self) -> Result<CommandOutcome> {
        let words = |lines: &[String]| lines.iter().flat_map(|line| split(line)).collect();
        let kernel_arguments =
            KernelArgumentsChange { delete: words(&self.delete), append: words(&self.append) };
        let (image, checksum) = (self.image.clone(), self.checksum.clone());
        let change = OsChange { image, checksum, kernel_arguments, ..OsChange::default() };
        apply_change(&self.root, &change, |os| {
            os.fetch(&change)?;
            os.stage(&change, self.now)?;
            output::print("The next boot starts it.\n")
        })
    }
}

/// Does something for a change, unless this machine cannot make it.
fn apply_change(
    place: &RootArgs,
    change: &OsChange,
    act: impl FnOnce(&dyn HostOs) -> Result<()>,
) -> Result<CommandOutcome> {
    let os = place.host_os();
    if let Some(reason) = os.refusal(change) {
        output::print(&format!("{ERROR}Refused, nothing was done:{ERROR:#} {reason}\n"))?;
        return Ok(CommandOutcome::Refused);
    }
    act(os.as_ref())?;
    Ok(CommandOutcome::Done)
}

/// Take back what the next boot would start
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist os unstage")]
pub(super) struct OsUnstageArgs {
    #[command(flatten)]
    root: RootArgs,
}

impl OsUnstageArgs {
    fn run(&self) -> Result<CommandOutcome> {
        self.root.host_os().unstage()?;
        output::print("The next boot starts what runs now.\n")?;
        Ok(CommandOutcome::Done)
    }
}

/// Remove what was kept for the way back, but for the system before this one, and all downloads
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist os confirm")]
pub(super) struct OsConfirmArgs {
    #[command(flatten)]
    root: RootArgs,
}

impl OsConfirmArgs {
    fn run(&self) -> Result<CommandOutcome> {
        self.root.host_os().confirm()?;
        output::print("What is no longer needed is gone.\n")?;
        Ok(CommandOutcome::Done)
    }
}
