//! Alerts and dashboard use existing metrics, and alerts link to a runbook.

use crate::docs::markdown::anchors;
use crate::docs::metrics::documented;
use crate::docs::read;
use serde_json::Value;

/// Keywords of PromQL that are not followed by a bracket.
const WORDS: [&str; 8] = ["and", "or", "unless", "bool", "offset", "inf", "nan", "default"];

/// The metrics in an expression.
fn metrics_of(expression: &str) -> Vec<String> {
    let mut plain = String::new();
    let (mut depth, mut quote) = (0_u32, false);
    for c in expression.chars() {
        match c {
            '"' => quote = !quote,
            '{' | '[' if !quote => depth += 1,
            '}' | ']' if !quote => depth -= 1,
            c if depth == 0 && !quote => plain.push(c),
            _ => {}
        }
    }
    // Labels of a grouping.
    for word in ["by", "without", "on", "ignoring", "group_left", "group_right"] {
        for between in [" (", "("] {
            while let Some(start) = plain.find(&format!(" {word}{between}")) {
                let end = plain[start..].find(')').map_or(plain.len(), |end| start + end + 1);
                plain.replace_range(start..end, " ");
            }
        }
    }
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let mut found = Vec::new();
    let mut rest = plain.as_str();
    while let Some(start) = rest.find(is_name) {
        let end = rest[start..].find(|c| !is_name(c)).map_or(rest.len(), |end| start + end);
        let (word, after) = (&rest[start..end], rest[end..].trim_start());
        let is_number = word.starts_with(|c: char| c.is_ascii_digit());
        if !is_number && !after.starts_with('(') && !WORDS.contains(&word) {
            // A histogram is served as three metrics.
            let name = ["_bucket", "_sum"].iter().find_map(|part| word.strip_suffix(part));
            found.push(name.unwrap_or(word).to_owned());
        }
        rest = &rest[end..];
    }
    found
}

fn yaml(path: &str) -> Value {
    serde_saphyr::from_str(&read(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn alerts() -> Vec<Value> {
    let groups = yaml("monitoring/alerts.yaml");
    list(&groups["groups"]).iter().flat_map(|group| list(&group["rules"]).to_vec()).collect()
}

fn dashboard() -> Value {
    serde_json::from_str(&read("monitoring/dashboard.json")).unwrap()
}

/// The expressions of all panels.
fn panels() -> Vec<String> {
    let dashboard = dashboard();
    let panels = list(&dashboard["panels"]).iter();
    let targets = panels.flat_map(|panel| list(&panel["targets"]));
    targets.map(|target| target["expr"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn alerts_and_dashboard_use_existing_metrics() {
    let (documented, alerts) = (documented(), alerts());
    let mut expressions: Vec<String> =
        alerts.iter().map(|alert| alert["expr"].as_str().unwrap().to_owned()).collect();
    expressions.extend(panels());
    assert!(expressions.len() > 20);
    for expression in &expressions {
        let used = metrics_of(expression);
        assert!(!used.is_empty(), "{expression}: no metric");
        for name in used {
            assert!(
                documented.contains_key(&name),
                "{name} in {expression} is not a metric of Machinist"
            );
        }
    }
    let all: Vec<String> = panels().iter().flat_map(|panel| metrics_of(panel)).collect();
    for name in documented.keys() {
        assert!(all.contains(name), "{name} is on no panel of the dashboard");
    }
}

#[test]
fn every_alert_has_a_runbook_and_a_test() {
    let tests = yaml("monitoring/alerts.test.yaml");
    let cases: Vec<&Value> =
        list(&tests["tests"]).iter().flat_map(|test| list(&test["alert_rule_test"])).collect();
    let page = anchors(&read("docs/troubleshooting.md"));
    for alert in alerts() {
        let name = alert["alert"].as_str().unwrap();
        let severity = alert["labels"]["severity"].as_str().unwrap_or_default();
        assert!(["critical", "warning", "info"].contains(&severity), "{name}: severity {severity}");
        let runbook = alert["annotations"]["runbook"].as_str().unwrap_or_default();
        let anchor = runbook.strip_prefix("docs/troubleshooting.md#").unwrap_or_default();
        assert!(page.iter().any(|one| one == anchor), "{name}: runbook {runbook:?} leads nowhere");
        let fires =
            |case: &&&Value| case["alertname"] == name && !list(&case["exp_alerts"]).is_empty();
        assert!(cases.iter().any(|case| fires(&case)), "{name}: no test in which it fires");
    }
}

#[test]
fn metrics_are_found_in_expressions() {
    for (expression, expected) in [
        ("a_b > 0.5 * c and d > 2", vec!["a_b", "c", "d"]),
        ("sum by (le) (rate(x_bucket{status=~\"5.. or\"}[5m]))", vec!["x"]),
        ("absent(l) or sum(l) == 0", vec!["l", "l"]),
        ("time() - max(m)", vec!["m"]),
    ] {
        assert_eq!(metrics_of(expression), expected, "{expression}");
    }
}
