//! Hosts that bootc manages. `core::os` decides which commands are run.

use anyhow::{Result, anyhow};
use machinist_core::os::bootc::{self as calls, CommandLine};
use machinist_core::os::{OsChange, OsStatus, kernel_arguments};

use super::HostOs;
use super::command::HostCommands;
use super::rpm_ostree::link_credentials;

/// Where bootc looks for credentials.
const AUTH_FILE: &str = "/etc/ostree/auth.json";

/// A host that bootc manages.
#[derive(Debug)]
pub(super) struct BootcBackend {
    host: HostCommands,
    has_rpm_ostree: bool,
}

impl BootcBackend {
    pub(super) const fn new(host: HostCommands, has_rpm_ostree: bool) -> Self {
        Self { host, has_rpm_ostree }
    }

    fn run(&self, (command_name, arguments): &CommandLine) -> Result<()> {
        self.host.run_logged(command_name, arguments)
    }
}

impl HostOs for BootcBackend {
    fn backend_name(&self) -> &'static str {
        "bootc"
    }

    fn status(&self) -> Result<OsStatus> {
        let json = self.host.stdout("bootc", &["status", "--json"])?;
        let mut status = calls::parse_status(&json).map_err(|error| anyhow!(error))?.host;
        let line = self.host.command_line().unwrap_or_default();
        status.booted.kernel_arguments = kernel_arguments::split(&line);
        Ok(status)
    }

    fn refusal(&self, change: &OsChange) -> Option<String> {
        calls::refusal(change, self.has_rpm_ostree)
    }

    fn fetch(&self, _: &OsChange) -> Result<()> {
        // bootc downloads and stages in one command.
        Ok(())
    }

    fn stage(&self, change: &OsChange, _now: bool) -> Result<()> {
        link_credentials(&self.host, AUTH_FILE)?;
        self.unstage()?;
        let done = calls::stage(change).iter().try_for_each(|command| self.run(command));
        done.inspect_err(|_| {
            // All of it or nothing.
            if let Err(error) = self.unstage() {
                let error = format_args!("{error:#}");
                tracing::warn!(%error, "cannot drop the staged change");
            }
        })
    }

    fn unstage(&self) -> Result<()> {
        let is_staged = self.status()?.next.is_some();
        calls::unstage(self.has_rpm_ostree, is_staged).map_or(Ok(()), |command| self.run(&command))
    }

    fn confirm(&self) -> Result<()> {
        // bootc keeps one other deployment, for a manual rollback.
        Ok(())
    }
}
