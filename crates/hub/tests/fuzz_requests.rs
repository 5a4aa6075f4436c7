//! Every request gets a valid response: those of the regression corpus and random ones.
use std::sync::LazyLock;

use axum::body::Body;
use http::Request;
use machinist_hub::robustness;
use proptest::prelude::*;

/// The regression corpus of the fuzz target `http`.
static CORPUS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let dir = format!("{}/../../tests/cases/fuzz/http", env!("CARGO_MANIFEST_DIR"));
    let mut paths: Vec<_> =
        std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() > 20, "{dir} is empty");
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
});

#[test]
fn the_corpus_gets_valid_responses() {
    // The second pass runs against the objects that the first one created.
    for request in CORPUS.iter().chain(CORPUS.iter()) {
        robustness::request_any(request);
    }
}

/// A mutation: where (as a fraction of the length), how many bytes, and their replacement.
fn byte_change() -> impl Strategy<Value = (f64, usize, Vec<u8>)> {
    let other =
        (any::<prop::sample::Index>(), 0.0..1.0, 1..40usize).prop_map(|(index, at, length)| {
            let request = &CORPUS[index.index(CORPUS.len())];
            let start = offset_of(at, request.len());
            request[start..(start + length).min(request.len())].to_vec()
        });
    let new = prop_oneof![
        Just(Vec::new()),
        prop::collection::vec(any::<u8>(), 1..3),
        one_of(&[
            "{", "}", "[", "]", ",", ":", "null", "\"", "0", "-1", "1e9", "/", "%", "&", "=", "\n"
        ])
        .prop_map(String::into_bytes),
        other,
    ];
    (0.0..1.0, 0..12usize, new)
}

fn offset_of(share: f64, length: usize) -> usize {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below the length")]
    let place = (share * length as f64) as usize;
    place.min(length)
}

fn one_of(words: &'static [&'static str]) -> impl Strategy<Value = String> + Clone {
    prop::sample::select(words).prop_map(ToOwned::to_owned)
}

fn path() -> impl Strategy<Value = String> {
    let whole = one_of(&[
        "/apis/g.io/v1/things",
        "/apis/g.io/v1/things/a",
        "/apis/g.io/v1/things/a/status",
        "/api/v1/nodes",
        "/api/v1/nodes/a",
        "/api/v1/nodes/a/status",
        "/api/v1/namespaces/default/configmaps",
        "/api/v1/namespaces/default/configmaps/a",
        "/api/v1/namespaces/default/secrets/a",
        "/api/v1/namespaces/x",
        "/api/v1/namespaces/x/finalize",
        "/apis/coordination.k8s.io/v1/namespaces/default/leases/a",
        "/apis/certificates.k8s.io/v1/certificatesigningrequests/a/approval",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.g.io",
        "/machinist/v1/tokens",
    ]);
    let words = one_of(&[
        "api",
        "apis",
        "v1",
        "g.io",
        "things",
        "nodes",
        "namespaces",
        "default",
        "a",
        "status",
        "openapi",
        "v3",
        "%2e%2e",
        "",
        "..",
        "%00",
        "a%2fb",
        "%F0%9F%98%80",
        "machinist",
    ]);
    let made = prop::collection::vec(words, 0..7).prop_map(|words| format!("/{}", words.join("/")));
    prop_oneof![4 => whole, 1 => made]
}

fn query() -> impl Strategy<Value = String> {
    let name = one_of(&[
        "watch",
        "limit",
        "continue",
        "resourceVersion",
        "resourceVersionMatch",
        "labelSelector",
        "fieldSelector",
        "dryRun",
        "fieldValidation",
        "propagationPolicy",
        "timeoutSeconds",
        "sendInitialEvents",
        "allowWatchBookmarks",
        "includeObject",
        "pretty",
        "orphanDependents",
    ]);
    let value = prop_oneof![
        one_of(&[
            "true",
            "0",
            "1",
            "5",
            "99999999999999999999",
            "-1",
            "All",
            "Strict",
            "Exact",
            "NotOlderThan",
            "Foreground",
            "Orphan",
            "metadata.name%3Da",
            "a%3Db",
            "a,!b",
            "None",
        ]),
        "[ -~]{0,12}".prop_map(
            |text| text.replace([' ', '#', '"', '<', '>', '\\', '^', '`', '{', '|', '}'], "+")
        ),
    ];
    prop::collection::vec((name, value), 0..4).prop_map(|pairs| {
        pairs.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
    })
}

fn body() -> impl Strategy<Value = Vec<u8>> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        one_of(&["true", "1", "-1", "1.0", "1e400", "\"a\"", "\"v1\"", "{}", "[]", "\"\\u0000\""]),
        "\"[a-z./:-]{0,10}\"",
    ];
    let key = one_of(&[
        "apiVersion",
        "kind",
        "metadata",
        "spec",
        "status",
        "name",
        "labels",
        "finalizers",
        "ownerReferences",
        "resourceVersion",
        "uid",
        "size",
        "items",
        "key",
        "data",
        "op",
        "path",
        "value",
        "$patch",
        "taints",
        "conditions",
        "type",
        "deletionTimestamp",
        "generateName",
    ]);
    let tree = leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec((key.clone(), inner.clone()), 0..5).prop_map(|fields| {
                let fields: Vec<_> =
                    fields.iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
                format!("{{{}}}", fields.join(","))
            }),
            prop::collection::vec(inner, 0..4).prop_map(|items| format!("[{}]", items.join(","))),
        ]
    });
    let framed = (tree.clone(), tree.clone(), one_of(&["Thing", "Node", "ConfigMap", "Lease"]))
        .prop_map(|(metadata, spec, kind)| {
            let version = if kind == "Thing" { "g.io/v1" } else { "v1" };
            format!("{{\"apiVersion\":\"{version}\",\"kind\":\"{kind}\",\"metadata\":{{\"name\":\"a\",\"labels\":{metadata}}},\"spec\":{spec},\"data\":{spec}}}")
        });
    prop_oneof![
        4 => framed.prop_map(String::into_bytes),
        3 => tree.prop_map(String::into_bytes),
        1 => prop::collection::vec(any::<u8>(), 0..64),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Mutated requests of the corpus. `PROPTEST_CASES` sets their number.
    #[test]
    fn mutated_requests_get_valid_responses(
        index in any::<prop::sample::Index>(),
        changes in prop::collection::vec(byte_change(), 1..5),
    ) {
        let mut request = CORPUS[index.index(CORPUS.len())].clone();
        for (at, removed, new) in changes {
            let start = offset_of(at, request.len());
            let end = (start + removed).min(request.len());
            request.splice(start..end, new);
        }
        robustness::request_any(&request);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Sequences of requests, each against what the earlier ones created.
    #[test]
    fn random_sequences_get_valid_responses(
        requests in prop::collection::vec(
            (
                one_of(&["admin", "admin", "viewer", "machine", "nobody"]),
                one_of(&["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]),
                path(),
                query(),
                one_of(&[
                    "application/json", "application/yaml", "application/json-patch+json",
                    "application/merge-patch+json", "application/strategic-merge-patch+json",
                    "application/vnd.kubernetes.protobuf", "text/plain", "",
                ]),
                one_of(&[
                    "application/json", "application/yaml", "*/*", "text/html",
                    "application/json;as=Table;v=v1;g=meta.k8s.io",
                    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
                ]),
                body(),
            ),
            1..120,
        )
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let hub = robustness::fuzz_hub().await.unwrap();
            for (user, method, path, query, content_type, accept, body) in requests {
                let request = Request::builder()
                    .method(method.as_str())
                    .uri(format!("{path}?{query}"))
                    .header("content-type", content_type)
                    .header("accept", accept)
                    .body(Body::from(body));
                // Invalid HTTP cannot be sent.
                if let Ok(request) = request {
                    robustness::check_response(robustness::router_for(&hub, &user), request).await;
                }
            }
        });
    }
}
