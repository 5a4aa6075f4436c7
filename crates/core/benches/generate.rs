//! Time to generate 5,000 mirror entries for 20 pools, and to find that nothing has to be written.
//! Fails if the budget is exceeded.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    missing_docs,
    reason = "a benchmark measures time and prints it"
)]

use std::time::{Duration, Instant};

use criterion::Criterion;
use machinist_core::api::config::{Image, ImageDigestMirrorSet};
use machinist_core::api::{MachineConfig, MachineConfigPool};
use machinist_core::container_runtime::registries::RegistryInputs;
use machinist_core::generate::{GenerateOutput, GenerateSources, generate};
use machinist_core::generated_config::reconcile::{replacement, with_ownership};
use serde_json::{Value, json};

const POOLS: usize = 20;
const SETS: usize = 250;
const ENTRIES: usize = 20;
const BUDGET: Duration = Duration::from_millis(500);

struct BenchInputs {
    pools: Vec<MachineConfigPool>,
    sets: Vec<ImageDigestMirrorSet>,
    image: Image,
}

fn typed<K: serde::de::DeserializeOwned>(kind: &str, name: &str, spec: &Value) -> K {
    let object = json!({"apiVersion": "x/v1", "kind": kind, "spec": spec, "metadata": {
        "name": name, "labels": {"machineconfiguration.openshift.io/mco-built-in": ""}}});
    serde_json::from_value(object).unwrap()
}

/// Pools, mirrors of many repositories, and the registries that contain them.
fn bench_inputs() -> BenchInputs {
    let pool = |n: usize| {
        let role = json!({"machineconfiguration.openshift.io/role": format!("pool-{n}")});
        let spec = json!({"machineConfigSelector": {"matchLabels": role}});
        typed("MachineConfigPool", &format!("pool-{n}"), &spec)
    };
    let set = |n: usize| {
        let entry = |m: usize| {
            json!({
                "source": format!("registry-{}.example.com/team-{n}/app-{m}", n % 7),
                "mirrors": [format!("mirror.example.net/team-{n}/app-{m}")],
            })
        };
        let entries: Vec<Value> = (0..ENTRIES).map(entry).collect();
        typed("ImageDigestMirrorSet", &format!("set-{n}"), &json!({"imageDigestMirrors": entries}))
    };
    let image = json!({"registrySources": {
        "insecureRegistries": ["*.example.net", "registry-1.example.com"],
        "blockedRegistries": ["registry-2.example.com/team-9", "*.example.org"],
    }});
    BenchInputs {
        pools: (0..POOLS).map(pool).collect(),
        sets: (0..SETS).map(set).collect(),
        image: typed("Image", "cluster", &image),
    }
}

impl BenchInputs {
    fn generate(&self) -> GenerateOutput {
        generate(&GenerateSources {
            pools: self.pools.iter().collect(),
            images: RegistryInputs {
                image: Some(&self.image),
                digest_mirror_sets: self.sets.iter().collect(),
                ..RegistryInputs::default()
            },
            ..GenerateSources::default()
        })
    }

    /// The MachineConfigs that have to be written, given the present ones.
    fn configs_to_write(&self, there: &[MachineConfig]) -> Vec<MachineConfig> {
        let made = self.generate().generated.into_iter();
        let wanted = made.map(|made| with_ownership(made.machine_config, "v1", None));
        wanted.zip(there).filter_map(|(wanted, found)| replacement(found, &wanted)).collect()
    }
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args().sample_size(10);
    let world = bench_inputs();
    let made = world.generate();
    assert_eq!((made.generated.len(), made.errors.len()), (POOLS, 0));
    let there: Vec<MachineConfig> = made
        .generated
        .into_iter()
        .map(|made| with_ownership(made.machine_config, "v1", None))
        .collect();
    let size = serde_json::to_vec(&there[0]).unwrap().len();
    let name =
        format!("generate {} mirrors for {POOLS} pools of {} KB", SETS * ENTRIES, size / 1000);
    criterion.bench_function(&name, |bencher| {
        bencher.iter(|| {
            assert!(world.configs_to_write(&there).is_empty(), "nothing is to be written");
        });
    });
    let timed = (0..15).map(|_| {
        let start = Instant::now();
        assert!(world.configs_to_write(&there).is_empty(), "nothing is to be written");
        start.elapsed()
    });
    let best = timed.min().unwrap();
    println!("{name}: {best:?}, budget {BUDGET:?}");
    assert!(best <= BUDGET, "over budget: {best:?}");
    criterion.final_summary();
}
