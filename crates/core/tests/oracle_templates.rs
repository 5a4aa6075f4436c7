//! Differential test: the template engine compared with Go's, on handwritten and random templates.
use crate::support;
use crate::templates;

use std::time::{Duration, Instant};

use machinist_core::template::fill_plain;
use serde_json::{Value, json};
use support::{Oracle, Rng, seed};
use templates::{handwritten, known_differences, random};

const MAX_TIME: Duration = Duration::from_secs(15);
const MAX_TEMPLATES: usize = 6_000;
const BATCH: usize = 200;

#[test]
fn handwritten_templates_render_as_in_go() {
    let mut oracle = Oracle::start();
    let data = handwritten::data();
    let all = handwritten::templates();
    assert!(all.len() > 300, "only {}", all.len());
    let wrong = compare(&mut oracle, &all, &data);
    assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), all.len(), wrong.join("\n"));
}

/// The list of known differences is complete and contains none that has been fixed.
#[test]
fn known_differences_still_differ() {
    let all: Vec<String> = known_differences::KNOWN.iter().map(|text| (*text).to_owned()).collect();
    let wrong = compare(&mut Oracle::start(), &all, &handwritten::data());
    assert_eq!(
        wrong.len(),
        all.len(),
        "some are mended, only these are left:\n{}",
        wrong.join("\n")
    );
}

#[test]
fn random_templates_render_as_in_go() {
    let seed = seed();
    eprintln!("MACHINIST_SEED={seed:#x}");
    let mut oracle = Oracle::start();
    let mut rng = Rng::new(seed);
    let data = handwritten::data();
    let start = Instant::now();
    let (mut compared, mut filled) = (0, 0);
    while compared < MAX_TEMPLATES && start.elapsed() < MAX_TIME {
        let batch: Vec<String> = (0..BATCH).map(|_| random::template(&mut rng)).collect();
        let wrong = compare(&mut oracle, &batch, &data);
        assert!(wrong.is_empty(), "MACHINIST_SEED={seed:#x}\n{}", wrong.join("\n"));
        filled += batch.iter().filter(|text| fill_plain(text, &data).is_ok()).count();
        compared += batch.len();
    }
    eprintln!("{compared} templates, {filled} of them without an error, in {:?}", start.elapsed());
    assert!(filled * 8 > compared, "too few templates came out at all: {filled} of {compared}");
}

/// The templates that render differently than in Go, with both results.
fn compare(oracle: &mut Oracle, all: &[String], data: &Value) -> Vec<String> {
    let ask = |text: &String| json!({"op": "template", "text": text, "value": data});
    let questions: Vec<Value> = all.iter().map(ask).collect();
    let answers = oracle.request_all(&questions);
    all.iter()
        .zip(&answers)
        .filter_map(|(text, answer)| {
            let ours = fill_plain(text, data);
            let same = match answer.get("out").and_then(Value::as_str) {
                Some(out) => ours.as_deref() == Ok(out),
                None => ours.is_err(),
            };
            (!same).then(|| format!("template {text:?}\n  go   {answer}\n  ours {ours:?}"))
        })
        .collect()
}
