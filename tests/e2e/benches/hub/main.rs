//! 5,000 machines, each with its own connection and a watch on its Node and its config: first the hub, then a
//! kube-apiserver with etcd, in one run. Fails when the hub misses a budget.
//!
//! `MACHINIST_BENCH_MACHINES` sets the number of machines, `MACHINIST_BENCH_SECONDS` the length of each part.
//! `MACHINIST_BENCH_API_SERVERS=hub` or `=kubernetes` runs only one of the two.
#![expect(clippy::print_stdout, reason = "a bench prints")]

mod api_server;
mod connection;
mod machines;
mod measure;

use anyhow::Result;
use api_server::BenchApiServer;
use machinist_e2e::cpu_load::CpuLoad;
use machinist_e2e::environment::{env_number, raise_file_limit};
use machinist_e2e::{block_on, measurements};
use measure::Measurements;

fn main() -> Result<()> {
    // `cargo test --benches` only checks that the benchmark starts.
    if std::env::args().any(|argument| argument == "--test") {
        return Ok(());
    }
    raise_file_limit();
    let api_servers = std::env::var("MACHINIST_BENCH_API_SERVERS").unwrap_or_default();
    println!("load of the machine before: {}", loads());
    if api_servers == "kubernetes" {
        println!("{}", run(&BenchApiServer::kubernetes()?)?);
        return Ok(());
    }
    let hub = run(&BenchApiServer::hub()?)?;
    println!("{hub}");
    if api_servers.is_empty() {
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

fn run(api_server: &BenchApiServer) -> Result<Measurements> {
    let machines = env_number("MACHINIST_BENCH_MACHINES", 5000);
    let load = CpuLoad::start(api_server.processes());
    let mut measurements = block_on(measure::measure(api_server, machines))?;
    measurements.share = load.available_share();
    Ok(measurements)
}

fn loads() -> String {
    std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim().to_owned()
}
