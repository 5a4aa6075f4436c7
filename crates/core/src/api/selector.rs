//! Label selectors: which objects are selected, by their labels.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};

/// Why a selector cannot be evaluated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// The operator does not exist.
    #[error(
        "matchExpressions[{index}].operator is {operator:?} for the label {key:?}: use In, NotIn, Exists or DoesNotExist"
    )]
    UnknownOperator {
        /// The index of the requirement in the list.
        index: usize,
        /// The label of the requirement.
        key: String,
        /// The operator that was given.
        operator: String,
    },
    /// The operator needs values, and there are none.
    #[error(
        "matchExpressions[{index}].values is empty for the label {key:?}: {operator} needs at least one value"
    )]
    MissingValues {
        /// The index of the requirement in the list.
        index: usize,
        /// The label of the requirement.
        key: String,
        /// The operator that was given.
        operator: String,
    },
    /// The operator takes no values, and there are some.
    #[error(
        "matchExpressions[{index}].values is set for the label {key:?}: {operator} takes no values, remove them or use In or NotIn"
    )]
    UnexpectedValues {
        /// The index of the requirement in the list.
        index: usize,
        /// The label of the requirement.
        key: String,
        /// The operator that was given.
        operator: String,
    },
    /// The requirement names no label.
    #[error("matchExpressions[{index}].key is empty: name the label that the requirement is about")]
    MissingKey {
        /// The index of the requirement in the list.
        index: usize,
    },
}

/// Whether a selector matches the given labels.
///
/// All requirements must be met. A selector without requirements matches everything. A caller for
/// whom an empty selector means nothing must check [`is_empty`] first.
///
/// ```
/// use std::collections::BTreeMap;
/// use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
/// use machinist_core::api::selector::matches;
///
/// let labels = BTreeMap::from([("role".to_owned(), "worker".to_owned())]);
/// let selector = LabelSelector { match_labels: Some(labels.clone()), match_expressions: None };
/// assert_eq!(matches(&selector, &labels), Ok(true));
/// assert_eq!(matches(&selector, &BTreeMap::new()), Ok(false));
/// ```
pub fn matches(
    selector: &LabelSelector,
    labels: &BTreeMap<String, String>,
) -> Result<bool, SelectorError> {
    let mut all =
        selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    // Evaluates every requirement, so that an invalid one is found whatever the labels are.
    for (index, requirement) in selector.match_expressions.iter().flatten().enumerate() {
        all &= requirement_matches(index, requirement, labels)?;
    }
    Ok(all)
}

/// Whether a selector has no requirements at all.
pub fn is_empty(selector: &LabelSelector) -> bool {
    selector.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
        && selector.match_expressions.as_ref().is_none_or(Vec::is_empty)
}

/// A selector in kubectl's notation: `role=worker,size in (large,small)`.
#[must_use]
pub fn to_text(selector: &LabelSelector) -> String {
    let labels =
        selector.match_labels.iter().flatten().map(|(key, value)| format!("{key}={value}"));
    let requirements = selector.match_expressions.iter().flatten().map(|requirement| {
        let key = &requirement.key;
        let mut values = requirement.values.clone().unwrap_or_default();
        values.sort();
        let values = values.join(",");
        match requirement.operator.as_str() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "DoesNotExist" => format!("!{key}"),
            _ => key.clone(),
        }
    });
    let mut parts: Vec<String> = labels.chain(requirements).collect();
    parts.sort();
    parts.join(",")
}

fn requirement_matches(
    index: usize,
    requirement: &LabelSelectorRequirement,
    labels: &BTreeMap<String, String>,
) -> Result<bool, SelectorError> {
    let key = requirement.key.clone();
    let operator = requirement.operator.clone();
    let values = requirement.values.as_deref().unwrap_or_default();
    let value = labels.get(&key);
    if key.is_empty() {
        return Err(SelectorError::MissingKey { index });
    }
    match (operator.as_str(), values.is_empty()) {
        ("In", false) => Ok(value.is_some_and(|value| values.contains(value))),
        ("NotIn", false) => Ok(value.is_none_or(|value| !values.contains(value))),
        ("Exists", true) => Ok(value.is_some()),
        ("DoesNotExist", true) => Ok(value.is_none()),
        ("In" | "NotIn", true) => Err(SelectorError::MissingValues { index, key, operator }),
        ("Exists" | "DoesNotExist", false) => {
            Err(SelectorError::UnexpectedValues { index, key, operator })
        }
        _ => Err(SelectorError::UnknownOperator { index, key, operator }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn evaluate(selector: Value, labels: Value) -> Result<bool, SelectorError> {
        let selector = serde_json::from_value(selector).unwrap();
        let labels = serde_json::from_value(labels).unwrap();
        matches(&selector, &labels)
    }

    fn expression(key: &str, operator: &str, values: &Value) -> Value {
        json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]})
    }

    #[test]
    fn selectors_match_as_in_kubernetes() {
        let worker = json!({"role": "worker", "zone": "a"});
        let none = json!({});
        let both = json!({
            "matchLabels": {"zone": "a"},
            "matchExpressions": [{"key": "role", "operator": "In", "values": ["worker", "infra"]}],
        });
        let cases = [
            (json!({}), &worker, true),
            (json!({}), &none, true),
            (json!({"matchLabels": {}, "matchExpressions": []}), &none, true),
            (json!({"matchLabels": {"role": "worker"}}), &worker, true),
            (json!({"matchLabels": {"role": "master"}}), &worker, false),
            (json!({"matchLabels": {"role": "worker", "zone": "b"}}), &worker, false),
            (json!({"matchLabels": {"role": "worker"}}), &none, false),
            (json!({"matchLabels": {"role": ""}}), &none, false),
            (expression("role", "In", &json!(["worker", "infra"])), &worker, true),
            (expression("role", "In", &json!(["infra"])), &worker, false),
            (expression("role", "In", &json!(["infra"])), &none, false),
            (expression("role", "NotIn", &json!(["infra"])), &worker, true),
            (expression("role", "NotIn", &json!(["worker"])), &worker, false),
            (expression("role", "NotIn", &json!(["worker"])), &none, true),
            (expression("role", "Exists", &json!(null)), &worker, true),
            (expression("role", "Exists", &json!([])), &none, false),
            (expression("role", "DoesNotExist", &json!(null)), &worker, false),
            (expression("role", "DoesNotExist", &json!([])), &none, true),
            (both.clone(), &worker, true),
            (both, &json!({"role": "worker"}), false),
        ];
        for (selector, labels, expected) in cases {
            let found = evaluate(selector.clone(), labels.clone());
            assert_eq!(found, Ok(expected), "{selector} on {labels}");
        }
    }

    #[test]
    fn mistakes_name_the_field_and_the_remedy() {
        let cases = [
            (
                expression("role", "in", &json!(["a"])),
                r#"matchExpressions[0].operator is "in" for the label "role": use In, NotIn, Exists or DoesNotExist"#,
            ),
            (
                expression("role", "In", &json!([])),
                r#"matchExpressions[0].values is empty for the label "role": In needs at least one value"#,
            ),
            (
                expression("role", "NotIn", &json!(null)),
                r#"matchExpressions[0].values is empty for the label "role": NotIn needs at least one value"#,
            ),
            (
                expression("role", "Exists", &json!(["a"])),
                r#"matchExpressions[0].values is set for the label "role": Exists takes no values, remove them or use In or NotIn"#,
            ),
            (
                expression("", "Exists", &json!(null)),
                "matchExpressions[0].key is empty: name the label that the requirement is about",
            ),
            (
                json!({"matchLabels": {"no": "match"}, "matchExpressions": [
                    {"key": "a", "operator": "Exists"},
                    {"key": "b", "operator": "Near", "values": ["c"]},
                ]}),
                r#"matchExpressions[1].operator is "Near" for the label "b": use In, NotIn, Exists or DoesNotExist"#,
            ),
        ];
        for (selector, message) in cases {
            let error = evaluate(selector.clone(), json!({})).unwrap_err();
            assert_eq!(error.to_string(), message, "{selector}");
        }
    }

    #[test]
    fn a_selector_without_requirements_is_empty() {
        assert!(is_empty(&LabelSelector::default()));
        let full = serde_json::from_value(json!({"matchLabels": {"a": ""}})).unwrap();
        assert!(!is_empty(&full));
    }
}
