//! Role-based access control: a real kube-apiserver and the hub get the same random roles, bindings and questions. What is
//! stored, what is allowed, which rules a user has and what it may grant must be the same.

use super::api_server::ApiServer;
use crate::hub_support::RandomGenerator;
use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::client::Body;
use machinist_e2e::{block_on, wait_with_timeout};
use serde_json::{Value, json};
use std::time::Duration;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1";
const NAMESPACES: [&str; 2] = ["rbac-a", "rbac-b"];
const ROUNDS: u64 = 6;
const QUESTIONS_PER_ROUND: usize = 60;
const GRANTS_PER_ROUND: usize = 15;
/// How long the caches of a kube-apiserver may be behind on a busy host.
const CACHE_DELAY: Duration = Duration::from_secs(30);

const VERBS: [&str; 6] = ["get", "list", "create", "delete", "bind", "*"];
const GROUPS: [&str; 4] = ["", "apps", "rbac.authorization.k8s.io", "*"];
const RESOURCES: [&str; 8] = [
    "configmaps",
    "secrets",
    "configmaps/status",
    "*/status",
    "roles",
    "clusterroles",
    "*",
    "widgets",
];
const NAMES: [&str; 3] = ["one", "two", "c0"];
const PATHS: [&str; 5] = ["/metrics", "/logs/*", "/logs/a", "*", "/healthz"];
const USERS: [&str; 3] = ["ann", "bob", "system:serviceaccount:rbac-a:bot"];
const USER_GROUPS: [&str; 3] = ["devs", "ops", "system:serviceaccounts"];

struct Random(RandomGenerator);

impl Random {
    fn chance(&mut self, percent: u64) -> bool {
        self.0.below(100) < percent
    }

    fn pick<'a>(&mut self, values: &[&'a str]) -> &'a str {
        values[self.0.below(values.len() as u64) as usize]
    }

    /// One to three different values.
    fn some<'a>(&mut self, values: &[&'a str]) -> Vec<&'a str> {
        let mut found: Vec<&str> = (0..=self.0.below(3)).map(|_| self.pick(values)).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    fn rule(&mut self, namespaced: bool) -> Value {
        if !namespaced && self.chance(15) || self.chance(3) {
            return json!({"verbs": self.some(&VERBS), "nonResourceURLs": self.some(&PATHS)});
        }
        let mut rule = json!({
            "verbs": self.some(&VERBS), "apiGroups": self.some(&GROUPS), "resources": self.some(&RESOURCES),
        });
        if self.chance(25) {
            rule["resourceNames"] = json!(self.some(&NAMES));
        }
        // Some are invalid.
        if self.chance(3) {
            let field = self.pick(&["verbs", "apiGroups", "resources"]);
            rule[field] = json!([]);
        }
        rule
    }

    fn subject(&mut self) -> Value {
        match self.0.below(10) {
            0..4 => json!({"kind": "User", "name": self.pick(&USERS)}),
            4..7 => json!({"kind": "Group", "name": self.pick(&USER_GROUPS)}),
            7 => {
                json!({"kind": "ServiceAccount", "name": "bot", "namespace": self.pick(&NAMESPACES)})
            }
            8 => json!({"kind": "ServiceAccount", "name": "bot"}),
            _ => json!({"kind": self.pick(&["User", "Robot", ""]), "name": "", "apiGroup": "x"}),
        }
    }

    fn role(&mut self, kind: &str, name: &str) -> Value {
        let rules: Vec<Value> = (0..=self.0.below(3)).map(|_| self.rule(kind == "Role")).collect();
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name},
            "rules": rules,
        })
    }

    fn binding(&mut self, kind: &str, name: &str) -> Value {
        let number = self.0.below(4);
        let role = match self.chance(50) {
            true => json!({"kind": "Role", "name": format!("r{number}")}),
            false => json!({"kind": "ClusterRole", "name": format!("c{number}")}),
        };
        let subjects: Vec<Value> = (0..=self.0.below(2)).map(|_| self.subject()).collect();
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name},
            "roleRef": role, "subjects": subjects,
        })
    }

    fn question(&mut self) -> Value {
        let mut groups = self.some(&USER_GROUPS);
        groups.push("system:authenticated");
        let mut spec = json!({"user": self.pick(&USERS), "groups": groups});
        if self.chance(15) {
            spec["nonResourceAttributes"] = json!({"verb": self.pick(&VERBS), "path": self.pick(&["/metrics", "/logs/a", "/logs", "/apis/x", "/"])});
            return spec;
        }
        let mut request = json!({
            "verb": self.pick(&VERBS), "group": self.pick(&GROUPS), "resource": self.pick(&RESOURCES),
        });
        for (field, percent, values) in [
            ("namespace", 60, &NAMESPACES[..]),
            ("name", 40, &NAMES[..]),
            ("subresource", 30, &["status", "scale"][..]),
        ] {
            if self.chance(percent) {
                request[field] = self.pick(values).into();
            }
        }
        spec["resourceAttributes"] = request;
        spec
    }
}

/// The path of a kind.
fn path(kind: &str, namespace: &str) -> String {
    match kind {
        "ClusterRole" => format!("{RBAC}/clusterroles"),
        "ClusterRoleBinding" => format!("{RBAC}/clusterrolebindings"),
        "Role" => format!("{RBAC}/namespaces/{namespace}/roles"),
        _ => format!("{RBAC}/namespaces/{namespace}/rolebindings"),
    }
}

/// Sends a request as somebody else.
fn send_as(
    server: &ApiServer,
    user: &str,
    method: Method,
    path: &str,
    body: &Value,
) -> (u16, Value) {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json")
        .header("impersonate-user", user)
        .header("impersonate-group", "devs")
        .body(Body::from(body.to_string().into_bytes()))
        .unwrap();
    block_on(async {
        let response = server.client().send(request).await.unwrap();
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&bytes).unwrap_or_default())
    })
}

/// A response without what differs from one API server to another.
fn comparable(code: u16, body: &Value) -> Value {
    let mut body = body.clone();
    // kube-apiserver adds the roles of the user's own bindings that do not exist, in random order.
    let message = body["message"].as_str().unwrap_or_default().to_owned();
    if let Some((text, _)) = message.split_once("; resolution errors: ") {
        body["message"] = text.into();
    }
    if let Some(metadata) = body["metadata"].as_object_mut() {
        for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields"] {
            metadata.remove(field);
        }
    }
    json!({"code": code, "body": body})
}

/// Asks both, and again while kube-apiserver's caches are behind.
fn assert_same(
    kubernetes: &ApiServer,
    hub: &ApiServer,
    what: &str,
    ask: impl Fn(&ApiServer) -> Value,
) {
    let found = ask(hub);
    let same = wait_with_timeout(CACHE_DELAY, "kube-apiserver to agree with the hub", || {
        Ok(ask(kubernetes) == found)
    });
    assert!(same.is_ok(), "{what}\nkube-apiserver: {:#}\nhub: {found:#}", ask(kubernetes));
}

fn allowed(server: &ApiServer, spec: &Value) -> Value {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec,
    });
    let response = server.post(&format!("{REVIEWS}/subjectaccessreviews"), &review);
    json!({"code": response.code, "allowed": response.body["status"]["allowed"]})
}

/// The rules of a user in a namespace, sorted.
fn rules(server: &ApiServer, user: &str, namespace: &str) -> Value {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    });
    let path = format!("{REVIEWS}/selfsubjectrulesreviews");
    let (code, body) = send_as(server, user, Method::POST, &path, &review);
    let sorted = |field: &str| {
        let mut all: Vec<String> = body["status"][field]
            .as_array()
            .into_iter()
            .flatten()
            .map(|rule| {
                let mut rule = rule.clone();
                for list in rule.as_object_mut().unwrap().values_mut() {
                    list.as_array_mut().unwrap().sort_by_key(Value::to_string);
                }
                rule.to_string()
            })
            .collect();
        all.sort();
        all.dedup();
        all
    };
    json!([code, sorted("resourceRules"), sorted("nonResourceRules")])
}

fn create_round(kubernetes: &ApiServer, hub: &ApiServer, random: &mut Random) -> Vec<String> {
    let mut objects = Vec::new();
    for number in 0..4 {
        objects.push((random.role("ClusterRole", &format!("c{number}")), NAMESPACES[0]));
        for namespace in NAMESPACES {
            objects.push((random.role("Role", &format!("r{number}")), namespace));
            objects.push((random.binding("RoleBinding", &format!("b{number}")), namespace));
        }
        objects.push((random.binding("ClusterRoleBinding", &format!("cb{number}")), NAMESPACES[0]));
    }
    let mut paths = Vec::new();
    for (object, namespace) in objects {
        let path = path(object["kind"].as_str().unwrap(), namespace);
        let [wanted, found] = [kubernetes, hub].map(|server| {
            let response = server.post(&path, &object);
            comparable(response.code, &response.body)
        });
        assert_eq!(found, wanted, "{object}");
        paths.push(format!("{path}/{}", object["metadata"]["name"].as_str().unwrap()));
    }
    paths
}

/// What a user may grant: roles and bindings of its own making, without storing them.
fn compare_grants(kubernetes: &ApiServer, hub: &ApiServer, random: &mut Random) {
    for _ in 0..GRANTS_PER_ROUND {
        let kind = random.pick(&["Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"]);
        let object = match kind {
            "Role" | "ClusterRole" => random.role(kind, "granted"),
            _ => random.binding(kind, "granted"),
        };
        let (user, namespace) = (random.pick(&USERS), random.pick(&NAMESPACES));
        let path = format!("{}?dryRun=All", path(kind, namespace));
        assert_same(kubernetes, hub, &format!("{user}: {object}"), |server| {
            let (code, body) = send_as(server, user, Method::POST, &path, &object);
            comparable(code, &body)
        });
    }
}

#[test]
fn the_hub_answers_rbac_questions_as_kube_apiserver_does() {
    let (kubernetes, hub) = (ApiServer::kubernetes().unwrap(), ApiServer::hub().unwrap());
    let mut random = Random(RandomGenerator(0x5eed_0000_0000_0023));
    // Who may write roles at all, so that escalation is what stops them.
    let rule = json!({"verbs": ["create"], "apiGroups": ["rbac.authorization.k8s.io"], "resources": ["*"]});
    let meta = |kind: &str| json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": "rbac-writers"}});
    let (mut role, mut binding) = (meta("ClusterRole"), meta("ClusterRoleBinding"));
    role["rules"] = json!([rule]);
    binding["roleRef"] = json!({"kind": "ClusterRole", "name": "rbac-writers"});
    binding["subjects"] = USERS.iter().map(|name| json!({"kind": "User", "name": name})).collect();
    for server in [&kubernetes, &hub] {
        for name in NAMESPACES {
            let namespace =
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
            assert_eq!(server.post("/api/v1/namespaces", &namespace).code, 201);
        }
        for object in [&role, &binding] {
            let path = path(object["kind"].as_str().unwrap(), "");
            assert_eq!(server.post(&path, object).code, 201, "{}", server.name);
        }
    }
    let mut yes = 0;
    for _ in 0..ROUNDS {
        let paths = create_round(&kubernetes, &hub, &mut random);
        for _ in 0..QUESTIONS_PER_ROUND {
            let question = random.question();
            yes += usize::from(allowed(&hub, &question)["allowed"] == true);
            assert_same(&kubernetes, &hub, &question.to_string(), |server| {
                allowed(server, &question)
            });
        }
        for user in USERS {
            for namespace in NAMESPACES {
                let what = format!("rules of {user} in {namespace}");
                assert_same(&kubernetes, &hub, &what, |server| rules(server, user, namespace));
            }
        }
        compare_grants(&kubernetes, &hub, &mut random);
        for server in [&kubernetes, &hub] {
            paths.iter().for_each(|path| _ = server.delete(path, &Value::Null));
        }
    }
    let asked = ROUNDS as usize * QUESTIONS_PER_ROUND;
    assert!(
        yes > asked / 10 && yes < asked * 9 / 10,
        "{yes} of {asked} were allowed: not random enough"
    );
    eprintln!("{asked} questions have the same answers, {yes} of them yes");
}
