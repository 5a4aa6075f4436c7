//! Differential test: `to_go_yaml` compared with the Go library, on random values.
use crate::support;

use std::time::{Duration, Instant};

use machinist_core::go::yaml::{go_yaml_error, to_go_yaml};
use serde_json::{Map, Value, json};
use support::{Oracle, Rng, seed};

/// The test ends with whichever comes first. `MACHINIST_VALUES` requests another number of values,
/// however long it takes.
const MAX_VALUES: usize = 20_000;
const MAX_TIME: Duration = Duration::from_secs(20);

/// Values sent to the oracle at once.
const BATCH: usize = 250;

/// At most this many requests to find a smaller failing value.
const MAX_SHRINKS: usize = 3_000;

#[test]
fn yaml_is_what_go_writes() {
    let seed = seed();
    eprintln!("MACHINIST_SEED={seed:#x}");
    let (most, time) = match std::env::var("MACHINIST_VALUES").map(|most| most.parse()) {
        Err(_) => (MAX_VALUES, MAX_TIME),
        Ok(Ok(most)) => (most, Duration::MAX),
        Ok(Err(error)) => panic!("MACHINIST_VALUES: {error}"),
    };
    let mut oracle = Oracle::start();
    let mut rng = Rng::new(seed);
    let start = Instant::now();
    let mut compared = 0;
    while compared < most && start.elapsed() < time {
        let values: Vec<Value> = (0..BATCH).map(|_| any_value(&mut rng)).collect();
        let questions: Vec<Value> = values.iter().map(question).collect();
        let answers = oracle.request_all(&questions);
        let mut wrong: Vec<&Value> =
            values.iter().zip(&answers).filter(|(v, a)| !agrees(v, a)).map(|(v, _)| v).collect();
        wrong.sort_by_key(|value| value.to_string().len());
        if let Some(value) = wrong.first() {
            report(&mut oracle, value, seed);
        }
        compared += values.len();
    }
    eprintln!("{compared} values are equal, in {:?}", start.elapsed());
}

/// Edge cases that random values would hardly hit.
#[test]
fn edge_cases_are_written_as_in_go() {
    let mut oracle = Oracle::start();
    let key = |key: String| json!({ key: 1 });
    let mut values = vec![json!("a\u{85}--- b"), json!("a\u{85}---"), json!("\u{85}...\u{85}")];
    values.extend([json!("--- b"), json!(" \u{85} --- b"), json!(["\u{85}\u{85}... "])]);
    for length in [127, 128, 129, 1021, 1022, 1023, 1024, 1025] {
        values.push(key("k".repeat(length)));
        values.push(key("é".repeat(length)));
        values.push(key(format!("{}:", "k ".repeat(length / 2))));
    }
    for length in [169, 170, 171] {
        values.extend(["<", "&", "\u{1}", "\u{2028}"].map(|c| key(c.repeat(length))));
    }
    for length in [510, 511, 512] {
        values.extend(["\"", "\\", "\t"].map(|c| key(c.repeat(length))));
    }
    // Every line width around the folding limit, with every kind of quotes and depth.
    for length in 70..90 {
        for (start, end) in
            [("", ""), ("'", ""), ("\t", ""), ("", " "), ("é", "'"), ("", "\u{2028}")]
        {
            let text = format!("{start}{} b  c d{end}", "a".repeat(length));
            values.push(json!([text, [[[text]]], {"key": text, "k": {"k": [text]}}]));
            values.push(json!({ text.clone(): text }));
        }
    }
    let deep = (0..60).fold(json!("a b  c 'd' \te"), |inner, n| {
        if n % 2 == 0 { json!([inner]) } else { json!({ "k k": inner, "x": "a b: c d" }) }
    });
    values.push(deep);
    for value in &values {
        let answer = oracle.request(&question(value));
        if !agrees(value, &answer) {
            report(&mut oracle, value, 0);
        }
    }
}

fn question(value: &Value) -> Value {
    json!({"op": "yaml", "value": value})
}

/// Both write the same, or both refuse.
fn agrees(value: &Value, answer: &Value) -> bool {
    match answer.get("yaml") {
        Some(yaml) => go_yaml_error(value).is_none() && *yaml == to_go_yaml(value),
        None => go_yaml_error(value).is_some(),
    }
}

/// Fails with the smallest value found that shows the difference.
fn report(oracle: &mut Oracle, value: &Value, seed: u64) -> ! {
    let mut smallest = value.clone();
    let mut asked = 0;
    'smaller: while asked < MAX_SHRINKS {
        for candidate in smaller(&smallest) {
            asked += 1;
            if !agrees(&candidate, &oracle.request(&question(&candidate))) {
                smallest = candidate;
                continue 'smaller;
            }
        }
        break;
    }
    let answer = oracle.request(&question(&smallest));
    panic!(
        "MACHINIST_SEED={seed:#x}\nvalue   {smallest}\noracle  {answer}\nours    {:?}\nrefusal {:?}",
        to_go_yaml(&smallest),
        go_yaml_error(&smallest),
    );
}

/// Slightly smaller variants of `value`, the smallest first.
fn smaller(value: &Value) -> Vec<Value> {
    match value {
        Value::String(text) => smaller_strings(text).into_iter().map(Value::String).collect(),
        Value::Array(items) => {
            let mut all = items.clone();
            for (at, item) in items.iter().enumerate() {
                let mut fewer = items.clone();
                fewer.remove(at);
                all.push(Value::Array(fewer));
                all.extend(smaller(item).into_iter().map(|item| {
                    let mut changed = items.clone();
                    changed[at] = item;
                    Value::Array(changed)
                }));
            }
            all
        }
        Value::Object(map) => {
            let mut all: Vec<Value> = map.values().cloned().collect();
            for (key, item) in map {
                let mut fewer = map.clone();
                fewer.remove(key);
                let with = |key: &str, item: Value| {
                    let mut changed = fewer.clone();
                    changed.insert(key.to_owned(), item);
                    Value::Object(changed)
                };
                all.extend(smaller(item).into_iter().map(|item| with(key, item)));
                all.extend(smaller_strings(key).iter().map(|key| with(key, item.clone())));
                all.push(Value::Object(fewer));
            }
            all
        }
        _ => Vec::new(),
    }
}

/// `text` without parts of it: halves first, then ever smaller pieces.
fn smaller_strings(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let mut all = Vec::new();
    let mut size = chars.len().div_ceil(2);
    while size > 0 && !chars.is_empty() {
        for start in (0..chars.len()).step_by(size) {
            let end = (start + size).min(chars.len());
            all.push(chars[..start].iter().chain(&chars[end..]).collect());
        }
        size /= 2;
    }
    all
}

fn any_value(rng: &mut Rng) -> Value {
    if rng.chance(1, 3) { scalar(rng) } else { value(rng, 4) }
}

fn value(rng: &mut Rng, depth: usize) -> Value {
    match rng.below(if depth == 0 { 2 } else { 4 }) {
        0 | 1 => scalar(rng),
        2 => (0..rng.below(4)).map(|_| value(rng, depth - 1)).collect(),
        _ => {
            let keys = keys(rng);
            Value::Object(
                keys.into_iter().map(|k| (k, value(rng, depth - 1))).collect::<Map<_, _>>(),
            )
        }
    }
}

fn scalar(rng: &mut Rng) -> Value {
    match rng.below(12) {
        0 => Value::Null,
        1 => Value::Bool(rng.chance(1, 2)),
        2 => number(rng),
        _ => Value::String(rng.adversarial_string()),
    }
}

fn number(rng: &mut Rng) -> Value {
    let bits = rng.next_u64();
    let small = i64::try_from(rng.below(2_000_000)).unwrap_or(0) - 1_000_000;
    match rng.below(7) {
        0 => json!(small),
        1 => json!(bits),
        2 => json!(bits.cast_signed()),
        3 => json!(f64::from_bits(bits)), // null if it is none
        4 => json!(bits.cast_signed() as f64 / 1e3),
        5 => {
            let exponent = i32::try_from(rng.below(46)).unwrap_or(0) - 20;
            json!(small as f64 * 10f64.powi(exponent))
        }
        _ => rng
            .pick(&[json!(-0.0), json!(0.0), json!(1e6), json!(1e-4), json!(1e-5), json!(5e-324)])
            .clone(),
    }
}

/// Keys of one mapping. Go has no total order for some sets of three keys with digits in them, such
/// as 2, 10 and 1a, so those with digits are few or all of one shape.
fn keys(rng: &mut Rng) -> Vec<String> {
    match rng.below(3) {
        0 => (0..rng.below(3)).map(|_| rng.adversarial_string()).collect(),
        1 => {
            let many = 1 + rng.below(6);
            (0..many).map(|_| rng.adversarial_string().replace(char::is_numeric, "")).collect()
        }
        _ => {
            let stem = rng.adversarial_string().replace(char::is_numeric, "");
            let many = 1 + rng.below(12);
            (0..many)
                .map(|_| stem.clone() + &rng.string(&["0", "0", "1", "2", "9"], 0, 4))
                .collect()
        }
    }
}
