//! The events of the operator: what a pass changed in its conditions and certificates. Decided here, recorded by the shell.

use super::bootstrap_token::BootstrapTokenStep;
use super::certificates::CertificateStep;
use super::conditions::{AVAILABLE, DEGRADED, PROGRESSING};
use crate::api::{Condition, find_condition};

/// One event about MachineConfiguration `cluster`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorEvent {
    /// The reason, in camel case.
    pub reason: &'static str,
    /// Whether a person should look at it.
    pub warning: bool,
    /// The message.
    pub message: String,
}

impl OperatorEvent {
    /// An event that needs no attention.
    pub(super) fn normal(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, warning: false, message: message.into() }
    }

    /// An event that a person should look at.
    pub(super) fn warning(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, warning: true, message: message.into() }
    }
}

/// The releases of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReleaseChange<'a> {
    /// The release that the controller had before the pass, if there was one.
    pub from: Option<&'a str>,
    /// The release that is deployed.
    pub to: &'a str,
    /// Whether an event about this change was recorded already.
    pub is_reported: bool,
}

/// The events for a change of conditions.
#[must_use]
pub fn condition_events(
    before: &[Condition],
    after: &[Condition],
    release: ReleaseChange<'_>,
) -> Vec<OperatorEvent> {
    let all = [
        version_event(before, after, release),
        available_event(before, after),
        degraded_event(before, after),
    ];
    all.into_iter().flatten().collect()
}

/// The event of a certificate step; some steps have none.
#[must_use]
pub fn certificate_event(step: &CertificateStep) -> Option<OperatorEvent> {
    let event = match step {
        CertificateStep::CreateCa => OperatorEvent::normal(
            "CertificateAuthorityCreated",
            "the CA of the machine config server was created",
        ),
        CertificateStep::CreateNextCa => OperatorEvent::normal(
            "CertificateAuthorityRotationStarted",
            "the next CA of the machine config server was created; machines receive it before it is used",
        ),
        CertificateStep::PromoteNextCa => OperatorEvent::normal(
            "CertificateAuthorityRotated",
            "the next CA of the machine config server is in use; the previous one stays trusted until it expires",
        ),
        CertificateStep::SignServerCertificate => OperatorEvent::normal(
            "ServerCertificateRotated",
            "the certificate of the machine config server was renewed",
        ),
        CertificateStep::UpdateBundle(_) => return None,
    };
    Some(event)
}

/// The event of a step of the bootstrap token; some steps have none.
#[must_use]
pub fn bootstrap_token_event(step: BootstrapTokenStep) -> Option<OperatorEvent> {
    match step {
        BootstrapTokenStep::IssueToken => Some(OperatorEvent::normal(
            "BootstrapTokenRotated",
            "a new bootstrap token for new machines was issued; the previous one is valid until it expires",
        )),
        BootstrapTokenStep::RemoveLegacySecret => Some(OperatorEvent::normal(
            "BootstrapTokenRevoked",
            "the bootstrap token of an earlier version, which never expires, was revoked",
        )),
        BootstrapTokenStep::CreateSecret | BootstrapTokenStep::UpdateCa => None,
    }
}

fn text(condition: &Condition) -> &str {
    condition.message.as_deref().unwrap_or_default()
}

fn version_event(
    before: &[Condition],
    after: &[Condition],
    release: ReleaseChange<'_>,
) -> Option<OperatorEvent> {
    let ReleaseChange { from, to, is_reported } = release;
    let is_progressing = find_condition(after, PROGRESSING)?.is_true();
    let is_new_release = !is_reported && from.is_some_and(|from| from != to);
    let was_progressing = find_condition(before, PROGRESSING).map(Condition::is_true);
    let message = match (was_progressing, is_progressing) {
        (None, true) => format!("bootstrapping to {to}"),
        (Some(true), false) => format!("version changed to {to}"),
        (Some(was_progressing), true) if !was_progressing || is_new_release => {
            format!("started a version change from {} to {to}", from.unwrap_or(to))
        }
        _ => return None,
    };
    Some(OperatorEvent::normal("OperatorVersionChanged", message))
}

fn available_event(before: &[Condition], after: &[Condition]) -> Option<OperatorEvent> {
    let new = find_condition(after, AVAILABLE)?;
    let was = find_condition(before, AVAILABLE)?.is_true();
    match (was, new.is_true()) {
        (true, false) => {
            let message = format!("{}: {}", new.reason.as_deref().unwrap_or_default(), text(new));
            Some(OperatorEvent::warning("OperatorUnavailable", message))
        }
        (false, true) => Some(OperatorEvent::normal("OperatorAvailable", text(new))),
        _ => None,
    }
}

fn degraded_event(before: &[Condition], after: &[Condition]) -> Option<OperatorEvent> {
    let new = find_condition(after, DEGRADED)?;
    let old = find_condition(before, DEGRADED);
    let said = |it: &Condition| (it.status.clone(), it.reason.clone(), it.message.clone());
    if old.map(said) == Some(said(new)) {
        return None;
    }
    if new.is_true() {
        let reason = new.reason.as_deref().unwrap_or_default();
        let message = format!("{reason}: {}", text(new));
        return Some(OperatorEvent::warning("OperatorDegraded", message));
    }
    let old = old.filter(|it| it.is_true())?;
    let message = format!("{} is over", old.reason.as_deref().unwrap_or_default());
    Some(OperatorEvent::normal("OperatorRecovered", message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn condition(type_: &str, holds: bool, reason: &str, message: &str) -> Condition {
        Condition {
            type_: type_.to_owned(),
            status: if holds { "True" } else { "False" }.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            ..Condition::default()
        }
    }

    fn shown(before: &[Condition], after: &[Condition]) -> String {
        shown_for(before, after, ReleaseChange { from: None, to: "1", is_reported: false })
    }

    fn shown_for(before: &[Condition], after: &[Condition], release: ReleaseChange<'_>) -> String {
        let one = |it: &OperatorEvent| {
            format!("{}{}: {}", if it.warning { "!" } else { "" }, it.reason, it.message)
        };
        condition_events(before, after, release).iter().map(one).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn a_release_is_reported_at_its_start_and_at_its_end() {
        let done = [condition(PROGRESSING, false, "AsExpected", "any text")];
        let rolling = [condition(PROGRESSING, true, "RollingOut", "any text")];
        let release =
            |from: Option<&'static str>, to| ReleaseChange { from, to, is_reported: false };
        let none: [Condition; 0] = [];
        for (before, after, release, expected) in [
            (&none[..], &rolling[..], release(None, "1"), "bootstrapping to 1"),
            (&rolling, &rolling, release(Some("1"), "1"), ""),
            (&rolling, &done, release(Some("1"), "1"), "version changed to 1"),
            (&done, &done, release(Some("1"), "1"), ""),
            (&done, &rolling, release(Some("1"), "2"), "started a version change from 1 to 2"),
            (&rolling, &rolling, release(Some("2"), "3"), "started a version change from 2 to 3"),
            (&none, &done, release(Some("1"), "1"), ""),
        ] {
            let expected = match expected {
                "" => String::new(),
                text => format!("OperatorVersionChanged: {text}"),
            };
            assert_eq!(shown_for(before, after, release), expected);
        }
        let reported = ReleaseChange { from: Some("2"), to: "3", is_reported: true };
        assert_eq!(shown_for(&rolling, &rolling, reported), "", "the start is reported once");
    }

    #[test]
    fn a_failure_and_its_recovery_are_reported_once() {
        let well = [condition(DEGRADED, false, "AsExpected", "")];
        let ill = [condition(DEGRADED, true, "SettingsFailed", "data.server: no")];
        let worse = [condition(DEGRADED, true, "ApplyFailed", "no")];
        let expected = "!OperatorDegraded: SettingsFailed: data.server: no";
        assert_eq!(shown(&well, &ill), expected);
        assert_eq!(shown(&[], &ill), expected);
        assert_eq!(shown(&ill, &ill), "");
        assert_eq!(shown(&ill, &worse), "!OperatorDegraded: ApplyFailed: no");
        assert_eq!(shown(&worse, &well), "OperatorRecovered: ApplyFailed is over");
        assert_eq!(shown(&[], &well), "");
        let (there, gone) = (
            [condition(AVAILABLE, true, "AsExpected", "deployed")],
            [condition(AVAILABLE, false, "NoController", "not ready")],
        );
        assert_eq!(shown(&there, &gone), "!OperatorUnavailable: NoController: not ready");
        assert_eq!(shown(&gone, &there), "OperatorAvailable: deployed");
        assert_eq!(shown(&[], &gone), "", "not deployed yet");
    }

    #[test]
    fn each_certificate_step_has_its_event() {
        assert_eq!(
            certificate_event(&CertificateStep::PromoteNextCa).map(|it| it.reason),
            Some("CertificateAuthorityRotated")
        );
        assert_eq!(certificate_event(&CertificateStep::UpdateBundle(vec![])), None);
    }
}
