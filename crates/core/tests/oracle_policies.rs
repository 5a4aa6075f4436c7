//! Random image policies of all kinds give the bytes that Go's libraries give: `policy.json` of the
//! cluster and of namespaces, and `sigstore-registries.yaml`.
use crate::support;

use std::collections::{BTreeMap, BTreeSet};

use machinist_core::api::MachineConfigPool;
use machinist_core::container_runtime::BaseFiles;
use machinist_core::container_runtime::registries::{RegistryInputs, generate};
use machinist_core::container_runtime::scope::is_inside;
use machinist_core::generated_config::decoded_files;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use support::{Oracle, Rng};

const SETS: usize = 4000;
const SCOPES: [&str; 16] = [
    "quay.io",
    "quay.io/x",
    "quay.io/x/y",
    "quay.io/x/y:tag",
    "quay.io/a/b/c/d",
    "localhost:5000/x",
    "registry.example.com:5000",
    "registry.example.com/app/one",
    "*.example.com",
    "*.b.example.com",
    "a.b.example.com/x",
    "mirror.example.com/m",
    "docker.io/library/nginx",
    "test0.com",
    "12.34.56.78/9",
    "a.b.c/d@sha256:1111111111111111111111111111111111111111111111111111111111111111",
];
/// Strings that Go's JSON and YAML escape or quote.
const ISSUERS: [&str; 5] = [
    "https://accounts.google.com",
    "https://oidc.example.com/a?b=<c>&d=e",
    "https://é.example.com/\u{2028}\"",
    "x\\y\tz\u{7f}",
    "https://OIDC.example.com",
];
const NAMESPACES: [&str; 3] = ["ns1", "ns2", "openshift-a"];

fn pick<'a>(rng: &mut Rng, from: &[&'a str]) -> &'a str {
    from[rng.below(from.len())]
}

/// Random bytes in base64.
fn blob(rng: &mut Rng) -> Value {
    let length = 1 + rng.below(40);
    let bytes: Vec<u8> = (0..length).map(|_| rng.next_u64().to_le_bytes()[0]).collect();
    serde_json::to_value(k8s_openapi::ByteString(bytes)).unwrap()
}

fn root_of_trust(rng: &mut Rng) -> Value {
    match rng.below(3) {
        0 => {
            let mut key = json!({"keyData": blob(rng)});
            if rng.below(2) == 0 {
                key["rekorKeyData"] = blob(rng);
            }
            json!({"policyType": "PublicKey", "publicKey": key})
        }
        1 => json!({"policyType": "FulcioCAWithRekor", "fulcioCAWithRekor": {
            "fulcioCAData": blob(rng), "rekorKeyData": blob(rng),
            "fulcioSubject": {"oidcIssuer": pick(rng, &ISSUERS), "signedEmail": "team+<x>&@example.com"}}}),
        _ => {
            let subject = [
                json!({"email": "a'b\"@example.com"}),
                json!({"hostname": "h.example.com"}),
                json!({"email": "a@example.com", "hostname": "h.example.com"}),
            ];
            let subject = subject[rng.below(3)].clone();
            let mut pki = json!({"caRootsData": blob(rng), "pkiCertificateSubject": subject});
            if rng.below(2) == 0 {
                pki["caIntermediatesData"] = blob(rng);
            }
            json!({"policyType": "PKI", "pki": pki})
        }
    }
}

fn policy_object(rng: &mut Rng, kind: &str, at: usize) -> Value {
    let mut policy = json!({"rootOfTrust": root_of_trust(rng)});
    let identities = [
        Value::Null,
        json!({"matchPolicy": "MatchRepoDigestOrExact"}),
        json!({"matchPolicy": "MatchRepository"}),
        json!({"matchPolicy": "ExactRepository", "exactRepository": {"repository": "vendor.example.com/app"}}),
        json!({"matchPolicy": "RemapIdentity", "remapIdentity": {
            "prefix": "mirror.example.com/a", "signedPrefix": "vendor.example.com:5000"}}),
    ];
    let identity = identities[rng.below(identities.len())].clone();
    if !identity.is_null() {
        policy["signedIdentity"] = identity;
    }
    let scopes: BTreeSet<&str> = (0..=rng.below(4)).map(|_| pick(rng, &SCOPES)).collect();
    let namespace = (kind == "ImagePolicy").then(|| pick(rng, &NAMESPACES));
    json!({"apiVersion": "config.openshift.io/v1", "kind": kind,
        "metadata": {"name": format!("p{at}"), "namespace": namespace},
        "spec": {"scopes": scopes, "policy": policy}})
}

/// A set of objects that MCO accepts.
struct PolicySet {
    cluster: Vec<Value>,
    namespaced: Vec<Value>,
    /// `registrySources` of the Image config.
    sources: Option<Value>,
    mirrors: Option<Value>,
}

fn policy_set(rng: &mut Rng) -> PolicySet {
    let cluster: Vec<Value> =
        (0..rng.below(4)).map(|at| policy_object(rng, "ClusterImagePolicy", at)).collect();
    let namespaced: Vec<Value> =
        (0..rng.below(4)).map(|at| policy_object(rng, "ImagePolicy", at)).collect();
    let sources = match rng.below(3) {
        0 => None,
        1 => {
            let mut allowed =
                vec!["other.example.org".to_owned(), "other.example.org/a/b/c/d".to_owned()];
            for object in cluster.iter().chain(&namespaced) {
                // The scope itself, or the host that it is in.
                let host_only = rng.below(2) == 0;
                allowed.extend(scopes(object).map(|scope| {
                    let host = scope.split('/').next().unwrap_or_default();
                    if host_only { host.to_owned() } else { scope.to_owned() }
                }));
            }
            Some(json!({"allowedRegistries": allowed}))
        }
        _ => Some(json!({"blockedRegistries": ["bad.example.org", "*.evil.org", "x.org/a/b/c/d"]})),
    };
    let mirrors = (rng.below(2) == 0).then(|| {
        let entries: Vec<Value> = (0..=rng.below(3))
            .map(|at| {
                // A scope with a tag or digest cannot be a source; each source has its own mirror.
                let source = loop {
                    let scope = pick(rng, &SCOPES);
                    if !scope.contains('@') && !scope.ends_with(":tag") {
                        break scope;
                    }
                };
                let blocked = ["NeverContactSource", "AllowContactingSource"][rng.below(2)];
                json!({"source": source, "mirrors": [format!("m{at}.example.net/a")],
                    "mirrorSourcePolicy": blocked})
            })
            .collect();
        let mut seen = BTreeSet::new();
        let entries: Vec<Value> =
            entries.into_iter().filter(|entry| seen.insert(entry["source"].to_string())).collect();
        json!({"imageDigestMirrors": entries})
    });
    PolicySet { cluster, namespaced, sources, mirrors }
}

fn scopes(object: &Value) -> impl Iterator<Item = &str> {
    object["spec"]["scopes"].as_array().into_iter().flatten().filter_map(Value::as_str)
}

fn object<K: DeserializeOwned>(kind: &str, spec: &Value) -> K {
    let object = json!({"apiVersion": "config.openshift.io/v1", "kind": kind,
        "metadata": {"name": "cluster"}, "spec": spec});
    serde_json::from_value(object).unwrap()
}

/// What Machinist generates, by path; `None` if it is an error.
fn generated(set: &PolicySet) -> Option<BTreeMap<String, String>> {
    let typed = |objects: &[Value]| -> Vec<_> {
        objects.iter().map(|object| serde_json::from_value(object.clone()).unwrap()).collect()
    };
    let namespaced = |objects: &[Value]| -> Vec<_> {
        objects.iter().map(|object| serde_json::from_value(object.clone()).unwrap()).collect()
    };
    let (cluster, of_namespaces) = (typed(&set.cluster), namespaced(&set.namespaced));
    let image =
        set.sources.as_ref().map(|sources| object("Image", &json!({"registrySources": sources})));
    let mirrors = set.mirrors.as_ref().map(|spec| object("ImageDigestMirrorSet", spec));
    let inputs = RegistryInputs {
        image: image.as_ref(),
        digest_mirror_sets: mirrors.iter().collect(),
        cluster_image_policies: cluster.iter().collect(),
        image_policies: of_namespaces.iter().collect(),
        ..RegistryInputs::default()
    };
    let mut pool = MachineConfigPool::default();
    pool.metadata.name = Some("worker".to_owned());
    let made = generate(&inputs, &[(&pool, BaseFiles::default())]).ok()?;
    let Some(made) = made.generated.first() else { return Some(BTreeMap::new()) };
    let files = decoded_files(&made.machine_config).unwrap().into_iter();
    Some(files.map(|file| (file.path, String::from_utf8(file.contents).unwrap())).collect())
}

/// The question for the oracle: conflicting scopes of namespaces are dropped, as both do.
fn question(set: &PolicySet, files: &BTreeMap<String, String>) -> Value {
    let of_cluster: Vec<&str> = set.cluster.iter().flat_map(scopes).collect();
    let free = |scope: &&str| !of_cluster.iter().any(|outer| is_inside(scope, outer));
    let part = |object: &Value, scopes: Vec<&str>| {
        json!({"namespace": object["metadata"]["namespace"], "scopes": scopes,
            "policy": object["spec"]["policy"]})
    };
    let cluster: Vec<Value> =
        set.cluster.iter().map(|object| part(object, scopes(object).collect())).collect();
    let namespaced: Vec<Value> = set
        .namespaced
        .iter()
        .map(|object| part(object, scopes(object).filter(free).collect()))
        .filter(|part| part["scopes"] != json!([]))
        .collect();
    let list = |name: &str| set.sources.as_ref().map_or(Value::Null, |it| it[name].clone());
    json!({"op": "policies", "value": {
        "base": BaseFiles::default().policy_json,
        "allowed": list("allowedRegistries"), "blocked": list("blockedRegistries"),
        "cluster": cluster, "namespaced": namespaced,
        "registries": files.get("/etc/containers/registries.conf"),
    }})
}

#[test]
fn random_policies_give_the_same_bytes() {
    let mut rng = Rng::new(support::seed());
    let sets: Vec<PolicySet> = (0..SETS).map(|_| policy_set(&mut rng)).collect();
    let (mut questions, mut ours) = (Vec::new(), Vec::new());
    for set in &sets {
        // A policy for an image that is not allowed is an error in MCO too: see the recorded cases.
        let Some(files) = generated(set) else { continue };
        questions.push(question(set, &files));
        ours.push(files);
    }
    assert!(ours.len() > SETS / 2, "only {} of {SETS} sets are valid", ours.len());
    let (mut compared, mut kept) = (0, 0);
    for ((files, answer), question) in
        ours.iter().zip(Oracle::start().request_all(&questions)).zip(&questions)
    {
        // MCO fails where a source of mirrors is a host and a policy is for another port of it.
        if answer["error"] == "rewriting reference: invalid reference format" {
            continue;
        }
        assert_eq!(answer["error"], Value::Null, "{answer}\n{question}");
        let mut theirs = BTreeMap::new();
        let value = &question["value"];
        let concerned = ["allowed", "blocked", "cluster", "namespaced"];
        if concerned.iter().any(|name| value[name].as_array().is_some_and(|list| !list.is_empty()))
        {
            theirs.insert("/etc/containers/policy.json".to_owned(), &answer["policy"]);
            kept += usize::from(answer["policy"] == value["base"]);
        }
        for (namespace, text) in answer["namespaces"].as_object().unwrap() {
            theirs.insert(format!("/etc/crio/policies/{namespace}.json"), text);
        }
        if answer["sigstore"] != "" {
            let path = "/etc/containers/registries.d/sigstore-registries.yaml";
            theirs.insert(path.to_owned(), &answer["sigstore"]);
        }
        let policies = files.iter().filter(|(path, _)| !path.ends_with("/registries.conf"));
        for (path, text) in policies {
            let theirs = theirs.remove(path).and_then(Value::as_str);
            assert_eq!(theirs, Some(text.as_str()), "{path}\n{question}");
            compared += 1;
        }
        assert!(theirs.is_empty(), "missing: {theirs:?}\n{question}");
    }
    assert!(compared > SETS && kept > SETS / 50, "{compared} compared, {kept} kept");
}
