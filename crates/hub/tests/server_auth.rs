//! Authentication and authorization, through the API and over TLS.
use crate::support;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::api::{Api, Patch, PatchParams, PostParams};
use machinist_hub::auth::UserInfo;
use machinist_hub::auth::certificates::{CertificateAuthority, PemKeyPair, SigningRequest};
use machinist_hub::built_in;
use machinist_hub::server::{HubServer as TlsServer, HubServingCertificate};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::{Value, json};
use support::{TestHub, send, status};

async fn token(server: &TestHub, role: &str) -> String {
    let body = json!({"role": role}).to_string();
    let (code, made) = server.send("POST", "/machinist/v1/tokens", &[], body).await;
    assert_eq!(code.as_u16(), 201, "{made}");
    made["token"].as_str().unwrap().to_owned()
}

async fn get(server: &TestHub, path: &str, token: Option<&str>) -> (u16, Value) {
    let bearer = token.map(|token| format!("Bearer {token}"));
    let headers: Vec<(&str, &str)> =
        bearer.iter().map(|text| ("authorization", text.as_str())).collect();
    let (code, response) = send(server.hub.router(), "GET", path, &headers, String::new()).await;
    (code.as_u16(), response)
}

#[tokio::test]
async fn anonymous_users_see_only_health_and_version() {
    let server = TestHub::start().await;
    for path in ["/healthz", "/readyz?verbose", "/livez", "/version"] {
        assert_eq!(get(&server, path, None).await.0, 200, "{path}");
    }
    for path in ["/", "/api", "/apis", "/openapi/v2", "/api/v1/nodes", "/machinist/v1/backup", "/x"]
    {
        let (code, response) = get(&server, path, None).await;
        assert_eq!((code, &response["reason"]), (401, &json!("Unauthorized")), "{path}");
    }
    assert_eq!(get(&server, "/healthz", Some("a.b")).await.0, 401, "a wrong token is an error");
}

#[tokio::test]
async fn tokens_have_roles() {
    let server = TestHub::start().await;
    let viewer = token(&server, "viewer").await;
    let controller = token(&server, "controller").await;
    let bootstrap = token(&server, "bootstrap").await;
    let table = [
        (&viewer, "/apis/g.io/v1/things", 200),
        (&viewer, "/api/v1/secrets", 403),
        (&viewer, "/machinist/v1/backup", 403),
        (&controller, "/api/v1/secrets", 200),
        (&controller, "/machinist/v1/backup", 403),
        (&bootstrap, "/api", 200),
        (&bootstrap, "/api/v1/nodes", 403),
        (&bootstrap, "/apis/certificates.k8s.io/v1/certificatesigningrequests", 403),
    ];
    for (token, path, expected) in table {
        assert_eq!(get(&server, path, Some(token)).await.0, expected, "{path}");
    }
    let (_, response) = get(&server, "/api/v1/nodes", Some(&bootstrap)).await;
    let user = format!("system:bootstrap:{}", bootstrap.split('.').next().unwrap());
    assert_eq!(
        response["message"],
        format!(
            "nodes is forbidden: User \"{user}\" cannot list resource \"nodes\" in API group \"\" at the cluster scope"
        )
    );
    let stored = server.hub.store().list("/machinist/", None, None);
    for entry in stored.entries {
        let text = String::from_utf8(entry.value.to_vec()).unwrap();
        assert!(!text.contains(viewer.split('.').nth(1).unwrap()), "the secret is not stored");
    }
}

#[tokio::test]
async fn a_machine_writes_only_its_own_objects() {
    let server = TestHub::start().await;
    let client = server.client_as(UserInfo::node("a"));
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(client.clone());
    let node = |name: &str| serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    nodes.create(&PostParams::default(), &node("a")).await.unwrap();
    let error = nodes.create(&PostParams::default(), &node("b")).await.unwrap_err();
    assert_eq!(status(error), (403, "Forbidden".into()));
    let note = Patch::Merge(json!({"metadata": {"annotations": {"x": "y"}}}));
    nodes.patch("a", &PatchParams::default(), &note).await.unwrap();
    let role =
        Patch::Merge(json!({"metadata": {"labels": {"node-role.kubernetes.io/master": ""}}}));
    let error = nodes.patch("a", &PatchParams::default(), &role).await.unwrap_err();
    assert_eq!(status(error).0, 403);
    assert_eq!(status(nodes.get("b").await.unwrap_err()).0, 403);
    assert_eq!(status(nodes.list(&Default::default()).await.unwrap_err()).0, 403);
    let own = kube::api::ListParams::default().fields("metadata.name=a");
    assert_eq!(nodes.list(&own).await.unwrap().items.len(), 1);
}

/// A machine named like the controller must not be able to hold, renew or remove the controller's lease.
#[tokio::test]
async fn a_machine_named_like_the_controller_does_not_get_its_lease() {
    let name = "machine-config-controller";
    let server = TestHub::start().await;
    let machine = server.hub.router_as(UserInfo::node(name));
    let leases =
        |namespace: &str| format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
    let lease = |name: &str| {
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
            "spec": {"holderIdentity": "intruder", "leaseDurationSeconds": 3600},
        })
        .to_string()
    };
    let json = [("content-type", "application/json")];
    let merge = [("content-type", "application/merge-patch+json")];
    let held = lease(name).replace("intruder", "controller");
    let (code, _) = server.send("POST", &leases("kube-system"), &json, held).await;
    assert_eq!(code.as_u16(), 201, "the controller's own lease");
    let (taken, free) = (format!("{}/{name}", leases("kube-system")), leases("default"));
    let table = [
        ("GET", taken.clone(), &json, String::new(), 403),
        ("PUT", taken.clone(), &json, lease(name), 403),
        ("PATCH", taken.clone(), &merge, r#"{"spec":{"holderIdentity":"intruder"}}"#.into(), 403),
        ("DELETE", taken.clone(), &json, String::new(), 403),
        ("DELETE", leases("kube-system"), &json, String::new(), 403),
        ("POST", free.clone(), &json, lease(name), 403),
        ("PUT", format!("{free}/{name}"), &json, lease(name), 403),
        ("POST", leases("kube-node-lease"), &json, lease("other"), 403),
        ("POST", leases("kube-node-lease"), &json, lease(name), 201),
        ("PATCH", format!("{}/{name}", leases("kube-node-lease")), &merge, "{}".into(), 200),
    ];
    for (method, path, headers, body, expected) in table {
        let (code, response) = send(machine.clone(), method, &path, headers, body).await;
        assert_eq!(code.as_u16(), expected, "{method} {path}: {response}");
    }
    let (_, held) = server.send("GET", &taken, &[], String::new()).await;
    assert_eq!(held["spec"]["holderIdentity"], "controller");
}

fn signing_request(user: &str) -> (KeyPair, CertificateSigningRequest) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, user);
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    let key = KeyPair::generate().unwrap();
    let pem = params.serialize_request(&key).unwrap().pem().unwrap();
    assert!(SigningRequest::parse(&pem).is_ok());
    let csr = json!({
        "metadata": {"generateName": "csr-"},
        "spec": {
            "request": STANDARD.encode(pem),
            "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
            "usages": ["digital signature", "client auth"],
            "username": "root", "groups": ["system:masters"],
        }
    });
    (key, serde_json::from_value(csr).unwrap())
}

/// Creates a token and returns the whole response.
async fn create_token(server: &TestHub, options: Value) -> Value {
    let (code, made) = server.send("POST", "/machinist/v1/tokens", &[], options.to_string()).await;
    assert_eq!(code.as_u16(), 201, "{made}");
    made
}

/// The user of a bootstrap token with these options.
async fn bootstrap_user(server: &TestHub, mut options: Value) -> UserInfo {
    options["role"] = "bootstrap".into();
    let made = create_token(server, options).await;
    let user = format!("system:bootstrap:{}", made["id"].as_str().unwrap());
    UserInfo::new(user, ["system:bootstrappers".to_owned()])
}

/// Requests a certificate and waits until the hub has decided: `signed`, or why not.
async fn request_certificate(server: &TestHub, user: UserInfo, name: &str, pool: &str) -> String {
    let requests: Api<CertificateSigningRequest> = Api::all(server.client_as(user));
    let (_, mut csr) = signing_request(&format!("system:node:{name}"));
    let roles = ("machinist.dev/node-roles".to_owned(), pool.to_owned());
    csr.metadata.annotations = Some([roles].into());
    let made = requests.create(&PostParams::default(), &csr).await.unwrap();
    let name = made.metadata.name.unwrap();
    let mut result = String::new();
    support::wait_until("the hub has decided", async || {
        let found = requests.get(&name).await.unwrap();
        let pending = found.metadata.annotations.unwrap_or_default();
        let status = found.status.unwrap_or_default();
        if let Some(reason) = pending.get("machinist.dev/approval-pending") {
            result = format!("pending: {reason}");
        } else if status.certificate.is_some() {
            result = "signed".into();
        } else if let Some(condition) = status.conditions.unwrap_or_default().first() {
            result = format!("{}: {}", condition.type_, condition.message.clone().unwrap());
        }
        !result.is_empty()
    })
    .await;
    result
}

#[tokio::test]
async fn a_new_machine_gets_its_certificate() {
    let server = TestHub::start().await;
    let bootstrap = bootstrap_user(&server, json!({})).await;
    let requests: Api<CertificateSigningRequest> = Api::all(server.client_as(bootstrap.clone()));
    let (_, csr) = signing_request("system:node:a");
    let made = requests.create(&PostParams::default(), &csr).await.unwrap();
    assert_eq!(made.spec.username, Some(bootstrap.user));
    let name = made.metadata.name.unwrap();
    support::wait_until("the CSR is signed", async || {
        let found = requests.get(&name).await.unwrap();
        found.status.and_then(|status| status.certificate).is_some()
    })
    .await;
    let other = bootstrap_user(&server, json!({})).await;
    let others: Api<CertificateSigningRequest> = Api::all(server.client_as(other));
    assert_eq!(status(others.get(&name).await.unwrap_err()).0, 403);
    let (_, csr) = signing_request("system:node:b");
    let machine: Api<CertificateSigningRequest> = Api::all(server.client_as(UserInfo::node("a")));
    let made = machine.create(&PostParams::default(), &csr).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    let found = machine.get(&made.metadata.name.unwrap()).await.unwrap();
    assert!(
        found.status.and_then(|status| status.certificate).is_none(),
        "not for another machine"
    );
}

/// A bootstrap token must not be enough to become a machine that exists.
#[tokio::test]
async fn a_bootstrap_token_does_not_take_over_a_machine() {
    let server = TestHub::start().await;
    let token = bootstrap_user(&server, json!({})).await;
    let request = async |user: &UserInfo, name: &str| {
        request_certificate(&server, user.clone(), name, "worker").await
    };
    assert_eq!(request(&token, "w1").await, "signed");
    // It has a certificate, but no Node yet.
    let found = request(&token, "w1").await;
    assert!(found.contains("certificate that is still valid"), "{found}");
    // A Node that an administrator created, without any certificate.
    let (code, _) =
        server.send("POST", "/api/v1/nodes", &[], node_json("w2", &["worker"]).to_string()).await;
    assert_eq!(code.as_u16(), 201);
    let found = request(&token, "w2").await;
    for part in [
        "pending: Node w2 exists already",
        "machinist hub token --role bootstrap --replace w2",
        "kubectl certificate approve",
    ] {
        assert!(found.contains(part), "{found}");
    }
    for name in ["machine-config-controller", "W3", "w3/x", "-w3"] {
        let found = request(&token, name).await;
        assert!(found.starts_with("Denied: the machine name"), "{name}: {found}");
    }
    let replacing = bootstrap_user(&server, json!({"replaces": "w2"})).await;
    let found = request(&replacing, "w4").await;
    assert!(found.starts_with("Denied: the token is for machines named w2"), "{found}");
    assert_eq!(request(&replacing, "w2").await, "signed");
    let found = request(&replacing, "w2").await;
    assert!(found.starts_with("Denied: the token was used 1 times"), "{found}");
}

#[tokio::test]
async fn a_bootstrap_token_is_good_for_what_it_was_made_for() {
    let server = TestHub::start().await;
    let bound = json!({"pools": ["infra"], "nodeName": "i*", "maxUses": 2});
    let token = bootstrap_user(&server, bound).await;
    let table = [
        ("i1", "worker", "Denied: the token is for pool infra, not for worker"),
        ("i1", "infra,master", "Denied: the token is for pool infra, not for master"),
        ("x1", "infra", "Denied: the token is for machines named i*"),
        ("i1", "infra", "signed"),
        ("i2", "", "signed"),
        ("i3", "infra", "Denied: the token was used 2 times"),
    ];
    for (name, pool, expected) in table {
        let found = request_certificate(&server, token.clone(), name, pool).await;
        assert!(found.starts_with(expected), "{name} {pool}: {found}");
    }
    // A token that was revoked after the request was made with it.
    let gone = UserInfo::new("system:bootstrap:gone", ["system:bootstrappers".to_owned()]);
    let found = request_certificate(&server, gone, "i4", "infra").await;
    assert!(found.starts_with("Denied: the token has expired or was revoked"), "{found}");
}

/// Many machines that join at once with one token do not use it more often than allowed.
#[tokio::test]
async fn a_token_is_not_used_too_often_by_requests_at_the_same_time() {
    let server = TestHub::start().await;
    let token = bootstrap_user(&server, json!({"maxUses": 5})).await;
    let requests = (0..20).map(|index| {
        let (server, user) = (&server, token.clone());
        async move { request_certificate(server, user, &format!("w{index}"), "worker").await }
    });
    let results = futures::future::join_all(requests).await;
    let signed = results.iter().filter(|result| *result == "signed").count();
    assert_eq!(signed, 5, "{results:?}");
}

#[tokio::test]
async fn a_certificate_is_renewed_only_by_its_machine_and_with_its_node() {
    let server = TestHub::start().await;
    let machine = UserInfo::node("a");
    let found = request_certificate(&server, machine.clone(), "a", "").await;
    assert!(
        found.starts_with("pending: a certificate is renewed only while Node a exists"),
        "{found}"
    );
    let router = server.hub.router_as(machine.clone());
    let node = node_json("a", &[]).to_string();
    assert_eq!(send(router, "POST", "/api/v1/nodes", &[], node).await.0.as_u16(), 201);
    assert_eq!(request_certificate(&server, machine, "a", "").await, "signed");
}

/// A renewal that waited while its machine was revoked would outlive the revocation.
#[tokio::test]
async fn a_renewal_requested_before_a_revocation_is_denied() {
    let server = TestHub::start().await;
    let found = request_certificate(&server, UserInfo::node("a"), "a", "").await;
    assert!(found.starts_with("pending"), "{found}");
    let admin = async |method: &str, path: &str, body: Value| {
        server.send(method, path, &[], body.to_string()).await
    };
    let (code, _) = admin("DELETE", "/machinist/v1/machines/a", json!({})).await;
    assert_eq!(code.as_u16(), 200);
    assert_eq!(admin("POST", "/api/v1/nodes", node_json("a", &[])).await.0.as_u16(), 201);
    // The Node makes renewals possible; a write of the request makes the signer look at it again.
    let csrs = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let (_, list) = server.send("GET", csrs, &[], String::new()).await;
    let mut csr = list["items"][0].clone();
    let path = format!("{csrs}/{}", csr["metadata"]["name"].as_str().unwrap());
    csr["metadata"]["labels"] = json!({"seen": "again"});
    assert_eq!(admin("PUT", &path, csr).await.0.as_u16(), 200);
    for _ in 0..500 {
        let (_, csr) = server.send("GET", &path, &[], String::new()).await;
        assert!(csr["status"]["certificate"].is_null(), "{csr}");
        if csr["status"]["conditions"][0]["type"] == "Denied" {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("the request was not denied");
}

/// A machine leaves by deleting its Node, however it asks for the deletion.
#[tokio::test]
async fn a_machine_that_leaves_in_the_foreground_loses_its_certificate() {
    let server = TestHub::start().await;
    let token = bootstrap_user(&server, json!({})).await;
    assert_eq!(request_certificate(&server, token.clone(), "w1", "worker").await, "signed");
    let machine = || server.hub.router_as(UserInfo::node("w1"));
    let node = node_json("w1", &[]).to_string();
    assert_eq!(send(machine(), "POST", "/api/v1/nodes", &[], node).await.0.as_u16(), 201);
    let foreground = json!({"propagationPolicy": "Foreground"}).to_string();
    let (code, _) = send(machine(), "DELETE", "/api/v1/nodes/w1", &[], foreground).await;
    assert_eq!(code.as_u16(), 200);
    support::wait_until("the Node is removed", async || {
        let (code, _) = server.send("GET", "/api/v1/nodes/w1", &[], String::new()).await;
        code.as_u16() == 404
    })
    .await;
    let found = request_certificate(&server, token, "w1", "worker").await;
    assert_eq!(found, "signed", "the name is free, so no certificate of it counts");
}

/// A request that is gone, or that does not exist yet, must not be read through its name.
#[tokio::test]
async fn the_requests_of_others_are_not_read_through_their_names() {
    let server = TestHub::start().await;
    let token = bootstrap_user(&server, json!({})).await;
    assert_eq!(request_certificate(&server, token, "w1", "worker").await, "signed");
    let csrs = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let (_, list) = server.send("GET", csrs, &[], String::new()).await;
    let name = list["items"][0]["metadata"]["name"].as_str().unwrap();
    let revision = list["metadata"]["resourceVersion"].as_str().unwrap();
    let (code, _) = server.send("DELETE", &format!("{csrs}/{name}"), &[], String::new()).await;
    assert_eq!(code.as_u16(), 200);
    let path = format!(
        "{csrs}?fieldSelector=metadata.name={name}&resourceVersion={revision}&resourceVersionMatch=Exact"
    );
    let other = server.hub.router_as(UserInfo::node("b"));
    let (_, found) = send(other, "GET", &path, &[], String::new()).await;
    assert!(found["items"].as_array().is_none_or(Vec::is_empty), "{found}");
    let (_, found) = server.send("GET", &path, &[], String::new()).await;
    assert_eq!(found["items"][0]["metadata"]["name"], name, "the administrator sees it: {found}");
}

fn node_json(name: &str, roles: &[&str]) -> Value {
    let labels: serde_json::Map<String, Value> =
        roles.iter().map(|role| (format!("node-role.kubernetes.io/{role}"), "".into())).collect();
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}})
}

/// The roles of a Node, as the administrator sees them.
async fn node_roles(server: &TestHub, name: &str) -> Vec<String> {
    let (_, node) = server.send("GET", &format!("/api/v1/nodes/{name}"), &[], String::new()).await;
    let labels = node["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    let roles = labels.keys().filter_map(|key| key.strip_prefix("node-role.kubernetes.io/"));
    roles.map(str::to_owned).collect()
}

/// A machine must not get into another pool by deleting its Node and creating it again, nor in any other way.
#[tokio::test]
async fn a_machine_does_not_choose_its_pool() {
    let server = TestHub::start().await;
    let token = bootstrap_user(&server, json!({})).await;
    assert_eq!(request_certificate(&server, token, "w1", "worker").await, "signed");
    let machine = server.hub.router_as(UserInfo::node("w1"));
    let path = "/api/v1/nodes/w1";
    let merge = [("content-type", "application/merge-patch+json")];
    let request = async |method: &str, path: &str, body: Value| {
        send(machine.clone(), method, path, &merge, body.to_string()).await.0.as_u16()
    };
    let create = async |roles: &[&str]| {
        let body = node_json("w1", roles).to_string();
        send(machine.clone(), "POST", "/api/v1/nodes", &[], body).await.0.as_u16()
    };
    // Whatever it asks for, it gets the pool of its token.
    assert_eq!(create(&["master"]).await, 201);
    assert_eq!(node_roles(&server, "w1").await, ["worker"]);
    let label = |key: &str, value: Value| json!({"metadata": {"labels": {key: value}}});
    let master = label("node-role.kubernetes.io/master", "".into());
    assert_eq!(request("PATCH", path, master.clone()).await, 403);
    assert_eq!(request("PATCH", &format!("{path}/status"), master.clone()).await, 403);
    let restricted = label("node-restriction.kubernetes.io/zone", "a".into());
    assert_eq!(request("PATCH", path, restricted).await, 403);
    assert_eq!(node_roles(&server, "w1").await, ["worker"]);
    // An administrator moves it; the machine cannot go back, not even with a new Node.
    let moved = json!({"metadata": {"labels": {
        "node-role.kubernetes.io/worker": null, "node-role.kubernetes.io/infra": "",
    }}});
    let (code, _) = server.send("PATCH", path, &merge, moved.to_string()).await;
    assert_eq!(code.as_u16(), 200);
    let back = label("node-role.kubernetes.io/worker", "".into());
    assert_eq!(request("PATCH", path, back).await, 403);
    let deleted = send(machine.clone(), "DELETE", path, &[], String::new()).await;
    assert_eq!(deleted.0.as_u16(), 200);
    assert_eq!(create(&["worker", "master"]).await, 201);
    assert_eq!(node_roles(&server, "w1").await, ["infra"]);
    // The garbage collector removes objects of owners that do not exist.
    let owner = json!({"metadata": {"ownerReferences": [
        {"apiVersion": "v1", "kind": "Node", "name": "none", "uid": "00000000-0000-4000-8000-000000000000"},
    ]}});
    if request("PATCH", path, owner).await == 200 {
        support::wait_until("the Node is collected", async || {
            server.send("GET", path, &[], String::new()).await.0.as_u16() == 404
        })
        .await;
        assert_eq!(create(&["master"]).await, 201);
    }
    assert_eq!(node_roles(&server, "w1").await, ["infra"]);
}

/// A Node of an earlier version has no record; its machine keeps the role, and gets no other.
#[tokio::test]
async fn a_node_of_an_earlier_version_keeps_its_role() {
    let server = TestHub::start().await;
    let (json, path) = ([], "/api/v1/nodes/w1");
    let node = node_json("w1", &["worker"]).to_string();
    server.send("POST", "/api/v1/nodes", &json, node).await;
    let record = machinist_hub::store::StoreOp::Delete {
        key: "/machinist/machines/-/w1".into(),
        expect: machinist_hub::store::Precondition::Any,
    };
    server.hub.store().commit(vec![record]).await.unwrap();
    assert_eq!(server.send("DELETE", path, &[], String::new()).await.0.as_u16(), 200);
    let machine = server.hub.router_as(UserInfo::node("w1"));
    let node = node_json("w1", &["master"]).to_string();
    assert_eq!(send(machine, "POST", "/api/v1/nodes", &[], node).await.0.as_u16(), 201);
    assert_eq!(node_roles(&server, "w1").await, ["worker"]);
}

#[tokio::test]
async fn self_subject_reviews() {
    let server = TestHub::start().await;
    let review =
        json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "nodes", "name": "a"}}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    for (user, expected) in [(UserInfo::node("a"), true), (UserInfo::node("b"), false)] {
        let router = server.hub.router_as(user);
        let (code, response) = send(router, "POST", path, &[], review.to_string()).await;
        assert_eq!((code.as_u16(), &response["status"]["allowed"]), (201, &json!(expected)));
    }
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let (_, response) = server.send("POST", path, &[], "{}".into()).await;
    assert_eq!(response["status"]["userInfo"]["username"], "admin");
}

/// Asks the hub whose token it is, and whether that user may read metrics.
async fn review_token(server: &TestHub, reviewer: UserInfo, token: &str) -> (u16, Value, bool) {
    let review = json!({"spec": {"token": token}}).to_string();
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let router = server.hub.router_as(reviewer.clone());
    let (code, reviewed) = send(router, "POST", path, &[], review).await;
    assert!(!reviewed.to_string().contains(token), "{reviewed}");
    let user = reviewed["status"]["user"].clone();
    let spec = json!({
        "user": user["username"], "groups": user["groups"],
        "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
    });
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let router = server.hub.router_as(reviewer);
    let (_, access) = send(router, "POST", path, &[], json!({"spec": spec}).to_string()).await;
    (code.as_u16(), reviewed["status"].clone(), access["status"]["allowed"] == true)
}

#[tokio::test]
async fn machines_and_controllers_review_tokens() {
    let server = TestHub::start().await;
    let controller = UserInfo::new("c", ["machinist:controllers".to_owned()]);
    for (role, may_read) in [
        ("admin", true),
        ("viewer", true),
        ("metrics", true),
        ("controller", false),
        ("bootstrap", false),
    ] {
        let made = create_token(&server, json!({"role": role})).await;
        let token = made["token"].as_str().unwrap();
        for reviewer in [UserInfo::admin(), controller.clone(), UserInfo::node("a")] {
            let (code, status, allowed) = review_token(&server, reviewer, token).await;
            assert_eq!((code, &status["authenticated"]), (201, &json!(true)), "{role}: {status}");
            assert_eq!(allowed, may_read, "{role}");
        }
    }
    let viewer = create_token(&server, json!({"role": "viewer"})).await;
    let token = viewer["token"].as_str().unwrap().to_owned();
    // Who is no server does not learn whose token it is.
    for other in [
        UserInfo::new("v", ["machinist:viewers".to_owned()]),
        UserInfo::new("b", ["system:bootstrappers".to_owned()]),
        UserInfo::new("m", ["machinist:metrics-readers".to_owned()]),
    ] {
        assert_eq!(review_token(&server, other, &token).await.0, 403);
    }
    let path = format!("/machinist/v1/tokens/{}", viewer["id"].as_str().unwrap());
    server.send("DELETE", &path, &[], String::new()).await;
    for bad in [token.as_str(), "abcdef.wrong", "nonsense"] {
        let (code, status, allowed) = review_token(&server, UserInfo::node("a"), bad).await;
        assert!(code == 201 && status["authenticated"] != true && !allowed, "{status}");
    }
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    for (spec, code) in [(json!({}), 400), (json!({"token": "a".repeat(20_000)}), 413)] {
        let review = json!({"spec": spec}).to_string();
        assert_eq!(server.send("POST", path, &[], review).await.0.as_u16(), code);
    }
}

/// Prometheus sends its token to every machine. A machine that keeps it gets no more rights with it.
#[tokio::test]
async fn a_metrics_token_reads_nothing_but_metrics() {
    let server = TestHub::start().await;
    let token = token(&server, "metrics").await;
    let mut paths: Vec<String> =
        ["/machinist/v1/tokens", "/machinist/v1/backup"].map(str::to_owned).into();
    let kinds = built_in::kinds().into_iter().chain(built_in::from_crd(&support::test_crd()));
    for kind in kinds {
        let root =
            if kind.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", kind.group) };
        let namespace = if kind.namespaced { "/namespaces/default" } else { "" };
        for name in ["", "/a"] {
            paths.push(format!("{root}/{}{namespace}/{}{name}", kind.version, kind.plural));
        }
    }
    assert!(paths.len() > 20, "{paths:?}");
    let bearer = format!("Bearer {token}");
    for path in &paths {
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
            let headers =
                [("authorization", bearer.as_str()), ("content-type", "application/json")];
            let router = server.hub.router();
            if matches!(method, "PUT" | "PATCH") && !path.ends_with("/a") {
                continue; // of a collection: refused before anything is authorized
            }
            let (code, body) = send(router, method, path, &headers, "{}".to_owned()).await;
            assert!([403, 405].contains(&code.as_u16()), "{method} {path}: {code} {body}");
        }
    }
}

#[tokio::test]
async fn certificates_over_tls() {
    let server = TestHub::start().await;
    let pair = CertificateAuthority::generate("test").unwrap();
    let ca = CertificateAuthority::from_pem(&pair).unwrap();
    let strange =
        CertificateAuthority::from_pem(&CertificateAuthority::generate("test").unwrap()).unwrap();
    let certificate =
        HubServingCertificate::new(&ca.issue_server("hub", &["127.0.0.1".into()]).unwrap())
            .unwrap();
    let tls = TlsServer::new(&certificate, ca.certificate()).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let run = tokio::spawn(tls.run(listener, server.hub.router(), server.hub.cancellation_token()));
    let user = |pair: PemKeyPair| {
        json!({
            "client-certificate-data": STANDARD.encode(pair.certificate),
            "client-key-data": STANDARD.encode(pair.key),
        })
    };
    let nodes = async |user: Value| {
        let config = json!({
            "clusters": [{"name": "a", "cluster": {
                "server": format!("https://{address}"),
                "certificate-authority-data": STANDARD.encode(ca.certificate()),
            }}],
            "users": [{"name": "a", "user": user}],
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            "current-context": "a",
        });
        let config = serde_json::from_value(config).unwrap();
        let config =
            kube::Config::from_custom_kubeconfig(config, &Default::default()).await.unwrap();
        let client = kube::Client::try_from(config).unwrap();
        let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(client);
        nodes.list(&Default::default()).await
    };
    let admin = user(ca.issue_client("admin", "system:masters").unwrap());
    assert!(nodes(admin).await.is_ok());
    let machine = user(ca.issue_client("system:node:a", "system:nodes").unwrap());
    assert_eq!(status(nodes(machine).await.unwrap_err()).0, 403);
    let fake = user(strange.issue_client("admin", "system:masters").unwrap());
    assert_eq!(status(nodes(fake).await.unwrap_err()), (401, "Unauthorized".into()));
    assert_eq!(status(nodes(json!({})).await.unwrap_err()), (401, "Unauthorized".into()));
    server.hub.stop().await;
    tokio::time::timeout(std::time::Duration::from_secs(10), run).await.unwrap().unwrap();
}
