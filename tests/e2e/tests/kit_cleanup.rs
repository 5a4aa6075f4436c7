//! The kit cleans up after itself: at the end of a test, after a panic, and after a kill.

use machinist_e2e::lab::LabId;
use machinist_e2e::leftovers::leftovers;
use machinist_e2e::{Lab, LoopDisk, wait_for};
use std::io::{BufRead as _, BufReader};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};
use std::{env, thread};

/// A lab with one of everything.
fn create_resources(lab: &Lab) -> (machinist_e2e::Machine, LoopDisk) {
    let machine = lab.machine("a").disk(128).boot().unwrap();
    assert!(!leftovers(&lab.id()).unwrap().is_empty());
    (machine, LoopDisk::new(lab, "disk", 32).unwrap())
}

fn is_clean(ticket: &LabId) -> anyhow::Result<bool> {
    Ok(leftovers(ticket)?.is_empty())
}

#[test]
fn the_kit_cleans_up_after_exit_panic_and_kill() {
    let lab = Lab::new().unwrap();
    let ticket = lab.id();
    let furniture = create_resources(&lab);
    drop(furniture);
    drop(lab);
    wait_for("the lab to be gone", || is_clean(&ticket)).unwrap();

    let lab = Lab::new().unwrap();
    let ticket = lab.id();
    let result = catch_unwind(AssertUnwindSafe(move || {
        let _furniture = create_resources(&lab);
        drop(lab);
        panic!("on purpose");
    }));
    assert!(result.is_err());
    wait_for("the lab to be gone after a panic", || is_clean(&ticket)).unwrap();

    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "kit_cleanup::killed_process"])
        .env(VICTIM_VARIABLE, "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = lines.map_while(Result::ok).find(|line| line.starts_with("ticket "));
    let ticket = line.unwrap()["ticket ".len()..].parse().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    wait_for("the lab to be gone after a kill", || is_clean(&ticket)).unwrap();
}

/// Set in the process that is to be killed.
const VICTIM_VARIABLE: &str = "MACHINIST_TESTKIT_VICTIM";

/// Run and killed by the test above. Does nothing on its own.
#[test]
fn killed_process() {
    if env::var_os(VICTIM_VARIABLE).is_none() {
        return;
    }
    let lab = Lab::new().unwrap();
    let _furniture = create_resources(&lab);
    println!("\nticket {}", lab.id());
    loop {
        thread::park();
    }
}
