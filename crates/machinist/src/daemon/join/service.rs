//! The systemd service that runs the daemon.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use anyhow::{Context as _, Result};

use super::JoinOptions;
use super::paths::JoinPaths;
use crate::durable_file;

/// Its name.
pub(crate) const SERVICE_NAME: &str = "machinist-daemon.service";
/// The service that restores the daemon if it cannot run, and its timer.
pub(super) const WATCHDOG_SERVICE: &str = "machinist-watchdog.service";
pub(in super::super) const WATCHDOG_TIMER: &str = "machinist-watchdog.timer";

/// The name of the last good binary before the present one, beside it.
pub(in super::super) const PREVIOUS: &str = "machinist.previous";

/// A file of the service.
struct ServiceFile {
    path: PathBuf,
    contents: FileContents,
}

enum FileContents {
    Unit(String),
    /// A link that enables a unit.
    Link(String),
}

/// The files of the service, in the order in which they are written: each prefix is a valid state, because nothing is
/// enabled before it is there.
fn service_files(join_paths: &JoinPaths, options: &JoinOptions) -> [ServiceFile; 5] {
    let unit = |name: &str, text: String| ServiceFile {
        path: join_paths.unit_file(name),
        contents: FileContents::Unit(text),
    };
    let link = |name: &str, path: PathBuf| ServiceFile {
        path,
        contents: FileContents::Link(format!("/etc/systemd/system/{name}")),
    };
    [
        unit(SERVICE_NAME, unit_text(options)),
        link(SERVICE_NAME, join_paths.wants_link(SERVICE_NAME)),
        unit(WATCHDOG_SERVICE, WATCHDOG_SERVICE_TEXT.to_owned()),
        unit(WATCHDOG_TIMER, WATCHDOG_TIMER_TEXT.to_owned()),
        link(WATCHDOG_TIMER, join_paths.timer_link(WATCHDOG_TIMER)),
    ]
}

/// Writes what is missing or different, and enables the service. Returns what was wrong with each file it wrote.
pub(super) fn install(join_paths: &JoinPaths, options: &JoinOptions) -> Result<Vec<String>> {
    let mut written = Vec::new();
    for file in service_files(join_paths, options) {
        let Some(fault) = file.fault() else { continue };
        let context = || format!("cannot write {}", file.path.display());
        file.write().with_context(context)?;
        written.push(format!("{} {fault}", file.path.display()));
    }
    Ok(written)
}

impl ServiceFile {
    /// What is wrong with it, if anything.
    fn fault(&self) -> Option<&'static str> {
        let link = fs::read_link(&self.path).ok();
        match &self.contents {
            FileContents::Link(target) if link.as_deref() == Some(Path::new(target)) => None,
            FileContents::Unit(_) if link.is_some_and(|to| to == Path::new("/dev/null")) => {
                Some("was masked")
            }
            FileContents::Unit(text) => match fs::read(&self.path) {
                Ok(found) if found == text.as_bytes() => None,
                Ok(found) if found.is_empty() => Some("was empty"),
                Ok(_) => Some("was different"),
                Err(_) => Some("was missing"),
            },
            FileContents::Link(_) => Some("was missing: the service was disabled"),
        }
    }

    fn write(&self) -> io::Result<()> {
        if let Some(directory) = self.path.parent() {
            durable_file::create_directories(directory)?;
        }
        match &self.contents {
            FileContents::Unit(text) => {
                durable_file::write(&self.path, text.as_bytes(), durable_file::PUBLIC)
            }
            FileContents::Link(target) => durable_file::write_symlink(target, &self.path),
        }
    }
}

/// Removes the watchdog, which would bring the service back.
pub(super) fn remove_watchdog(join_paths: &JoinPaths) -> Result<()> {
    let link = join_paths.timer_link(WATCHDOG_TIMER);
    JoinPaths::remove_file(&link)?;
    JoinPaths::remove_file(&join_paths.unit_file(WATCHDOG_TIMER))?;
    JoinPaths::remove_file(&join_paths.unit_file(WATCHDOG_SERVICE))?;
    if let Some(directory) = link.parent() {
        JoinPaths::remove_empty(directory);
    }
    Ok(())
}

/// Removes what the daemon stored for the watchdog.
pub(super) fn remove_last_good(join_paths: &JoinPaths) -> Result<()> {
    for path in [
        join_paths.last_good("machinist"),
        join_paths.last_good(PREVIOUS),
        join_paths.last_good(SERVICE_NAME),
        join_paths.last_good(super::identity_copy::NAME),
        join_paths.watchdog_record(),
        join_paths.upgrade_record(),
    ] {
        JoinPaths::remove_file(&path)?;
    }
    JoinPaths::remove_empty(&join_paths.last_good(""));
    Ok(())
}

/// Removes the service.
pub(super) fn remove(join_paths: &JoinPaths) -> Result<()> {
    let (unit, wanted) = (join_paths.unit_file(SERVICE_NAME), join_paths.wants_link(SERVICE_NAME));
    JoinPaths::remove_file(&wanted)?;
    JoinPaths::remove_file(&unit)?;
    if let Some(directory) = wanted.parent() {
        JoinPaths::remove_empty(directory);
    }
    Ok(())
}

/// The service of the watchdog. It runs a copy of the last daemon that worked, not the installed binary.
const WATCHDOG_SERVICE_TEXT: &str = "\
# Written by machinist join; machinist leave removes it.
[Unit]
Description=Machinist: restores the daemon of this machine if it cannot run
Documentation=https://github.com/machinist-dev/machinist
ConditionPathExists=/var/lib/machinist/last-good/machinist

[Service]
Type=oneshot
ExecStart=/var/lib/machinist/last-good/machinist daemon watchdog
# Without systemd's messages about each run.
SyslogLevel=notice
LogLevelMax=notice
";

/// The timer of the watchdog.
const WATCHDOG_TIMER_TEXT: &str = "\
# Written by machinist join; machinist leave removes it.
# To switch the watchdog off: systemctl disable --now machinist-watchdog.timer
[Unit]
Description=Machinist: checks every minute that the daemon of this machine can run
Documentation=https://github.com/machinist-dev/machinist

[Timer]
# Not OnUnitInactiveSec: it stops when a condition of the service is not met.
OnCalendar=minutely
AccuracySec=15s

[Install]
WantedBy=timers.target
";

/// The unit.
fn unit_text(options: &JoinOptions) -> String {
    let mut command = format!(
        "{} daemon start --kubeconfig /var/lib/machinist/kubeconfig --node-name {}",
        options.binary.display(),
        options.name
    );
    if !options.has_kubelet {
        command.push_str(" --register");
        for (key, value) in &options.labels {
            let _ = write!(command, " --label {key}={value}");
        }
    }
    for argument in &options.daemon_arguments {
        let _ = write!(command, " {argument}");
    }
    format!(
        "# Written by machinist join; machinist leave removes it.\n\
         [Unit]\n\
         Description=Machinist: keeps this machine as it is declared\n\
         Documentation=https://github.com/machinist-dev/machinist\n\
         Wants=network-online.target\n\
         After=network-online.target\n\
         # However often it ends, it is started again.\n\
         StartLimitIntervalSec=0\n\
         \n\
         [Service]\n\
         Type=notify\n\
         ExecStart={command}\n\
         Restart=always\n\
         RestartSec=2\n\
         # A daemon that is stuck this long is killed and started again; the journal makes that safe.\n\
         WatchdogSec=300\n\
         # Recovery from an interrupted change comes before readiness.\n\
         TimeoutStartSec=600\n\
         # A change that has begun is finished first.\n\
         TimeoutStopSec=600\n\
         KillMode=mixed\n\
         \n\
         [Install]\n\
         WantedBy=multi-user.target\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn the_unit_names_its_machine() {
        let options = JoinOptions {
            name: "n1".to_owned(),
            root: "/".into(),
            labels: BTreeMap::from([("node-role.kubernetes.io/worker".into(), String::new())]),
            has_kubelet: false,
            keep_identity: false,
            binary: "/usr/local/bin/machinist".into(),
            daemon_arguments: Vec::new(),
            approval_timeout: std::time::Duration::from_secs(1),
            pool: "worker".to_owned(),
            confirm: None,
            start_now: true,
        };
        let unit = unit_text(&options);
        assert!(
            unit.contains(
                "ExecStart=/usr/local/bin/machinist daemon start --kubeconfig /var/lib/machinist/kubeconfig --node-name n1 --register --label node-role.kubernetes.io/worker=\n"
            ),
            "{unit}"
        );
        assert!(!unit_text(&JoinOptions { has_kubelet: true, ..options }).contains("--register"));
    }
}
