//! Every system call that writes fails once: the root is the old or the new, and the program says so.

use super::fixture::{
    apply, check, configs_touching_everything, copy, create_system, once, recover, tree,
};
use machinist_e2e::{Lab, SyscallFault, command};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The calls that change something on a disk.
const CALLS: [&str; 13] = [
    "openat",
    "write",
    "fsync",
    "mkdirat",
    "unlinkat",
    "renameat",
    "renameat2",
    "linkat",
    "symlinkat",
    "fchmod",
    "fchown",
    "utimensat",
    "copy_file_range",
];
const ERRORS: [&str; 4] = ["ENOSPC", "EIO", "EROFS", "EACCES"];

/// Which of a thread's calls change something: their numbers, the most that any thread makes.
fn call_numbers(log: &str, call: &str) -> Vec<u32> {
    let mut counts = std::collections::HashMap::new();
    let mut numbers = std::collections::BTreeSet::new();
    for line in log.lines() {
        let Some((thread, rest)) = line.split_once(' ') else { continue };
        if !rest.trim_start().starts_with(&format!("{call}(")) {
            continue;
        }
        let count = counts.entry(thread).or_insert(0);
        *count += 1;
        // Opening is writing only where it makes something.
        if call != "openat" || rest.contains("O_CREAT") {
            numbers.insert(*count);
        }
    }
    numbers.into_iter().collect()
}

fn traced(command: &Command, log: &Path) -> String {
    let mut strace = Command::new("strace");
    strace.args(["-f", "-qq", "-e"]).arg(format!("trace={}", CALLS.join(","))).arg("-o").arg(log);
    strace.arg(command.get_program()).args(command.get_args());
    command::run(&mut strace).unwrap();
    fs::read_to_string(log).unwrap()
}

/// Each call fails with one of the errors in turn; with `MACHINIST_ALL_FAULTS` set, with all of them.
#[test]
fn a_failed_system_call_leaves_the_old_or_the_new_state() {
    let all = std::env::var_os("MACHINIST_ALL_FAULTS").is_some();
    let lab = Lab::new().unwrap();
    let [old, new] = configs_touching_everything(lab.dir());
    let (prepared, root) = (lab.dir().join("prepared"), lab.dir().join("root"));
    fs::create_dir(&prepared).unwrap();
    create_system(&prepared);
    apply(&prepared, &old);
    let before = tree(&prepared);
    copy(&prepared, &root);
    let log = traced(&once(&root, &new), &lab.dir().join("log"));
    let after = tree(&root);
    let (mut runs, mut undone) = (0, 0);
    for call in CALLS {
        for number in call_numbers(&log, call) {
            for (index, error) in ERRORS.iter().enumerate() {
                if !all && index != usize::try_from(number).unwrap() % ERRORS.len() {
                    continue;
                }
                copy(&prepared, &root);
                let fault = SyscallFault::error(call, error).nth(number);
                let answer = command::output(&mut fault.wrap(&once(&root, &new)).unwrap()).unwrap();
                let what = format!("{error} at {call} {number}: {answer:?}");
                let is_old_now = answer.stderr.contains("nothing was changed");
                assert!(!is_old_now || tree(&root) == before, "{what}");
                let outcome = recover(&root);
                let is_new = check(&root, &before, &after, outcome.as_deref(), &what);
                // A reader of the answer that is gone is not the change's fault.
                assert!(!answer.succeeded() || is_new, "{what}");
                assert!(answer.succeeded() || !is_new || call == "write", "{what}");
                runs += 1;
                undone += usize::from(!is_new);
            }
        }
    }
    println!("{runs} faults, {undone} of them undone");
    assert!(runs > 100, "{runs}");
}
