//! Server-side apply: a real kube-apiserver and the hub get the same random requests of several managers. Every response
//! must be the same: the object, who owns what, and the errors. Nodes and pools are compared by recorded requests, because
//! admission or the controller changes them here (`crates/hub/tests/recorded_applies.rs`).

use super::api_server::{self, ApiServer, TestRequest, TestResponse};
use crate::hub_support::RandomGenerator;
use http::Method;
use serde_json::{Map, Value, json};

/// A kind, and values that its fields may have. `status` says whether it has a status subresource.
struct AppliedKind {
    path: &'static str,
    api_version: &'static str,
    kind: &'static str,
    built_in: bool,
    status: bool,
    fields: fn() -> Vec<(&'static str, Vec<Value>)>,
}

const KINDS: &[AppliedKind] = &[
    AppliedKind {
        path: "/apis/machineconfiguration.openshift.io/v1/pinnedimagesets",
        api_version: "machineconfiguration.openshift.io/v1",
        kind: "PinnedImageSet",
        built_in: false,
        status: false,
        fields: || vec![("/spec/pinnedImages", named_lists())],
    },
    AppliedKind {
        path: "/apis/machineconfiguration.openshift.io/v1/machineconfigs",
        api_version: "machineconfiguration.openshift.io/v1",
        kind: "MachineConfig",
        built_in: false,
        status: false,
        fields: || {
            vec![
                ("/spec/osImageURL", vec![json!("a"), json!("b"), json!("")]),
                ("/spec/fips", vec![json!(true), json!(false)]),
                ("/spec/kernelArguments", vec![json!([]), json!(["a"]), json!(["b", "a"])]),
                ("/spec/extensions", vec![json!(["x"]), json!(["x", "y"])]),
                ("/spec/config/ignition/version", vec![json!("3.4.0"), json!("3.5.0")]),
                (
                    "/spec/config/storage",
                    vec![
                        json!({}),
                        json!({"files": []}),
                        json!({"files": [{"path": "/a", "mode": 420}]}),
                        json!("odd"),
                    ],
                ),
                (
                    "/spec/config/systemd/units",
                    vec![json!([{"name": "a"}]), json!([{"name": "b"}, {"name": "a"}])],
                ),
                (
                    "/spec/config/passwd",
                    vec![Value::Null, json!({"users": {"core": 1}}), json!([1, 2.5])],
                ),
            ]
        },
    },
    AppliedKind {
        path: "/api/v1/namespaces/default/configmaps",
        api_version: "v1",
        kind: "ConfigMap",
        built_in: true,
        status: false,
        fields: || {
            vec![
                ("/data/a", vec![json!("1"), json!("2"), json!("")]),
                ("/data/b-c", vec![json!("1"), json!("2")]),
                ("/binaryData/c", vec![json!("YQ==")]),
                ("/immutable", vec![json!(false)]),
            ]
        },
    },
    AppliedKind {
        path: "/api/v1/namespaces/default/secrets",
        api_version: "v1",
        kind: "Secret",
        built_in: true,
        status: false,
        fields: || {
            vec![
                ("/data/a", vec![json!("YQ=="), json!("Yg==")]),
                ("/data/b", vec![json!("YQ==")]),
                ("/type", vec![json!("Opaque")]),
            ]
        },
    },
    AppliedKind {
        path: "/api/v1/namespaces",
        api_version: "v1",
        kind: "Namespace",
        built_in: true,
        status: true,
        fields: || {
            let condition = |name: &str| json!({"type": name, "status": "True"});
            let lists = vec![json!([condition("A")]), json!([condition("B"), condition("A")])];
            vec![("/status/conditions", lists)]
        },
    },
    AppliedKind {
        path: "/apis/coordination.k8s.io/v1/namespaces/default/leases",
        api_version: "coordination.k8s.io/v1",
        kind: "Lease",
        built_in: true,
        status: false,
        fields: || {
            vec![
                ("/spec/holderIdentity", vec![json!("a"), json!("b")]),
                ("/spec/leaseDurationSeconds", vec![json!(10), json!(20)]),
                ("/spec/leaseTransitions", vec![json!(0), json!(1)]),
            ]
        },
    },
];

fn named_lists() -> Vec<Value> {
    let image = |name: &&str| json!({"name": format!("quay.io/{name}@sha256:{}", "0".repeat(64))});
    let list = |names: &[&str]| names.iter().map(image).collect::<Value>();
    vec![
        list(&["a"]),
        list(&["b"]),
        list(&["c", "a"]),
        list(&["a", "b", "c"]),
        list(&[]),
        list(&["a", "a"]),
    ]
}

const MANAGERS: [&str; 4] = ["alice", "bob", "kubectl", "carol"];

struct Sequence<'a> {
    random: RandomGenerator,
    kind: &'a AppliedKind,
    name: String,
}

impl Sequence<'_> {
    fn chance(&mut self, percent: u64) -> bool {
        self.random.below(100) < percent
    }

    fn pick<T: Clone>(&mut self, values: &[T]) -> T {
        values[self.random.below(values.len() as u64) as usize].clone()
    }

    /// A random object with some of the fields.
    fn object(&mut self, whole: bool) -> Value {
        let mut metadata = Map::new();
        metadata.insert("name".to_owned(), self.name.clone().into());
        for (field, keys) in [("labels", ["a", "b", "c/d"]), ("annotations", ["x", "y", "z"])] {
            if self.chance(40) {
                let mut map = Map::new();
                for key in keys {
                    if self.chance(50) {
                        map.insert(key.to_owned(), self.pick(&[json!("1"), json!("2"), json!("")]));
                    }
                }
                metadata.insert(field.to_owned(), map.into());
            }
        }
        let mut object = json!({"apiVersion": self.kind.api_version, "kind": self.kind.kind, "metadata": metadata});
        let share = if whole { 60 } else { 35 };
        for (path, values) in (self.kind.fields)() {
            if self.chance(share) {
                set(&mut object, path, self.pick(&values));
            }
        }
        object
    }
}

/// Sets a field and what contains it.
fn set(object: &mut Value, path: &str, value: Value) {
    let mut place = object;
    for step in path.split('/').skip(1) {
        if !place.is_object() {
            *place = json!({});
        }
        place = &mut place[step];
    }
    *place = value;
}

struct ApplyStep {
    method: Method,
    path: String,
    content_type: &'static str,
    body: Value,
    /// Whether the resource version of the stored object is put into the body.
    versioned: bool,
}

fn step(sequence: &mut Sequence<'_>) -> ApplyStep {
    let kind = sequence.kind;
    let mut path = format!("{}/{}", kind.path, sequence.name);
    let manager = sequence.pick(&MANAGERS);
    if kind.status && sequence.chance(25) {
        path.push_str("/status");
    }
    path.push_str(&format!("?fieldManager={manager}"));
    if sequence.chance(8) {
        path.push_str("&dryRun=All");
    }
    match sequence.random.below(100) {
        0..55 => {
            if sequence.chance(30) {
                path.push_str("&force=true");
            }
            let body = sequence.object(false);
            ApplyStep {
                method: Method::PATCH,
                path,
                content_type: "application/apply-patch+yaml",
                body,
                versioned: false,
            }
        }
        55..70 => {
            let body = sequence.object(true);
            let mut body = body;
            if sequence.chance(10) {
                body["metadata"]["managedFields"] = sequence.pick(&[json!([]), json!([{}])]);
            }
            ApplyStep {
                method: Method::PUT,
                path,
                content_type: "application/json",
                body,
                versioned: true,
            }
        }
        70..90 => {
            let mut body = sequence.object(false);
            body.as_object_mut().unwrap().retain(|key, _| key != "apiVersion" && key != "kind");
            if sequence.chance(20) {
                body["metadata"]["labels"] = Value::Null;
            }
            let types = ["application/merge-patch+json", "application/strategic-merge-patch+json"];
            let content_type = if kind.built_in { sequence.pick(&types) } else { types[0] };
            ApplyStep { method: Method::PATCH, path, content_type, body, versioned: false }
        }
        90..96 => {
            let body = json!([{"op": "add", "path": "/metadata/labels", "value": {"j": "1"}}]);
            ApplyStep {
                method: Method::PATCH,
                path,
                content_type: "application/json-patch+json",
                body,
                versioned: false,
            }
        }
        _ => {
            let body = sequence.object(true);
            ApplyStep {
                method: Method::POST,
                path: format!("{}?fieldManager={manager}", kind.path),
                content_type: "application/json",
                body,
                versioned: false,
            }
        }
    }
}

fn send(api_server: &ApiServer, step: &ApplyStep) -> TestResponse {
    let mut body = step.body.clone();
    if step.versioned {
        let path = step.path.split('?').next().unwrap().trim_end_matches("/status");
        let live = api_server.get(path).body;
        body["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"].clone();
    }
    let request = TestRequest {
        method: step.method.clone(),
        path: &step.path,
        body: body.to_string().into_bytes(),
        content_type: step.content_type,
        accept: "application/json",
    };
    api_server.request(request).unwrap()
}

/// The response without what differs from one API server to another, and from one second to the next.
fn comparable(response: &TestResponse) -> Value {
    let mut body = response.body.clone();
    if body["kind"] == "Status" {
        if let Some(causes) = body["details"]["causes"].as_array_mut() {
            causes.sort_by_key(Value::to_string);
        }
        return json!({"code": response.code, "body": body});
    }
    if let Some(metadata) = body["metadata"].as_object_mut() {
        for field in ["uid", "resourceVersion", "creationTimestamp"] {
            metadata.remove(field);
        }
        for entry in
            metadata.get_mut("managedFields").and_then(Value::as_array_mut).into_iter().flatten()
        {
            if entry.get("time").is_some() {
                entry["time"] = json!("some");
            }
        }
        if let Some(entries) = metadata.get_mut("managedFields").and_then(Value::as_array_mut) {
            entries.sort_by_key(|entry| {
                ["operation", "manager", "apiVersion", "subresource"]
                    .map(|key| entry[key].to_string())
            });
        }
    }
    json!({"code": response.code, "body": body})
}

/// Runs one sequence on both. Returns the first difference.
fn run(kubernetes: &ApiServer, hub: &ApiServer, seed: u64) -> Result<usize, String> {
    let mut random = RandomGenerator(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    (0..5).for_each(|_| _ = random.below(2));
    let kind = &KINDS[random.below(KINDS.len() as u64) as usize];
    let mut sequence = Sequence { random, kind, name: format!("apply-{seed}") };
    let mut log = Vec::new();
    let steps = 6 + sequence.random.below(6);
    for _ in 0..steps {
        let step = step(&mut sequence);
        let [wanted, found] = [kubernetes, hub].map(|server| comparable(&send(server, &step)));
        log.push(format!("{} {} {}", step.method, step.path, step.body));
        if wanted != found {
            return Err(format!(
                "seed {seed}: after\n{}\nkube-apiserver: {wanted:#}\nhub: {found:#}",
                log.join("\n")
            ));
        }
    }
    for server in [kubernetes, hub] {
        server.delete(&format!("{}/{}", kind.path, sequence.name), &Value::Null);
    }
    Ok(log.len())
}

/// `MACHINIST_APPLY_SEQUENCES` compares more, `MACHINIST_APPLY_SEED` begins elsewhere.
#[test]
fn the_hub_applies_as_kube_apiserver_does() {
    let number = |name: &str, default: u64| {
        std::env::var(name).ok().map_or(default, |text| text.parse().unwrap())
    };
    let (count, first) =
        (number("MACHINIST_APPLY_SEQUENCES", 60), number("MACHINIST_APPLY_SEED", 1));
    let (kubernetes, hub) =
        (ApiServer::kubernetes().unwrap(), api_server::ApiServer::hub().unwrap());
    let results: Vec<_> = (first..first + count).map(|seed| run(&kubernetes, &hub, seed)).collect();
    let steps: usize = results.iter().flatten().sum();
    let failed: Vec<&String> = results.iter().filter_map(|result| result.as_ref().err()).collect();
    for failure in failed.iter().take(5) {
        eprintln!("{failure}\n");
    }
    assert!(failed.is_empty(), "{} of {count} sequences differ", failed.len());
    eprintln!("{count} sequences with {steps} requests have the same responses");
}
