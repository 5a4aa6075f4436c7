//! The systemd service that runs the daemon.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::JoinOptions;
use super::paths::JoinPaths;
use crate::durable_file;

/// Its name.
pub(crate) const SERVICE_NAME: &str = "machinist-daemon.service";

/// Writes the service and enables it.
pub(super) fn install(join_paths: &JoinPaths, options: &JoinOptions) -> Result<()> {
    let (unit, wanted) = (join_paths.unit_file(SERVICE_NAME), join_paths.wants_link(SERVICE_NAME));
    let context = |path: &Path| format!("cannot write {}", path.display());
    if let Some(directory) = wanted.parent() {
        durable_file::create_directories(directory).with_context(|| context(directory))?;
    }
    durable_file::write(&unit, unit_text(options).as_bytes(), durable_file::PUBLIC)
        .with_context(|| context(&unit))?;
    durable_file::write_symlink(&format!("/etc/systemd/system/{SERVICE_NAME}"), &wanted)
        .with_context(|| context(&wanted))
}

/// Removes it.
pub(super) fn remove(join_paths: &JoinPaths) -> Result<()> {
    let (unit, wanted) = (join_paths.unit_file(SERVICE_NAME), join_paths.wants_link(SERVICE_NAME));
    JoinPaths::remove_file(&wanted)?;
    JoinPaths::remove_file(&unit)?;
    if let Some(directory) = wanted.parent() {
        JoinPaths::remove_empty(directory);
    }
    Ok(())
}

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
    for argument in &options.metrics_arguments {
        let _ = write!(command, " {argument}");
    }
    format!(
        "# Written by machinist join; machinist leave removes it.\n\
         [Unit]\n\
         Description=Machinist: keeps this machine as it is declared\n\
         Documentation=https://github.com/machinist-dev/machinist\n\
         Wants=network-online.target\n\
         After=network-online.target\n\
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
            metrics_arguments: Vec::new(),
            approval_timeout: std::time::Duration::from_secs(1),
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
