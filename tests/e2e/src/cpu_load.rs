//! How busy other processes keep the host, to judge measurements that were taken under load.

use std::fs;
use std::time::{Duration, Instant};

/// Clock ticks per second in /proc, on every Linux that we run on.
const TICKS_PER_SECOND: f64 = 100.0;

/// A running measurement.
#[derive(Debug)]
pub struct CpuLoad {
    processes: Vec<u32>,
    total_cpu: f64,
    own_cpu: f64,
    start: Instant,
}

impl CpuLoad {
    /// Starts to measure. `processes` count as ours, and so does this process.
    pub fn start(mut processes: Vec<u32>) -> Self {
        processes.push(std::process::id());
        let (busy, own) = (total_cpu_seconds(), cpu_seconds(&processes));
        Self { processes, total_cpu: busy, own_cpu: own, start: Instant::now() }
    }

    /// The time since the start.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// The share of the host's CPU, between 0 and 1, that other processes did not use.
    pub fn available_share(&self) -> f64 {
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        let all = self.elapsed().as_secs_f64() * cores;
        let others =
            (total_cpu_seconds() - self.total_cpu) - (cpu_seconds(&self.processes) - self.own_cpu);
        (1.0 - others / all).clamp(0.05, 1.0)
    }
}

/// CPU time that the whole host has used, in seconds.
fn total_cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let numbers = stat.lines().next().unwrap_or_default().split_whitespace().skip(1);
    let numbers: Vec<f64> = numbers.filter_map(|word| word.parse().ok()).collect();
    // user, nice and system count; idle and iowait do not; then interrupts and stolen time.
    let work = |n: &usize| numbers.get(*n).copied().unwrap_or(0.0);
    [0, 1, 2, 5, 6, 7].iter().map(work).sum::<f64>() / TICKS_PER_SECOND
}

/// CPU time that processes have used, in seconds.
fn cpu_seconds(processes: &[u32]) -> f64 {
    let of = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields: Vec<_> = stat.rsplit(')').next().unwrap_or_default().split(' ').collect();
        let field = |n: usize| fields.get(n).and_then(|word| word.parse::<f64>().ok());
        field(12).unwrap_or(0.0) + field(13).unwrap_or(0.0)
    };
    processes.iter().map(of).sum::<f64>() / TICKS_PER_SECOND
}
