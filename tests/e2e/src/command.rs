//! Runs commands to completion. Errors say what ran and what it printed.

use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::thread;

/// The result of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExitOutput {
    /// The exit code, or 128 + n for a process that signal n ended.
    pub code: i32,
    /// The contents of stdout.
    pub stdout: String,
    /// The contents of stderr.
    pub stderr: String,
}

impl ExitOutput {
    /// Whether the exit code is 0.
    pub fn succeeded(&self) -> bool {
        self.code == 0
    }

    /// Stdout without surrounding white space.
    pub fn stdout_trimmed(&self) -> &str {
        self.stdout.trim()
    }

    pub(crate) fn from_output(output: &Output) -> Self {
        use std::os::unix::process::ExitStatusExt as _;
        let status = output.status;
        let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Self { code, stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }
}

/// Runs a command to completion. Any exit code is accepted.
pub fn output(command: &mut Command) -> Result<ExitOutput> {
    let output = command.stdin(Stdio::null()).output();
    Ok(ExitOutput::from_output(
        &output.with_context(|| format!("start {}", command_line(command)))?,
    ))
}

/// Like [`output`], with bytes on stdin.
pub fn output_with_stdin(command: &mut Command, input: &[u8]) -> Result<ExitOutput> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("start {}", command_line(command)))?;
    let output = thread::scope(|scope| {
        let stdin = child.stdin.take();
        scope.spawn(move || {
            // It is fine if the command does not read all of its input.
            stdin.map(|mut stdin| stdin.write_all(input))
        });
        child.wait_with_output()
    })?;
    Ok(ExitOutput::from_output(&output))
}

/// Runs a command that must succeed. Returns its stdout.
pub fn run(command: &mut Command) -> Result<String> {
    let output = output(command)?;
    check_success(command, &output)?;
    Ok(output.stdout)
}

/// Runs a command with arguments that must succeed. Returns its stdout.
pub fn run_args<S: AsRef<OsStr>>(
    command: &str,
    args: impl IntoIterator<Item = S>,
) -> Result<String> {
    run(Command::new(command).args(args))
}

pub(crate) fn check_success(command: &Command, output: &ExitOutput) -> Result<()> {
    if !output.succeeded() {
        let text = [output.stderr.trim(), output.stdout.trim()].join("\n");
        bail!("{} ended with {}: {}", command_line(command), output.code, text.trim());
    }
    Ok(())
}

fn command_line(command: &Command) -> String {
    let parts = std::iter::once(command.get_program()).chain(command.get_args());
    parts.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}
