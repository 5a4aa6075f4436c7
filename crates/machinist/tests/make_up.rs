//! `make up`: a hub and a machine without root, the example shown once, and nothing undone by a second run.
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// How much a daemon logs about a change of its config.
const MAX_LINES_PER_CHANGE: usize = 10;

/// A data directory for `scripts/up`. What it started ends with the test.
struct UpFixture {
    directory: tempfile::TempDir,
    /// The same in every run: the machine remembers where its hub is.
    address: String,
}

impl UpFixture {
    fn new() -> Self {
        let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        Self { directory: tempfile::tempdir().unwrap(), address: free.to_string() }
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("machinist")
    }

    fn script(&self, arguments: &[&str]) -> Output {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut command = Command::new(root.join("scripts/up"));
        command.args(arguments).env_remove("KUBECONFIG");
        command.env("MACHINIST_BIN", env!("CARGO_BIN_EXE_machinist"));
        command.env("MACHINIST_DATA", self.data()).env("MACHINIST_LISTEN", &self.address);
        command.output().unwrap()
    }

    fn up(&self) -> String {
        let output = self.script(&[]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
        text
    }

    fn machinist(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_machinist"));
        command.args(arguments).env("KUBECONFIG", self.data().join("kubeconfig"));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

impl UpFixture {
    /// The output with the defaults of a newcomer: paths, address and age as in the README, and of the lines that
    /// show progress only the last.
    fn as_in_the_readme(&self, output: &str) -> Vec<String> {
        let home = self.directory.path().to_str().unwrap();
        let output =
            output.replace(home, "~/.local/state").replace(&self.address, "127.0.0.1:6443");
        let lines = output.trim().lines().take_while(|line| !line.starts_with("The binary is "));
        let lines: Vec<&str> = lines.collect();
        let is_progress = |index: usize| {
            let next = lines.get(index + 1);
            lines[index].starts_with("worker → ")
                && next.is_some_and(|next| next.starts_with("worker → "))
        };
        let shown = (0..lines.len()).filter(|index| !is_progress(*index));
        let mut shown: Vec<String> = shown.map(|index| without_age(lines[index])).collect();
        shown.pop_if(|last| last.is_empty());
        shown
    }
}

/// The row of the machine without its age, which may take one or two digits.
fn without_age(line: &str) -> String {
    if !line.starts_with("machine-1 ") {
        return line.to_owned();
    }
    let words = line.split_whitespace().enumerate().filter(|(index, _)| *index != 3);
    words.map(|(_, word)| word).collect::<Vec<_>>().join(" ")
}

fn readme_transcript() -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = fs::read_to_string(path).unwrap();
    let (_, rest) = readme.split_once("<!-- transcript: make up -->\n```console\n").unwrap();
    let (transcript, _) = rest.split_once("\n```").unwrap();
    transcript.lines().map(without_age).collect()
}

impl Drop for UpFixture {
    fn drop(&mut self) {
        self.script(&["stop"]);
    }
}

#[test]
fn the_example_is_shown_once_and_user_changes_stay() {
    let fixture = UpFixture::new();
    let first = fixture.up();
    for shown in ["machine-1", "machines updated; updated", "kept by Machinist. Local changes"] {
        assert!(first.contains(shown), "{shown:?} is not in:\n{first}");
    }
    assert_eq!(readme_transcript(), fixture.as_in_the_readme(&first));
    let issue = fixture.data().with_file_name("machinist.machine-1").join("etc/issue");
    assert!(fs::read_to_string(issue).unwrap().contains("Local changes are reported."));

    for log in ["machinist.hub.log", "machinist.machine.log"] {
        let log = fs::read_to_string(fixture.data().with_file_name(log)).unwrap();
        assert!(!log.contains(" ERROR "), "{log}");
    }
    let log = fixture.data().with_file_name("machinist.machine.log");
    let log = fs::read_to_string(log).unwrap();
    let (_, second_change) = log.split_once("Config Drift Monitor has shut down").unwrap();
    let lines = second_change.lines().count();
    assert!(lines <= MAX_LINES_PER_CHANGE, "{lines} lines:{second_change}");

    fixture.machinist(&["delete", "mc", "50-worker-banner"]);
    let second = fixture.up();
    assert!(second.contains("stays as it is"), "{second}");
    assert!(
        !fixture.machinist(&["get", "mc"]).contains("50-worker-banner"),
        "it was applied again"
    );

    let stopped = fixture.script(&["stop"]);
    assert!(stopped.status.success(), "{stopped:?}");
    let third = fixture.up();
    assert!(third.contains("stays as it is"), "{third}");
    assert!(
        !fixture.machinist(&["get", "mc"]).contains("50-worker-banner"),
        "it was applied again"
    );
}

#[test]
fn stopping_nothing_and_unknown_arguments_are_answered() {
    let fixture = UpFixture::new();
    let output = fixture.script(&["stop"]);
    assert!(output.status.success());
    assert_eq!(String::from_utf8_lossy(&output.stdout), "Nothing is running.\n");
    let output = fixture.script(&["again"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("scripts/up stop"));
}
