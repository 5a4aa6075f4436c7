//! What a ControllerConfig says about its templates.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::names::condition::controller_config::{COMPLETED, FAILING, RUNNING};
use crate::api::{ControllerConfigStatus, set_condition};

/// The status after the templates were filled in: `Ok`, or the message of what went wrong. Where
/// nothing is new, it is the old one.
#[must_use]
pub fn status(
    old: Option<&ControllerConfigStatus>,
    generation: Option<i64>,
    outcome: Result<(), &str>,
    version: &str,
    now: &Time,
) -> ControllerConfigStatus {
    let mut new = old.cloned().unwrap_or_default();
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
    fn one_of_three_holds_and_nothing_changes_twice() {
        let now = Time("2026-01-01T00:00:00Z".parse().unwrap());
        let later = Time("2026-01-02T00:00:00Z".parse().unwrap());
        let shown = |status: &ControllerConfigStatus| {
            let all = status.conditions.iter().flatten();
            all.map(|it| format!("{}={}", it.type_, it.status)).collect::<Vec<_>>().join(" ")
        };
        let good = status(None, Some(3), Ok(()), "v1", &now);
        assert_eq!(
            shown(&good),
            "TemplateControllerCompleted=True TemplateControllerRunning=False \
             TemplateControllerFailing=False"
        );
        assert_eq!(
            good.conditions.as_ref().unwrap()[0].message.as_deref(),
            Some("sync completed towards (3) generation using controller version v1")
        );
        assert_eq!(status(Some(&good), Some(3), Ok(()), "v1", &later), good);
        let bad = status(Some(&good), Some(3), Err("oh"), "v1", &later);
        assert!(shown(&bad).contains("Failing=True") && shown(&bad).contains("Completed=False"));
        assert_eq!(status(Some(&bad), Some(3), Err("oh"), "v1", &now), bad);
    }
}
