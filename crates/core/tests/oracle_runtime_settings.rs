//! The files of random ContainerRuntimeConfigs, byte for byte like Go's libraries: `storage.conf`
//! over random templates, and CRI-O's drop-ins.
use crate::support;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use machinist_core::api::ContainerRuntimeConfig;
use machinist_core::container_runtime::{BaseFiles, crio_settings};
use machinist_core::generated_config::decoded_files;
use serde_json::{Value, json};
use support::{Oracle, Rng};

const CASES: usize = 3000;
const STORAGE_CONF: &str = "/etc/containers/storage.conf";
/// Values as they are in a template.
const TEXTS: [&str; 7] = [
    "\"\"",
    "\"a\"",
    "'it\\s'",
    "\"\\u007f\\b\\r\\u001b\\\"\"",
    "\"ü \\\\\"",
    "\"\"\"x\ny\"\"\"",
    "\"64G\"",
];
const TABLES: [(&str, &[&str]); 6] = [
    ("aufs", &["mountopt"]),
    ("btrfs", &["min_space", "size", "unknown"]),
    ("overlay", &["force_mask", "mountopt", "size", "skip_mount_home", "inodes", "mount_program"]),
    ("vfs", &["ignore_chown_errors"]),
    ("zfs", &["fsname", "mountopt", "size"]),
    ("pull_options", &["use_hard_links", "enable_partial_images", "a.b", "Z", "é", "ostree_repos"]),
];

fn is(rng: &mut Rng) -> bool {
    rng.below(2) == 0
}

fn text(rng: &mut Rng) -> &'static str {
    TEXTS[rng.below(TEXTS.len())]
}

/// A template's `storage.conf`.
fn template(rng: &mut Rng) -> String {
    let mut file = "# a comment\n[storage]\n".to_owned();
    for name in ["driver", "runroot", "graphroot", "unknown", "transient_store"] {
        if is(rng) {
            let _ = writeln!(file, "{name} = {} # why", text(rng));
        }
    }
    if is(rng) {
        file.push_str("[storage.options]\n");
        for name in ["imagestore", "size", "mountopt", "mount_program", "use_composefs", "SIZED"] {
            if is(rng) {
                let _ = writeln!(file, "{name} = {}", text(rng));
            }
        }
        for name in ["force_mask", "auto-userns-min-size", "auto-userns-max-size"] {
            if is(rng) {
                let _ = writeln!(file, "{name} = {}", rng.below(1 << 31));
            }
        }
        if is(rng) {
            let _ = writeln!(file, "disable-volatile = {}", is(rng));
        }
        for name in ["additionalimagestores", "additionallayerstores"] {
            if is(rng) {
                let _ = writeln!(file, "{name} = [\n  {}, # one\n  {},\n]", text(rng), text(rng));
            }
        }
    }
    for (table, names) in TABLES {
        if is(rng) {
            let _ = writeln!(file, "\n[storage.options.{table}]");
            for name in names {
                if is(rng) {
                    let _ = writeln!(file, "\"{name}\" = {}", text(rng));
                }
            }
        }
    }
    file
}

/// Settings that MCO accepts.
fn settings(rng: &mut Rng) -> Value {
    let mut settings = json!({});
    let sizes = ["3G", "8192M", "8192Mi", "0.5Gi", "1e9", "12345", "100k"];
    if is(rng) {
        settings["overlaySize"] = json!(sizes[rng.below(sizes.len())]);
    }
    for field in ["additionalLayerStores", "additionalImageStores", "additionalArtifactStores"] {
        if is(rng) {
            let stores: Vec<Value> = (0..=rng.below(3))
                .map(|at| json!({"path": format!("/var/s-{at}/x_y.z")}))
                .collect();
            settings[field] = json!(stores);
        }
    }
    if is(rng) {
        settings["pidsLimit"] = json!([0, 20, 4096, i64::MAX][rng.below(4)]);
    }
    if is(rng) {
        settings["logSizeMax"] = [json!("50Mi"), json!(-1), json!(9000)][rng.below(3)].clone();
    }
    if is(rng) {
        settings["logLevel"] = json!(["debug", "fatal"][rng.below(2)]);
    }
    if is(rng) {
        settings["defaultRuntime"] = json!(["crun", "runc"][rng.below(2)]);
    }
    settings
}

fn files(settings: &Value, template: &str) -> BTreeMap<String, String> {
    let object = json!({"apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "ContainerRuntimeConfig", "metadata": {"name": "c"},
        "spec": {"containerRuntimeConfig": settings}});
    let config: ContainerRuntimeConfig = serde_json::from_value(object).unwrap();
    let base = BaseFiles { storage_conf: template.to_owned(), ..BaseFiles::default() };
    let made = crio_settings::generate(&config, None, "worker", "99-x", &base).unwrap();
    let files = decoded_files(&made.machine_config).unwrap().into_iter();
    files.map(|file| (file.path, String::from_utf8(file.contents).unwrap())).collect()
}

/// The paths of a list of stores.
fn paths(settings: &Value, field: &str, suffix: &str) -> Vec<String> {
    let stores = settings[field].as_array().into_iter().flatten();
    stores.map(|store| format!("{}{suffix}", store["path"].as_str().unwrap())).collect()
}

/// The question whose answer is a drop-in: one setting of `crio.runtime`.
fn drop_in(path: &str, file: &str, settings: &Value) -> Value {
    let setting = path.rsplit("01-ctrcfg-").next().unwrap();
    let value = match setting {
        "additionalArtifactStores" => json!(paths(settings, setting, "")),
        // A quantity is written as a number of bytes.
        "logSizeMax" if settings[setting] == "50Mi" => json!(50 << 20),
        _ => settings[setting].clone(),
    };
    let name = file.lines().nth(2).unwrap().trim_start().split(" = ").next().unwrap();
    json!({"op": "toml", "value": {"crio": {"runtime": {name: value}}}})
}

#[test]
fn random_runtime_settings_give_the_same_bytes() {
    let mut rng = Rng::new(support::seed());
    let (mut questions, mut ours, mut storage_files) = (Vec::new(), Vec::new(), 0);
    for _ in 0..CASES {
        let (template, settings) = (template(&mut rng), settings(&mut rng));
        for (path, file) in files(&settings, &template) {
            if path == STORAGE_CONF {
                let quantity = settings["overlaySize"].as_str().unwrap_or_default();
                let size = match quantity {
                    "8192Mi" => "8Gi",
                    "0.5Gi" => "512Mi",
                    other => other,
                };
                questions.push(json!({"op": "storage-edit", "value": {
                    "base": template, "size": size,
                    "layers": paths(&settings, "additionalLayerStores", ":ref"),
                    "images": paths(&settings, "additionalImageStores", ""),
                }}));
                storage_files += 1;
            } else {
                questions.push(drop_in(&path, &file, &settings));
            }
            ours.push(file);
        }
    }
    let answers = Oracle::start().request_all(&questions);
    for ((file, answer), question) in ours.iter().zip(answers).zip(&questions) {
        assert_eq!(answer["error"], Value::Null, "{question}");
        assert_eq!(answer["text"], *file, "{question}");
    }
    assert!(storage_files > CASES / 2 && ours.len() > 2 * CASES, "{storage_files}, {}", ours.len());
}
