//! A shared informer of client-go stays consistent with the hub through 10,000 writes, restarts, kills and compactions:
//! nothing missed, nothing duplicated, nothing out of order.
use crate::hub_support;

use http::Request;
use hub_support::{HubProcess, RandomGenerator};
use kube::Client;
use machinist_e2e::environment::env_number;
use machinist_e2e::lab::LabProcess;
use machinist_e2e::{block_on, cache, command, runtime, wait_for};
use rustix::process::Signal;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// The hub's event history: far smaller than what is written.
const HISTORY_EVENTS: usize = 1500;
const WRITERS: u64 = 8;
/// The size limit of objects. They are larger while the informer is paused, so that the writes exceed the buffers of a
/// connection.
const MAX_PADDING: u64 = 800;
const LARGE_PADDING: u64 = 14_000;
/// The pause between two writes of a writer.
const WRITE_INTERVAL: Duration = Duration::from_millis(15);
/// The objects of one writer.
const OBJECTS: u64 = 6;

#[derive(Debug, Clone, Deserialize)]
struct InformerEvent {
    event: String,
    name: String,
    uid: String,
    version: String,
    count: String,
}

impl InformerEvent {
    fn version(&self) -> u64 {
        self.version.parse().unwrap()
    }
}

/// The Go binary, built with the module proxy and caches that Go is configured with.
fn build(dir: &Path) -> PathBuf {
    let binary = dir.join("informer");
    let mut go = Command::new("go");
    go.current_dir(cache::source_root().join("tests/e2e/informer"))
        .arg("build")
        .arg("-o")
        .arg(&binary);
    go.env("CGO_ENABLED", "0").env("GOFLAGS", "-mod=readonly -buildvcs=false");
    command::run(go.arg(".")).unwrap();
    binary
}

struct InformerProcess {
    process: LabProcess,
    out: PathBuf,
}

impl InformerProcess {
    fn start(hub: &HubProcess) -> Self {
        let dir = hub.lab().create_dir("informer").unwrap();
        let out = dir.join("events");
        let mut informer = Command::new(build(&dir));
        informer.arg("-kubeconfig").arg(hub.kubeconfig()).arg("-out").arg(&out);
        Self { process: hub.lab().spawn("informer", &informer).unwrap(), out }
    }

    fn lines(&self) -> Vec<InformerEvent> {
        let text = std::fs::read_to_string(&self.out).unwrap_or_default();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The contents of its store: version and count by name.
    fn store(&mut self) -> BTreeMap<String, (u64, String)> {
        let ends =
            |lines: &[InformerEvent]| lines.iter().filter(|line| line.event == "end").count();
        let before = ends(&self.lines());
        self.process.signal(Signal::USR1).unwrap();
        wait_for("output of the informer", || {
            self.process.check_alive()?;
            Ok(ends(&self.lines()) > before)
        })
        .unwrap();
        let mut found = BTreeMap::new();
        for line in self.lines() {
            match line.event.as_str() {
                "has" => drop(found.insert(line.name.clone(), (line.version(), line.count))),
                "end" => {}
                // Only output after the request counts.
                _ => found.clear(),
            }
        }
        found
    }
}

/// The revision of each acknowledged write.
#[derive(Default)]
struct AcknowledgedWrites {
    revisions: Mutex<HashSet<u64>>,
    count: AtomicU64,
    /// Set when everything planned has happened.
    stop: AtomicBool,
    /// Set while the informer is paused.
    informer_paused: AtomicBool,
}

async fn send(client: &Client, method: &str, path: &str, body: &Value) -> kube::Result<Value> {
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = Request::builder().method(method).uri(path).body(body);
    client.request(request.map_err(kube::Error::HttpError)?).await
}

/// Creates, changes and deletes its own objects. After a failure it reads the current state.
async fn write(client: Client, writer: u64, target: u64, done: Arc<AcknowledgedWrites>) {
    let mut random = RandomGenerator(writer * 7919 + 17);
    let mut count = 0;
    while done.count.load(Ordering::Relaxed) < target || !done.stop.load(Ordering::Relaxed) {
        let name = format!("w{writer}-{}", random.below(OBJECTS));
        let path = format!("{MAPS}/{name}");
        count += 1;
        // On a fast host the hub would compact more than an informer can catch up with, because client-go waits for
        // seconds after a restart. Only the pause of the informer is meant to exceed the history.
        if !done.informer_paused.load(Ordering::Relaxed) {
            tokio::time::sleep(WRITE_INTERVAL).await;
        }
        let limit =
            if done.informer_paused.load(Ordering::Relaxed) { LARGE_PADDING } else { MAX_PADDING };
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
            "data": {"count": count.to_string(), "pad": "x".repeat(random.below(limit) as usize)},
        });
        let result = match random.below(10) {
            0 | 1 => send(&client, "DELETE", &path, &Value::Null).await,
            _ => match send(&client, "PUT", &path, &map).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {
                    send(&client, "POST", MAPS, &map).await
                }
                result => result,
            },
        };
        match result {
            Ok(object) => {
                // A delete responds with a Status, which does not contain the revision.
                if let Some(version) = object["metadata"]["resourceVersion"].as_str() {
                    done.revisions.lock().unwrap().insert(version.parse().unwrap());
                }
                done.count.fetch_add(1, Ordering::Relaxed);
            }
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(kube::Error::Api(status)) if status.code < 500 => panic!("{status:?}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}

fn wait_until_written(done: &AcknowledgedWrites, count: u64) {
    wait_for("the writers", || Ok(done.count.load(Ordering::Relaxed) >= count)).unwrap();
}

/// Waits until the informer has caught up with the writers.
fn wait_until_observed(informer: &InformerProcess, done: &AcknowledgedWrites) {
    let newest = done.revisions.lock().unwrap().iter().copied().max().unwrap_or(0);
    wait_for("the informer to catch up", || {
        Ok(informer.lines().iter().any(|line| line.event != "list" && line.version() >= newest))
    })
    .unwrap();
}

/// Everything that can happen to a hub and to a client while writers write.
fn inject_faults(
    hub: &mut HubProcess,
    informer: &InformerProcess,
    done: &AcknowledgedWrites,
    writes: u64,
) {
    let steps = 10;
    for step in 1..steps {
        wait_until_written(done, writes * step / steps);
        match step {
            1 | 5 => hub.terminate().and_then(|()| hub.launch()).unwrap(),
            2 | 4 | 8 => hub.kill().and_then(|()| hub.launch()).unwrap(),
            // The informer is paused until the hub has compacted its position.
            3 | 6 => {
                wait_until_observed(informer, done);
                informer.process.signal(Signal::STOP).unwrap();
                done.informer_paused.store(true, Ordering::Relaxed);
                let now = done.count.load(Ordering::Relaxed);
                // The buffers of its connection still hold events: some ten megabytes, about one history.
                wait_until_written(done, now + 2 * HISTORY_EVENTS as u64 + 500);
                if step == 6 {
                    hub.kill().and_then(|()| hub.launch()).unwrap();
                }
                done.informer_paused.store(false, Ordering::Relaxed);
                informer.process.signal(Signal::CONT).unwrap();
            }
            _ => {}
        }
        hub.wait_until_ready().unwrap();
    }
}

/// Each object's events are in order, each state is reported once, and every unreported write came before a list that
/// the informer made.
fn check(lines: &[InformerEvent], acknowledged: &HashSet<u64>) -> (usize, usize) {
    let mut last: HashMap<&str, u64> = HashMap::new();
    let mut reported: HashSet<u64> = HashSet::new();
    let (mut newest, mut gaps) = (0, Vec::<(u64, u64)>::new());
    let mut replays: HashMap<u64, usize> = HashMap::new();
    for line in lines {
        match line.event.as_str() {
            "list" => gaps.push((newest, line.version())),
            "add" | "update" | "delete" => {
                let version = line.version();
                let before = last.insert(&line.name, version).unwrap_or(0);
                if version == before && line.event == "update" {
                    // After a list client-go reports unchanged objects again, once per list.
                    let lists = gaps.iter().filter(|(_, to)| *to >= version).count();
                    let replays = replays.entry(version).or_default();
                    *replays += 1;
                    assert!(*replays <= lists, "reported twice: {line:?}");
                    continue;
                }
                assert!(version > before, "out of order: {before}, then {line:?}");
                reported.insert(version);
                newest = newest.max(version);
                assert!(!line.uid.is_empty() && !line.count.is_empty(), "{line:?}");
            }
            _ => {}
        }
    }
    let explained = |version: u64| gaps.iter().any(|(from, to)| *from < version && version <= *to);
    let missed: Vec<_> =
        acknowledged.difference(&reported).filter(|version| !explained(**version)).collect();
    assert!(missed.is_empty(), "{} writes were never reported: {missed:?}", missed.len());
    let seen = acknowledged.intersection(&reported).count();
    (seen, gaps.len())
}

#[test]
fn an_informer_stays_consistent() {
    let writes = env_number("MACHINIST_WRITES", 10_000);
    let mut hub = HubProcess::with_history(Some(HISTORY_EVENTS)).unwrap();
    let mut informer = InformerProcess::start(&hub);
    wait_for("the informer to list", || {
        informer.process.check_alive()?;
        Ok(informer.lines().iter().any(|line| line.event == "list"))
    })
    .unwrap();
    let done = Arc::new(AcknowledgedWrites::default());
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            runtime().spawn(write(hub.client().unwrap(), writer, writes, Arc::clone(&done)))
        })
        .collect();
    inject_faults(&mut hub, &informer, &done, writes);
    done.stop.store(true, Ordering::Relaxed);
    for writer in writers {
        block_on(writer).unwrap();
    }
    let list = block_on(send(&hub.client().unwrap(), "GET", MAPS, &Value::Null)).unwrap();
    let version = |object: &Value| object["metadata"]["resourceVersion"].as_str().unwrap().parse();
    let expected: BTreeMap<String, (u64, String)> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|object| {
            let name = object["metadata"]["name"].as_str().unwrap().to_owned();
            let count = object["data"]["count"].as_str().unwrap().to_owned();
            (name, (version(object).unwrap(), count))
        })
        .collect();
    wait_for("the informer to hold what the hub holds", || {
        let found = informer.store();
        anyhow::ensure!(found == expected, "{found:?}\ninstead of\n{expected:?}");
        Ok(true)
    })
    .unwrap();
    let acknowledged = done.revisions.lock().unwrap();
    let (seen, lists) = check(&informer.lines(), &acknowledged);
    eprintln!(
        "{} writes acknowledged, {seen} of {} reported individually, {lists} lists",
        done.count.load(Ordering::Relaxed),
        acknowledged.len()
    );
    assert!(seen >= 1000, "too few were reported: {seen} of {}", acknowledged.len());
    assert!(lists >= 3, "the history was never forgotten: {lists} lists");
}
