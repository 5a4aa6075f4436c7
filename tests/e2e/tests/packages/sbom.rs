//! The bill of materials.

use crate::packages::run_script;
use machinist_e2e::{Lab, cache};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;

#[test]
fn the_bill_of_materials_names_what_is_linked_and_nothing_else() {
    let lab = Lab::new().unwrap();
    let read = |dir: &str| {
        let out = lab.create_dir(dir).unwrap();
        run_script("sbom", None, &out);
        fs::read(out.join("machinist.cdx.json")).unwrap()
    };
    let bytes = read("one");
    assert_eq!(bytes, read("two"), "it is the same every time");
    let bill: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!((&bill["bomFormat"], &bill["specVersion"]), (&"CycloneDX".into(), &"1.5".into()));
    assert_eq!(bill["metadata"]["component"]["name"], "machinist");
    assert_eq!(bill["metadata"]["timestamp"], "2023-11-14T22:13:20Z");
    let components = bill["components"].as_array().unwrap();
    let named = |name: &str| components.iter().find(|it| it["name"] == name);
    for name in ["machinist-core", "machinist-hub", "kube", "tokio", "rustls", "ring"] {
        assert!(named(name).is_some(), "{name} is linked");
    }
    for name in ["proptest", "criterion", "machinist-e2e"] {
        assert!(named(name).is_none(), "{name} is not linked");
    }
    let lock = fs::read_to_string(cache::source_root().join("Cargo.lock")).unwrap();
    let mut refs = BTreeSet::from([bill["metadata"]["component"]["bom-ref"].clone().to_string()]);
    for component in components {
        let version = component["version"].as_str().unwrap();
        let entry = format!("name = {}\nversion = \"{version}\"\n", component["name"]);
        assert!(lock.contains(&entry), "{component} is not in Cargo.lock");
        assert!(component["licenses"][0]["expression"].is_string(), "{component} has no license");
        let is_ours = component["name"].as_str().unwrap().starts_with("machinist");
        assert!(
            is_ours || component["hashes"][0]["content"].is_string(),
            "{component} has no hash"
        );
        assert!(refs.insert(component["bom-ref"].to_string()), "{component} is there twice");
    }
    for dependency in bill["dependencies"].as_array().unwrap() {
        assert!(refs.contains(&dependency["ref"].to_string()));
        let on = dependency["dependsOn"].as_array().unwrap();
        assert!(on.iter().all(|it| refs.contains(&it.to_string())), "{dependency}");
    }
}
