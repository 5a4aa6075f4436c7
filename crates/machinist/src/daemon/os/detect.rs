//! Detects how the operating system of a host is changed.

use std::path::Path;

use anyhow::Result;
use machinist_core::api::MachineConfig;
use machinist_core::os::host::{HostFacts, HostKind, detect_host_kind};
use machinist_core::os::package_host::BootLoader;
use machinist_core::os::{DesiredOs, OsChange, kernel_arguments};

use super::HostOs;
use super::bootc::BootcBackend;
use super::command::HostCommands;
use super::ostree::OstreeBackend;
use super::plain::PlainBackend;
use super::rpm_ostree::RpmOstree;

/// How the operating system of a host is changed.
pub(crate) struct OsBackend {
    /// The backend.
    pub(crate) os: Box<dyn HostOs>,
    /// Its kind.
    pub(crate) kind: HostKind,
    /// Why this backend.
    pub(crate) reason: String,
    /// Whether anything reads the kernel arguments that a config asks for.
    pub(crate) supports_kernel_arguments: bool,
    host: HostCommands,
}

impl std::fmt::Debug for OsBackend {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Found").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl OsBackend {
    /// The kernel command line; `None` where nothing reads kernel arguments from a config, or where the root is
    /// not that of a running machine.
    pub(crate) fn command_line(&self) -> Option<String> {
        self.host.command_line().filter(|_| self.supports_kernel_arguments)
    }

    /// Why the staged OS was not deployed at the last reboot, if ostree logged it.
    pub(crate) fn finalize_failure(&self) -> Option<String> {
        if self.kind == HostKind::Plain {
            return None;
        }
        let arguments = ["-b", "-1", "-o", "cat", "_UID=0", "-u", FINALIZE_UNIT];
        let journal = self.host.stdout("journalctl", &arguments).ok()?;
        journal.lines().find(|line| line.starts_with("error:")).map(str::to_owned)
    }

    /// The unit that deploys what is staged, if there is one. It has to run before the machine shuts down.
    pub(crate) fn finalize_unit(&self) -> Option<&'static str> {
        let directories = ["/usr/lib/systemd/system", "/lib/systemd/system"];
        let is_there =
            |directory: &&str| self.host.path(&format!("{directory}/{FINALIZE_UNIT}")).is_file();
        (self.kind != HostKind::Plain && directories.iter().any(is_there)).then_some(FINALIZE_UNIT)
    }
}

/// Removes the kernel arguments of a config. A machine that leaves keeps its image. Returns what is left to
/// do.
pub(crate) fn remove_kernel_arguments(
    root: &Path,
    config: &MachineConfig,
) -> Result<Option<String>> {
    let kernel_arguments =
        kernel_arguments::change_between(&DesiredOs::from_config(config).kernel_arguments, &[]);
    if kernel_arguments.is_empty() {
        return Ok(None);
    }
    let found = detect(root);
    found.os.stage(&OsChange { kernel_arguments, ..OsChange::default() }, true)?;
    if found.kind == HostKind::Plain {
        found.os.confirm()?;
    }
    Ok(Some("its kernel arguments go with the next restart of the machine".to_owned()))
}

const FINALIZE_UNIT: &str = "ostree-finalize-staged.service";

/// Whether the kernel runs in FIPS mode; `None` if the host does not say. For a root without its own /proc,
/// the running kernel counts.
pub(crate) fn fips_enabled(root: &Path) -> Option<bool> {
    let of = |root: &Path| std::fs::read_to_string(root.join("proc/sys/crypto/fips_enabled"));
    let text = of(root).or_else(|_| of(Path::new("/"))).ok()?;
    Some(text.trim() == "1")
}

/// The text of os-release; empty if there is none.
pub(super) fn os_release(host: &HostCommands) -> String {
    let text = host.read_text("/etc/os-release");
    text.or_else(|| host.read_text("/usr/lib/os-release")).unwrap_or_default()
}

/// What decides about the kind of a host.
pub(super) fn host_facts(host: &HostCommands) -> HostFacts {
    HostFacts {
        os_release: os_release(host),
        is_ostree_booted: host.path("/run/ostree-booted").exists(),
        has_ostree: host.has_command("ostree"),
        has_rpm_ostree: host.has_command("rpm-ostree"),
        bootc_status: host
            .has_command("bootc")
            .then(|| host.stdout("bootc", &["status", "--json"]).unwrap_or_default()),
    }
}

/// Detects the kind of a host.
pub(crate) fn detect(root: &Path) -> OsBackend {
    let host = HostCommands::new(root);
    let facts = host_facts(&host);
    let (kind, reason) = detect_host_kind(&facts);
    let found = |os: Box<dyn HostOs>, reason, reads_arguments| OsBackend {
        os,
        kind,
        reason,
        supports_kernel_arguments: reads_arguments,
        host: host.clone(),
    };
    match kind {
        HostKind::Ostree => found(Box::new(OstreeBackend::new(root)), reason, true),
        HostKind::RpmOstree => {
            found(Box::new(RpmOstree::new(host.clone(), facts.os_release)), reason, true)
        }
        HostKind::Bootc => {
            found(Box::new(BootcBackend::new(host.clone(), facts.has_rpm_ostree)), reason, true)
        }
        HostKind::Plain => {
            let (plain, loader, why) = PlainBackend::new(host.clone(), &facts);
            found(Box::new(plain), format!("{reason}; {why}"), loader != BootLoader::Nobody)
        }
    }
}
