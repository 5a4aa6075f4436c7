//! The operator's events: what a reconcile pass changed in its conditions.

use super::certificates::CertificateStep;
use super::conditions::{AVAILABLE, DEGRADED, PROGRESSING};
use crate::api::{Condition, find_condition};

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorEvent {
    /// The reason, in CamelCase.
    pub reason: &'static str,
    /// Whether it is a warning.
    pub warning: bool,
    /// The message.
    pub message: String,
}

impl OperatorEvent {
    /// An event that needs no attention.
    pub(super) fn normal(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, warning: false, message: message.into() }
    }

    /// An event that needs attention.
    pub(super) fn warning(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, warning: true, message: message.into() }
    }
}

/// The events for the changes of the conditions.
#[must_use]
pub fn condition_events(before: &[Condition], after: &[Condition]) -> Vec<OperatorEvent> {
    let all = [
        version_event(before, after),
        available_event(before, after),
        degraded_event(before, after),
    ];
    all.into_iter().flatten().collect()
}

/// The event for a certificate step, if it has one.
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

fn text(condition: &Condition) -> &str {
    condition.message.as_deref().unwrap_or_default()
}

/// The version that a condition speaks of: the last word of the first part.
fn version_of(condition: &Condition) -> &str {
    let first = text(condition).split(": ").next().unwrap_or_default();
    first.rsplit(' ').next().unwrap_or_default()
}

fn version_event(before: &[Condition], after: &[Condition]) -> Option<OperatorEvent> {
    let new = find_condition(after, PROGRESSING)?;
    let to = version_of(new);
    let message = match find_condition(before, PROGRESSING) {
        None if new.is_true() => format!("bootstrapping to {to}"),
        Some(old) if old.is_true() && !new.is_true() => format!("version changed to {to}"),
        Some(old) if new.is_true() && (!old.is_true() || version_of(old) != to) => {
            format!("started a version change from {} to {to}", version_of(old))
        }
        None | Some(_) => return None,
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
        let one = |it: &OperatorEvent| {
            format!("{}{}: {}", if it.warning { "!" } else { "" }, it.reason, it.message)
        };
        condition_events(before, after).iter().map(one).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn a_new_release_is_reported() {
        let at = |version: &str| {
            [condition(PROGRESSING, false, "AsExpected", &format!("Cluster version is {version}"))]
        };
        let towards = |version: &str, why: &str| {
            [condition(
                PROGRESSING,
                true,
                "RollingOut",
                &format!("Working towards {version}: {why}"),
            )]
        };
        let changed = |text: &str| format!("OperatorVersionChanged: {text}");
        let none: [Condition; 0] = [];
        for (before, after, expected) in [
            (&none[..], &towards("1", "x")[..], changed("bootstrapping to 1")),
            (&towards("1", "x"), &towards("1", "y"), String::new()),
            (&towards("1", "x"), &at("1"), changed("version changed to 1")),
            (&at("1"), &at("1"), String::new()),
            (&at("1"), &towards("2", "x"), changed("started a version change from 1 to 2")),
            (
                &towards("2", "x"),
                &towards("3", "x"),
                changed("started a version change from 2 to 3"),
            ),
            (&none, &at("1"), String::new()),
        ] {
            assert_eq!(shown(before, after), expected);
        }
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
