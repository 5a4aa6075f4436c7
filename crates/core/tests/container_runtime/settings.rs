//! Settings of the container runtime.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::RuntimeObjects;

fn runtime(settings: &Value) -> RuntimeObjects {
    let label = "pools.operator.machineconfiguration.openshift.io/worker";
    let spec = json!({
        "machineConfigPoolSelector": {"matchLabels": {label: ""}},
        "containerRuntimeConfig": settings,
    });
    RuntimeObjects { runtime: vec![spec], ..RuntimeObjects::default() }
}

#[test]
fn runtime_settings_become_drop_ins() {
    let files = runtime(&json!({
        "logLevel": "debug", "pidsLimit": 2048, "logSizeMax": "50Mi", "defaultRuntime": "crun",
        "overlaySize": "8192M", "additionalArtifactStores": [{"path": "/a/b"}],
        "additionalLayerStores": [{"path": "/l"}],
    }))
    .files();
    let found: BTreeMap<&str, &str> = files
        .iter()
        .map(|(path, text)| (path.rsplit('/').next().unwrap(), text.as_str()))
        .collect();
    let line = |name: &str| found[name].strip_prefix("[crio]\n  [crio.runtime]\n    ").unwrap();
    assert_eq!(line("01-ctrcfg-logLevel"), "log_level = \"debug\"\n");
    assert_eq!(line("01-ctrcfg-pidsLimit"), "pids_limit = 2048\n");
    assert_eq!(line("01-ctrcfg-logSizeMax"), "log_size_max = 52428800\n");
    assert_eq!(line("01-ctrcfg-defaultRuntime"), "default_runtime = \"crun\"\n");
    assert_eq!(
        line("01-ctrcfg-additionalArtifactStores"),
        "additional_artifact_stores = [\"/a/b\"]\n"
    );
    assert!(found["storage.conf"].contains("size = \"8192M\""), "{}", found["storage.conf"]);
    assert!(found["storage.conf"].contains("additionallayerstores = [\"/l:ref\"]"));
    assert!(files.contains_key("/etc/crio/crio.conf.d/01-ctrcfg-pidsLimit"));
    assert!(files.contains_key("/etc/containers/storage.conf"));
    // A limit of 0 is written, a size of 0 is not; and without settings there are no files.
    let files = runtime(&json!({"pidsLimit": 0, "logSizeMax": 0, "overlaySize": "0"})).files();
    assert_eq!(files.keys().collect::<Vec<_>>(), ["/etc/crio/crio.conf.d/01-ctrcfg-pidsLimit"]);
    let nothing = runtime(&json!({})).generate();
    assert_eq!((nothing.generated.len(), nothing.errors.len()), (1, 0));
    assert!(!nothing.generated[0].warnings.is_empty());
}

#[test]
fn runtime_settings_are_validated() {
    for (settings, expected) in [
        (json!({"pidLimit": 100}), "pidLimit: is not a setting that is known here (correct"),
        (json!({"pidsLimit": -1}), "pidsLimit: invalid PidsLimit -1 (use"),
        (json!({"pidsLimit": 19}), "pidsLimit: invalid PidsLimit 19 (use"),
        (
            json!({"logSizeMax": "8k"}),
            "logSizeMax: invalid LogSizeMax \"8k\", cannot be less than 8kB (use",
        ),
        (
            json!({"logSizeMax": 8192}),
            "logSizeMax: invalid LogSizeMax \"8192\", cannot be less than 8kB (use",
        ),
        (
            json!({"logSizeMax": "52m"}),
            "logSizeMax: invalid LogSizeMax \"52m\", cannot be less than 8kB (use",
        ),
        (json!({"logSizeMax": "x"}), "logSizeMax: \"x\" is no amount (write"),
        (
            json!({"overlaySize": "-1G"}),
            "overlaySize: invalid overlaySize \"-1G\", cannot be less than 0 (use",
        ),
        (
            json!({"logLevel": "bogus"}),
            "logLevel: invalid LogLevel \"bogus\", must be one of error, fatal, panic, warn, info, debug, or trace (use",
        ),
        (
            json!({"defaultRuntime": "kata"}),
            "defaultRuntime: invalid DefaultRuntime \"kata\", must be one of crun, runc (use",
        ),
        (
            json!({"additionalImageStores": [{"path": "/a"}, {"path": "a"}]}),
            "additionalImageStores[1].path: invalid AdditionalImageStores path \"a\": must be an absolute path",
        ),
        (
            json!({"additionalLayerStores": [{"path": "/a//b"}]}),
            "additionalLayerStores[0].path: invalid AdditionalLayerStores path \"/a//b\": must not contain consecutive forward slashes",
        ),
    ] {
        let error = runtime(&settings).error();
        let expected = format!("ContainerRuntimeConfig o0: spec.containerRuntimeConfig.{expected}");
        assert!(error.starts_with(&expected), "{error}\nexpected\n{expected}");
    }
    for good in [json!({"pidsLimit": 20}), json!({"logSizeMax": 8193}), json!({"logSizeMax": -1})] {
        assert_eq!(runtime(&good).generate().errors, []);
    }
}
