//! What a daemon does about the binary that it should run ([`UpgradeRequest`]), and whether a binary may take its place.
//!
//! The record on the disk says which attempt is under way. It is written before the binary is replaced, so whatever runs
//! after a crash or a power cut, the old or the new daemon, knows what happened.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

use crate::api::names::annotation::machinist;
use crate::node::{FailedUpgrade, NodeView, UpgradeRequest};

/// How often a machine tries to start one binary. Only a power cut between record and binary makes it try again.
pub const MAX_UPGRADE_ATTEMPTS: u32 = 3;
/// After this many looks of the watchdog, about ten minutes, a new daemon that has not reached the API server is replaced
/// by the last one that did.
pub const MAX_UNCONFIRMED_CHECKS: u32 = 10;

/// An upgrade that was begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UpgradeRecord {
    /// What was asked for.
    pub request: UpgradeRequest,
    /// The digest of the binary that ran before.
    pub from_sha256: String,
    /// How often the binary was replaced for this request.
    pub attempts: u32,
    /// How often the watchdog has looked since then.
    #[serde(default)]
    pub checks: u32,
    /// Whether the new daemon has completed a pass.
    #[serde(default)]
    pub came_up: bool,
    /// Why the request failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

impl UpgradeRecord {
    /// Whether the new daemon has had its time to come up.
    #[must_use]
    pub fn is_overdue(&self) -> bool {
        self.failed.is_none() && !self.came_up && self.checks >= MAX_UNCONFIRMED_CHECKS
    }

    /// What the Node says about it.
    #[must_use]
    pub fn failure(&self) -> Option<FailedUpgrade> {
        let reason = self.failed.clone()?;
        Some(FailedUpgrade { id: self.request.id.clone(), reason })
    }
}

/// How a daemon was installed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InstalledBinary {
    /// Whether it runs in a pod.
    pub is_pod: bool,
    /// The path of the binary, if it is the one that the service of this machine runs.
    pub service_path: Option<String>,
    /// The package that owns the file, if one does.
    pub package: Option<String>,
    /// Whether its file system is mounted read-only.
    pub is_read_only: bool,
    /// Whether the watchdog runs, which puts the last binary back.
    pub has_watchdog: bool,
}

/// Why a daemon cannot replace its binary, with the remedy.
#[must_use]
pub fn cannot_upgrade(installed: &InstalledBinary) -> Option<String> {
    if installed.is_pod {
        return Some(
            "its daemon is a pod: the image of its DaemonSet decides, so upgrade the operator"
                .to_owned(),
        );
    }
    let Some(path) = &installed.service_path else {
        return Some("its daemon was not started by machinist-daemon.service: replace the binary there, and start it again".to_owned());
    };
    if let Some(package) = &installed.package {
        return Some(format!(
            "{path} is a file of the package {package}: install the new package there, such as with apt-get install ./{package}_VERSION.deb"
        ));
    }
    if installed.is_read_only {
        return Some(format!(
            "{path} is on a read-only file system: put the new version into the image of the host, or a binary into /usr/local/bin and run machinist join there again with it"
        ));
    }
    (!installed.has_watchdog).then(|| {
        "its watchdog is off, which puts the old binary back: run systemctl enable --now machinist-watchdog.timer there".to_owned()
    })
}

/// What a daemon does next about its binary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UpgradeStep {
    /// Nothing is asked for, it is done, or it has failed for good.
    Nothing,
    /// The machine has something else to do first.
    Wait,
    /// Fetch the binary, and replace this one.
    Install(UpgradeRequest),
    /// Record that it cannot be done.
    Fail {
        /// The request.
        request: UpgradeRequest,
        /// Why.
        reason: String,
    },
}

/// Decides what a daemon does about its binary. `cannot` says why it cannot replace it.
#[must_use]
pub fn upgrade_step(
    view: NodeView<'_>,
    own_sha256: &str,
    cannot: Option<&str>,
    record: Option<&UpgradeRecord>,
) -> UpgradeStep {
    let request = view.annotation(machinist::UPGRADE).map(UpgradeRequest::parse);
    // One that is invalid is none: whoever wrote it sees that nothing happens.
    let Some(Ok(request)) = request else { return UpgradeStep::Nothing };
    if request.sha256 == own_sha256 {
        return UpgradeStep::Nothing;
    }
    let earlier = record.filter(|record| record.request.id == request.id);
    if earlier.is_some_and(|record| record.failed.is_some()) {
        return UpgradeStep::Nothing;
    }
    if let Some(reason) = cannot {
        return UpgradeStep::Fail { request, reason: reason.to_owned() };
    }
    if earlier.is_some_and(|record| record.attempts >= MAX_UPGRADE_ATTEMPTS) {
        let reason = format!(
            "the binary was replaced {MAX_UPGRADE_ATTEMPTS} times, and each time the old one was there again"
        );
        return UpgradeStep::Fail { request, reason };
    }
    if !view.is_done() || view.held().is_some() {
        return UpgradeStep::Wait;
    }
    UpgradeStep::Install(request)
}

/// Reads what `machinist version` prints, and checks that the binary may take the place of a daemon. Returns its version.
///
/// # Errors
/// It is not machinist, or a downgrade that was not asked for.
pub fn check_candidate(
    output: &str,
    own_version: &str,
    allow_downgrade: bool,
) -> Result<String, String> {
    let version = output.strip_prefix("machinist ").and_then(|rest| rest.split_whitespace().next());
    let (version, parsed) =
        version.and_then(|version| Some((version, parse_version(version)?))).ok_or_else(|| {
            let start: String = output.chars().take(60).collect();
            format!("the binary is not machinist: `machinist version` of it prints {start:?}")
        })?;
    let is_older = parse_version(own_version).is_some_and(|own| compare(&parsed, &own).is_lt());
    if is_older && !allow_downgrade {
        return Err(format!(
            "{version} is older than {own_version}, and may not read what the newer daemon has written: upgrade to a newer one, or use --allow-downgrade"
        ));
    }
    Ok(version.to_owned())
}

/// The numbers of a version, and the part after them; empty for a release.
type Version<'a> = ([u64; 3], &'a str);

fn parse_version(text: &str) -> Option<Version<'_>> {
    let text = text.split_once('+').map_or(text, |(version, _)| version);
    let (numbers, pre) = text.split_once('-').unwrap_or((text, ""));
    let mut parts = numbers.split('.').map(|part| part.parse::<u64>().ok());
    let numbers = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some((numbers, pre))
}

/// As semantic versioning has it: a pre-release comes before its release.
fn compare(a: &Version<'_>, b: &Version<'_>) -> Ordering {
    let by_numbers = a.0.cmp(&b.0);
    by_numbers.then_with(|| a.1.is_empty().cmp(&b.1.is_empty())).then_with(|| a.1.cmp(b.1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::names::annotation::{CURRENT_CONFIG, DESIRED_CONFIG, STATE};
    use k8s_openapi::api::core::v1::Node;
    use serde_json::{Value, json};

    fn request(id: &str) -> UpgradeRequest {
        UpgradeRequest {
            id: id.to_owned(),
            sha256: "b".repeat(64),
            size: 7,
            architecture: None,
            allow_downgrade: false,
        }
    }

    fn record(id: &str, attempts: u32, failed: Option<&str>) -> UpgradeRecord {
        UpgradeRecord {
            request: request(id),
            from_sha256: "a".repeat(64),
            attempts,
            checks: 0,
            came_up: false,
            failed: failed.map(str::to_owned),
        }
    }

    fn node(upgrade: Option<String>, more: &Value) -> Node {
        let mut annotations = json!({CURRENT_CONFIG: "x", DESIRED_CONFIG: "x", STATE: "Done"});
        if let Some(upgrade) = upgrade {
            annotations[machinist::UPGRADE] = json!(upgrade);
        }
        for (key, value) in more.as_object().unwrap() {
            annotations[key] = value.clone();
        }
        serde_json::from_value(json!({"metadata": {"name": "a", "annotations": annotations}}))
            .unwrap()
    }

    /// What it is, the Node, the own digest, why it cannot, the record, and the step.
    type UpgradeStepCase<'a> =
        (&'a str, Node, &'a str, Option<&'a str>, Option<UpgradeRecord>, UpgradeStep);

    #[test]
    fn a_daemon_upgrades_once_per_request_when_it_has_nothing_else_to_do() {
        let asked = || node(Some(serde_json::to_string(&request("2")).unwrap()), &json!({}));
        let (own, new) = ("a".repeat(64), "b".repeat(64));
        let working =
            |more: &Value| node(Some(serde_json::to_string(&request("2")).unwrap()), more);
        let install = || UpgradeStep::Install(request("2"));
        let cases: [UpgradeStepCase<'_>; 11] = [
            ("no request", node(None, &json!({})), &own, None, None, UpgradeStep::Nothing),
            (
                "nonsense",
                node(Some("{".into()), &json!({})),
                &own,
                None,
                None,
                UpgradeStep::Nothing,
            ),
            ("asked", asked(), &own, None, None, install()),
            ("it runs it", asked(), &new, Some("x"), None, UpgradeStep::Nothing),
            ("an earlier failure", asked(), &own, None, Some(record("1", 3, Some("x"))), install()),
            (
                "it failed",
                asked(),
                &own,
                None,
                Some(record("2", 1, Some("x"))),
                UpgradeStep::Nothing,
            ),
            ("a power cut", asked(), &own, None, Some(record("2", 1, None)), install()),
            ("busy", working(&json!({STATE: "Working"})), &own, None, None, UpgradeStep::Wait),
            ("degraded", working(&json!({STATE: "Degraded"})), &own, None, None, UpgradeStep::Wait),
            ("held", working(&json!({machinist::HOLD: ""})), &own, None, None, UpgradeStep::Wait),
            (
                "a package",
                asked(),
                &own,
                Some("use apt"),
                None,
                UpgradeStep::Fail { request: request("2"), reason: "use apt".into() },
            ),
        ];
        for (what, node, own, cannot, record, expected) in cases {
            let step = upgrade_step(NodeView(&node), own, cannot, record.as_ref());
            assert_eq!(step, expected, "{what}");
        }
        let step = upgrade_step(NodeView(&asked()), &own, None, Some(&record("2", 3, None)));
        assert!(matches!(step, UpgradeStep::Fail { .. }), "{step:?}");
    }

    #[test]
    fn who_owns_a_binary_decides_whether_it_is_replaced() {
        let by_hand = InstalledBinary {
            service_path: Some("/usr/local/bin/machinist".to_owned()),
            has_watchdog: true,
            ..InstalledBinary::default()
        };
        let cases = [
            (by_hand.clone(), None),
            (InstalledBinary { is_pod: true, ..by_hand.clone() }, Some("DaemonSet")),
            (InstalledBinary { service_path: None, ..by_hand.clone() }, Some("start it again")),
            (
                InstalledBinary { package: Some("machinist".to_owned()), ..by_hand.clone() },
                Some("apt-get install ./machinist_VERSION.deb"),
            ),
            (InstalledBinary { is_read_only: true, ..by_hand.clone() }, Some("/usr/local/bin")),
            (InstalledBinary { has_watchdog: false, ..by_hand }, Some("machinist-watchdog.timer")),
        ];
        for (installed, expected) in cases {
            let why = cannot_upgrade(&installed);
            match expected {
                None => assert_eq!(why, None),
                Some(part) => assert!(why.as_ref().is_some_and(|it| it.contains(part)), "{why:?}"),
            }
        }
    }

    #[test]
    fn a_new_daemon_has_time_to_come_up() {
        let mut record = record("1", 1, None);
        assert!(!record.is_overdue());
        record.checks = MAX_UNCONFIRMED_CHECKS;
        assert!(record.is_overdue() && record.failure().is_none());
        assert!(!UpgradeRecord { came_up: true, ..record.clone() }.is_overdue());
        record.failed = Some("x".into());
        assert!(!record.is_overdue());
        assert_eq!(record.failure().unwrap().reason, "x");
    }

    #[test]
    fn only_machinist_of_no_older_version_takes_its_place() {
        let cases = [
            ("machinist 0.1.0 (Ignition specs 3.5.0)\n", false, Ok("0.1.0")),
            ("machinist 0.2.0\n", false, Ok("0.2.0")),
            ("machinist 0.10.0\n", false, Ok("0.10.0")),
            ("machinist 0.0.9\n", false, Err("older than 0.1.0")),
            ("machinist 0.0.9\n", true, Ok("0.0.9")),
            ("machinist 0.1.0-rc.1\n", false, Err("older than 0.1.0")),
            ("machinist 0.1.0+build\n", false, Ok("0.1.0+build")),
            ("machinist 0.1\n", true, Err("is not machinist")),
            ("machinist\n", true, Err("is not machinist")),
            ("GNU bash, version 5\u{1b}[2J", true, Err("is not machinist")),
            ("", true, Err("is not machinist")),
        ];
        for (output, allow, expected) in cases {
            let found = check_candidate(output, "0.1.0", allow);
            match expected {
                Ok(version) => assert_eq!(found.as_deref(), Ok(version), "{output}"),
                Err(part) => {
                    let error = found.unwrap_err();
                    assert!(error.contains(part) && !error.contains('\u{1b}'), "{error}");
                }
            }
        }
    }
}
