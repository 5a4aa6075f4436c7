//! Image mirrors, policies and runtime settings, tested through the public API: the generated
//! files, and the errors. The expected values were measured with the Machine Config Operator (MCO).

mod errors;
mod settings;

use std::collections::{BTreeMap, BTreeSet};

use machinist_core::api::MachineConfigPool;
use machinist_core::container_runtime::registries;
use machinist_core::generate::{GenerateOutput, GenerateSources, generate};
use machinist_core::generated_config::decoded_files;
use serde_json::{Value, json};

const DIGEST: &str = "@sha256:4207ba569ff014931f1b5d125fe3751936a768e119546683c899eb09f3cdceb0";

/// The objects of a test.
#[derive(Default)]
struct RuntimeObjects {
    image: Value,
    icsp: Vec<Value>,
    idms: Vec<Value>,
    itms: Vec<Value>,
    cluster_policies: Vec<Value>,
    policies: Vec<Value>,
    runtime: Vec<Value>,
    release: Option<String>,
}

fn typed<K: serde::de::DeserializeOwned>(kind: &str, specs: &[Value]) -> Vec<K> {
    let object = |(at, spec): (usize, &Value)| {
        let mut spec = spec.clone();
        let namespace = spec.as_object_mut().unwrap().remove("namespace");
        let object = json!({
            "apiVersion": "x/v1", "kind": kind,
            "metadata": {"name": format!("o{at}"), "namespace": namespace},
            "spec": spec,
        });
        serde_json::from_value(object).unwrap()
    };
    specs.iter().enumerate().map(object).collect()
}

fn worker() -> MachineConfigPool {
    pool("worker", &["worker"], true)
}

fn pool(name: &str, roles: &[&str], built_in: bool) -> MachineConfigPool {
    let mut labels =
        json!({format!("pools.operator.machineconfiguration.openshift.io/{name}"): ""});
    if built_in {
        labels["machineconfiguration.openshift.io/mco-built-in"] = json!("");
    }
    serde_json::from_value(json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
        "metadata": {"name": name, "labels": labels},
        "spec": {"machineConfigSelector": {"matchExpressions": [
            {"key": "machineconfiguration.openshift.io/role", "operator": "In", "values": roles},
        ]}},
    }))
    .unwrap()
}

impl RuntimeObjects {
    fn generate(&self) -> GenerateOutput {
        let mut images: Vec<machinist_core::api::config::Image> = Vec::new();
        if !self.image.is_null() {
            images = typed("Image", &[json!({"registrySources": self.image})]);
        }
        let (icsp, idms) = (typed("ICSP", &self.icsp), typed("IDMS", &self.idms));
        let (itms, cips) = (typed("ITMS", &self.itms), typed("CIP", &self.cluster_policies));
        let (ips, runtime) = (typed("IP", &self.policies), typed("CRC", &self.runtime));
        let pool = worker();
        generate(&GenerateSources {
            pools: vec![&pool],
            images: registries::RegistryInputs {
                image: images.first(),
                content_source_policies: icsp.iter().collect(),
                digest_mirror_sets: idms.iter().collect(),
                tag_mirror_sets: itms.iter().collect(),
                cluster_image_policies: cips.iter().collect(),
                image_policies: ips.iter().collect(),
                release_image: self.release.as_deref(),
            },
            container_runtime_configs: runtime.iter().collect(),
            ..GenerateSources::default()
        })
    }

    /// All generated files, by path.
    #[track_caller]
    fn files(&self) -> BTreeMap<String, String> {
        let made = self.generate();
        assert_eq!(made.errors, []);
        let configs = made.generated.iter().map(|generated| &generated.machine_config);
        let files = configs.flat_map(|config| decoded_files(config).unwrap());
        files.map(|file| (file.path, String::from_utf8(file.contents).unwrap())).collect()
    }

    #[track_caller]
    fn error(&self) -> String {
        let errors = self.generate().errors;
        assert!(!errors.is_empty());
        errors[0].to_string()
    }
}

/// A source and its mirrors.
type SourceMirrors<'a> = (&'a str, &'a [&'a str]);

fn digest(mirrors: &[SourceMirrors<'_>]) -> Value {
    let sets: Vec<Value> = mirrors
        .iter()
        .map(|(source, mirrors)| json!({"source": source, "mirrors": mirrors}))
        .collect();
    json!({"imageDigestMirrors": sets})
}

fn key_policy(scopes: &[&str]) -> Value {
    json!({"scopes": scopes, "policy": {"rootOfTrust": {
        "policyType": "PublicKey", "publicKey": {"keyData": "dGVzdC1rZXktZGF0YQ=="},
    }}})
}

#[test]
fn a_digest_mirror_is_written_exactly_as_in_mco() {
    let objects = RuntimeObjects {
        icsp: vec![json!({"repositoryDigestMirrors": [
            {"source": "quay.io/xiaoyun/test", "mirrors": ["hub.iefcu.cn/xiaoyun/test"]},
        ]})],
        ..RuntimeObjects::default()
    };
    let files = objects.files();
    assert_eq!(files.len(), 1, "{files:?}");
    assert_eq!(
        files["/etc/containers/registries.conf"],
        "unqualified-search-registries = [\"registry.access.redhat.com\", \"docker.io\"]\n\
         short-name-mode = \"\"\n\
         additional-layer-store-auth-helper = \"\"\n\
         \n\
         [[registry]]\n  prefix = \"\"\n  location = \"quay.io/xiaoyun/test\"\n\
         \n  [[registry.mirror]]\n    location = \"hub.iefcu.cn/xiaoyun/test\"\n    pull-from-mirror = \"digest-only\"\n"
    );
    let from = &objects.generate().generated[0].from;
    assert_eq!(from, &["ImageContentSourcePolicy o0"]);
}

#[test]
fn the_release_images_stay_reachable() {
    let lists = |blocked: &[&str], release: &str, mirrors: &[SourceMirrors<'_>]| {
        let objects = RuntimeObjects {
            image: json!({"blockedRegistries": blocked}),
            idms: vec![digest(mirrors)],
            release: Some(format!("{release}{DIGEST}")),
            ..RuntimeObjects::default()
        };
        let made = objects.generate();
        let files: Vec<_> = decoded_files(&made.generated[0].machine_config).unwrap();
        let text = |path: &str| {
            let file = files.iter().find(|file| file.path == path).unwrap();
            String::from_utf8(file.contents.clone()).unwrap()
        };
        let conf = text("/etc/containers/registries.conf");
        let blocked: BTreeSet<String> = blocked
            .iter()
            .filter(|scope| {
                let entry = format!("location = \"{scope}\"\n  blocked = true");
                conf.contains(&entry)
            })
            .map(|scope| (*scope).to_owned())
            .collect();
        let policy: Value = serde_json::from_str(&text("/etc/containers/policy.json")).unwrap();
        assert_eq!(made.errors, []);
        (blocked, policy["transports"]["docker"].clone(), made.generated[0].warnings.len())
    };
    let set =
        |scopes: &[&str]| scopes.iter().map(|scope| (*scope).to_owned()).collect::<BTreeSet<_>>();
    let (reject, accept) =
        (json!([{"type": "reject"}]), json!([{"type": "insecureAcceptAnything"}]));
    // No mirror has the release: its registry is not blocked, and that is reported.
    let blocked = ["block.io", "payload-reg.io", "block-2.io"];
    let found = lists(&blocked, "payload-reg.io/release-image", &[("src.io/x", &["m.io/x"])]);
    let policy = json!({"block.io": reject, "block-2.io": reject});
    assert_eq!(found, (set(&["block.io", "block-2.io"]), policy, 1));
    // A mirror has it: the registry is blocked, and the release allowed by its name.
    let mirrors: SourceMirrors<'_> = ("payload-reg.io/release-image", &["m1.io/p", "m2.io/p"]);
    let found = lists(&blocked, "payload-reg.io/release-image", &[mirrors]);
    let policy = json!({"block.io": reject, "block-2.io": reject, "payload-reg.io": reject,
        "payload-reg.io/release-image": accept});
    assert_eq!(found, (set(&blocked), policy, 0));
    // The mirror itself is blocked, in part or as a whole.
    let blocked = ["quay.io", "block.io/release"];
    let found = lists(&blocked, "quay.io/release", &[("quay.io", &["block.io"])]);
    assert_eq!(found, (set(&["block.io/release"]), json!({"block.io/release": reject}), 1));
    let blocked = ["quay.io", "block.io"];
    let found = lists(&blocked, "quay.io/release", &[("quay.io/release", &["block.io/release"])]);
    assert_eq!(found, (set(&["block.io"]), json!({"block.io": reject}), 1));
}

#[test]
fn signatures_are_looked_up_on_all_mirrors() {
    let pinned = format!("a.com/a1/a2@sha256:{}", "0".repeat(64));
    let scopes =
        ["a.com/a1/a2", &pinned, "*.example.com", "foo.example.com/ns/repo", "policy.scope"];
    let cases: [(&[SourceMirrors<'_>], &[&str]); 6] = [
        (&[], &[]),
        (&[("x.com/x1/x2", &["x.mirror/x1/x2"])], &[]),
        (
            &[
                ("a.com/a1/a2", &["a-a1-a2.mirror/a1/a2"]),
                ("a.com/a1/a2/a3", &["a3.mirror/m1/m2/m3"]),
                ("a.com/a1/a2/a3-1", &["a3-1.mirror/m1/m2/m3"]),
                ("x.com/x1/x2", &["x.mirror/m1/m2"]),
            ],
            &[
                "a3-1.mirror/m1/m2/m3",
                "a3.mirror/m1/m2/m3",
                "a-a1-a2.mirror/a1/a2",
                "a.com/a1/a2/a3",
                "a.com/a1/a2/a3-1",
            ],
        ),
        (&[("a.com", &["a.mirror"]), ("a.com/a1", &["a-a1.mirror/a1"])], &["a-a1.mirror/a1/a2"]),
        (
            &[("*.example.com", &["our.mirror/example"])],
            &["our.mirror/example/ns/repo", "our.mirror/example"],
        ),
        (
            &[
                ("a.example.com", &["a-example.mirror"]),
                ("*.x.example.com", &["matched.example.mirror", "star-x.example.mirror"]),
                ("*.scope", &["start-scope.mirror"]),
                ("x/x1/x2", &["x.mirror/x1/x2"]),
            ],
            &[
                "a-example.mirror",
                "a.example.com",
                "star-x.example.mirror",
                "matched.example.mirror",
                "start-scope.mirror",
            ],
        ),
    ];
    for (mirrors, expected) in cases {
        let objects = RuntimeObjects {
            idms: if mirrors.is_empty() { Vec::new() } else { vec![digest(mirrors)] },
            cluster_policies: vec![key_policy(&scopes)],
            ..RuntimeObjects::default()
        };
        let text = &objects.files()["/etc/containers/registries.d/sigstore-registries.yaml"];
        let found: BTreeSet<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("  ")?.strip_suffix(':'))
            .map(|scope| scope.trim_matches('\''))
            .collect();
        let expected: BTreeSet<&str> = scopes.iter().chain(expected).copied().collect();
        assert_eq!(found, expected, "{mirrors:?}");
    }
}

#[test]
fn every_root_of_trust_and_identity_is_written_in_the_format_of_the_tools() {
    let certificate = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t";
    let policies = [
        json!({"scopes": ["test0.com"], "policy": {
            "rootOfTrust": {"policyType": "FulcioCAWithRekor", "fulcioCAWithRekor": {
                "fulcioCAData": "Y2E=", "rekorKeyData": "cmVrb3I=",
                "fulcioSubject": {"oidcIssuer": "https://OIDC.example.com", "signedEmail": "a@example.com"},
            }},
            "signedIdentity": {"matchPolicy": "RemapIdentity",
                "remapIdentity": {"prefix": "test-prefix", "signedPrefix": "signed-prefix"}},
        }}),
        json!({"scopes": ["test0.com", "a/b/c/d"], "policy": {
            "rootOfTrust": {"policyType": "PublicKey",
                "publicKey": {"keyData": "a2V5", "rekorKeyData": "cmVrb3I="}},
            "signedIdentity": {"matchPolicy": "ExactRepository",
                "exactRepository": {"repository": "r.io/x"}},
        }}),
        json!({"scopes": ["test3.com/ns/repo"], "policy": {
            "rootOfTrust": {"policyType": "PKI", "pki": {
                "caRootsData": certificate, "caIntermediatesData": certificate,
                "pkiCertificateSubject": {"email": "a@example.com", "hostname": "h.example.com"},
            }},
            "signedIdentity": {"matchPolicy": "MatchRepository"},
        }}),
    ];
    let fulcio = json!({"type": "sigstoreSigned",
        "fulcio": {"caData": "Y2E=", "oidcIssuer": "https://OIDC.example.com", "subjectEmail": "a@example.com"},
        "rekorPublicKeyData": "cmVrb3I=",
        "signedIdentity": {"type": "remapIdentity", "prefix": "test-prefix", "signedPrefix": "signed-prefix"}});
    let key = json!({"type": "sigstoreSigned", "keyData": "a2V5", "rekorPublicKeyData": "cmVrb3I=",
        "signedIdentity": {"type": "exactRepository", "dockerRepository": "r.io/x"}});
    let pki = json!({"type": "sigstoreSigned",
        "pki": {"caRootsData": certificate, "caIntermediatesData": certificate,
            "subjectEmail": "a@example.com", "subjectHostname": "h.example.com"},
        "signedIdentity": {"type": "matchRepository"}});
    let objects = RuntimeObjects {
        cluster_policies: policies.to_vec(),
        policies: vec![json!({"namespace": "ns", "scopes": ["mine.io", "test0.com/inside"],
                "policy": key_policy(&[])["policy"]})],
        ..RuntimeObjects::default()
    };
    let files = objects.files();
    let policy: Value = serde_json::from_str(&files["/etc/containers/policy.json"]).unwrap();
    let docker = json!({"test0.com": [fulcio, key], "a/b/c/d": [key], "test3.com/ns/repo": [pki]});
    assert_eq!(policy["transports"]["docker"], docker);
    // The transport `atomic` supports no scopes of more than three parts.
    let mut atomic = docker.clone();
    atomic.as_object_mut().unwrap().remove("a/b/c/d");
    assert_eq!(policy["transports"]["atomic"], atomic);
    assert_eq!(policy["default"], json!([{"type": "insecureAcceptAnything"}]));
    // A namespace has the policies of the cluster, and its own for scopes that the cluster does not
    // cover.
    let namespace: Value = serde_json::from_str(&files["/etc/crio/policies/ns.json"]).unwrap();
    let mut expected = docker;
    expected["mine.io"] = json!([{"type": "sigstoreSigned", "keyData": "dGVzdC1rZXktZGF0YQ==",
        "signedIdentity": {"type": "matchRepoDigestOrExact"}}]);
    assert_eq!(namespace["transports"]["docker"], expected);
    let warnings = &objects.generate().generated[0].warnings;
    assert!(
        warnings[0].contains("has conflicting scope(s) [\"test0.com/inside\"]"),
        "{warnings:?}"
    );
}

#[test]
fn an_allowed_registry_with_a_policy_still_needs_the_signature() {
    let objects = RuntimeObjects {
        image: json!({"allowedRegistries": ["a.io", "b.io"]}),
        cluster_policies: vec![key_policy(&["a.io"])],
        ..RuntimeObjects::default()
    };
    let policy: Value =
        serde_json::from_str(&objects.files()["/etc/containers/policy.json"]).unwrap();
    assert_eq!(policy["default"], json!([{"type": "reject"}]));
    let docker = &policy["transports"]["docker"];
    assert_eq!(docker["b.io"], json!([{"type": "insecureAcceptAnything"}]));
    assert_eq!(docker["a.io"].as_array().map(Vec::len), Some(1));
    assert_eq!(docker["a.io"][0]["type"], "sigstoreSigned");
}

#[test]
fn custom_pools_inherit_the_registries_of_their_base_pool() {
    let pools = [
        pool("master", &["master"], true),
        pool("worker", &["worker"], false),
        pool("infra", &["worker", "infra"], false),
        pool("edge", &["edge"], false),
        pool("odd", &["somebody"], false),
    ];
    let all: Vec<&MachineConfigPool> = pools.iter().collect();
    let own: Vec<&str> = registries::target_pools(&all)
        .iter()
        .map(|pool| pool.metadata.name.as_deref().unwrap())
        .collect();
    assert_eq!(own, ["master", "worker", "edge"]);
}
