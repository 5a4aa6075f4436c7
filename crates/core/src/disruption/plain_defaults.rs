//! What changes of well-known files and of timers cost on plain hosts, where a reboot would surprise. Never on MCO's
//! own hosts or hosts with CRI-O: there the cost is MCO's to the byte.

use super::{action, service};
use crate::api::operator::{DisruptionAction, DisruptionActionType as Type};
use crate::ignition::schema::{Config, Unit};
use crate::os::abilities::{HostAbilities, HostRuntime, UserRules};
use crate::os::host::HostKind;
use crate::reconcile_check::ConfigChange;

/// A plain host, as far as the defaults differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PlainHost {
    /// Whether its units have the names of Debian.
    is_debian: bool,
}

impl PlainHost {
    /// A host with these abilities; `None` if the defaults do not apply to it.
    pub(super) fn from_abilities(host: &HostAbilities) -> Option<Self> {
        let is_plain = host.images == Some(HostKind::Plain)
            && host.users == UserRules::Any
            && !host.has_runtime(HostRuntime::Crio);
        is_plain.then(|| Self { is_debian: host.packages.as_deref() == Some("apt") })
    }

    /// The default for a file: the path that it covers, and the actions.
    pub(super) fn file(self, path: &str) -> Option<(String, Vec<DisruptionAction>)> {
        let covers = |subject: &str| {
            path == subject || path.strip_prefix(subject).is_some_and(|rest| rest.starts_with('/'))
        };
        let subject = PATHS.iter().find(|(subject, _)| covers(subject));
        subject.map(|(subject, default)| ((*subject).to_owned(), self.actions(*default)))
    }

    fn actions(self, default: PathDefault) -> Vec<DisruptionAction> {
        let ssh = if self.is_debian { "ssh.service" } else { "sshd.service" };
        let chrony = if self.is_debian { "chrony.service" } else { "chronyd.service" };
        match default {
            PathDefault::Nothing => vec![action(Type::None)],
            PathDefault::Restart(unit) => vec![restart(unit)],
            PathDefault::RestartAny(units) => units.map(restart).into(),
            PathDefault::Chrony => vec![restart(chrony)],
            PathDefault::Run(command) => vec![run(command)],
            // Validated first: a daemon that does not accept its settings locks everybody out.
            PathDefault::Sshd => vec![run(&["/usr/sbin/sshd", "-t"]), reload(ssh)],
        }
    }

    /// The default for a unit: timers are restarted, and a service that only its timer starts needs nothing, because
    /// systemd reads it again anyway. A unit that is disabled or removed may still run.
    pub(super) fn unit(
        name: &str,
        change: &ConfigChange,
    ) -> Option<(String, Vec<DisruptionAction>)> {
        let find = |config: &Config, name: &str| -> Option<Unit> {
            config.systemd.units.iter().find(|unit| unit.name == name).cloned()
        };
        let is_enabled = |unit: &Unit| unit.enabled == Some(true) && unit.mask != Some(true);
        // Drop-ins beside an installer's unit. Pods go on while their kubelet restarts.
        let has_contents = |config| find(config, name).is_some_and(|unit| unit.contents.is_some());
        if name == "kubelet.service" && !has_contents(&change.old) && !has_contents(&change.new) {
            return Some((name.to_owned(), vec![restart(name)]));
        }
        let new = find(&change.new, name)?;
        if name.ends_with(".timer") {
            return is_enabled(&new).then(|| ("timers".to_owned(), vec![restart(name)]));
        }
        let timer = find(&change.new, &format!("{}.timer", name.strip_suffix(".service")?))?;
        let was_enabled = find(&change.old, name).is_some_and(|unit| unit.enabled == Some(true));
        let is_only_timed = new.enabled != Some(true) && new.mask != Some(true) && !was_enabled;
        (is_only_timed && is_enabled(&timer))
            .then(|| ("services of timers".to_owned(), vec![action(Type::None)]))
    }
}

#[derive(Debug, Clone, Copy)]
enum PathDefault {
    Nothing,
    Restart(&'static str),
    /// Which of them runs depends on the role of the node.
    RestartAny([&'static str; 2]),
    Chrony,
    Run(&'static [&'static str]),
    Sshd,
}

/// The units of k3s and RKE2 on a server and on an agent.
const K3S: [&str; 2] = ["k3s.service", "k3s-agent.service"];
const RKE2: [&str; 2] = ["rke2-server.service", "rke2-agent.service"];

/// The defaults by path.
const PATHS: [(&str, PathDefault); 29] = [
    ("/etc/sysctl.d", PathDefault::Restart("systemd-sysctl.service")),
    ("/etc/sysctl.conf", PathDefault::Restart("systemd-sysctl.service")),
    (
        "/usr/local/share/ca-certificates",
        PathDefault::Run(&["/usr/sbin/update-ca-certificates", "--fresh"]),
    ),
    ("/etc/pki/trust/anchors", PathDefault::Run(&["/usr/sbin/update-ca-certificates"])),
    ("/etc/pki/ca-trust/source/anchors", PathDefault::Run(&["/usr/bin/update-ca-trust"])),
    ("/etc/ca-certificates/trust-source/anchors", PathDefault::Run(&["/usr/bin/update-ca-trust"])),
    ("/etc/ssh/sshd_config", PathDefault::Sshd),
    ("/etc/ssh/sshd_config.d", PathDefault::Sshd),
    ("/etc/chrony", PathDefault::Chrony),
    ("/etc/chrony.conf", PathDefault::Chrony),
    ("/etc/chrony.d", PathDefault::Chrony),
    ("/etc/systemd/journald.conf", PathDefault::Restart("systemd-journald.service")),
    ("/etc/systemd/journald.conf.d", PathDefault::Restart("systemd-journald.service")),
    ("/etc/systemd/resolved.conf", PathDefault::Restart("systemd-resolved.service")),
    ("/etc/systemd/resolved.conf.d", PathDefault::Restart("systemd-resolved.service")),
    ("/etc/systemd/timesyncd.conf", PathDefault::Restart("systemd-timesyncd.service")),
    ("/etc/systemd/timesyncd.conf.d", PathDefault::Restart("systemd-timesyncd.service")),
    ("/etc/motd", PathDefault::Nothing),
    ("/etc/motd.d", PathDefault::Nothing),
    ("/etc/update-motd.d", PathDefault::Nothing),
    ("/etc/issue", PathDefault::Nothing),
    ("/etc/issue.d", PathDefault::Nothing),
    ("/etc/issue.net", PathDefault::Nothing),
    ("/etc/kubernetes/kubelet.conf.d", PathDefault::Restart("kubelet.service")),
    // Containers go on while containerd restarts.
    ("/etc/containerd/conf.d", PathDefault::Restart("containerd.service")),
    ("/etc/rancher/k3s/config.yaml.d", PathDefault::RestartAny(K3S)),
    ("/var/lib/rancher/k3s/agent/etc/kubelet.conf.d", PathDefault::RestartAny(K3S)),
    ("/etc/rancher/rke2/config.yaml.d", PathDefault::RestartAny(RKE2)),
    ("/var/lib/rancher/rke2/agent/etc/kubelet.conf.d", PathDefault::RestartAny(RKE2)),
];

/// An action that is skipped if the host does not have what it acts on.
fn restart(unit: &str) -> DisruptionAction {
    DisruptionAction { restart: service(unit), if_present: true, ..action(Type::Restart) }
}

fn reload(unit: &str) -> DisruptionAction {
    DisruptionAction { reload: service(unit), if_present: true, ..action(Type::Reload) }
}

fn run(command: &[&str]) -> DisruptionAction {
    let run = command.iter().map(|&word| word.to_owned()).collect();
    DisruptionAction { run, if_present: true, ..action(Type::Run) }
}
