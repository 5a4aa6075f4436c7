//! `machinist os`: the operating system of this machine, by hand.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, Subcommand};
use machinist_core::os::kernel_arguments::split;
use machinist_core::os::{KernelArgumentsChange, OsChange, OsDeployment, OsStatus};

use super::once::printable;
use super::output::{ERROR, TextOrJson};
use super::{Outcome, output};
use crate::daemon::os::{Os, host};

/// Look at the operating system of this machine, and change its image and kernel arguments by hand
///
/// The daemon does the same by itself; these commands are for machines without one, and for finding
/// out why a change does not come.
#[derive(Debug, Subcommand)]
pub(super) enum OsCommand {
    Status(Status),
    Fetch(Fetch),
    Stage(Stage),
    Unstage(Unstage),
    Confirm(Confirm),
}

impl OsCommand {
    pub(super) fn run(&self) -> Result<Outcome> {
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
struct Where {
    /// The root of the machine
    #[arg(long, value_name = "DIR", default_value = "/", alias = "root-mount")]
    root: PathBuf,
}

impl Where {
    fn os(&self) -> Box<dyn Os> {
        host::find(&self.root).os
    }
}

/// Show what is booted, what the next boot starts, and what is kept
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist os status -o json")]
pub(super) struct Status {
    #[command(flatten)]
    place: Where,

    /// The form of the answer
    #[arg(short, long, value_enum, default_value_t = TextOrJson::Text)]
    output: TextOrJson,
}

impl Status {
    fn run(&self) -> Result<Outcome> {
        let os = self.place.os();
        let status = os.status()?;
        match self.output {
            TextOrJson::Json => output::print_json(&status)?,
            TextOrJson::Text => output::print(&text(os.name(), &status))?,
        }
        Ok(Outcome::Done)
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
pub(super) struct Fetch {
    #[command(flatten)]
    place: Where,

    /// The image, by digest: NAME@sha256:…
    #[arg(value_name = "IMAGE")]
    image: String,
}

impl Fetch {
    fn run(&self) -> Result<Outcome> {
        let change = OsChange { image: Some(self.image.clone()), ..OsChange::default() };
        carry_out(&self.place, &change, |os| {
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
pub(super) struct Stage {
    #[command(flatten)]
    place: Where,

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

impl Stage {
    fn run(&self) -> Result<Outcome> {
        let words = |lines: &[String]| lines.iter().flat_map(|line| split(line)).collect();
        let kernel_arguments =
            KernelArgumentsChange { delete: words(&self.delete), append: words(&self.append) };
        let (image, checksum) = (self.image.clone(), self.checksum.clone());
        let change = OsChange { image, checksum, kernel_arguments, ..OsChange::default() };
        carry_out(&self.place, &change, |os| {
            os.fetch(&change)?;
            os.stage(&change, self.now)?;
            output::print("The next boot starts it.\n")
        })
    }
}

/// Does something for a change, unless this machine cannot make it.
fn carry_out(
    place: &Where,
    change: &OsChange,
    act: impl FnOnce(&dyn Os) -> Result<()>,
) -> Result<Outcome> {
    let os = place.os();
    if let Some(reason) = os.refusal(change) {
        output::print(&format!("{ERROR}Refused, nothing was done:{ERROR:#} {reason}\n"))?;
        return Ok(Outcome::Refused);
    }
    act(os.as_ref())?;
    Ok(Outcome::Done)
}

/// Take back what the next boot would start
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist os unstage")]
pub(super) struct Unstage {
    #[command(flatten)]
    place: Where,
}

impl Unstage {
    fn run(&self) -> Result<Outcome> {
        self.place.os().unstage()?;
        output::print("The next boot starts what runs now.\n")?;
        Ok(Outcome::Done)
    }
}

/// Remove what was kept for the way back, but for the system before this one, and all downloads
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist os confirm")]
pub(super) struct Confirm {
    #[command(flatten)]
    place: Where,
}

impl Confirm {
    fn run(&self) -> Result<Outcome> {
        self.place.os().confirm()?;
        output::print("What is no longer needed is gone.\n")?;
        Ok(Outcome::Done)
    }
}
