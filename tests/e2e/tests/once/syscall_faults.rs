//! Every writing system call fails once: the root has the old or the new state, and the report says which.

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
const ERRORS: [&str; 5] = ["ENOSPC", "EDQUOT", "EIO", "EROFS", "EACCES"];

/// Which calls of a thread change something: their numbers, and the maximum over all threads.
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
        // An open is a write only if it creates something.
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

/// Each call fails with one of the errors in turn, or with all of them if `MACHINIST_ALL_FAULTS` is set.
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
                let output = command::output(&mut fault.wrap(&once(&root, &new)).unwrap()).unwrap();
                let what = format!("{error} at {call} {number}: {output:?}");
                let is_old_now = output.stderr.contains("nothing was changed");
                assert!(!is_old_now || tree(&root) == before, "{what}");
                let outcome = recover(&root);
                let is_new = check(&root, &before, &after, outcome.as_deref(), &what);
                // A closed stdout is not an error of the change.
                assert!(!output.succeeded() || is_new, "{what}");
                assert!(output.succeeded() || !is_new || call == "write", "{what}");
                runs += 1;
                undone += usize::from(!is_new);
            }
        }
    }
    println!("{runs} faults, {undone} of them undone");
    assert!(runs > 100, "{runs}");
}
