//! Rights of the shipped ClusterRole, each taken away from a controller of its own: its failures name verb and resource.
//! With a real hub in memory, whose authorizer has the shipped rules; the whole-machine test `missing_rights` does the
//! same with a kube-apiserver. What the hub does not serve, such as pods, is not covered here.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use machinist_core::template::TemplateTree;
use machinist_hub::auth::UserInfo;
use machinist_hub::auth::authorizer::{PolicyRule, ResourceNames};
use machinist_hub::failure_log::FailureLog;
use machinist_hub::store::{Store, StoreOptions};
use machinist_hub::{Hub, HubConfig};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::initial_objects;
use crate::controller::{self, ControllerOptions};
use crate::kubernetes::lease::ElectionConfig;
use crate::liveness::Liveness;

/// What is installed on Kubernetes.
const RBAC: &str = include_str!("../../../../deploy/system/controller-rbac.yaml");
/// How long a controller may take to report on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How many controllers run at a time.
const AT_ONCE: usize = 10;
const OUR_GROUP: &str = "machineconfiguration.openshift.io";

/// API group, resource and verb.
type Right = (String, String, String);

#[derive(Debug, Deserialize)]
struct Role {
    #[serde(default)]
    rules: Vec<Rule>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    api_groups: Vec<String>,
    resources: Vec<String>,
    verbs: Vec<String>,
}

/// All rights of the shipped roles.
fn shipped_rights() -> BTreeSet<Right> {
    let roles: Vec<Role> = serde_saphyr::from_multiple(RBAC).unwrap();
    let mut rights = BTreeSet::new();
    for rule in roles.iter().flat_map(|role| &role.rules) {
        for (group, resource) in rule
            .api_groups
            .iter()
            .flat_map(|group| rule.resources.iter().map(move |it| (group, it)))
        {
            let right = |verb: &String| (group.clone(), resource.clone(), verb.clone());
            rights.extend(rule.verbs.iter().map(right));
        }
    }
    rights
}

/// A controller that lacks one right.
struct RestrictedController {
    /// Its user, its user group and the namespace of its lease: all may lead at the same time.
    name: String,
    without: Option<Right>,
}

impl RestrictedController {
    fn rules(&self) -> Vec<PolicyRule> {
        let rights =
            shipped_rights().into_iter().filter(|right| Some(right) != self.without.as_ref());
        let rule = |(group, resource, verb): Right| {
            PolicyRule::new(&self.name, &verb, &group, &resource, ResourceNames::Any)
        };
        rights.map(rule).collect()
    }

    fn start(&self, hub: &Hub, tasks: &mut JoinSet<()>) -> FailureLog {
        let user = UserInfo::new(&self.name, [self.name.clone()]);
        let client = kube::Client::new(hub.router_as(user), "default");
        let failures = FailureLog::default();
        let options = ControllerOptions {
            namespace: initial_objects::NAMESPACE.to_owned(),
            templates: Arc::new(TemplateTree::new()),
            election: ElectionConfig {
                namespace: self.name.clone(),
                identity: self.name.clone(),
                duration: Duration::from_secs(15),
                renew_deadline: Duration::from_secs(10),
                retry_period: Duration::from_secs(1),
            },
            releases_machines: false,
            keeps_disruption_policy: false,
            metrics: None,
            extra_metrics: Vec::new(),
            user_data: None,
            failures: failures.clone(),
            liveness: Liveness::default(),
            health: tokio::sync::watch::Sender::default(),
        };
        tasks.spawn(async move {
            controller::run(client, options, std::future::pending()).await.unwrap();
        });
        failures
    }

    /// The words that the report must have.
    fn expected(&self) -> String {
        let (group, resource, verb) = self.without.as_ref().unwrap();
        format!("cannot {verb} resource \"{resource}\" in API group \"{group}\"")
    }
}

fn controllers(rights: impl IntoIterator<Item = Right>) -> Vec<RestrictedController> {
    let named = |(index, right)| RestrictedController {
        name: format!("controller-{index}"),
        without: Some(right),
    };
    rights.into_iter().enumerate().map(named).collect()
}

/// A hub with two pools, a machine and a config for it, and the rules of some controllers.
async fn hub(controllers: &[RestrictedController]) -> Hub {
    let config = HubConfig {
        crds: initial_objects::crd_objects().unwrap(),
        rules: controllers.iter().flat_map(RestrictedController::rules).collect(),
        namespaces: std::iter::once(initial_objects::NAMESPACE.to_owned())
            .chain(controllers.iter().map(|one| one.name.clone()))
            .collect(),
        ..HubConfig::default()
    };
    let hub = Hub::start(Store::in_memory(StoreOptions::default()), config).await.unwrap();
    for object in initial_objects::objects() {
        hub.ensure_object(&object).await.unwrap();
    }
    for config in [old_config(), new_config()] {
        hub.ensure_object(&config).await.unwrap();
    }
    hub.ensure_object(&machine()).await.unwrap();
    hub
}

fn old_config() -> Value {
    json!({
        "apiVersion": format!("{OUR_GROUP}/v1"), "kind": "MachineConfig",
        "metadata": {"name": "rendered-worker-old"},
        "spec": {"config": {"ignition": {"version": "3.5.0"}}},
    })
}

/// What the pool `worker` gets instead.
fn new_config() -> Value {
    json!({
        "apiVersion": format!("{OUR_GROUP}/v1"), "kind": "MachineConfig",
        "metadata": {"name": "50-worker", "labels": {format!("{OUR_GROUP}/role"): "worker"}},
        "spec": {"config": {"ignition": {"version": "3.5.0"}, "storage": {"files": [
            {"path": "/etc/motd", "contents": {"source": "data:,hello"}},
        ]}}},
    })
}

/// A machine with another config than its pool.
fn machine() -> Value {
    let of = |name: &str| format!("{OUR_GROUP}/{name}");
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": "n1", "labels": {"node-role.kubernetes.io/worker": ""},
            "annotations": {
                of("currentConfig"): "rendered-worker-old", of("desiredConfig"): "rendered-worker-old",
                of("state"): "Done",
            },
        },
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    })
}

/// Waits until a log has a line with a text. Returns the lines if it never has.
async fn wait_for_report(failures: &FailureLog, expected: &str) -> Result<(), Vec<String>> {
    let reported = async {
        while !failures.lines().iter().any(|line| line.contains(expected)) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, reported).await.map_err(|_| failures.lines())
}

#[tokio::test]
async fn each_missing_right_to_read_is_named() {
    let crds = initial_objects::crd_objects().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let mut served: BTreeSet<(String, String)> = crds
        .iter()
        .map(|crd| (text(&crd["spec"]["group"]), text(&crd["spec"]["names"]["plural"])))
        .collect();
    served.extend(["nodes", "secrets"].map(|resource| (String::new(), resource.to_owned())));
    let rights: Vec<Right> = shipped_rights()
        .into_iter()
        .filter(|(group, resource, verb)| {
            let is_read = verb == "list" || verb == "watch";
            is_read && served.contains(&(group.clone(), resource.clone()))
        })
        .collect();
    assert!(rights.len() > 30, "{rights:?}");
    for some in rights.chunks(AT_ONCE) {
        let controllers = controllers(some.to_vec());
        let (hub, mut tasks) = (hub(&controllers).await, JoinSet::new());
        let logs: Vec<FailureLog> =
            controllers.iter().map(|one| one.start(&hub, &mut tasks)).collect();
        for (controller, log) in controllers.iter().zip(&logs) {
            let expected = controller.expected();
            let reported = wait_for_report(log, &expected).await;
            assert!(reported.is_ok(), "not reported: {expected}: {reported:?}");
        }
    }
}

/// Writes that a controller makes without a request of a person. Each on a hub of its own: another controller would do
/// the work.
#[tokio::test]
async fn missing_rights_to_write_are_named() {
    for (group, resource, verb) in [
        ("", "events", "create"),
        ("", "namespaces", "get"),
        ("", "nodes", "patch"),
        ("coordination.k8s.io", "leases", "create"),
        ("coordination.k8s.io", "leases", "get"),
        (OUR_GROUP, "machineconfignodes", "create"),
        (OUR_GROUP, "machineconfigpools", "patch"),
        (OUR_GROUP, "machineconfigpools/status", "patch"),
        (OUR_GROUP, "machineconfigs", "create"),
    ] {
        let right = (group.to_owned(), resource.to_owned(), verb.to_owned());
        assert!(shipped_rights().contains(&right), "{right:?}");
        let controllers = controllers([right]);
        let (hub, mut tasks) = (hub(&controllers).await, JoinSet::new());
        let log = controllers[0].start(&hub, &mut tasks);
        let expected = controllers[0].expected();
        let reported = wait_for_report(&log, &expected).await;
        assert!(reported.is_ok(), "not reported: {expected}: {reported:?}");
    }
}

/// The control: with all rights nothing is reported by the time the pool has its config and the machine gets it.
#[tokio::test]
async fn a_controller_with_the_shipped_rights_reports_nothing() {
    let all = [RestrictedController { name: "controller".to_owned(), without: None }];
    let (hub, mut tasks) = (hub(&all).await, JoinSet::new());
    let log = all[0].start(&hub, &mut tasks);
    let key = "/core/nodes/-/n1";
    let assigned = async {
        loop {
            let node = hub.store().get(key).unwrap();
            let node: Value = serde_json::from_slice(&node.value).unwrap();
            let desired = &node["metadata"]["annotations"][format!("{OUR_GROUP}/desiredConfig")];
            if desired != "rendered-worker-old" {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let assigned = tokio::time::timeout(TIMEOUT, assigned).await;
    assert!(assigned.is_ok(), "the machine got no config: {:?}", log.lines());
    assert!(log.lines().is_empty(), "{:?}", log.lines());
}
