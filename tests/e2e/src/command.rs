//! Running commands to their end, with errors that say what ran and what it printed.

use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::thread;

/// What a command gave back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExitOutput {
    /// The exit code; 128 + n for a process that signal n ended.
    pub code: i32,
    /// What it wrote to stdout.
    pub stdout: String,
    /// What it wrote to stderr.
    pub stderr: String,
}

impl ExitOutput {
    /// Whether the command ended with 0.
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

/// Runs a command to its end and gives its answer, whatever the exit code.
pub fn output(command: &mut Command) -> Result<ExitOutput> {
    let output = command.stdin(Stdio::null()).output();
    Ok(ExitOutput::from_output(
        &output.with_context(|| format!("start {}", command_line(command)))?,
    ))
}

/// Like [`answer`], with bytes on its stdin.
pub fn output_with_stdin(command: &mut Command, input: &[u8]) -> Result<ExitOutput> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("start {}", command_line(command)))?;
    let output = thread::scope(|scope| {
        let stdin = child.stdin.take();
        scope.spawn(move || {
            // A command that does not read its input to the end is no error.
            stdin.map(|mut stdin| stdin.write_all(input))
        });
        child.wait_with_output()
    })?;
    Ok(ExitOutput::from_output(&output))
}

/// Runs a command that has to succeed; gives its stdout.
pub fn run(command: &mut Command) -> Result<String> {
    let answer = output(command)?;
    check_success(command, &answer)?;
    Ok(answer.stdout)
}

/// Runs a program with arguments that has to succeed; gives its stdout.
pub fn run_args<S: AsRef<OsStr>>(
    program: &str,
    args: impl IntoIterator<Item = S>,
) -> Result<String> {
    run(Command::new(program).args(args))
}

pub(crate) fn check_success(command: &Command, answer: &ExitOutput) -> Result<()> {
    if !answer.succeeded() {
        let said = [answer.stderr.trim(), answer.stdout.trim()].join("\n");
        bail!("{} ended with {}: {}", command_line(command), answer.code, said.trim());
    }
    Ok(())
}

fn command_line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}
