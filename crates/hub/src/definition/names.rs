//! Accepts the names of definitions: within a group, each resource name and each kind belongs to one of them.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::lifecycle::{Condition, condition_holds, set_condition};

/// The names that the other definitions of a group have.
#[derive(Debug, Default)]
pub struct UsedNames {
    resources: BTreeSet<String>,
    kinds: BTreeSet<String>,
}

impl UsedNames {
    /// Adds the accepted names of another definition of the group.
    pub fn add(&mut self, definition: &Value) {
        let names = &definition["status"]["acceptedNames"];
        let one = |field: &str| names[field].as_str().filter(|name| !name.is_empty());
        let short = names["shortNames"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let resources = one("plural").into_iter().chain(one("singular")).chain(short);
        self.resources.extend(resources.map(str::to_owned));
        self.kinds.extend(one("kind").into_iter().chain(one("listKind")).map(str::to_owned));
    }
}

/// Accepts the names of a definition as far as they are free, and writes that into its status.
pub fn accept(definition: &mut Value, used: &UsedNames, now: &str) {
    let wanted = definition["spec"]["names"].clone();
    let accepted = definition["status"]["acceptedNames"].clone();
    let mut names = accepted.as_object().cloned().unwrap_or_default();
    let mut conflict: Option<(&str, String)> = None;
    let mut take = |names: &mut Map<String, Value>,
                    field: &str,
                    reason: &'static str,
                    taken: &BTreeSet<String>| {
        let name = wanted[field].as_str().unwrap_or_default();
        if name != accepted[field].as_str().unwrap_or_default() && taken.contains(name) {
            conflict = Some((reason, in_use(name)));
        } else {
            names.insert(field.to_owned(), name.into());
        }
    };
    take(&mut names, "plural", "PluralConflict", &used.resources);
    take(&mut names, "singular", "SingularConflict", &used.resources);
    let (kinds, resources) = (&used.kinds, &used.resources);
    let mut kind_names = names;
    take(&mut kind_names, "kind", "KindConflict", kinds);
    take(&mut kind_names, "listKind", "ListKindConflict", kinds);
    let mut names = kind_names;
    let known: Vec<&Value> = accepted["shortNames"].as_array().into_iter().flatten().collect();
    let short = wanted["shortNames"].as_array().into_iter().flatten();
    let taken: Vec<String> = short
        .filter(|name| !known.contains(name))
        .filter_map(Value::as_str)
        .filter(|name| resources.contains(*name))
        .map(in_use)
        .collect();
    match taken.as_slice() {
        [] => copy(&wanted, &mut names, "shortNames"),
        // A conflict of kinds is named rather than this one, as in Kubernetes.
        _ if matches!(conflict, Some(("KindConflict" | "ListKindConflict", _))) => {}
        [one] => conflict = Some(("ShortNamesConflict", one.clone())),
        many => conflict = Some(("ShortNamesConflict", format!("[{}]", many.join(", ")))),
    }
    copy(&wanted, &mut names, "categories");
    definition["status"]["acceptedNames"] = names.into();
    let (holds, reason, message) = match &conflict {
        None => (true, "NoConflicts", "no conflicts found"),
        Some((reason, message)) => (false, *reason, message.as_str()),
    };
    set_condition(definition, Condition { type_: "NamesAccepted", holds, reason, message }, now);
    if condition_holds(definition, "Established") {
        return;
    }
    let (reason, message) = if holds {
        ("InitialNamesAccepted", "the initial names have been accepted")
    } else {
        ("NotAccepted", "not all names are accepted")
    };
    set_condition(definition, Condition { type_: "Established", holds, reason, message }, now);
}

fn in_use(name: &str) -> String {
    format!("\"{name}\" is already in use")
}

fn copy(from: &Value, to: &mut Map<String, Value>, field: &str) {
    match from.get(field) {
        Some(value) => to.insert(field.to_owned(), value.clone()),
        None => to.remove(field),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn definition(plural: &str, kind: &str, short: &[&str]) -> Value {
        json!({"spec": {"names": {
            "plural": plural, "singular": kind.to_lowercase(), "kind": kind,
            "listKind": format!("{kind}List"), "shortNames": short,
        }}})
    }

    fn accepted(mut object: Value, others: &[&Value]) -> Value {
        let mut used = UsedNames::default();
        others.iter().for_each(|other| used.add(other));
        accept(&mut object, &used, "now");
        object
    }

    #[test]
    fn names_belong_to_the_first() {
        let cars = accepted(definition("cars", "Car", &["c"]), &[]);
        assert!(condition_holds(&cars, "Established") && condition_holds(&cars, "NamesAccepted"));
        assert_eq!(cars["status"]["acceptedNames"], cars["spec"]["names"]);
        let table = [
            (definition("cats", "Cat", &["c"]), "ShortNamesConflict", "\"c\" is already in use"),
            (definition("autos", "Car", &[]), "KindConflict", "\"Car\" is already in use"),
            (definition("car", "Truck", &[]), "PluralConflict", "\"car\" is already in use"),
        ];
        for (other, reason, message) in table {
            let other = accepted(other, &[&cars]);
            let condition = &other["status"]["conditions"][0];
            let list_kind = condition["reason"] == "ListKindConflict" && reason == "KindConflict";
            assert!(condition["reason"] == reason || list_kind, "{condition}");
            assert!(list_kind || condition["message"] == message, "{condition}");
            assert!(!condition_holds(&other, "Established"));
        }
    }

    #[test]
    fn what_is_established_stays_so() {
        let cars = accepted(definition("cars", "Car", &[]), &[]);
        let mut carts = accepted(definition("carts", "Cart", &[]), &[&cars]);
        carts["spec"]["names"]["shortNames"] = json!(["cars"]);
        let carts = accepted(carts, &[&cars]);
        assert!(
            condition_holds(&carts, "Established") && !condition_holds(&carts, "NamesAccepted")
        );
        assert_eq!(carts["status"]["acceptedNames"]["shortNames"], json!([]));
    }
}
