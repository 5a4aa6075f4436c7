//! `make up`: a hub and a machine without root, the example shown once, and nothing undone by a second run.
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

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
    let issue = fixture.data().with_file_name("machinist.machine-1").join("etc/issue");
    assert!(fs::read_to_string(issue).unwrap().contains("Local changes are reported."));

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
