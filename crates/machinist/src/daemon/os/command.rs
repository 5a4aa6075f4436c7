//! Runs commands of a host. Their output goes to the log line by line, so that a long download is seen to
//! progress.

use std::fs;
use std::io::{BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;

use anyhow::{Context as _, Result, anyhow, bail};
use machinist_core::api::names::path::{INTERNAL_REGISTRY_PULL_SECRET, PULL_SECRET};
use machinist_core::os::pull_secret;

use crate::systemd_notify;

/// Where commands are installed.
const BINARY_DIRS: [&str; 6] =
    ["usr/bin", "usr/sbin", "usr/local/bin", "usr/local/sbin", "bin", "sbin"];
/// How many characters of an error message are kept.
const MAX_ERROR_LENGTH: usize = 256;

/// A host, by its root. In a pod that is where the host's root is mounted.
#[derive(Debug, Clone)]
pub(super) struct HostCommands {
    root: PathBuf,
}

/// The result of a command.
#[derive(Debug)]
pub(super) struct HostCommandOutput {
    pub(super) status: ExitStatus,
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: String,
}

impl HostCommands {
    pub(super) fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Its root.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// The path of a file of the host.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Whether the host has a command.
    pub(super) fn has_command(&self, command_name: &str) -> bool {
        BINARY_DIRS.iter().any(|directory| self.root.join(directory).join(command_name).is_file())
    }

    /// The text of a file, if there is one.
    pub(super) fn read_text(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.path(path)).ok()
    }

    /// The credentials to pull images with, if there are any.
    pub(super) fn credentials(&self) -> Option<&'static str> {
        let internal = fs::read(self.path(INTERNAL_REGISTRY_PULL_SECRET)).ok();
        pull_secret::choose_auth_file(internal.as_deref(), self.path(PULL_SECRET).is_file())
    }

    /// The kernel command line; `None` if the root is not that of a running machine.
    pub(super) fn command_line(&self) -> Option<String> {
        self.read_text("/proc/cmdline")
    }

    /// Runs a command and returns its output.
    pub(super) fn stdout<S: AsRef<str>>(
        &self,
        command_name: &str,
        arguments: &[S],
    ) -> Result<String> {
        self.run(command_name, arguments, false)
    }

    /// Runs a command whose output goes to the log.
    pub(super) fn run_logged<S: AsRef<str>>(
        &self,
        command_name: &str,
        arguments: &[S],
    ) -> Result<()> {
        let words: Vec<&str> = arguments.iter().map(AsRef::as_ref).collect();
        // MCO's literal line.
        tracing::info!("Running {command_name} {words:?}");
        self.run(command_name, arguments, true).map(drop)
    }

    fn run<S: AsRef<str>>(
        &self,
        command_name: &str,
        arguments: &[S],
        is_logged: bool,
    ) -> Result<String> {
        let output = self.output(command_name, arguments, is_logged)?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let first = arguments.first().map(AsRef::as_ref).unwrap_or_default();
        let (message, status) = (tail(output.stderr.trim()), output.status);
        Err(anyhow!("error running {command_name} {first}: {message}: {status}"))
    }

    /// Runs a command that may fail. Its error messages go to the log, and its output if that is asked for.
    pub(super) fn output<S: AsRef<str>>(
        &self,
        command_name: &str,
        arguments: &[S],
        is_logged: bool,
    ) -> Result<HostCommandOutput> {
        let mut command = if self.root == Path::new("/") {
            Command::new(command_name)
        } else {
            let mut command = Command::new("chroot");
            command.arg(&self.root).arg(command_name);
            command
        };
        command.args(arguments.iter().map(AsRef::as_ref));
        command.env("LC_ALL", "C").env("RPMOSTREE_CLIENT_ID", "machine-config-operator");
        for name in systemd_notify::VARIABLES {
            command.env_remove(name);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| {
            format!("cannot run {command_name}: install it on this machine, or in its image")
        })?;
        let streams = child.stdout.take().zip(child.stderr.take());
        let Some((stdout, stderr)) = streams else {
            bail!("cannot read the output of {command_name}")
        };
        let name = command_name.to_owned();
        let stderr_reader = thread::spawn(move || read_stream(stderr, &name, true));
        let stdout = read_stream(stdout, command_name, is_logged);
        let stderr = stderr_reader.join().unwrap_or_default();
        let stderr = String::from_utf8_lossy(&stderr).into_owned();
        let status = child.wait().with_context(|| format!("cannot wait for {command_name}"))?;
        Ok(HostCommandOutput { status, stdout, stderr })
    }
}

/// Reads a stream to its end, and logs its lines if that is asked for.
fn read_stream(stream: impl Read, command_name: &str, is_logged: bool) -> Vec<u8> {
    let mut all = Vec::new();
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    // Progress bars use carriage returns; only the last state of a line is logged.
    while reader.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
        let part = String::from_utf8_lossy(&line);
        if is_logged
            && let Some(last) = part.trim_end().rsplit('\r').next().filter(|it| !it.is_empty())
        {
            tracing::info!(command = command_name, line = last, "command output");
        }
        all.extend_from_slice(&line);
        line.clear();
    }
    all
}

/// The end of a long error message says most.
fn tail(text: &str) -> String {
    let count = text.chars().count();
    if count <= MAX_ERROR_LENGTH {
        return text.to_owned();
    }
    let end: String = text.chars().skip(count - MAX_ERROR_LENGTH).collect();
    format!("[{} more chars] {end}", count - MAX_ERROR_LENGTH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_and_errors_of_a_command() {
        let host = HostCommands::new(Path::new("/"));
        assert!(host.has_command("sh") && !host.has_command("no-such-command"));
        assert_eq!(host.stdout("sh", &["-c", "echo a; echo b >&2"]).unwrap(), "a\n");
        let error = host.stdout("sh", &["-c", "echo a; echo why >&2; exit 3"]).unwrap_err();
        assert_eq!(error.to_string(), "error running sh -c: why: exit status: 3");
        let error = host.stdout("no-such-command", &["x"]).unwrap_err();
        assert!(
            format!("{error:#}").starts_with("cannot run no-such-command: install"),
            "{error:#}"
        );
        let long = tail(&format!("{}end", "ä".repeat(300)));
        assert!(long.starts_with("[47 more chars] ä") && long.ends_with("end"), "{long}");
    }
}
