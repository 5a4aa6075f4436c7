//! Hosts with rpm-ostree: Fedora CoreOS, RHCOS, SCOS. `core::os` decides which commands are run.

use std::env::consts::ARCH;
use std::fs;
use std::thread;

use anyhow::{Context as _, Result, anyhow, bail};
use machinist_core::os::rpm_ostree::{
    self as calls, MAX_DOWNLOAD_ATTEMPTS, RpmOstreeCall, download_backoff,
};
use machinist_core::os::{OsChange, OsStatus, extensions, host, kernel_arguments, kernel_type};

use super::HostOs;
use super::command::HostCommands;
use super::extensions_repo::ExtensionsRepo;
use crate::durable_file;

const COMMAND: &str = "rpm-ostree";
/// Where rpm-ostree looks for credentials.
const AUTH_FILE: &str = "/run/ostree/auth.json";

/// A host with rpm-ostree.
#[derive(Debug)]
pub(super) struct RpmOstree {
    host: HostCommands,
    os_release: String,
}

impl RpmOstree {
    pub(super) const fn new(host: HostCommands, os_release: String) -> Self {
        Self { host, os_release }
    }

    /// Makes one call. A download is retried for a while.
    fn run(&self, change: &OsChange, call: &RpmOstreeCall) -> Result<()> {
        let mut failures = 0;
        loop {
            let Err(error) = self.host.run_logged(COMMAND, &call.arguments) else { return Ok(()) };
            failures += 1;
            if !call.is_download {
                return Err(error);
            }
            if failures >= MAX_DOWNLOAD_ATTEMPTS {
                let image = change.image.as_deref().unwrap_or_default();
                return Err(anyhow!(
                    "failed to update OS to {image} after retries: {error:#}: timed out waiting for the condition"
                ));
            }
            let pause = download_backoff(failures);
            let error = format_args!("{error:#}");
            tracing::warn!(%error, retry_in = ?pause, "rpm-ostree failed");
            thread::sleep(pause);
        }
    }

    fn apply_change(&self, change: &OsChange) -> Result<()> {
        let booted = self.status()?.booted;
        let _packages = ExtensionsRepo::fetch(&self.host, change)?;
        for call in calls::stage(change, &booted) {
            self.run(change, &call)?;
        }
        let Some(wanted) = &change.extensions else { return Ok(()) };
        if extensions::update_arguments(wanted, &booted.requested_packages).is_none() {
            tracing::info!("No extension updates required");
            return Ok(());
        }
        let staged = self.status()?.next.map(|next| next.requested_packages);
        extensions::missing_in_staged(wanted, staged.as_deref())
            .map_or(Ok(()), |problem| bail!(problem))
    }
}

/// Links the credentials to where rpm-ostree looks for them.
pub(super) fn link_credentials(host: &HostCommands, place: &str) -> Result<()> {
    let Some(chosen) = host.credentials() else { return Ok(()) };
    let place = host.path(place);
    if fs::read_link(&place).is_ok_and(|target| target.as_os_str() == chosen) {
        return Ok(());
    }
    let link = || {
        if let Some(directory) = place.parent() {
            durable_file::create_directories(directory)?;
        }
        durable_file::write_symlink(chosen, &place)
    };
    link().with_context(|| {
        format!("error while ensuring access to pull secrets: cannot write {}", place.display())
    })
}

impl HostOs for RpmOstree {
    fn backend_name(&self) -> &'static str {
        COMMAND
    }

    fn status(&self) -> Result<OsStatus> {
        let json = self.host.stdout(COMMAND, &["status", "--json"])?;
        let mut status = calls::parse_status(&json).map_err(|error| anyhow!(error))?;
        let line = self.host.command_line().unwrap_or_default();
        status.booted.kernel_arguments = kernel_arguments::split(&line);
        Ok(status)
    }

    fn refusal(&self, change: &OsChange) -> Option<String> {
        let kernel = change.kernel_type.as_ref().map(|(_, new)| new.as_str());
        let wanted = change.extensions.as_deref().unwrap_or_default();
        let is_default = kernel.is_none_or(|kernel| kernel == kernel_type::DEFAULT_KERNEL);
        let asks_for_packages = !is_default || !wanted.is_empty();
        if asks_for_packages && !host::is_enterprise_linux(&self.os_release) {
            let os = host::os_name(&self.os_release);
            let field = if is_default { "spec.extensions" } else { "spec.kernelType" };
            return Some(format!(
                "{field}: only RHCOS and SCOS have other kernels and extensions, and this is {os}: take it out of the config, or build it into the image"
            ));
        }
        kernel
            .and_then(|kernel| kernel_type::refusal(kernel, ARCH))
            .or_else(|| extensions::refusal(wanted))
    }

    fn fetch(&self, change: &OsChange) -> Result<()> {
        let Some(call) = calls::fetch(change) else { return Ok(()) };
        link_credentials(&self.host, AUTH_FILE)?;
        self.run(change, &call)
    }

    fn stage(&self, change: &OsChange, _now: bool) -> Result<()> {
        link_credentials(&self.host, AUTH_FILE)?;
        self.apply_change(change).inspect_err(|_| {
            // All of it or nothing.
            if let Err(error) = self.unstage() {
                let error = format_args!("{error:#}");
                tracing::warn!(%error, "cannot drop the staged change");
            }
        })
    }

    fn unstage(&self) -> Result<()> {
        self.host.run_logged(COMMAND, &calls::unstage().arguments)
    }

    fn confirm(&self) -> Result<()> {
        // rpm-ostree keeps one other deployment, for a manual rollback.
        Ok(())
    }

    fn problem(&self, wanted: &machinist_core::os::DesiredOs) -> Option<String> {
        if wanted.is_layered || !host::is_enterprise_linux(&self.os_release) {
            return None;
        }
        let is_installed = |package: &str| self.host.stdout("rpm", &["-q", package]).is_ok();
        extensions::missing_on_host(&wanted.extensions, &is_installed)
    }
}
