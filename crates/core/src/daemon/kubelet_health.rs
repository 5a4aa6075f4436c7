//! What follows from asking the kubelet whether it is well, in the words of the real daemon.

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It says something.
    Said(String),
    /// It does not answer, and why.
    Silence(String),
}

/// What follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard {
    /// How often in a row it has not answered.
    pub failures: u32,
    /// What is worth a line in the log.
    pub warning: Option<String>,
}

/// Who answers lives, whatever is said; what is not `ok` is only told.
#[must_use]
pub fn heard(failures: u32, answer: &Answer) -> Heard {
    match answer {
        Answer::Said(text) if text.trim() == "ok" => Heard { failures: 0, warning: None },
        Answer::Said(text) => {
            let short: String = text.trim().chars().take(200).collect();
            Heard { failures: 0, warning: Some(format!("the kubelet says: {short:?}")) }
        }
        Answer::Silence(why) => {
            let failures = failures.saturating_add(1);
            let warning = format!("kubelet health check has failed {failures} times: {why}");
            Heard { failures, warning: Some(warning) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_silence_counts() {
        let said = |text: &str| Answer::Said(text.to_owned());
        let silence = || Answer::Silence("refused".to_owned());
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
            let found = heard(before, &answer);
            let expected = Heard { failures, warning: warning.map(str::to_owned) };
            assert_eq!(found, expected, "{answer:?}");
        }
    }
}
