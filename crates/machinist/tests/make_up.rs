//! `make up`: a hub and a machine without root, a bad config that is rolled back as the README shows it, and nothing
//! undone by a second run.
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

    /// Another change that the machine can run: back to the first banner.
    fn apply_first_banner(&self) {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let change = root.join("examples/up/banner.yaml");
        self.machinist(&["apply", "-f", change.to_str().unwrap()]);
        self.machinist(&["rollout", "status", "worker", "--watch"]);
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
    /// The output with the paths and the address of a newcomer, as in the README.
    fn as_in_the_readme(&self, output: &str) -> String {
        let paths = output.replace(self.directory.path().to_str().unwrap(), "~/.local/state");
        paths.replace(&self.address, "127.0.0.1:6443")
    }
}

/// The lines of the transcripts in the README that are missing in the output, or in another place there.
fn missing_of_the_transcripts(output: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = fs::read_to_string(path).unwrap();
    let transcripts = readme.split("<!-- transcript: make up -->\n```console\n").skip(1);
    let shown: Vec<&str> =
        transcripts.flat_map(|rest| rest.split_once("\n```").unwrap().0.lines()).collect();
    assert!(shown.len() > 40, "{shown:#?}");
    let mut lines = output.lines();
    let missing = shown.into_iter().filter(|shown| {
        let mut later = lines.clone();
        let is_there = later.any(|line| matches_shortened(&without_age(shown), &without_age(line)));
        if is_there {
            lines = later;
        }
        !is_there
    });
    missing.map(ToOwned::to_owned).collect()
}

/// The row of the machine without its age, which depends on the time.
fn without_age(line: &str) -> String {
    if !line.starts_with("machine-1 ") {
        return line.to_owned();
    }
    let words = line.split_whitespace().enumerate().filter(|(index, _)| *index != 3);
    words.map(|(_, word)| word).collect::<Vec<_>>().join(" ")
}

/// Whether a line is the shown one, in which `…` stands for any text.
fn matches_shortened(shown: &str, line: &str) -> bool {
    let mut parts = shown.split('…');
    let Some(mut rest) = parts.next().and_then(|first| line.strip_prefix(first)) else {
        return false;
    };
    let mut is_shortened = false;
    for part in parts {
        let Some(index) = rest.find(part) else { return false };
        rest = &rest[index + part.len()..];
        is_shortened = part.is_empty();
    }
    rest.is_empty() || is_shortened
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
    let missing = missing_of_the_transcripts(&fixture.as_in_the_readme(&first));
    assert!(missing.is_empty(), "README.md shows {missing:#?}, make up printed:\n{first}");
    let issue = fixture.data().with_file_name("machinist.machine-1").join("etc/issue");
    assert!(fs::read_to_string(&issue).unwrap().contains("Local changes are reported."));

    let log = |name: &str| fs::read_to_string(fixture.data().with_file_name(name)).unwrap();
    assert!(!log("machinist.hub.log").contains(" ERROR "), "{}", log("machinist.hub.log"));
    let before = log("machinist.machine.log");
    let errors: Vec<&str> = before.lines().filter(|line| line.contains(" ERROR ")).collect();
    assert!(errors.iter().all(|line| line.contains("health check failed")), "{errors:#?}");
    fixture.apply_first_banner();
    assert_eq!(fs::read_to_string(&issue).unwrap(), "This machine is managed by Machinist.\n");
    let after = log("machinist.machine.log");
    let change = after.strip_prefix(&before).unwrap();
    let lines = change.lines().count();
    assert!((1..=MAX_LINES_PER_CHANGE).contains(&lines), "{lines} lines:{change}");

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
