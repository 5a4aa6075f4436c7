//! Differential test: names in certificates, as Go formats them.
use crate::support;

use machinist_core::api::ControllerConfigSpec;
use machinist_core::template::certificates;
use serde_json::{Value, json};
use support::{Oracle, Rng, seed};

/// Attributes that Go has names for, and some that it has none for.
const TYPES: [[u32; 4]; 9] = [
    [2, 5, 4, 3],
    [2, 5, 4, 5],
    [2, 5, 4, 6],
    [2, 5, 4, 7],
    [2, 5, 4, 8],
    [2, 5, 4, 9],
    [2, 5, 4, 10],
    [2, 5, 4, 11],
    [2, 5, 4, 17],
];
const OTHERS: [&[u32]; 2] = [&[1, 2, 840, 113_549, 1, 9, 1], &[0, 9, 2342, 19_200_300, 100, 1, 25]];
const PARTS: [&str; 14] =
    ["a", "kube-apiserver", " ", "#", ",", "+", "\"", "\\", "<", ">", ";", "@", "é", "日"];

#[test]
fn names_in_certificates_are_formatted_as_in_go() {
    let seed = seed();
    eprintln!("MACHINIST_SEED={seed:#x}");
    let mut rng = Rng::new(seed);
    let names: Vec<Value> = (0..500).map(|_| name(&mut rng)).collect();
    let ask = |name: &Value| json!({"op": "certificate", "value": name});
    let answers = Oracle::start().request_all(&names.iter().map(ask).collect::<Vec<_>>());
    let mut bundle = String::from("# what is no certificate is passed over\n");
    for (name, answer) in names.iter().zip(&answers) {
        let pem = answer["pem"].as_str().unwrap_or_else(|| panic!("{name}: {answer}"));
        bundle.push_str(pem);
        let found = certificates(&spec(pem));
        assert_eq!(found.len(), 1, "{name}");
        let found = serde_json::to_value(&found[0]).unwrap();
        assert_eq!(found["subject"], answer["subject"], "MACHINIST_SEED={seed:#x} {name}");
        assert_eq!(found["signer"], answer["subject"], "{name}");
        assert_eq!(found["notBefore"], answer["notBefore"]);
        assert_eq!(found["notAfter"], answer["notAfter"]);
        assert_eq!(found["bundleFile"], "RootCAData");
    }
    assert_eq!(certificates(&spec(&bundle)).len(), names.len());
    // An unreadable certificate ends its bundle, but not the others.
    let good = answers[0]["pem"].as_str().unwrap();
    let bad = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let mut mixed = spec(&format!("{good}{bad}{good}"));
    mixed.additional_trust_bundle = spec(good).root_ca_data.unwrap().into();
    let found: Vec<String> = certificates(&mixed).into_iter().map(|it| it.bundle_file).collect();
    assert_eq!(found, ["RootCAData", "AdditionalTrustBundle"]);
    assert_eq!(certificates(&spec("# none\n")), []);
}

fn spec(bundle: &str) -> ControllerConfigSpec {
    let data = k8s_openapi::ByteString(bundle.as_bytes().to_vec());
    ControllerConfigSpec { root_ca_data: Some(data), ..ControllerConfigSpec::default() }
}

fn name(rng: &mut Rng) -> Value {
    let attribute = |rng: &mut Rng| {
        let text = rng.string(&PARTS, 1, 6);
        let number =
            if rng.chance(1, 6) { rng.pick(&OTHERS).to_vec() } else { rng.pick(&TYPES).to_vec() };
        json!({"Type": number, "Value": text})
    };
    (0..=rng.below(6)).map(|_| attribute(rng)).collect()
}
