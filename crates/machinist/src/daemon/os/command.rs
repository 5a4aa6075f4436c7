//! Runs commands of a host. Their output goes to the log line by line, so that a long download is seen to
//! progress. A command that hangs is stopped: the daemon would wait for it for ever, with its disk locked.

use std::fs;
use std::io::{BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use machinist_core::api::names::path::{INTERNAL_REGISTRY_PULL_SECRET, PULL_SECRET};
use machinist_core::os::pull_secret;

use crate::systemd_notify;

/// Where commands are installed.
const BINARY_DIRS: [&str; 6] =
    ["usr/bin", "usr/sbin", "usr/local/bin", "usr/local/sbin", "bin", "sbin"];
/// How many characters of an error message are kept.
const MAX_ERROR_LENGTH: usize = 256;
/// How long a question to the host may take.
const QUERY_LIMIT: Duration = Duration::from_secs(120);
/// How long a command that downloads or installs something may print nothing.
const SILENCE_LIMIT: Duration = Duration::from_secs(6 * 3600);
/// How often the end of a command is looked for.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How long to wait for the rest of the output of a command that has ended. A process that it left behind may keep it
/// open for ever.
const OUTPUT_GRACE: Duration = Duration::from_secs(2);
/// How many bytes of the output are kept.
const MAX_OUTPUT: usize = 16 << 20;
/// A longer line counts as several.
const MAX_LINE: u64 = 1 << 16;

/// A line that a command has printed, or a part of a long one.
enum OutputLine {
    /// On standard output.
    Output(Vec<u8>),
    /// On standard error.
    Error(Vec<u8>),
}

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
        let limit = if is_logged { SILENCE_LIMIT } else { QUERY_LIMIT };
        self.output_within(command_name, arguments, is_logged, limit)
    }

    /// The same with a time limit, which each line begins again if the output is logged.
    fn output_within<S: AsRef<str>>(
        &self,
        command_name: &str,
        arguments: &[S],
        is_logged: bool,
        limit: Duration,
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
        let (sender, lines) = mpsc::channel();
        let (errors, name) = (sender.clone(), command_name.to_owned());
        // Not thread::spawn, which ends the process where there are too many threads.
        thread::Builder::new()
            .spawn(move || read_lines(stderr, &name, true, &errors, OutputLine::Error))?;
        let name = command_name.to_owned();
        thread::Builder::new()
            .spawn(move || read_lines(stdout, &name, is_logged, &sender, OutputLine::Output))?;
        let waited = wait_within(&mut child, &lines, is_logged, limit);
        let (status, stdout, stderr) =
            waited.with_context(|| format!("cannot wait for {command_name}"))?;
        let stderr = String::from_utf8_lossy(&stderr).into_owned();
        Ok(HostCommandOutput { status, stdout, stderr })
    }
}

/// Waits for the end of a command. Returns its status, its output and its error messages. A command that exceeds its limit
/// is killed.
fn wait_within(
    child: &mut Child,
    lines: &Receiver<OutputLine>,
    is_logged: bool,
    limit: Duration,
) -> Result<(ExitStatus, Vec<u8>, Vec<u8>)> {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let (mut ended, mut deadline) = (None, Instant::now() + limit);
    loop {
        match lines.recv_timeout(POLL_INTERVAL) {
            Ok(line) => {
                let (kept, bytes) = match line {
                    OutputLine::Output(bytes) => (&mut stdout, bytes),
                    OutputLine::Error(bytes) => (&mut stderr, bytes),
                };
                kept.extend_from_slice(&bytes[..bytes.len().min(MAX_OUTPUT - kept.len())]);
                if is_logged && ended.is_none() {
                    deadline = Instant::now() + limit;
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            // Both streams have ended, and so does the command, unless it goes on silently.
            Err(RecvTimeoutError::Disconnected) => match ended {
                Some(status) => return Ok((status, stdout, stderr)),
                None => thread::sleep(POLL_INTERVAL / 10),
            },
        }
        if ended.is_none() {
            ended = child.try_wait()?;
            if ended.is_some() {
                deadline = Instant::now() + OUTPUT_GRACE;
            }
        }
        match ended {
            _ if Instant::now() < deadline => {}
            Some(status) => return Ok((status, stdout, stderr)),
            None => {
                child.kill()?;
                child.wait()?;
                bail!("it had not ended after {limit:?}, and was stopped");
            }
        }
    }
}

/// Reads a stream to its end, and logs its lines if that is asked for.
fn read_lines(
    stream: impl Read,
    command_name: &str,
    is_logged: bool,
    lines: &Sender<OutputLine>,
    of_stream: fn(Vec<u8>) -> OutputLine,
) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        let read = reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut line);
        if !read.is_ok_and(|count| count > 0) {
            return;
        }
        // Progress bars use carriage returns; only the last state of a line is logged.
        let part = String::from_utf8_lossy(&line);
        if is_logged
            && let Some(last) = part.trim_end().rsplit('\r').next().filter(|it| !it.is_empty())
        {
            tracing::info!(command = command_name, line = last, "command output");
        }
        // Nobody listens to what a command has left behind.
        if lines.send(of_stream(line)).is_err() {
            return;
        }
    }
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
        // A process that is left behind and keeps the output open.
        let begin = Instant::now();
        let left = host.stdout("sh", &["-c", "sleep 300 & echo $!"]).unwrap();
        assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", begin.elapsed());
        host.stdout("kill", &[left.trim()]).unwrap();
        let limit = Duration::from_millis(100);
        let error = host.output_within("sleep", &["300"], true, limit).unwrap_err();
        assert_eq!(
            format!("{error:#}"),
            "cannot wait for sleep: it had not ended after 100ms, and was stopped"
        );
        let long = tail(&format!("{}end", "ä".repeat(300)));
        assert!(long.starts_with("[47 more chars] ä") && long.ends_with("end"), "{long}");
    }
}
