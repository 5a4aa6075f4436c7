//! The machine config server compared to nginx with the same bytes as a file, alternating, and 2,000 machines at once.
//! Fails when a budget is missed.
//!
//! `MACHINIST_BENCH_SECONDS` sets the length of each round, `MACHINIST_BENCH_MACHINES` the number of simultaneous
//! machines.
#![expect(clippy::print_stdout, reason = "a bench prints")]

mod load;
mod servers;

use anyhow::{Result, bail, ensure};
use load::{LoadTarget, measure_burst, measure_rate};
use machinist_e2e::cpu_load::CpuLoad;
use machinist_e2e::environment::{env_number, raise_file_limit};
use machinist_e2e::{Lab, block_on, measurements};
use servers::{ConfigServer, ServedConfig};
use std::time::Duration;

/// Connections when the rates are measured.
const CONNECTIONS: usize = 16;
/// Rounds per server. The best one counts, because other load on the host can only slow a server down.
const ROUNDS: usize = 5;
/// Our responses per second must be at least this share of nginx's.
const MIN_SHARE_OF_NGINX: f64 = 0.6;
/// The memory that 2,000 simultaneous machines may cost, on top of the response itself.
const MAX_MEMORY_BYTES: u64 = 40 << 20;
/// The same with TLS: every connection has keys and buffers.
const MAX_MEMORY_TLS_BYTES: u64 = 80 << 20;

fn main() -> Result<()> {
    // `cargo test --benches` only checks that the benchmark starts.
    if std::env::args().any(|argument| argument == "--test") {
        return Ok(());
    }
    raise_file_limit();
    let lab = Lab::on_disk()?;
    let config = ServedConfig::new(&lab)?;
    let ours = config.machinist(&lab)?;
    let response = block_on(load::fetch(&ours.target(&config, false)?))?;
    let size = response.len();
    ensure!((420_000..=432_000).contains(&size), "the answer has {size} bytes, not 426 KB");
    let nginx = config.nginx(&lab, &response)?;
    let mut missed = Vec::new();
    for secure in [false, true] {
        let name = if secure { "TLS" } else { "plain" };
        let share = compare(&config, &ours, &nginx, secure, name)?;
        // Encryption costs both servers the same, so the budget applies to plain HTTP only.
        if !secure && share < MIN_SHARE_OF_NGINX {
            missed.push(format!("{:.0} % of nginx's answers, at least 60 %", share * 100.0));
        }
    }
    drop(nginx);
    drop(ours);
    for secure in [false, true] {
        missed.extend(measure_burst_memory(&lab, &config, size, secure)?);
    }
    if !missed.is_empty() {
        bail!("budgets missed: {}", missed.join(", "));
    }
    Ok(())
}

/// Alternates between both servers, so that other load affects them equally. Returns our share.
fn compare(
    config: &ServedConfig,
    ours: &ConfigServer,
    nginx: &ConfigServer,
    secure: bool,
    name: &str,
) -> Result<f64> {
    let time = Duration::from_secs(env_number("MACHINIST_BENCH_SECONDS", 3) as u64);
    let load = CpuLoad::start(vec![ours.id(), nginx.id()]);
    let (mut best_ours, mut best_nginx) = (0.0f64, 0.0f64);
    for _ in 0..ROUNDS {
        let one = |candidate: &ConfigServer| -> Result<f64> {
            block_on(measure_rate(&candidate.target(config, secure)?, CONNECTIONS, time))
        };
        best_nginx = best_nginx.max(one(nginx)?);
        best_ours = best_ours.max(one(ours)?);
    }
    let (share, free) = (best_ours / best_nginx, load.available_share() * 100.0);
    let line = format!(
        "{CONNECTIONS} connections: {best_ours:.0} answers a second, nginx {best_nginx:.0} ({:.0} %), with {free:.0} % of the machine",
        share * 100.0
    );
    println!("{name}, {line}");
    measurements::record(&format!("server-rate-{name}"), line)?;
    Ok(share)
}

/// Starts a fresh server, so that its peak memory is that of this burst.
fn measure_burst_memory(
    lab: &Lab,
    config: &ServedConfig,
    size: usize,
    secure: bool,
) -> Result<Vec<String>> {
    let name = if secure { "TLS" } else { "plain" };
    let machines = env_number("MACHINIST_BENCH_MACHINES", 2000);
    let server = config.machinist(lab)?;
    let target: LoadTarget = server.target(config, secure)?;
    block_on(load::fetch(&target))?;
    let rest = server.peak_memory()?;
    let mut times = block_on(measure_burst(&target, machines, size))?;
    times.sort();
    let served = times.len();
    let at = |share: f64| times[((served - 1) as f64 * share) as usize].as_secs_f64();
    let highest = server.peak_memory()?;
    let above = highest.saturating_sub(size as u64);
    let line = format!(
        "{served} of {machines} machines served, p50 {:.2} s, p99 {:.2} s, highest memory {:.1} MB ({:.1} MB at rest)",
        at(0.5),
        at(0.99),
        highest as f64 / f64::from(1 << 20),
        rest as f64 / f64::from(1 << 20),
    );
    println!("{name}, at once: {line}");
    measurements::record(&format!("server-crowd-{name}"), line)?;
    let mut missed = Vec::new();
    if served < machines {
        missed.push(format!("{} machines not served ({name})", machines - served));
    }
    let most = if secure { MAX_MEMORY_TLS_BYTES } else { MAX_MEMORY_BYTES };
    if above > most {
        let (above, most) = (above >> 20, most >> 20);
        missed.push(format!("{above} MB above the answer ({name}), at most {most}"));
    }
    Ok(missed)
}
