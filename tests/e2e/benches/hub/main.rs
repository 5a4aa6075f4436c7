//! 5,000 machines, each with a connection of its own and a watch on its Node and on its config: the
//! hub, and beside it a kube-apiserver with etcd, in one run. Fails when the hub misses a budget.
//!
//! `MACHINIST_BENCH_MACHINES` sets how many machines, `MACHINIST_BENCH_SECONDS` how long each part
//! takes, `MACHINIST_BENCH_HOMES=hub` or `=kubernetes` leaves out the other home.
#![expect(clippy::print_stdout, reason = "a bench prints")]

mod api_server;
mod connection;
mod machines;
mod measure;

use anyhow::Result;
use api_server::BenchApiServer;
use machinist_e2e::cpu_load::CpuLoad;
use machinist_e2e::{block_on, measurements};
use measure::Measurements;

/// A number from the environment.
fn number(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn main() -> Result<()> {
    // `cargo test --benches` only wants to know that it starts.
    if std::env::args().any(|argument| argument == "--test") {
        return Ok(());
    }
    api_server::raise_file_limit();
    let homes = std::env::var("MACHINIST_BENCH_HOMES").unwrap_or_default();
    println!("load of the machine before: {}", loads());
    if homes == "kubernetes" {
        println!("{}", run(&BenchApiServer::kubernetes()?)?);
        return Ok(());
    }
    let hub = run(&BenchApiServer::hub()?)?;
    println!("{hub}");
    if homes.is_empty() {
        let other = run(&BenchApiServer::kubernetes()?)?;
        println!("{other}\n{}", hub.compared_with(&other));
    }
    measurements::record("hub-load", hub.line())?;
    let missed = hub.missed_budgets();
    if !missed.is_empty() {
        anyhow::bail!("budgets missed: {}", missed.join(", "));
    }
    Ok(())
}

fn run(home: &BenchApiServer) -> Result<Measurements> {
    let machines = number("MACHINIST_BENCH_MACHINES", 5000);
    let load = CpuLoad::start(home.processes());
    let mut figures = block_on(measure::measure(home, machines))?;
    figures.share = load.available_share();
    Ok(figures)
}

fn loads() -> String {
    std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim().to_owned()
}
