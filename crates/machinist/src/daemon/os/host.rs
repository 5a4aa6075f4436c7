//! Finds out by looking how the operating system of a host is changed.

use std::path::Path;

use anyhow::Result;
use machinist_core::api::MachineConfig;
use machinist_core::os::host::{HostFacts, HostKind, detect_host_kind};
use machinist_core::os::package_host::BootLoader;
use machinist_core::os::{DesiredOs, OsChange, kernel_arguments};

use super::Os;
use super::bootc::Bootc;
use super::ostree::Ostree;
use super::plain::Plain;
use super::rpm_ostree::RpmOstree;
use super::run::Host;

/// How the operating system of a host is changed.
pub(crate) struct Found {
    /// The one that does it.
    pub(crate) os: Box<dyn Os>,
    /// Its kind.
    pub(crate) kind: HostKind,
    /// Why this one.
    pub(crate) reason: String,
    /// Whether anybody reads the kernel arguments that a config asks for.
    pub(crate) reads_arguments: bool,
    host: Host,
}

impl std::fmt::Debug for Found {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Found").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl Found {
    /// What the kernel was booted with; none where nobody reads what a config asks for, or where
    /// the root is not that of a running machine.
    pub(crate) fn command_line(&self) -> Option<String> {
        self.host.command_line().filter(|_| self.reads_arguments)
    }

    /// Why what was staged could not be put in place at the last restart, where ostree has said so.
    pub(crate) fn finalize_failure(&self) -> Option<String> {
        if self.kind == HostKind::Plain {
            return None;
        }
        let arguments = ["-b", "-1", "-o", "cat", "_UID=0", "-u", FINALIZE];
        let journal = self.host.ask("journalctl", &arguments).ok()?;
        journal.lines().find(|line| line.starts_with("error:")).map(str::to_owned)
    }

    /// The unit that puts in place what is staged, where there is one: it has to run before the
    /// machine goes down.
    pub(crate) fn finalizer(&self) -> Option<&'static str> {
        let folders = ["/usr/lib/systemd/system", "/lib/systemd/system"];
        let is_there = |folder: &&str| self.host.path(&format!("{folder}/{FINALIZE}")).is_file();
        (self.kind != HostKind::Plain && folders.iter().any(is_there)).then_some(FINALIZE)
    }
}

/// Takes away what a config has asked for, as far as that needs nothing but a restart: a machine that
/// leaves keeps its image. Says what is left to do.
pub(crate) fn give_back(root: &Path, config: &MachineConfig) -> Result<Option<String>> {
    let kernel_arguments =
        kernel_arguments::change_between(&DesiredOs::from_config(config).kernel_arguments, &[]);
    if kernel_arguments.is_empty() {
        return Ok(None);
    }
    let found = find(root);
    found.os.stage(&OsChange { kernel_arguments, ..OsChange::default() }, true)?;
    if found.kind == HostKind::Plain {
        found.os.confirm()?;
    }
    Ok(Some("its kernel arguments go with the next restart of the machine".to_owned()))
}

const FINALIZE: &str = "ostree-finalize-staged.service";

/// Whether the kernel of a machine runs in FIPS mode, where it can tell. Where a root has no /proc of its
/// own, the kernel is ours.
pub(crate) fn fips(root: &Path) -> Option<bool> {
    let of = |root: &Path| std::fs::read_to_string(root.join("proc/sys/crypto/fips_enabled"));
    let text = of(root).or_else(|_| of(Path::new("/"))).ok()?;
    Some(text.trim() == "1")
}

/// Looks.
pub(crate) fn find(root: &Path) -> Found {
    let host = Host::new(root);
    let os_release = host.text("/etc/os-release").or_else(|| host.text("/usr/lib/os-release"));
    let facts = HostFacts {
        os_release: os_release.unwrap_or_default(),
        is_ostree_booted: host.path("/run/ostree-booted").exists(),
        has_ostree: host.has("ostree"),
        has_rpm_ostree: host.has("rpm-ostree"),
        bootc_status: host
            .has("bootc")
            .then(|| host.ask("bootc", &["status", "--json"]).unwrap_or_default()),
    };
    let (kind, reason) = detect_host_kind(&facts);
    let found = |os: Box<dyn Os>, reason, reads_arguments| Found {
        os,
        kind,
        reason,
        reads_arguments,
        host: host.clone(),
    };
    match kind {
        HostKind::Ostree => found(Box::new(Ostree::new(root)), reason, true),
        HostKind::RpmOstree => {
            found(Box::new(RpmOstree::new(host.clone(), facts.os_release)), reason, true)
        }
        HostKind::Bootc => {
            found(Box::new(Bootc::new(host.clone(), facts.has_rpm_ostree)), reason, true)
        }
        HostKind::Plain => {
            let (plain, loader, why) = Plain::new(host.clone(), &facts);
            found(Box::new(plain), format!("{reason}; {why}"), loader != BootLoader::Nobody)
        }
    }
}
