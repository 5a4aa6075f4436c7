//! What a health probe of the kubelet means, in MCO's words.

/// The response to a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HealthzResponse {
    /// The kubelet responded.
    Body(String),
    /// The kubelet did not respond, and why.
    Unreachable(String),
}

/// What a probe means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthzOutcome {
    /// How many probes in a row got no response.
    pub failures: u32,
    /// What to log.
    pub warning: Option<String>,
}

/// Evaluates a probe. Any response means that the kubelet runs; one other than `ok` is only logged.
#[must_use]
pub fn evaluate_healthz(failures: u32, response: &HealthzResponse) -> HealthzOutcome {
    match response {
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
    fn only_a_missing_response_counts() {
        let body = |text: &str| HealthzResponse::Body(text.to_owned());
        let silence = || HealthzResponse::Unreachable("refused".to_owned());
        for (before, response, failures, warning) in [
            (0, body("ok"), 0, None),
            (4, body("ok\n"), 0, None),
            (2, body("not ready\n"), 0, Some("the kubelet says: \"not ready\"")),
            (0, silence(), 1, Some("kubelet health check has failed 1 times: refused")),
            (2, silence(), 3, Some("kubelet health check has failed 3 times: refused")),
            (
                u32::MAX,
                silence(),
                u32::MAX,
                Some("kubelet health check has failed 4294967295 times: refused"),
            ),
        ] {
            let found = evaluate_healthz(before, &response);
            let expected = HealthzOutcome { failures, warning: warning.map(str::to_owned) };
            assert_eq!(found, expected, "{response:?}");
        }
    }
}
