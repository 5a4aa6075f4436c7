//! Validates roles and bindings, with the texts of Kubernetes. Pure.

use serde_json::{Value, json};

use crate::kind_registry::ResourceKind;
use crate::name_validation::{
    validate_label_value, validate_path_segment, validate_qualified_name, validate_subdomain,
};
use crate::object_limits::MAX_FINDINGS;
use crate::schema::FieldError;

const GROUP: &str = "rbac.authorization.k8s.io";
/// The longest name of a user or group.
const MAX_SUBJECT_NAME_BYTES: usize = 1024;

/// Returns the errors in a role or a binding. `old` is the stored one.
#[must_use]
pub fn validate_role(kind: &ResourceKind, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    if !kind.built_in || kind.group != GROUP {
        return Vec::new();
    }
    let mut errors = Vec::new();
    match kind.kind.as_str() {
        "Role" => validate_rules(object, true, &mut errors),
        "ClusterRole" => {
            validate_rules(object, false, &mut errors);
            validate_aggregation(&object["aggregationRule"], &mut errors);
        }
        _ => validate_binding(kind.namespaced, object, old, &mut errors),
    }
    errors
}

fn items<'a>(value: &'a Value, field: &str) -> impl Iterator<Item = (usize, &'a Value)> {
    value[field].as_array().into_iter().flatten().enumerate()
}

fn is_empty(rule: &Value, field: &str) -> bool {
    rule[field].as_array().is_none_or(Vec::is_empty)
}

fn validate_rules(role: &Value, namespaced: bool, errors: &mut Vec<FieldError>) {
    for (index, rule) in items(role, "rules") {
        if errors.len() >= MAX_FINDINGS {
            return;
        }
        let place = |field: &str| format!("rules[{index}].{field}");
        if is_empty(rule, "verbs") {
            let text = "verbs must contain at least one value";
            errors.push(FieldError::required(place("verbs"), text));
        }
        let paths = || rule["nonResourceURLs"].clone();
        if !is_empty(rule, "nonResourceURLs") {
            let field = place("nonResourceURLs");
            if namespaced {
                let text = "namespaced rules cannot apply to non-resource URLs";
                errors.push(FieldError::invalid(field.clone(), paths(), text));
            }
            if ["apiGroups", "resources", "resourceNames"].iter().any(|it| !is_empty(rule, it)) {
                let text = "rules cannot apply to both regular resources and non-resource URLs";
                errors.push(FieldError::invalid(field, paths(), text));
            }
            continue;
        }
        if is_empty(rule, "apiGroups") {
            let text = "resource rules must supply at least one api group";
            errors.push(FieldError::required(place("apiGroups"), text));
        }
        if is_empty(rule, "resources") {
            let text = "resource rules must supply at least one resource";
            errors.push(FieldError::required(place("resources"), text));
        }
    }
}

fn validate_aggregation(rule: &Value, errors: &mut Vec<FieldError>) {
    if !rule.is_object() {
        return;
    }
    let field = "aggregationRule.clusterRoleSelectors";
    if is_empty(rule, "clusterRoleSelectors") {
        let text = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        errors.push(FieldError::required(field, text));
    }
    for (index, selector) in items(rule, "clusterRoleSelectors") {
        validate_selector(&format!("{field}[{index}]"), selector, errors);
    }
}

fn validate_selector(place: &str, selector: &Value, errors: &mut Vec<FieldError>) {
    for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
        if errors.len() >= MAX_FINDINGS {
            return;
        }
        let field = format!("{place}.matchLabels");
        let faults = validate_qualified_name(key).into_iter();
        errors.extend(faults.map(|it| FieldError::invalid(field.clone(), key.as_str(), it)));
        let value = value.as_str().unwrap_or_default();
        let faults = validate_label_value(value).into_iter();
        errors.extend(faults.map(|it| FieldError::invalid(field.clone(), value, it)));
    }
    for (index, requirement) in items(selector, "matchExpressions") {
        if errors.len() >= MAX_FINDINGS {
            return;
        }
        let place = format!("{place}.matchExpressions[{index}]");
        let has_values = !is_empty(requirement, "values");
        let operator = requirement["operator"].as_str().unwrap_or_default();
        match operator {
            "In" | "NotIn" if !has_values => errors.push(FieldError::required(
                format!("{place}.values"),
                "must be specified when `operator` is 'In' or 'NotIn'",
            )),
            "Exists" | "DoesNotExist" if has_values => errors.push(FieldError::forbidden(
                format!("{place}.values"),
                "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            )),
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => errors.push(FieldError::invalid(
                format!("{place}.operator"),
                operator,
                "not a valid selector operator",
            )),
        }
        let key = requirement["key"].as_str().unwrap_or_default();
        let faults = validate_qualified_name(key).into_iter();
        errors.extend(faults.map(|it| FieldError::invalid(format!("{place}.key"), key, it)));
    }
}

fn validate_binding(
    namespaced: bool,
    binding: &Value,
    old: Option<&Value>,
    errors: &mut Vec<FieldError>,
) {
    let role = &binding["roleRef"];
    let text = |field: &str| role[field].as_str().unwrap_or_default();
    if text("apiGroup") != GROUP {
        errors.push(FieldError::not_supported("roleRef.apiGroup", text("apiGroup"), &[GROUP]));
    }
    let kinds: &[&str] = if namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    if !kinds.contains(&text("kind")) {
        errors.push(FieldError::not_supported("roleRef.kind", text("kind"), kinds));
    }
    if text("name").is_empty() {
        errors.push(FieldError::required("roleRef.name", ""));
    }
    let faults = validate_path_segment(text("name")).into_iter();
    errors.extend(faults.map(|it| FieldError::invalid("roleRef.name", text("name"), it)));
    for (index, subject) in items(binding, "subjects") {
        if errors.len() >= MAX_FINDINGS {
            return;
        }
        validate_subject(&format!("subjects[{index}]"), subject, namespaced, errors);
    }
    if old.is_some_and(|old| old["roleRef"] != *role) {
        let value =
            json!({"APIGroup": text("apiGroup"), "Kind": text("kind"), "Name": text("name")});
        errors.push(FieldError::invalid("roleRef", value, "cannot change roleRef"));
    }
}

fn validate_subject(place: &str, subject: &Value, namespaced: bool, errors: &mut Vec<FieldError>) {
    let text = |field: &str| subject[field].as_str().unwrap_or_default();
    if text("name").is_empty() {
        errors.push(FieldError::required(format!("{place}.name"), ""));
    }
    if text("name").len() > MAX_SUBJECT_NAME_BYTES {
        errors.push(FieldError::too_long(format!("{place}.name"), MAX_SUBJECT_NAME_BYTES as u64));
    }
    let group = |supported: &str| {
        (text("apiGroup") != supported).then(|| {
            FieldError::not_supported(format!("{place}.apiGroup"), text("apiGroup"), &[supported])
        })
    };
    match text("kind") {
        "ServiceAccount" => {
            if !text("name").is_empty() {
                let faults = validate_subdomain(text("name")).into_iter();
                let field = format!("{place}.name");
                errors
                    .extend(faults.map(|it| FieldError::invalid(field.clone(), text("name"), it)));
            }
            errors.extend(group(""));
            if !namespaced && text("namespace").is_empty() {
                errors.push(FieldError::required(format!("{place}.namespace"), ""));
            }
        }
        "User" | "Group" => errors.extend(group(GROUP)),
        other => {
            let kinds = ["ServiceAccount", "User", "Group"];
            errors.push(FieldError::not_supported(format!("{place}.kind"), other, &kinds));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(name: &str, object: &Value, old: Option<&Value>) -> Vec<String> {
        let kinds = crate::built_in::kinds();
        let kind = kinds.iter().find(|kind| kind.kind == name).unwrap();
        validate_role(kind, object, old).into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn rules_need_verbs_groups_and_resources() {
        let paths = json!({"rules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}]});
        assert_eq!(fields("ClusterRole", &paths, None), [""; 0]);
        assert_eq!(fields("Role", &paths, None), ["rules[0].nonResourceURLs"]);
        let empty = json!({"rules": [{}]});
        let expected = ["rules[0].verbs", "rules[0].apiGroups", "rules[0].resources"];
        assert_eq!(fields("Role", &empty, None), expected);
        let many = json!({"rules": vec![json!({}); 1000]});
        assert!(fields("Role", &many, None).len() < MAX_FINDINGS + 3);
    }

    #[test]
    fn a_binding_names_a_role_and_subjects() {
        let binding = |role: Value, subject: Value| json!({"roleRef": role, "subjects": [subject]});
        let role = |kind: &str| json!({"apiGroup": GROUP, "kind": kind, "name": "r"});
        let user = json!({"apiGroup": GROUP, "kind": "User", "name": "ann"});
        let good = binding(role("ClusterRole"), user.clone());
        assert_eq!(fields("RoleBinding", &good, None), [""; 0]);
        let own = binding(role("Role"), user.clone());
        assert_eq!(fields("RoleBinding", &own, None), [""; 0]);
        assert_eq!(fields("ClusterRoleBinding", &own, None), ["roleRef.kind"]);
        assert_eq!(fields("RoleBinding", &own, Some(&good)), ["roleRef"]);
        let account = json!({"kind": "ServiceAccount", "name": "A", "apiGroup": "x"});
        let expected = ["subjects[0].name", "subjects[0].apiGroup", "subjects[0].namespace"];
        assert_eq!(
            fields("ClusterRoleBinding", &binding(role("ClusterRole"), account), None),
            expected
        );
        let odd = binding(json!({"name": "a/b"}), json!({"kind": "Robot"}));
        let expected = [
            "roleRef.apiGroup",
            "roleRef.kind",
            "roleRef.name",
            "subjects[0].name",
            "subjects[0].kind",
        ];
        assert_eq!(fields("RoleBinding", &odd, None), expected);
    }
}
