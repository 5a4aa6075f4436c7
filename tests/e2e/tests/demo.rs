//! `make demo`, with directories and with machines: it shows what it promises and leaves nothing behind.

use anyhow::{Result, ensure};
use machinist_e2e::cgroup;
use machinist_e2e::lab::LabProcess;
use machinist_e2e::{Lab, binary, cache, wait_with_timeout};
use rustix::process::Signal;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use std::{fs, io};

/// A timeout for a busy host.
const DEMO_TIMEOUT: Duration = Duration::from_secs(240);

/// A running demo with its own directory.
struct RunningDemo {
    directory: PathBuf,
    process: LabProcess,
    lab: Lab,
}

impl RunningDemo {
    fn start(kind: &str) -> Self {
        let lab = Lab::new().unwrap();
        let dir = lab.create_dir("demo").unwrap();
        let mut script = Command::new(cache::source_root().join("scripts/demo"));
        script
            .arg(kind)
            .env("TMPDIR", &dir)
            .env("MACHINIST_BIN", binary::machinist_binary().unwrap());
        script.env("MACHINIST_DEMO_GROUP", format!("{}/machines-of-the-demo", lab.name()));
        let process = lab.spawn("demo-script", &script).unwrap();
        Self { directory: dir, process, lab }
    }

    /// Waits until the script has printed something.
    fn wait_for_output(&mut self, expected: &str) {
        let (process, log) = (&mut self.process, "the demo");
        wait_with_timeout(DEMO_TIMEOUT, &format!("{log} to say {expected:?}"), || {
            let found = process.log().contains(expected);
            if !found {
                process.check_alive()?;
            }
            Ok(found)
        })
        .unwrap();
    }

    fn wait_for_exit(&mut self) -> Option<i32> {
        wait_with_timeout(DEMO_TIMEOUT, "the demo to end", || self.process.has_ended()).unwrap();
        self.process.wait().unwrap().code()
    }

    /// Files, mounts, processes and cgroups of a demo that has ended.
    fn assert_cleaned_up(&self) {
        let left = self.leftovers().unwrap();
        assert!(left.is_empty(), "{left:?}\n{}", self.process.log());
    }

    fn leftovers(&self) -> Result<Vec<String>> {
        let mut left = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            left.push(format!("file {}", entry?.path().display()));
        }
        let directory = self.directory.to_string_lossy();
        let mounts = fs::read_to_string("/proc/self/mountinfo")?;
        left.extend(mounts.lines().filter(|line| line.contains(&*directory)).map(str::to_owned));
        for hierarchy in cgroup::hierarchies() {
            let group = hierarchy.join(self.lab.name()).join("machines-of-the-demo");
            if group.exists() {
                left.push(format!("control group {}", group.display()));
            }
        }
        for entry in fs::read_dir("/proc")? {
            // A process may end during the inspection.
            let command = fs::read(entry?.path().join("cmdline"));
            let command = command.or_else(|_| io::Result::Ok(Vec::new()))?;
            let command = String::from_utf8_lossy(&command).replace('\0', " ");
            if command.contains(&*directory) {
                left.push(format!("process {command}"));
            }
        }
        Ok(left)
    }
}

/// The lines of the transcript in docs/health.md that are missing in the output, or in another place there. `…` stands for
/// any text of a line.
fn missing_of_the_transcript(page: &str, output: &str) -> Vec<String> {
    let (_, rest) = page.split_once("<!-- transcript: make demo -->\n```console\n").unwrap();
    let (transcript, _) = rest.split_once("\n```").unwrap();
    let mut lines = output.lines();
    let missing = transcript.lines().filter(|shown| {
        let mut later = lines.clone();
        let is_there = later.any(|line| matches_shortened(shown, line));
        if is_there {
            lines = later;
        }
        !is_there
    });
    missing.map(ToOwned::to_owned).collect()
}

fn matches_shortened(shown: &str, line: &str) -> bool {
    let mut pieces = shown.split('…');
    let Some(mut rest) = pieces.next().and_then(|first| line.strip_prefix(first)) else {
        return false;
    };
    let mut is_exact = true;
    for piece in pieces {
        let Some(index) = rest.find(piece) else { return false };
        rest = &rest[index + piece.len()..];
        is_exact = !piece.is_empty();
    }
    rest.is_empty() || !is_exact
}

#[test]
fn a_shortened_line_matches_its_whole_one() {
    for (shown, line, expected) in [
        ("a …: b", "a rendered-1: b", true),
        ("a …: b", "a rendered-1: b, c", false),
        ("a …: b …", "a rendered-1: b, c", false),
        ("a …: b…", "a rendered-1: b, c", true),
        ("a", "ab", false),
        ("b", "ab", false),
    ] {
        assert_eq!(matches_shortened(shown, line), expected, "{shown:?} {line:?}");
    }
}

/// Runs a demo to completion, and checks its output for the essential lines.
fn run_demo(kind: &str, also: &[&str]) -> String {
    let mut demo = RunningDemo::start(kind);
    let code = demo.wait_for_exit();
    let log = demo.process.log();
    assert_eq!(code, Some(0), "{log}");
    let common = [
        "a has joined pool worker",
        "c has joined pool worker",
        "3 of 3 machines updated; updated",
        "failed on this config",
        "a: greeting=welcome\nb: greeting=welcome\nc: greeting=welcome",
        "90-demo-bad: decides contents",
        "condition met",
    ];
    let missing: Vec<_> = common.iter().chain(also).filter(|line| !log.contains(**line)).collect();
    assert!(missing.is_empty(), "{missing:?} not in:\n{log}");
    demo.assert_cleaned_up();
    log
}

/// Interrupts a demo once it has printed something. It must still clean up.
fn interrupt_demo(kind: &str, when: &str) {
    let mut demo = RunningDemo::start(kind);
    demo.wait_for_output(when);
    demo.process.signal(Signal::INT).unwrap();
    assert_eq!(demo.wait_for_exit(), Some(130), "{}", demo.process.log());
    demo.assert_cleaned_up();
}

#[test]
fn the_directory_demo_shows_a_rollout_and_a_rollback() {
    run_demo("directories", &["\"/etc/skel\" is a directory"]);
}

#[test]
fn the_demo_with_machines_shows_reboots_and_a_health_gate() {
    let gate = "health check failed on";
    let cost = "costs a restart of shop.service: a, b, c";
    let output = run_demo("machines", &[gate, cost, "the machine rolled back to"]);
    let page = fs::read_to_string(cache::source_root().join("docs/health.md")).unwrap();
    let missing = missing_of_the_transcript(&page, &output);
    assert!(missing.is_empty(), "docs/health.md shows {missing:#?}, the demo printed:\n{output}");
}

#[test]
fn a_demo_that_is_interrupted_leaves_nothing() {
    interrupt_demo("directories", "rollout status worker --watch");
    interrupt_demo("machines", "1 working");
}

#[test]
fn an_unknown_argument_lists_the_valid_ones() -> Result<()> {
    let output = Command::new(cache::source_root().join("scripts/demo")).arg("clouds").output()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.code() == Some(2), "{text}");
    ensure!(text.contains("[directories|machines]"), "{text}");
    Ok(())
}
