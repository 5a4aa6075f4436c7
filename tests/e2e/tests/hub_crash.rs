//! `machinist up` killed at random moments under load: every acknowledged write is stored completely, the revision
//! never decreases, and watchers resume or must list again.
//!
//! `MACHINIST_CRASH_ROUNDS` sets the number of rounds, `MACHINIST_CRASH_SEED` repeats the moments.
use crate::hub_support;

use futures::TryStreamExt as _;
use hub_support::{HubProcess, RandomGenerator};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client, ResourceExt as _};
use machinist_e2e::environment::env_number;
use machinist_e2e::{block_on, measurements, runtime, wait_for};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const WRITERS: u64 = 16;
const WATCHERS: usize = 4;
/// The hub's event history: watchers that return immediately resume, one that misses more events falls behind.
const HISTORY_EVENTS: usize = 100;
const MISSED_EVENTS: usize = 2 * HISTORY_EVENTS;
/// The most writes before the hub is killed.
const MAX_WRITES_PER_ROUND: u64 = 150;
const ROUNDS: u64 = 15;

/// A writer's last write: its count, or `None` if it deleted its object.
type LastWrite = Option<u64>;

/// An object whose parts all contain the same count.
fn object(name: &str, count: u64) -> ConfigMap {
    let parts = ["a", "b", "c"].map(|part| (part.to_owned(), count.to_string()));
    let pad = ("pad".to_owned(), format!("{count}/").repeat((count % 97) as usize * 10));
    let mut map =
        ConfigMap { data: Some(parts.into_iter().chain([pad]).collect()), ..Default::default() };
    map.metadata.name = Some(name.to_owned());
    map
}

/// The count of a stored object. All parts must come from one write.
fn count_of(map: &ConfigMap) -> u64 {
    let data = map.data.as_ref().unwrap();
    let count: u64 = data["a"].parse().unwrap();
    assert_eq!(map.data, object("", count).data, "half a write of {}", map.name_any());
    count
}

fn revision(map: &ConfigMap) -> u64 {
    map.resource_version().unwrap().parse().unwrap()
}

/// How far the writers are. Watchers and kills wait for writes and not for time, so that a slow host sees the same.
#[derive(Default)]
struct Progress {
    acknowledged: AtomicUsize,
    /// No further writes come.
    ended: AtomicBool,
}

impl Progress {
    /// Waits for further writes.
    async fn wait_for_writes(&self, count: usize) {
        let until = self.acknowledged.load(Ordering::Relaxed) + count;
        while self.acknowledged.load(Ordering::Relaxed) < until
            && !self.ended.load(Ordering::Relaxed)
        {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// What one writer observed until its first error.
struct WriterResult {
    acknowledged: LastWrite,
    /// The write that got no response.
    attempted: LastWrite,
    writes: Vec<u64>,
}

async fn write(
    api: Api<ConfigMap>,
    name: String,
    mut state: LastWrite,
    mut count: u64,
    progress: Arc<Progress>,
) -> WriterResult {
    let mut writes = Vec::new();
    let post = PostParams::default();
    loop {
        count += 1;
        let next = if state.is_some() && count.is_multiple_of(7) { None } else { Some(count) };
        let result = match (state, next) {
            (None, _) => api.create(&post, &object(&name, count)).await.map(|map| revision(&map)),
            (_, Some(_)) => {
                api.replace(&name, &post, &object(&name, count)).await.map(|map| revision(&map))
            }
            // The response to a delete does not contain the revision.
            (_, None) => api.delete(&name, &DeleteParams::default()).await.map(|_| 0),
        };
        match result {
            Ok(revision) => {
                state = next;
                writes.push(revision);
                progress.acknowledged.fetch_add(1, Ordering::Relaxed);
            }
            Err(kube::Error::Api(status)) if status.code < 500 => panic!("{name}: {status:?}"),
            Err(_) => return WriterResult { acknowledged: state, attempted: next, writes },
        }
    }
}

/// What a watcher observed: revisions by name, and where it had to list again.
#[derive(Default)]
struct WatcherResult {
    last: HashMap<String, u64>,
    revisions: HashSet<u64>,
    newest: u64,
    gaps: Vec<(u64, u64)>,
    resumed: usize,
}

/// Watches until it is stopped, resuming where it was.
async fn watch(
    api: Api<ConfigMap>,
    seen: Arc<Mutex<WatcherResult>>,
    stop: Arc<AtomicBool>,
    progress: Arc<Progress>,
    missed: usize,
) {
    let mut from: Option<String> = None;
    while !stop.load(Ordering::Relaxed) {
        // However it ended: by a kill, by falling behind, or because the hub is not back yet.
        let _ = watch_once(&api, &seen, &mut from, &stop).await;
        progress.wait_for_writes(missed).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn watch_once(
    api: &Api<ConfigMap>,
    seen: &Mutex<WatcherResult>,
    from: &mut Option<String>,
    stop: &AtomicBool,
) -> anyhow::Result<()> {
    let start = match from {
        Some(version) => version.clone(),
        None => {
            let list = api.list(&ListParams::default()).await?;
            let version = list.metadata.resource_version.unwrap();
            let mut seen = seen.lock().unwrap();
            let gap = (seen.newest, version.parse()?);
            seen.gaps.push(gap);
            from.insert(version).clone()
        }
    };
    let stream = api.watch(&WatchParams::default().timeout(290), &start).await?;
    seen.lock().unwrap().resumed += 1;
    let mut stream = std::pin::pin!(stream);
    while let Some(event) = stream.try_next().await? {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let map = match event {
            WatchEvent::Added(map) | WatchEvent::Modified(map) | WatchEvent::Deleted(map) => map,
            WatchEvent::Bookmark(_) => continue,
            WatchEvent::Error(status) => {
                assert_eq!(status.code, 410, "{status:?}");
                *from = None;
                return Ok(());
            }
        };
        count_of(&map);
        let version = revision(&map);
        let mut seen = seen.lock().unwrap();
        let before = seen.last.insert(map.name_any(), version).unwrap_or(0);
        assert!(version > before, "{} again or out of order: {before}, {version}", map.name_any());
        seen.revisions.insert(version);
        seen.newest = version;
        *from = Some(version.to_string());
    }
    Ok(())
}

/// The state of every writer's object, and the revision of the list.
fn list(client: &Client) -> (BTreeMap<String, u64>, u64) {
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let list = block_on(api.list(&ListParams::default())).unwrap();
    let objects = list.items.iter().map(|map| (map.name_any(), count_of(map))).collect();
    (objects, list.metadata.resource_version.unwrap().parse().unwrap())
}

struct CrashTest {
    hub: HubProcess,
    random: RandomGenerator,
    revision: u64,
    writes: HashSet<u64>,
    count: usize,
    progress: Arc<Progress>,
}

impl CrashTest {
    /// One run of the hub: writers write, it is killed, and started again.
    fn round(&mut self, states: &mut BTreeMap<String, (LastWrite, u64)>) {
        let client = self.hub.client().unwrap();
        let writers: Vec<_> = states
            .iter()
            .map(|(name, (state, count))| {
                let api = Api::default_namespaced(client.clone());
                let progress = Arc::clone(&self.progress);
                (name.clone(), runtime().spawn(write(api, name.clone(), *state, *count, progress)))
            })
            .collect();
        let writes = usize::try_from(self.random.below(MAX_WRITES_PER_ROUND)).unwrap();
        block_on(self.progress.wait_for_writes(writes));
        std::thread::sleep(Duration::from_micros(self.random.below(20_000)));
        self.hub.kill().unwrap();
        let result: Vec<(String, WriterResult)> =
            writers.into_iter().map(|(name, task)| (name, block_on(task).unwrap())).collect();
        self.hub.launch().unwrap();
        // Some are killed while they start.
        if self.random.below(5) == 0 {
            std::thread::sleep(Duration::from_micros(self.random.below(400_000)));
            self.hub.kill().unwrap();
            self.hub.launch().unwrap();
        }
        self.hub.wait_until_ready().unwrap();
        let (objects, revision) = list(&self.hub.client().unwrap());
        assert!(
            revision >= self.revision,
            "the revision went back: {} to {revision}",
            self.revision
        );
        self.revision = revision;
        for (name, result) in result {
            let found = objects.get(&name).copied();
            let known = found == result.acknowledged || found == result.attempted;
            assert!(
                known,
                "{name}: {found:?}, acknowledged {:?}, attempted {:?}",
                result.acknowledged, result.attempted
            );
            let newest = result.writes.iter().copied().max().unwrap_or(0);
            assert!(revision >= newest, "revision {newest} was acknowledged, now it is {revision}");
            self.count += result.writes.len();
            self.writes.extend(result.writes.iter().filter(|revision| **revision > 0));
            let count = states[&name].1 + result.writes.len() as u64 + 1;
            states.insert(name, (found, count));
        }
    }
}

#[test]
fn nothing_acknowledged_is_lost_when_the_hub_is_killed() {
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    let seed = env_number("MACHINIST_CRASH_SEED", now | 1);
    let rounds = env_number("MACHINIST_CRASH_ROUNDS", ROUNDS);
    eprintln!("MACHINIST_CRASH_SEED={seed}");
    let start = Instant::now();
    let hub = HubProcess::with_history(Some(HISTORY_EVENTS)).unwrap();
    let client = hub.client().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let progress = Arc::new(Progress::default());
    let seen: Vec<Arc<Mutex<WatcherResult>>> = (0..WATCHERS).map(|_| Arc::default()).collect();
    let watchers: Vec<_> = seen
        .iter()
        .enumerate()
        .map(|(index, seen)| {
            let api = Api::default_namespaced(client.clone());
            let missed = if index == 0 { MISSED_EVENTS } else { 0 };
            let (seen, stop, progress) =
                (Arc::clone(seen), Arc::clone(&stop), Arc::clone(&progress));
            runtime().spawn(watch(api, seen, stop, progress, missed))
        })
        .collect();
    let mut test = CrashTest {
        hub,
        random: RandomGenerator(seed),
        revision: 1,
        writes: HashSet::new(),
        count: 0,
        progress: Arc::clone(&progress),
    };
    let mut states = (0..WRITERS).map(|n| (format!("w{n}"), (None, 0))).collect();
    for _ in 0..rounds {
        test.round(&mut states);
    }
    progress.ended.store(true, Ordering::Relaxed);
    let newest = test.writes.iter().copied().max().unwrap();
    for (seen, watcher) in seen.iter().zip(watchers) {
        wait_for("a watcher to see the last write", || {
            assert!(!watcher.is_finished(), "a watcher gave up");
            let seen = seen.lock().unwrap();
            let listed = seen.gaps.iter().any(|(_, to)| *to >= newest);
            Ok(listed || seen.revisions.contains(&newest))
        })
        .unwrap();
        let seen = seen.lock().unwrap();
        let listed =
            |version: u64| seen.gaps.iter().any(|(from, to)| *from < version && version <= *to);
        let missed = test.writes.iter().filter(|v| !seen.revisions.contains(v) && !listed(**v));
        assert_eq!(missed.count(), 0, "a watcher missed writes");
        assert!(seen.resumed > 2, "only {} watches", seen.resumed);
        watcher.abort();
    }
    stop.store(true, Ordering::Relaxed);
    let lists: usize = seen.iter().map(|seen| seen.lock().unwrap().gaps.len()).sum();
    let summary = format!(
        "{rounds} kills, {} acknowledged writes, revision {}, {lists} lists by {WATCHERS} watchers, {:.0?}",
        test.count,
        test.revision,
        start.elapsed()
    );
    eprintln!("{summary}");
    measurements::record("hub-crashes", &summary).unwrap();
    assert!(rounds < ROUNDS || lists > WATCHERS, "nobody fell behind: {summary}");
}
