//! Selectors, compared with the results and errors of kube-apiserver.
use crate::pure;

use machinist_hub::selector::{FieldSelector, LabelSelector};
use serde_json::{Value, json};

fn names(objects: &[Value], fits: impl Fn(&Value) -> bool) -> Value {
    objects.iter().filter(|object| fits(object)).map(|o| o["metadata"]["name"].clone()).collect()
}

fn labelled(case: &Value, text: &str, objects: &[Value]) -> (Value, Value) {
    match LabelSelector::parse(text) {
        Ok(selector) => (case["names"].clone(), names(objects, |object| selector.matches(object))),
        Err(error) => (case["message"].clone(), json!(error.message)),
    }
}

fn by_field(case: &Value, text: &str, objects: &[Value]) -> (Value, Value) {
    let parsed = FieldSelector::parse(text).and_then(|selector| {
        selector.check_supported(pure::kind_of(case))?;
        Ok(selector)
    });
    match parsed {
        Ok(selector) => (case["names"].clone(), names(objects, |object| selector.matches(object))),
        Err(error) => (case["message"].clone(), json!(error.message)),
    }
}

#[test]
fn results_match_kube_apiserver() {
    let mut wrong = 0;
    let (mut labels, mut fields) = (Vec::new(), Vec::new());
    for case in pure::recorded("selector.jsonl") {
        if let Some(objects) = case["objects"].as_array() {
            labels.clone_from(objects);
        } else if let Some(objects) = case["fieldObjects"].as_array() {
            fields.clone_from(objects);
        } else {
            let (theirs, ours) = match (case["label"].as_str(), case["field"].as_str()) {
                (Some(text), _) => labelled(&case, text, &labels),
                (_, Some(text)) => by_field(&case, text, &fields),
                _ => panic!("neither label nor field: {case}"),
            };
            if theirs != ours {
                wrong += 1;
                println!("{case}\nours   {ours}\ntheirs {theirs}");
            }
        }
    }
    assert_eq!(wrong, 0, "results differ");
}

#[test]
fn the_exact_value_of_a_field_is_found() {
    let selector = FieldSelector::parse("metadata.name==a,metadata.namespace!=b").expect("it fits");
    assert_eq!(selector.required_value("metadata.name"), Some("a"));
    assert_eq!(selector.required_value("metadata.namespace"), None);
    assert!(FieldSelector::parse("").expect("nothing fits").is_empty());
    assert!(LabelSelector::parse(" ").expect("nothing fits").is_empty());
}
