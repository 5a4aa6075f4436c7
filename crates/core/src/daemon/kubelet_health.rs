//! What follows from asking the kubelet whether it is well, in the words of the real daemon.

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HealthzResponse {
    /// It says something.
    Body(String),
    /// It does not answer, and why.
    Unreachable(String),
}

/// What follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthzOutcome {
    /// How often in a row it has not answered.
    pub failures: u32,
    /// What is worth a line in the log.
    pub warning: Option<String>,
}

/// Who answers lives, whatever is said; what is not `ok` is only told.
#[must_use]
pub fn evaluate_healthz(failures: u32, answer: &HealthzResponse) -> HealthzOutcome {
    match answer {
        HealthzResponse::Body(text) if text.trim() == "ok" => {
            HealthzOutcome { failures: 0, warning: None }
        }
        HealthzResponse::Body(text) => {
            let short: String = text.trim().chars().take(200).collect();
            HealthzOutcome { failures: 0, warning: Some(format!("the kubelet says: {short:?}")) }
        }
        HealthzResponse::Unreachable(why) => {
            let failures = failures.saturating_add(1);
            let warning = format!("kubelet health check has failed {failures} times: {why}");
            HealthzOutcome { failures, warning: Some(warning) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_silence_counts() {
        let said = |text: &str| HealthzResponse::Body(text.to_owned());
        let silence = || HealthzResponse::Unreachable("refused".to_owned());
        for (before, answer, failures, warning) in [
            (0, said("ok"), 0, None),
            (4, said("ok\n"), 0, None),
            (2, said("not ready\n"), 0, Some("the kubelet says: \"not ready\"")),
            (0, silence(), 1, Some("kubelet health check has failed 1 times: refused")),
            (2, silence(), 3, Some("kubelet health check has failed 3 times: refused")),
            (
                u32::MAX,
                silence(),
                u32::MAX,
                Some("kubelet health check has failed 4294967295 times: refused"),
            ),
        ] {
            let found = evaluate_healthz(before, &answer);
            let expected = HealthzOutcome { failures, warning: warning.map(str::to_owned) };
            assert_eq!(found, expected, "{answer:?}");
        }
    }
}
