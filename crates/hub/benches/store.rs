//! Measurements of the store: durable writes per second, lists, the latency of a change among
//! 10,000 watches, memory. `MACHINIST_BENCH_DIR` selects the disk (default: the temporary
//! directory), `MACHINIST_BENCH_SECONDS` the duration of each.
#![expect(clippy::expect_used, clippy::print_stdout, reason = "benchmark code")]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use machinist_hub::store::{Precondition, Store, StoreOp, StoreOptions};

const MACHINES: usize = 5000;

fn main() {
    // `cargo test --benches` only checks that the benchmark starts.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        bench_idle_memory();
        bench_writes().await;
        bench_lists().await;
        bench_watch_fan_out().await;
        bench_reopen().await;
    });
}

fn seconds() -> Duration {
    let text = std::env::var("MACHINIST_BENCH_SECONDS").unwrap_or_default();
    Duration::from_secs_f64(text.parse().unwrap_or(3.0))
}

fn scratch() -> tempfile::TempDir {
    let root =
        std::env::var_os("MACHINIST_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
    tempfile::tempdir_in(root).expect("a directory")
}

fn put(key: String, size: usize) -> Vec<StoreOp> {
    vec![StoreOp::Put { key, value: vec![b'x'; size].into(), expect: Precondition::Any }]
}

fn node(n: usize) -> String {
    format!("/registry/nodes/machine-{n:05}")
}

/// What a machine watches: its own Node and config.
fn watched_keys(n: usize) -> [String; 2] {
    [node(n), format!("/registry/machineconfignodes/machine-{n:05}")]
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    sorted.get((sorted.len() * percent / 100).min(sorted.len() - 1)).copied().unwrap_or_default()
}

fn show(name: &str, mut times: Vec<Duration>) {
    times.sort();
    let [p50, p99, max] = [50, 99, 100].map(|percent| percentile(&times, percent));
    println!("{name:<44} p50 {p50:>10.1?}  p99 {p99:>10.1?}  max {max:>10.1?}");
}

async fn bench_writes() {
    for (size, writers) in [(1024, 1), (1024, 16), (1024, 256), (8192, 256)] {
        let dir = scratch();
        let store = Store::open(dir.path(), StoreOptions::default()).expect("a store");
        let end = Instant::now() + seconds();
        let tasks: Vec<_> = (0..writers)
            .map(|writer| {
                let store = store.clone();
                tokio::spawn(async move {
                    let mut times = Vec::new();
                    while Instant::now() < end {
                        let started = Instant::now();
                        let key = node((times.len() * writers + writer) % MACHINES);
                        store.commit(put(key, size)).await.expect("a write");
                        times.push(started.elapsed());
                    }
                    times
                })
            })
            .collect();
        let mut times = Vec::new();
        for task in tasks {
            times.extend(task.await.expect("a writer"));
        }
        let rate = times.len() as f64 / seconds().as_secs_f64();
        show(&format!("writes, {size} bytes, {writers} writers: {rate:.0}/s"), times);
    }
}

async fn fill(store: &Store) {
    let ops =
        (0..MACHINES).flat_map(|n| watched_keys(n).map(|key| put(key, 4096))).flatten().collect();
    store.commit(ops).await.expect("a write");
}

fn bench_idle_memory() {
    let store = Store::in_memory(StoreOptions::default());
    let (count, before) = (40 * MACHINES, resident_kib());
    let watch = |n| store.watch(&node(n), 1).expect("a watch");
    let watches: Vec<_> = (0..count).map(watch).collect();
    let bytes = (resident_kib() - before) * 1024 / watches.len() as u64;
    println!("an idle watch                                {bytes} bytes");
}

async fn bench_lists() {
    let store = Store::in_memory(StoreOptions::default());
    fill(&store).await;
    let revision = store.revision();
    for n in 0..MACHINES {
        store.commit(put(node(n), 4096)).await.expect("a write");
    }
    let timed = |work: &dyn Fn()| -> Vec<Duration> {
        let once = |_| {
            let started = Instant::now();
            work();
            started.elapsed()
        };
        (0..200).map(once).collect()
    };
    show("list of 5,000", timed(&|| drop(store.list("/registry/nodes/", None, None))));
    let old = || drop(store.list_at(revision, "/registry/nodes/", None, Some(500)));
    show("page of 500, undoing 5,000 events", timed(&old));
}

async fn bench_watch_fan_out() {
    let dir = scratch();
    let store = Store::open(dir.path(), StoreOptions::default()).expect("a store");
    fill(&store).await;
    let watches: Vec<_> = (0..MACHINES)
        .flat_map(watched_keys)
        .map(|key| store.watch(&key, store.revision()).expect("a watch"))
        .collect();
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    for mut watch in watches {
        let sender = sender.clone();
        tokio::spawn(async move {
            while let Ok(event) = watch.next().await {
                let _ = sender.send((event.revision, Instant::now()));
            }
        });
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let (mut durable, mut reached) = (Vec::new(), Vec::new());
    for n in 0..500 {
        let started = Instant::now();
        store.commit(put(node(n * 7 % MACHINES), 4096)).await.expect("a write");
        durable.push(started.elapsed());
        let (_, at) = receiver.recv().await.expect("an event");
        reached.push(at - started);
    }
    show("one change among 10,000 watches: durable", durable);
    show("                                 at its watch", reached);
    let started = Instant::now();
    let changes = (0..MACHINES).map(|n| store.commit(put(node(n), 4096)));
    let changes = changes.map(|change| async { change.await.map(|_| started.elapsed()) });
    let durable = futures::future::try_join_all(changes).await.expect("writes");
    let mut reached = Vec::new();
    for _ in 0..MACHINES {
        let (_, at) = receiver.recv().await.expect("an event");
        reached.push(at - started);
    }
    show("5,000 concurrent changes:         durable", durable);
    show("                                 at their watches", reached);
    println!("resident, all of the above                   {} MiB", resident_kib() / 1024);
}

async fn bench_reopen() {
    let dir = scratch();
    let store = Store::open(dir.path(), StoreOptions::default()).expect("a store");
    fill(&store).await;
    for n in 0..10 {
        let changes = (0..MACHINES).map(|m| store.commit(put(node(m), 4000 + n)));
        futures::future::try_join_all(changes).await.expect("writes");
    }
    store.close().await;
    let size = std::fs::metadata(dir.path().join("store.redb")).map_or(0, |file| file.len()) >> 20;
    let started = Instant::now();
    let store = Store::open(dir.path(), StoreOptions::default()).expect("a store");
    let took = started.elapsed();
    println!("start with 10,000 entries, 60,000 events    {took:.1?} ({size} MiB)");
    let started = Instant::now();
    let backup = store.backup_file(&dir.path().join("backup")).await.expect("a backup");
    println!(
        "backup                                       {:.1?} ({} MiB)",
        started.elapsed(),
        backup.bytes >> 20
    );
}
