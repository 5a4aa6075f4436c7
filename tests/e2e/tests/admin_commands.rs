//! The administrator's commands against a hub with its controller and simulated machines: plan a change, follow it,
//! pause it, roll it back, and allow reboots. Without a controller, also against a real kube-apiserver.
use machinist_e2e::fleet::{FleetSpec, MachineBehaviour};
use machinist_e2e::{ApiServer, Fleet, wait_with_timeout};
use serde_json::{Value, json};
use std::fs;
use std::time::Duration;

/// Timeout for a rollout of a few machines on a host that runs other tests.
const ROLLOUT_TIMEOUT: Duration = Duration::from_secs(90);
const MACHINES: usize = 3;
const NODES: &str = "/api/v1/nodes";
const POOLS: &str = "/apis/machineconfiguration.openshift.io/v1/machineconfigpools";
const CONFIGS: &str = "/apis/machineconfiguration.openshift.io/v1/machineconfigs";

struct AdminFixture {
    api_server: ApiServer,
    fleet: Option<Fleet>,
}

impl AdminFixture {
    /// Runs `machinist`, which must exit with this code. Returns its output.
    #[track_caller]
    fn run_expecting(&self, code: i32, arguments: &[&str]) -> (String, String) {
        let output = self.api_server.machinist(arguments).unwrap();
        assert_eq!(output.code, code, "machinist {arguments:?}: {output:?}");
        (output.stdout, output.stderr)
    }

    #[track_caller]
    fn run(&self, arguments: &[&str]) -> String {
        self.run_expecting(0, arguments).0
    }

    #[track_caller]
    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.run(arguments)).unwrap()
    }

    fn manifest(&self, object: &Value) -> String {
        let name = object["metadata"]["name"].as_str().unwrap();
        let path = self.api_server.dir().join(format!("{name}.json"));
        fs::write(&path, object.to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    }

    fn apply(&self, object: &Value) {
        self.run(&["apply", "-f", &self.manifest(object)]);
    }

    /// The config that the pool points at.
    fn target(&self) -> String {
        let pool = self.api_server.get(&format!("{POOLS}/worker")).body;
        pool["spec"]["configuration"]["name"].as_str().unwrap_or_default().to_owned()
    }

    fn status(&self) -> Value {
        self.json(&["rollout", "status", "worker", "-o", "json"])["pools"][0].clone()
    }

    #[track_caller]
    fn wait_until(&self, what: &str, mut holds: impl FnMut(&Value) -> bool) {
        wait_with_timeout(ROLLOUT_TIMEOUT, what, || Ok(holds(&self.status()))).unwrap();
    }

    /// Follows the rollout to its end. The command must not report completion early.
    #[track_caller]
    fn wait_for_rollout(&self) -> String {
        let lines = self.run(&["rollout", "status", "worker", "--watch"]);
        let end = format!("{MACHINES} of {MACHINES} machines updated; updated");
        let last = lines.lines().last().unwrap_or_default();
        assert!(last.ends_with(&end), "{lines}");
        let target = self.target();
        assert!(last.starts_with(&format!("worker → {target}: ")), "{lines}");
        for name in self.fleet.as_ref().unwrap().names() {
            let node = self.api_server.get(&format!("{NODES}/{name}")).body;
            let current =
                &node["metadata"]["annotations"]["machineconfiguration.openshift.io/currentConfig"];
            assert_eq!(current, &json!(target), "{name}");
        }
        // The pool reports the same at that moment.
        self.run(&["wait", "mcp/worker", "--for=condition=Updated", "--timeout=0"]);
        target
    }
}

fn machine_config(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {"name": name, "labels": {"machineconfiguration.openshift.io/role": "worker"}},
        "spec": spec,
    })
}

fn file(name: &str, path: &str, text: &str) -> Value {
    let file = json!({"path": path, "mode": 420, "contents": {"source": format!("data:,{text}")}});
    let config = json!({"ignition": {"version": "3.2.0"}, "storage": {"files": [file]}});
    machine_config(name, &json!({"config": config}))
}

#[test]
fn an_administrator_plans_follows_pauses_and_rolls_back() {
    let mut fixture = AdminFixture { api_server: ApiServer::hub().unwrap(), fleet: None };
    fixture.apply(&file("00-worker", "/etc/base", "base"));
    fixture.wait_until("the first config", |status| status["target"].is_string());
    let config = fixture.target();
    let behaviour = MachineBehaviour {
        apply: 0..=40,
        reboot: Some(0..=40),
        drain: true,
        lost_response: 10,
        ..MachineBehaviour::default()
    };
    let plan = FleetSpec { machines: MACHINES, config, behaviour, ..FleetSpec::default() };
    fixture.fleet = Some(Fleet::start(fixture.api_server.client(), plan).unwrap());
    fixture.wait_for_rollout();
    plan_matches_rollout(&fixture);
    pause_and_resume(&fixture);
    rollback(&fixture);
    deferred_reboots(&fixture);
    stops_at_a_bad_config(&fixture);
    examples(&fixture);
}

/// A plan matches what happens later, and changes nothing itself.
fn plan_matches_rollout(fixture: &AdminFixture) {
    let before = fixture.target();
    let objects = || {
        let revision =
            |path: &str| fixture.api_server.get(path).body["items"].as_array().unwrap().len();
        (revision(CONFIGS), fixture.api_server.get(&format!("{POOLS}/worker")).body["spec"].clone())
    };
    let untouched = objects();
    let chrony = ["plan", "-f", "examples/chrony.yaml"];
    let text = fixture.run(&chrony);
    for part in [
        &format!("worker: {before} → rendered-worker-"),
        "3 of 3 machines change, at most 1 at a time",
        "costs a drain and a reboot: sim-00000, sim-00001, sim-00002",
        "first: sim-0000",
        "+ file /etc/chrony.conf",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let plan = fixture.json(&[&chrony[..], &["-o", "json"]].concat());
    let pool = &plan["pools"][0];
    assert_eq!((&plan["refused"], &pool["before"]), (&json!(false), &json!(before)));
    assert_eq!(
        (pool["machines"].as_array().unwrap().len(), &pool["machines"][0]["cost"]),
        (3, &json!("reboot"))
    );
    // A change that machines would refuse, and a kind that plans do not cover.
    let directory = json!({"config": {
        "ignition": {"version": "3.2.0"}, "storage": {"directories": [{"path": "/srv/x"}]},
    }});
    let path = fixture.manifest(&machine_config("60-directory", &directory));
    let (text, _) = fixture.run_expecting(3, &["plan", "-f", &path]);
    assert!(text.contains("machines would refuse it") && text.contains("60-directory"), "{text}");
    let other = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "other", "namespace": "default"},
    });
    let (text, warned) = fixture.run_expecting(0, &["plan", "-f", &fixture.manifest(&other)]);
    assert!(
        text.contains("Nothing that this plan covers would change")
            && warned.contains("configmap/other"),
        "{warned}"
    );
    assert!(
        fixture
            .run_expecting(1, &["plan", "--delete", "mc/nowhere"])
            .1
            .contains("nowhere does not exist")
    );
    fixture.run_expecting(2, &["plan", "--delete", "nowhere"]);
    assert_eq!(objects(), untouched);

    fixture.run(&["apply", "-f", "examples/chrony.yaml"]);
    assert_eq!(json!(fixture.wait_for_rollout()), pool["after"]);
    let gone = fixture.json(&["plan", "--delete", "mc/50-worker-chrony", "-o", "json"]);
    assert_eq!(gone["pools"][0]["after"], json!(before));
}

/// A paused pool changes nothing until it is resumed.
fn pause_and_resume(fixture: &AdminFixture) {
    let before = fixture.target();
    let text = fixture.run(&["pause", "worker"]);
    assert_eq!(text, format!("worker is paused; 3 machines stay on {before}\n"));
    fixture.apply(&file("51-motd", "/etc/motd", "hello"));
    fixture.wait_until("the pool to have a new config", |status| status["target"] != json!(before));
    let status = fixture.status();
    assert_eq!((&status["state"], &status["machines"]["waiting"]), (&json!("paused"), &json!(3)));
    assert_eq!(status["pending"][0]["waiting"], json!({"reason": "poolPaused"}));
    assert!(fixture.run(&["rollout", "status", "worker"]).contains("machinist resume worker"));
    let again = fixture.run(&["pause", "worker"]);
    assert!(
        again.starts_with(&format!(
            "worker is paused; 3 machines stay on {before}, and do not get "
        )),
        "{again}"
    );
    let explained = fixture.json(&["rollout", "explain", "worker", "-o", "json"]);
    assert_eq!(
        (&explained["halted"], &explained["next"]),
        (&json!({"reason": "paused"}), &json!([]))
    );
    assert_eq!(explained["waiting"].as_object().unwrap().len(), 3);
    assert_eq!(
        (&explained["maxUnavailable"], &explained["status"]["machineCount"]),
        (&json!(1), &json!(3))
    );
    let text = fixture.run(&["resume", "worker"]);
    assert!(text.starts_with("worker is resumed; 3 machines to get "), "{text}");
    fixture.wait_for_rollout();
    assert!(
        fixture
            .run(&["resume", "worker"])
            .starts_with("worker is not paused; all 3 machines have ")
    );
    assert!(
        fixture
            .run_expecting(1, &["pause", "nowhere"])
            .1
            .contains("existing pools: master, worker")
    );
}

/// One step back, two steps back, to a config of another pool, and forward again.
fn rollback(fixture: &AdminFixture) {
    let newest = fixture.target();
    let text = fixture.run(&["rollback", "worker"]);
    assert!(
        text.contains(&format!("rolls back from {newest} to ")) && text.contains("--undo"),
        "{text}"
    );
    let older = fixture.wait_for_rollout();
    assert_ne!(older, newest);
    assert_eq!(fixture.status()["rolledBackFrom"], json!(newest));
    let (_, refused) =
        fixture.run_expecting(3, &["rollback", "worker", "--to", "rendered-worker-0"]);
    assert!(
        refused.contains("is not a rendered config of") && refused.contains(&newest),
        "{refused}"
    );
    assert!(refused.contains("old): sim-00000, sim-00001, sim-00002"), "{refused}");
    fixture.run_expecting(3, &["rollback", "worker", "--to", &older]);
    fixture.run(&["rollback", "worker", "--undo"]);
    assert_eq!(fixture.wait_for_rollout(), newest);
    assert!(fixture.run(&["rollback", "worker", "--undo"]).contains("is not rolled back"));
    fixture.run(&["rollback", "worker", "--to", &older]);
    assert_eq!(fixture.wait_for_rollout(), older);
    // A change of its MachineConfigs ends it.
    fixture.apply(&file("51-motd", "/etc/motd", "goodbye"));
    let forward = fixture.wait_for_rollout();
    assert!(forward != older && forward != newest);
    assert!(fixture.status()["rolledBackFrom"].is_null());
}

/// Machines that wait for a reboot do so only when the administrator allows it.
fn deferred_reboots(fixture: &AdminFixture) {
    fixture.run(&["annotate", "mcp", "worker", "machinist.dev/reboot=deferred"]);
    fixture.apply(&file("51-motd", "/etc/motd", "later"));
    fixture.wait_until("all to wait for a restart", |status| {
        status["machines"]["restartPending"] == json!(3)
    });
    let status = fixture.status();
    assert_eq!(
        (&status["state"], &status["halted"]["reason"]),
        (&json!("halted"), &json!("restartsPending"))
    );
    assert_eq!(status["pending"][0]["waiting"], json!({"reason": "restartPending"}));
    let text = fixture.run(&["reboot", "sim-00001"]);
    assert!(text.starts_with("sim-00001 reboots into rendered-worker-"), "{text}");
    fixture.wait_until("it to be through", |status| status["machines"]["updated"] == json!(1));
    fixture.run(&["hold", "sim-00001", "--reason", "a disk is replaced"]);
    let (_, refused) = fixture.run_expecting(3, &["reboot", "sim-00001"]);
    assert!(refused.contains("machinist release sim-00001"), "{refused}");
    let all = fixture.run(&["status"]);
    assert!(all.contains("is held (a disk is replaced)"), "{all}");
    fixture.run(&["release", "sim-00001"]);
    let text = fixture.run(&["reboot", "sim-00001"]);
    assert!(text.contains("as soon as maxUnavailable allows"), "{text}");
    // No daemon runs on a simulated machine.
    fixture.run(&["annotate", "node", "sim-00001", "machinist.dev/reboot-requested-"]);
    let node = fixture.api_server.get(&format!("{NODES}/sim-00001")).body;
    let ours =
        |key: &str| node["metadata"]["annotations"].get(format!("machinist.dev/{key}")).cloned();
    assert_eq!((ours("restart"), ours("restart-pending")), (None, None));
    assert_eq!(fixture.status()["machines"]["restartPending"], json!(2));
    for name in ["sim-00000", "sim-00002"] {
        fixture.run(&["reboot", name]);
    }
    fixture.wait_for_rollout();
    fixture.run_expecting(1, &["reboot", "nowhere"]);
    fixture.run(&["annotate", "mcp", "worker", "machinist.dev/reboot-"]);
}

/// A config that is known to be bad reaches no machine, and the follow command says so.
fn stops_at_a_bad_config(fixture: &AdminFixture) {
    let bad = file("51-motd", "/etc/motd", "bad");
    let path = fixture.manifest(&bad);
    let plan = fixture.json(&["plan", "-f", &path, "-o", "json"]);
    let after = plan["pools"][0]["after"].as_str().unwrap();
    fixture.run(&["annotate", "mcp", "worker", &format!("machinist.dev/bad-configs={after}")]);
    fixture.apply(&bad);
    let (text, _) = fixture.run_expecting(3, &["rollout", "status", "worker", "--watch"]);
    assert!(text.contains(&format!("{after} is marked as bad")), "{text}");
    let lines =
        fixture.run_expecting(3, &["rollout", "status", "worker", "--watch", "-o", "json"]).0;
    let last: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    assert_eq!(last["pools"][0]["halted"]["reason"], json!("badConfig"));
    fixture.run(&["annotate", "mcp", "worker", "machinist.dev/bad-configs-"]);
    fixture.wait_for_rollout();
}

/// A machine that waits for permission to reboot and is in no pool.
fn pending(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "annotations": {
            "machineconfiguration.openshift.io/currentConfig": "a",
            "machineconfiguration.openshift.io/desiredConfig": "b",
            "machineconfiguration.openshift.io/state": "Working",
            "machinist.dev/restart-pending": "b",
        }},
    })
}

/// Every example in a `--help` works as it stands.
fn examples(fixture: &AdminFixture) {
    assert_eq!(fixture.api_server.post(NODES, &pending("worker-1")).code, 201);
    for command in
        [&["plan"][..], &["pause"], &["resume"], &["rollback"], &["reboot"], &["rollout", "status"]]
    {
        let help = fixture.run(&[command, &["--help"]].concat());
        let mut lines = help.lines().filter_map(|line| line.strip_prefix("  machinist "));
        let example = lines.next().unwrap_or_else(|| panic!("{command:?}: no example in:\n{help}"));
        let words: Vec<&str> = example.split(' ').collect();
        assert!(!fixture.run(&words).is_empty(), "{example}");
    }
}

/// The same commands work with any Kubernetes cluster, even without our controller.
#[test]
fn the_commands_work_on_kube_apiserver() {
    let fixture = AdminFixture { api_server: ApiServer::kubernetes().unwrap(), fleet: None };
    let plan = fixture.json(&["plan", "-f", "examples/chrony.yaml", "-o", "json"]);
    let pool = &plan["pools"][0];
    assert_eq!((&pool["pool"], &pool["before"]), (&json!("worker"), &Value::Null));
    assert!(pool["after"].as_str().unwrap().starts_with("rendered-worker-"), "{plan}");
    fixture.run(&["apply", "-f", "examples/chrony.yaml"]);
    assert_eq!(fixture.status()["state"], json!("rendering"));
    let text = fixture.run(&["pause", "worker"]);
    assert_eq!(text, "worker is paused; it has no rendered config yet\n");
    let explained = fixture.json(&["rollout", "explain", "worker", "-o", "json"]);
    assert_eq!(explained["next"], json!([]));
    let (_, refused) = fixture.run_expecting(3, &["rollback", "worker"]);
    assert!(refused.contains("no rendered config yet"), "{refused}");
    assert_eq!(fixture.api_server.post(NODES, &pending("n")).code, 201);
    fixture.run(&["reboot", "n"]);
    let node = fixture.api_server.get(&format!("{NODES}/n")).body;
    assert_eq!(node["metadata"]["annotations"]["machinist.dev/restart"], json!("b"));
    assert!(fixture.run_expecting(3, &["reboot", "n"]).1.contains("already"));
}
