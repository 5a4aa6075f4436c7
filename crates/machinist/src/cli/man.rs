//! `machinist man`: man pages, generated from the same grammar as the help.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use clap::{Args, Command, CommandFactory as _};
use clap_mangen::Man as Page;

use super::{Cli, CommandOutcome, output};

/// Print the man page of a command, or write the man pages of all commands
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  machinist man rollout status | man -l -\n  machinist man --out man1"
)]
pub(super) struct ManArgs {
    /// The command, such as rollout status [default: machinist itself]
    #[arg(value_name = "COMMAND", conflicts_with = "out")]
    command: Vec<String>,

    /// Write the man pages of all commands to this directory, each as machinist-COMMAND.1
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl ManArgs {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        let pages = pages()?;
        if let Some(directory) = &self.out {
            fs::create_dir_all(directory)
                .with_context(|| format!("create {}", directory.display()))?;
            for (name, page) in &pages {
                let path = directory.join(format!("{name}.1"));
                fs::write(&path, page).with_context(|| format!("write {}", path.display()))?;
            }
            output::print_note(&format!("wrote {} pages to {}", pages.len(), directory.display()));
            return Ok(CommandOutcome::Done);
        }
        let names = ["machinist"].into_iter().chain(self.command.iter().map(String::as_str));
        let wanted = names.collect::<Vec<_>>().join("-");
        let Some((_, page)) = pages.iter().find(|(name, _)| *name == wanted) else {
            bail!(
                "unknown command {:?}: machinist --help lists all commands",
                self.command.join(" ")
            );
        };
        output::print(&String::from_utf8_lossy(page))?;
        Ok(CommandOutcome::Done)
    }
}

/// All pages, by their names.
fn pages() -> Result<Vec<(String, Vec<u8>)>> {
    let mut root = Cli::command().disable_help_subcommand(true);
    root.build();
    let mut pages = Vec::new();
    add(&root, &mut pages)?;
    Ok(pages)
}

fn add(command: &Command, pages: &mut Vec<(String, Vec<u8>)>) -> Result<()> {
    // The display name of a built command includes its parents.
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    let mut page = Vec::new();
    Page::new(command.clone()).render(&mut page)?;
    pages.push((name, page));
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        add(inner, pages)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_and_pages_are_reproducible() {
        let pages = pages().unwrap();
        let names: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
        for name in ["machinist", "machinist-render", "machinist-rollout-status", "machinist-man"] {
            assert!(names.contains(&name), "{names:?}");
        }
        assert_eq!(pages, self::pages().unwrap());
        let (_, page) =
            pages.iter().find(|(name, _)| name == "machinist-server-bootstrap").unwrap();
        let page = String::from_utf8_lossy(page);
        assert!(page.contains("machinist server bootstrap"), "{page}");
    }
}
