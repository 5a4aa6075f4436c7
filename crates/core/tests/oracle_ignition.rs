//! Differential test: parsing, upgrading, merging, rendering and converting random Ignition
//! configs, compared with the Go libraries.
use crate::support;

use std::time::{Duration, Instant};

use machinist_core::go::{unit_file, url};
use machinist_core::ignition::convert::convert;
use machinist_core::ignition::{self, IgnitionVersion, ParsedConfig, data_url, parse_and_upgrade};
use machinist_core::render::render;
use serde_json::{Value, json};
use support::configs::{any_config, config_v3};
use support::{Oracle, Rng, seed};

/// Each comparison ends with whichever comes first. `MACHINIST_VALUES` requests another number,
/// however long it takes.
const MAX_VALUES: usize = 10_000;
const MAX_TIME: Duration = Duration::from_secs(20);
const BATCH: usize = 200;

/// Compares our results for random inputs with the oracle's.
fn compare(
    mut question: impl FnMut(&mut Rng) -> Value,
    our_answer: impl Fn(&Value) -> Result<Value, String>,
    field: &str,
) {
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
    let (mut compared, mut accepted) = (0, 0);
    while compared < most && start.elapsed() < time {
        let questions: Vec<Value> = (0..BATCH).map(|_| question(&mut rng)).collect();
        let answers = oracle.request_all(&questions);
        let mut differences: Vec<String> = Vec::new();
        for (question, answer) in questions.iter().zip(&answers) {
            let ours = our_answer(question);
            let theirs = answer.get(field);
            let equal = match (&ours, theirs) {
                (Ok(ours), Some(theirs)) => ours == theirs,
                (Err(_), None) => true,
                _ => false,
            };
            accepted += usize::from(theirs.is_some());
            if !equal {
                let answer = theirs.unwrap_or(&answer["error"]);
                differences.push(format!("asked: {question}\nours:  {ours:?}\nreal:  {answer}"));
            }
        }
        differences.sort_by_key(String::len);
        if let Some(shortest) = differences.first() {
            let count = differences.len();
            panic!("seed {seed:#x}: {count} of {BATCH} differ; the shortest:\n{shortest}");
        }
        compared += BATCH;
    }
    eprintln!(
        "{compared} answers are equal ({accepted} of them accepted), in {:?}",
        start.elapsed()
    );
    assert!(accepted * 20 > compared, "hardly anything was valid: the generator is off");
}

fn raw(question: &Value) -> Value {
    serde_json::from_str(question["raw"].as_str().unwrap()).unwrap()
}

fn to_value(value: &impl serde::Serialize) -> Value {
    serde_json::to_value(value).unwrap()
}

#[test]
fn configs_are_parsed_as_in_ignition() {
    let question = |rng: &mut Rng| json!({"op": "parse", "raw": any_config(rng).to_string()});
    let answer = |question: &Value| match ignition::parse(&raw(question)) {
        Ok((ParsedConfig::V3(config), _)) => Ok(to_value(&config)),
        Ok((ParsedConfig::V2(config), _)) => Ok(to_value(&config)),
        Err(error) => Err(error.to_string()),
    };
    compare(question, answer, "config");
}

#[test]
fn configs_are_upgraded_as_in_mco() {
    let question = |rng: &mut Rng| json!({"op": "upgrade", "raw": any_config(rng).to_string()});
    let answer = |question: &Value| match parse_and_upgrade(&raw(question)) {
        Ok((config, _)) => Ok(to_value(&config)),
        Err(error) => Err(error.to_string()),
    };
    compare(question, answer, "config");
}

#[test]
fn configs_are_converted_as_in_mco() {
    let targets =
        ["3.5.0", "3.4.0", "3.3.0", "3.2.0", "3.1.0", "2.2.0", "2.2.0", "3.0.0", "2.4.0", "3.6.0"];
    let question = |rng: &mut Rng| {
        let config = if rng.chance(9, 10) { config_v3(rng) } else { any_config(rng) };
        json!({"op": "convert", "raw": config.to_string(), "target": *rng.pick(&targets)})
    };
    let answer = |question: &Value| {
        let target = IgnitionVersion::parse(question["target"].as_str().unwrap()).unwrap();
        match convert(&raw(question), &target) {
            Ok(converted) => Ok(to_value(&converted)),
            Err(error) => Err(error.to_string()),
        }
    };
    compare(question, answer, "config");
}

fn several(rng: &mut Rng, config: impl Fn(&mut Rng) -> Value) -> Vec<String> {
    let count = 1 + rng.below(4);
    (0..count).map(|_| config(rng).to_string()).collect()
}

#[test]
fn configs_are_merged_as_in_ignition() {
    let question = |rng: &mut Rng| json!({"op": "merge", "raws": several(rng, config_v3)});
    let answer = |question: &Value| {
        let mut configs = Vec::new();
        for raw in question["raws"].as_array().unwrap() {
            let raw = serde_json::from_str(raw.as_str().unwrap()).unwrap();
            configs.push(parse_and_upgrade(&raw).map_err(|error| error.to_string())?.0);
        }
        Ok(to_value(&ignition::merge(configs)))
    };
    compare(question, answer, "config");
}

#[test]
fn rendering_merges_as_in_mco() {
    let question = |rng: &mut Rng| json!({"op": "render", "raws": several(rng, any_config)});
    let answer = |question: &Value| {
        let raws = question["raws"].as_array().unwrap().iter().enumerate();
        let configs: Vec<_> = raws
            .map(|(index, raw)| {
                let config: Value = serde_json::from_str(raw.as_str().unwrap()).unwrap();
                let labels = json!({"machineconfiguration.openshift.io/role": "worker"});
                let metadata = json!({"name": format!("{index:02}"), "labels": labels});
                serde_json::from_value(json!({
                    "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
                    "metadata": metadata, "spec": {"config": config}
                }))
                .unwrap()
            })
            .collect();
        let selector = json!({"matchLabels": {"machineconfiguration.openshift.io/role": "worker"}});
        let pool = serde_json::from_value(json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
            "metadata": {"name": "worker"}, "spec": {"machineConfigSelector": selector}
        }))
        .unwrap();
        match render(&pool, &configs, None) {
            Ok(rendered) => Ok(to_value(&rendered.spec.config)),
            Err(error) => Err(error.to_string()),
        }
    };
    // The oracle lacks MCO's rule about modes; and a null config counts as absent in a
    // MachineConfig.
    let fine = |raw: &Value| {
        let raw = raw.as_str().unwrap();
        !raw.contains("\"mode\":") && raw != "null"
    };
    let question = |rng: &mut Rng| loop {
        let question = question(rng);
        if question["raws"].as_array().unwrap().iter().all(fine) {
            return question;
        }
    };
    compare(question, answer, "config");
}

#[test]
fn data_urls_are_decoded_as_in_mco() {
    let alphabet = [
        "data:", "data:", "data:", ",", ",", ";", "base64", "=", "/", "text", "plain", "x-",
        "charset", "utf-8", "%20", "%", "%4", "\"", "\\", "a", "aGk=", "aGVsbG8=", "hello", "#",
        " ", "é", "+", "\n", "image", "{", "A", "==",
    ];
    let question = |rng: &mut Rng| {
        let mut url = rng.string(&alphabet, 0, 8);
        if rng.chance(2, 3) {
            let starts = [
                "data:,",
                "data:;base64,",
                "data:text/plain,",
                "data:text/plain;a=b;base64,",
                "data:;c=\"d\",",
            ];
            url = format!("{}{}", rng.pick(&starts), rng.string(&alphabet[8..], 0, 4));
        }
        json!({"op": "dataurl", "url": url})
    };
    let answer = |question: &Value| match data_url::decode(question["url"].as_str().unwrap()) {
        Ok(bytes) => Ok(json!(data_url::encode_base64(&bytes))),
        Err(error) => Err(error.to_string()),
    };
    compare(question, answer, "base64");
}

#[test]
fn urls_are_parsed_as_in_go() {
    let alphabet = [
        "http", "https", "s3", "data", "://", ":", "/", "//", "?", "#", "%", "%41", "%zz", "[",
        "]", "::1", "@", "a", "b.c", "8080", " ", "é", "\u{7f}", ",", "=", "&", "*", "-", "+", "1",
        "%25", "[::1]", "<", "\"",
    ];
    let question = |rng: &mut Rng| json!({"op": "url", "url": rng.string(&alphabet, 0, 7)});
    let answer = |question: &Value| match url::parse(question["url"].as_str().unwrap()) {
        Ok(url) => Ok(json!(url.scheme)),
        Err(error) => Err(error.to_string()),
    };
    compare(question, answer, "scheme");
}

#[test]
fn unit_files_are_parsed_as_in_ignition() {
    let long = "x".repeat(700);
    let alphabet = [
        "[",
        "]",
        "[Unit]",
        "[Service]\n",
        "[Install]\n",
        "\n",
        "\n",
        "\r\n",
        "\r",
        "=",
        "A=b\n",
        "C=d",
        "#",
        ";",
        " ",
        "\t",
        "\\",
        "\\\n",
        "é",
        "\u{a0}",
        "Exec",
        "\u{2028}",
        long.as_str(),
    ];
    let question = |rng: &mut Rng| {
        let most = if rng.chance(1, 10) { 60 } else { 9 };
        json!({"op": "unit", "text": rng.string(&alphabet, 0, most)})
    };
    let answer =
        |question: &Value| match unit_file::option_sections(question["text"].as_str().unwrap()) {
            Ok(sections) => Ok(json!(sections)),
            Err(error) => Err(error.to_string()),
        };
    compare(question, answer, "sections");
}
