//! `kill -9` at random moments under load: no acknowledged write is lost or partial, the revision
//! never decreases, and watches resume.
//!
//! The test runs itself as the child process. `MACHINIST_CRASH_ROUNDS` sets the number of rounds,
//! `MACHINIST_CRASH_SEED` repeats a run.
use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use machinist_hub::store::{Precondition, Store, StoreOp, StoreOptions};

const DIR_VARIABLE: &str = "MACHINIST_CRASH_DIR";
const WRITERS: u64 = 12;
const OPTIONS: StoreOptions =
    StoreOptions { history: 1000, history_bytes: 1 << 20, reserve_bytes: 0 };
const TIME_LIMIT: Duration = Duration::from_secs(28);

/// A small pseudo-random generator.
struct CrashRandom(u64);

impl CrashRandom {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn count_of(store: &Store, key: &str) -> u64 {
    let Some(entry) = store.get(key) else { return 0 };
    let text = std::str::from_utf8(&entry.value).unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

/// The child process: each writer changes its two keys in one transaction and prints the
/// acknowledged count.
#[test]
fn child_process() {
    let Ok(dir) = std::env::var(DIR_VARIABLE) else { return };
    let store = Store::open(Path::new(&dir), OPTIONS).unwrap();
    println!("\nopen {}", store.revision());
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let writers = (0..WRITERS).map(|writer| write_forever(store.clone(), writer));
        futures::future::join_all(writers).await;
    });
}

async fn write_forever(store: Store, writer: u64) {
    let (a, b, c) = (format!("/{writer}/a"), format!("/{writer}/b"), format!("/{writer}/c"));
    let mut count = count_of(&store, &a);
    let mut random = CrashRandom(writer + 7);
    loop {
        count += 1;
        let pad = "x".repeat(random.below(1500) as usize);
        let value = bytes::Bytes::from(format!("{count} {pad}"));
        let put = |key: &String| StoreOp::Put {
            key: key.clone(),
            value: value.clone(),
            expect: Precondition::Any,
        };
        let mut ops = vec![put(&a), put(&b)];
        // The third key exists after odd counts only.
        ops.push(match count % 2 {
            1 => put(&c),
            _ => StoreOp::Delete { key: c.clone(), expect: Precondition::Any },
        });
        let revision = store.commit(ops).await.unwrap().revision;
        println!("ack {writer} {count} {revision}");
    }
}

/// What the child printed before it was killed.
#[derive(Default)]
struct ChildOutput {
    acknowledged: HashMap<u64, u64>,
    revision: u64,
    writes: usize,
}

fn run_and_kill(dir: &Path, random: &mut CrashRandom) -> ChildOutput {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "store_crash::child_process", "--nocapture", "--test-threads=1"])
        .env(DIR_VARIABLE, dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let (opened, is_open) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || read_output(&mut stdout, &opened));
    // Some children are killed during startup, most during writes.
    if random.below(5) > 0 {
        let _ = is_open.recv_timeout(Duration::from_secs(10));
    }
    std::thread::sleep(Duration::from_micros(random.below(250_000)));
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap()
}

fn read_output(stdout: &mut impl BufRead, opened: &std::sync::mpsc::Sender<()>) -> ChildOutput {
    let mut output = ChildOutput::default();
    let mut line = String::new();
    while stdout.read_line(&mut line).unwrap() > 0 {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["open", revision] => {
                output.revision = revision.parse().unwrap();
                let _ = opened.send(());
            }
            ["ack", writer, count, revision] if line.ends_with('\n') => {
                output.acknowledged.insert(writer.parse().unwrap(), count.parse().unwrap());
                output.revision = output.revision.max(revision.parse().unwrap());
                output.writes += 1;
            }
            _ => {}
        }
        line.clear();
    }
    output
}

fn check(store: &Store, output: &ChildOutput, before: u64) {
    assert!(
        store.revision() >= output.revision && store.revision() >= before,
        "the revision decreased"
    );
    for writer in 0..WRITERS {
        let key = |name: &str| format!("/{writer}/{name}");
        let count = count_of(store, &key("a"));
        let acknowledged = output.acknowledged.get(&writer).copied().unwrap_or(0);
        assert!(count >= acknowledged, "writer {writer}: {acknowledged} was lost, found {count}");
        if acknowledged > 0 {
            assert!(count <= acknowledged + 1, "writer {writer}: {count} was never written");
        }
        assert_eq!(count, count_of(store, &key("b")), "writer {writer}: a partial transaction");
        assert_eq!(store.get(&key("c")).is_some(), count % 2 == 1, "writer {writer}: half");
    }
    check_history(store, before);
}

/// A watch from before the crash returns whole transactions without gaps, or must list again.
fn check_history(store: &Store, before: u64) {
    let Ok(mut watch) = store.watch("", before) else {
        assert!(store.list_at(before, "", None, None).is_err());
        return;
    };
    let mut events: HashMap<u64, usize> = HashMap::new();
    while let Some(event) = watch.try_next().unwrap() {
        *events.entry(event.revision).or_default() += 1;
    }
    assert_eq!(watch.observed_revision(), store.revision());
    for revision in before + 1..=store.revision() {
        let found = events.get(&revision).copied().unwrap_or(0);
        assert!(found == 2 || found == 3, "revision {revision} has {found} events");
    }
    for page in [before, store.revision()] {
        let view = store.list_at(page, "", None, None).unwrap();
        assert!(view.entries.iter().all(|entry| entry.revision <= page));
    }
}

#[test]
fn acknowledged_writes_survive_a_kill() {
    if std::env::var(DIR_VARIABLE).is_ok() {
        return;
    }
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    let seed = number("MACHINIST_CRASH_SEED", now | 1);
    let rounds = number("MACHINIST_CRASH_ROUNDS", 30);
    println!("MACHINIST_CRASH_SEED={seed}");
    let limit = if rounds > 30 { Duration::MAX } else { TIME_LIMIT };
    let started = Instant::now();
    let mut random = CrashRandom(seed);
    let dir = tempfile::tempdir().unwrap();
    let (mut before, mut writes, mut done) = (1, 0, 0);
    for _ in 0..rounds {
        if started.elapsed() > limit {
            break;
        }
        let output = run_and_kill(dir.path(), &mut random);
        let store = Store::open(dir.path(), OPTIONS).unwrap();
        check(&store, &output, before);
        before = store.revision();
        writes += output.writes;
        done += 1;
    }
    println!("{done} crashes, {writes} writes, revision {before}, {:?}", started.elapsed());
    assert!(done >= rounds.min(5), "only {done} rounds completed");
    assert!(writes > 0);
}
