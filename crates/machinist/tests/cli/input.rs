//! Invalid input, wrong usage, and the ways to pass manifests.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;
use tempfile::TempDir;

use crate::cli::{assert_exit, machine_config, machinist, pool, stderr, stdout, write};

/// Invalid input results in a clear error within a second, with bounded memory.
#[test]
fn hostile_input_is_refused_quickly() {
    let directory = TempDir::new().unwrap();
    let huge = directory.path().join("huge.yaml");
    fs::File::create(&huge).unwrap().set_len(100 << 20).unwrap();
    let huge = huge.to_str().unwrap().to_owned();
    let laughs = (1..12).fold("a0: &a0 [x]\n".to_owned(), |text, level| {
        let aliases = format!("*a{}, ", level - 1).repeat(10);
        format!("{text}a{level}: &a{level} [{aliases}]\n")
    });
    let files = [
        (huge, "more than a manifest may have"),
        (write(&directory, "deep.json", "[".repeat(1 << 20)), "not valid JSON"),
        (write(&directory, "deep.yaml", format!("a: {}", "[".repeat(1 << 20))), "not valid YAML"),
        (write(&directory, "laughs.yaml", laughs), "not valid YAML"),
        (write(&directory, "latin1.yaml", b"a: caf\xe9\n"), "not UTF-8"),
        (write(&directory, "twice.yaml", "a: 1\na: 2\n"), "not valid YAML"),
        (write(&directory, "twice.json", "{\"a\": 1, \"a\": 2}"), "stands here twice"),
        (write(&directory, "text.yaml", "just some text"), "expected an object"),
        (write(&directory, "kind.yaml", "kind: Pod\n"), "is not in the inputs"),
        (write(&directory, "list.yaml", "kind: List\nitems: 5\n"), "expected a list"),
    ];
    for (file, expected) in &files {
        let start = Instant::now();
        // 512 MB of address space is far more than any of these needs.
        let output = Command::new("sh")
            .args(["-c", "ulimit -v 524288; exec \"$0\" render --pool worker -f \"$1\""])
            .args([env!("CARGO_BIN_EXE_machinist"), file])
            .output()
            .unwrap();
        assert_exit(&output, 1);
        assert!(stderr(&output).contains(expected), "{file}: {}", stderr(&output));
        assert!(start.elapsed() < Duration::from_secs(2), "{file}: {:?}", start.elapsed());
    }
}

#[test]
fn standard_input_directories_and_repeated_files_are_read() {
    let directory = TempDir::new().unwrap();
    write(&directory, "10-pool.yaml", pool().to_string());
    write(
        &directory,
        "20-config.json",
        machine_config("a", &json!({"kernelArguments": ["x=1"]})).to_string(),
    );
    write(&directory, "notes.txt", "not a manifest");
    let path = directory.path().to_str().unwrap();
    let from_directory = machinist(&["render", "--pool", "worker", "-f", path, "-o", "name"]);
    assert_exit(&from_directory, 0);
    let mut child = Command::new(env!("CARGO_BIN_EXE_machinist"))
        .args(["render", "--pool", "worker", "-f", "-", "-o", "name"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let text =
        format!("{}\n---\n{}\n", pool(), machine_config("a", &json!({"kernelArguments": ["x=1"]})));
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let from_stdin = child.wait_with_output().unwrap();
    assert_eq!(stdout(&from_stdin), stdout(&from_directory));
    // The same object again says nothing new; another one of its name does.
    let again = machinist(&["render", "--pool", "worker", "-f", path, "-f", path, "-o", "name"]);
    assert_eq!(stdout(&again), stdout(&from_directory));
    let other = machine_config("a", &json!({"kernelArguments": ["x=2"]})).to_string();
    write(&directory, "30-other.json", other);
    let twice = machinist(&["render", "--pool", "worker", "-f", path]);
    assert_exit(&twice, 1);
    assert!(stderr(&twice).contains("is given twice"), "{}", stderr(&twice));
}

#[test]
fn wrong_usage_is_exit_code_2() {
    assert_exit(&machinist(&["render"]), 2);
    assert_exit(&machinist(&["no-such-command"]), 2);
    assert_exit(&machinist(&["ignition", "convert", "--to", "three", "examples/motd.ign"]), 2);
}

#[test]
fn arguments_are_checked_before_connecting() {
    for arguments in [
        &["get"][..],
        &["get", "mcp", "mcp/worker"],
        &["get", "mcp", "worker", "-l", "a=b"],
        &["get", "secret", "a", "-A"],
        &["get", "mcp,mc", "-w"],
        &["describe", "mcp/worker", "-l", "a=b"],
        &["apply"],
        &["delete"],
        &["delete", "mcp"],
        &["delete", "mcp", "a", "--all"],
        &["label", "mcp", "a"],
        &["label", "mcp", "a=1"],
        &["wait", "mcp/a"],
        &["wait", "mcp/a", "--for=nonsense"],
        &["wait", "mcp/a", "--for=delete", "--timeout=soon"],
    ] {
        let output = machinist(arguments);
        assert_exit(&output, 2);
        assert!(stderr(&output).starts_with("error: "), "{}", stderr(&output));
    }
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let output = Command::new("sh")
        .args(["-c", "\"$0\" crds | head -n 1"])
        .arg(env!("CARGO_BIN_EXE_machinist"))
        .output()
        .unwrap();
    assert!(output.stderr.is_empty(), "{}", stderr(&output));
}

#[test]
fn errors_do_not_contain_values() {
    let directory = TempDir::new().unwrap();
    let object = machine_config("a", &json!({"kernelArguments": "password=hunter2"}));
    let text = format!("{}\n---\n{object}\n", pool());
    let file = write(&directory, "secret.yaml", text);
    let output = machinist(&["render", "--pool", "worker", "-f", &file]);
    assert_exit(&output, 1);
    let message = stderr(&output);
    assert!(message.contains("kernelArguments: invalid type: string, expected"), "{message}");
    assert!(!message.contains("hunter2"), "{message}");
}
