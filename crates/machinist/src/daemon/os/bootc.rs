//! bootc. What it is called with is decided in `core::os`.

use anyhow::{Result, anyhow};
use machinist_core::os::bootc::{self as calls, CommandLine};
use machinist_core::os::{OsChange, OsStatus, kernel_arguments};

use super::Os;
use super::rpm_ostree::link_credentials;
use super::run::Host;

/// Where bootc looks for credentials.
const CREDENTIALS: &str = "/etc/ostree/auth.json";

/// A host that bootc manages.
#[derive(Debug)]
pub(super) struct Bootc {
    host: Host,
    has_rpm_ostree: bool,
}

impl Bootc {
    pub(super) const fn new(host: Host, has_rpm_ostree: bool) -> Self {
        Self { host, has_rpm_ostree }
    }

    fn call(&self, (program, arguments): &CommandLine) -> Result<()> {
        self.host.act(program, arguments)
    }
}

impl Os for Bootc {
    fn name(&self) -> &'static str {
        "bootc"
    }

    fn status(&self) -> Result<OsStatus> {
        let json = self.host.ask("bootc", &["status", "--json"])?;
        let mut status = calls::parse_status(&json).map_err(|error| anyhow!(error))?.host;
        let line = self.host.command_line().unwrap_or_default();
        status.booted.kernel_arguments = kernel_arguments::split(&line);
        Ok(status)
    }

    fn refusal(&self, change: &OsChange) -> Option<String> {
        calls::refusal(change, self.has_rpm_ostree)
    }

    fn fetch(&self, _: &OsChange) -> Result<()> {
        // bootc fetches and stages in one.
        Ok(())
    }

    fn stage(&self, change: &OsChange, _now: bool) -> Result<()> {
        link_credentials(&self.host, CREDENTIALS)?;
        self.unstage()?;
        let done = calls::stage(change).iter().try_for_each(|command| self.call(command));
        done.inspect_err(|_| {
            // Nothing, or all of it.
            if let Err(second) = self.unstage() {
                tracing::warn!("{second:#}");
            }
        })
    }

    fn unstage(&self) -> Result<()> {
        let is_staged = self.status()?.next.is_some();
        calls::unstage(self.has_rpm_ostree, is_staged).map_or(Ok(()), |command| self.call(&command))
    }

    fn confirm(&self) -> Result<()> {
        // bootc keeps one operating system besides, for a person to go back to.
        Ok(())
    }
}
