//! What is measured of an API server, and how it is printed.

use crate::api_server::BenchApiServer;
use crate::connection::{BenchConnection, BenchConnector};
use crate::machines::{self, ChangeTimes, NODES, change_patch, node_path};
use anyhow::{Result, ensure};
use futures::future::try_join_all;
use machinist_e2e::environment::env_number;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const MERGE_PATCH: &str = "application/merge-patch+json";
/// Timed changes per second.
const CHANGES_PER_SECOND: usize = 200;
/// Concurrent writers when the highest write rate is measured.
const WRITERS: usize = 128;
/// Connections that the writers share.
const WRITER_CONNECTIONS: usize = 8;

/// The measurements of one API server.
#[derive(Debug, Clone)]
pub(crate) struct Measurements {
    name: &'static str,
    machines: usize,
    megabytes: u64,
    delay_p50: f64,
    delay_p99: f64,
    writes: f64,
    list: f64,
    /// The share of the host that other processes did not use.
    pub(crate) share: f64,
}

pub(crate) async fn measure(api_server: &BenchApiServer, machines: usize) -> Result<Measurements> {
    let seconds = env_number("MACHINIST_BENCH_SECONDS", 10);
    let connector = BenchConnector::new(&api_server.kubeconfig, &api_server.address)?;
    let connections = try_join_all((0..WRITER_CONNECTIONS).map(|_| connector.connect())).await?;
    machines::create(&connections, machines).await?;
    let changes = CHANGES_PER_SECOND * seconds;
    let change_times = ChangeTimes::new(changes);
    let start = Instant::now();
    machines::connect(&connector, machines, &change_times).await?;
    println!("{}: {machines} machines connected in {:.1?}", api_server.name, start.elapsed());
    let idle = api_server.memory();
    let delays = delays(&connections, machines, changes, &change_times).await?;
    let list = list(&connections[0], machines).await?;
    let writes = writes(&connections, machines, Duration::from_secs(seconds as u64)).await?;
    let megabytes = api_server.memory().max(idle) >> 20;
    println!("{}: {} MB idle, {megabytes} MB at the end", api_server.name, idle >> 20);
    let at = |share: f64| delays[((delays.len() - 1) as f64 * share) as usize];
    let (delay_p50, delay_p99) = (at(0.5), at(0.99));
    Ok(Measurements {
        name: api_server.name,
        machines,
        megabytes,
        delay_p50,
        delay_p99,
        writes,
        list,
        share: 1.0,
    })
}

/// Changes nodes at a steady rate and waits until the last change has reached its machine.
async fn delays(
    connections: &[BenchConnection],
    machines: usize,
    changes: usize,
    change_times: &Arc<ChangeTimes>,
) -> Result<Vec<f64>> {
    let mut tick = tokio::time::interval(Duration::from_secs(1) / CHANGES_PER_SECOND as u32);
    let mut running = Vec::new();
    for number in 0..changes {
        tick.tick().await;
        let (connection, change_times) =
            (connections[number % connections.len()].clone(), Arc::clone(change_times));
        let path = node_path(number * 7919 % machines);
        running.push(tokio::spawn(async move {
            change_times.record_start(number);
            connection.request("PATCH", &path, MERGE_PATCH, change_patch(number)).await
        }));
    }
    for one in running {
        one.await??;
    }
    let start = Instant::now();
    loop {
        if let Some(delays) = change_times.delays(changes) {
            return Ok(delays);
        }
        let missing = change_times.pending(changes);
        ensure!(
            start.elapsed() < Duration::from_secs(30),
            "{} changes never reached their machine: {missing:?}",
            missing.len()
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A list of all nodes, in milliseconds: the median of 21.
async fn list(connection: &BenchConnection, machines: usize) -> Result<f64> {
    let mut times = Vec::new();
    for _ in 0..21 {
        let start = Instant::now();
        let list = connection.request("GET", NODES, "application/json", "").await?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
        ensure!(list.len() > machines * 1000, "the list is too short");
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

/// Writes per second with all writers at once.
async fn writes(connections: &[BenchConnection], machines: usize, time: Duration) -> Result<f64> {
    let (count, start) = (Arc::new(AtomicUsize::new(0)), Instant::now());
    let writers = (0..WRITERS).map(|writer| {
        let (connection, count) =
            (connections[writer % connections.len()].clone(), Arc::clone(&count));
        tokio::spawn(async move {
            // Each writer has its own nodes, so that conflicts do not count.
            let mut machine = writer;
            while start.elapsed() < time {
                let number = count.fetch_add(1, Ordering::Relaxed);
                // Without the mark of a timed change.
                connection
                    .request(
                        "PATCH",
                        &node_path(machine),
                        MERGE_PATCH,
                        change_patch(usize::MAX - number),
                    )
                    .await?;
                machine = if machine + WRITERS < machines { machine + WRITERS } else { writer };
            }
            anyhow::Ok(())
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await??;
    }
    Ok(count.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64())
}

impl Measurements {
    pub(crate) fn line(&self) -> String {
        format!(
            "{} machines: {} MB, change to machine {:.1} ms p50 {:.1} ms p99, {:.0} writes/s, list {:.0} ms, with {:.0} % of the machine",
            self.machines,
            self.megabytes,
            self.delay_p50,
            self.delay_p99,
            self.writes,
            self.list,
            self.share * 100.0
        )
    }

    /// The budgets that were missed. Other load slows the host down, so the measurements are scaled to an otherwise
    /// idle host.
    pub(crate) fn missed_budgets(&self) -> Vec<String> {
        let (delay, writes) = (self.delay_p99 * self.share, self.writes / self.share);
        let checks = [
            (self.megabytes <= 600, format!("{} MB resident, at most 600", self.megabytes)),
            (delay <= 50.0, format!("p99 {delay:.1} ms, at most 50")),
            (writes >= 3000.0, format!("{writes:.0} writes a second, at least 3,000")),
            (self.list <= 150.0, format!("list in {:.0} ms, at most 150", self.list)),
        ];
        checks.into_iter().filter(|(kept, _)| !kept).map(|(_, what)| what).collect()
    }

    /// The ratio to another API server, as rows of a table.
    pub(crate) fn compared_with(&self, other: &Self) -> String {
        let row = |what: &str, own: f64, others: f64, ratio: f64| {
            format!("| {what} | {own:.1} | {others:.1} | {ratio:.1} |\n")
        };
        let mut text = format!(
            "| {} machines | {} | {} | times better |\n|---|---|---|---|\n",
            self.machines, self.name, other.name
        );
        for (what, own, others) in [
            ("resident, MB", self.megabytes as f64, other.megabytes as f64),
            ("a change reaches its machine, p50, ms", self.delay_p50, other.delay_p50),
            ("a change reaches its machine, p99, ms", self.delay_p99, other.delay_p99),
            ("list of all nodes, ms", self.list, other.list),
        ] {
            text += &row(what, own, others, others / own);
        }
        text + &row("writes a second", self.writes, other.writes, self.writes / other.writes)
    }
}

impl fmt::Display for Measurements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.line())
    }
}
