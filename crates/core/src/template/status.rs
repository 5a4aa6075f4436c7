//! The status of a ControllerConfig.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::names::condition::controller_config::{COMPLETED, FAILING, RUNNING};
use crate::api::{ControllerCertificate, ControllerConfigStatus, set_condition};

/// The status while the templates of a new generation are rendered. `None` if the generation is
/// observed already.
#[must_use]
pub fn running(
    old: Option<&ControllerConfigStatus>,
    generation: Option<i64>,
    version: &str,
    now: &Time,
) -> Option<ControllerConfigStatus> {
    let mut new = old.cloned().unwrap_or_default();
    if new.observed_generation == generation {
        return None;
    }
    let target = generation.unwrap_or_default();
    let message =
        format!("syncing towards ({target}) generation using controller version {version}");
    let conditions = new.conditions.get_or_insert_default();
    set_condition(conditions, RUNNING, true, "", &message, now);
    if conditions.iter().any(|it| it.type_ == COMPLETED && it.is_true()) {
        let message = format!("{message} due to change in Generation");
        set_condition(conditions, COMPLETED, false, "", &message, now);
    }
    new.observed_generation = generation;
    Some(new)
}

/// The status after rendering: the result, and the certificates for machines. If nothing changed, the
/// old status is returned.
#[must_use]
pub fn status(
    old: Option<&ControllerConfigStatus>,
    generation: Option<i64>,
    outcome: Result<(), &str>,
    certificates: Vec<ControllerCertificate>,
    version: &str,
    now: &Time,
) -> ControllerConfigStatus {
    let mut new = old.cloned().unwrap_or_default();
    if !certificates.is_empty() || new.controller_certificates.is_some() {
        new.controller_certificates = Some(certificates);
    }
    let target = generation.unwrap_or_default();
    let conditions = new.conditions.get_or_insert_default();
    let mut set = |type_, holds, message: &str| {
        set_condition(conditions, type_, holds, "", message, now);
    };
    match outcome {
        Ok(()) => {
            let message = format!(
                "sync completed towards ({target}) generation using controller version {version}"
            );
            set(COMPLETED, true, &message);
            set(RUNNING, false, "");
            set(FAILING, false, "");
        }
        Err(reason) => {
            let message = format!(
                "failed to syncing towards ({target}) generation using controller version \
                 {version}: {reason}"
            );
            set(FAILING, true, &message);
            set(COMPLETED, false, "");
            set(RUNNING, false, "");
        }
    }
    new.observed_generation = generation;
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_one_condition_is_true_and_unchanged_results_are_kept() {
        let now = Time("2026-01-01T00:00:00Z".parse().unwrap());
        let later = Time("2026-01-02T00:00:00Z".parse().unwrap());
        let shown = |status: &ControllerConfigStatus| {
            let all = status.conditions.iter().flatten();
            all.map(|it| format!("{}={}", it.type_, it.status)).collect::<Vec<_>>().join(" ")
        };
        let good = status(None, Some(3), Ok(()), vec![], "v1", &now);
        assert_eq!(
            shown(&good),
            "TemplateControllerCompleted=True TemplateControllerRunning=False \
             TemplateControllerFailing=False"
        );
        assert_eq!(
            good.conditions.as_ref().unwrap()[0].message.as_deref(),
            Some("sync completed towards (3) generation using controller version v1")
        );
        assert_eq!(status(Some(&good), Some(3), Ok(()), vec![], "v1", &later), good);
        let bad = status(Some(&good), Some(3), Err("oh"), vec![], "v1", &later);
        assert!(shown(&bad).contains("Failing=True") && shown(&bad).contains("Completed=False"));
        assert_eq!(status(Some(&bad), Some(3), Err("oh"), vec![], "v1", &now), bad);
    }

    #[test]
    fn a_new_generation_sets_running_once_and_clears_completed() {
        let now = Time("2026-01-01T00:00:00Z".parse().unwrap());
        let good = status(None, Some(3), Ok(()), vec![], "v1", &now);
        assert_eq!(running(Some(&good), Some(3), "v1", &now), None);
        let begun = running(Some(&good), Some(4), "v1", &now).unwrap();
        let says = |type_: &str| {
            let all = begun.conditions.as_ref().unwrap();
            let found = all.iter().find(|it| it.type_ == type_).unwrap();
            format!("{} {}", found.status, found.message.as_deref().unwrap_or_default())
        };
        let message = "syncing towards (4) generation using controller version v1";
        assert_eq!(says(RUNNING), format!("True {message}"));
        assert_eq!(says(COMPLETED), format!("False {message} due to change in Generation"));
        assert_eq!(begun.observed_generation, Some(4));
        assert_eq!(running(Some(&begun), Some(4), "v1", &now), None);
        let first = running(None, Some(1), "v1", &now).unwrap();
        assert_eq!(first.conditions.unwrap().len(), 1, "nothing was complete");
    }

    #[test]
    fn removed_certificates_are_no_longer_reported() {
        let now = Time("2026-01-01T00:00:00Z".parse().unwrap());
        let certificate = ControllerCertificate { subject: "CN=a".into(), ..Default::default() };
        let reported = status(None, Some(1), Ok(()), vec![certificate], "v1", &now);
        assert_eq!(reported.controller_certificates.as_ref().map(Vec::len), Some(1));
        let none = status(Some(&reported), Some(1), Ok(()), vec![], "v1", &now);
        assert_eq!(none.controller_certificates, Some(vec![]));
    }
}
