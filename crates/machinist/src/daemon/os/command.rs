//! Runs the programs of a host. What they say on their way goes to the log, line by line, so that a
//! long download is seen to go on.

use std::fs;
use std::io::{BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;

use anyhow::{Context as _, Result, anyhow, bail};
use machinist_core::api::names::path::{INTERNAL_REGISTRY_PULL_SECRET, PULL_SECRET};
use machinist_core::os::pull_secret;

use crate::systemd_notify;

/// Where programs are.
const BINARY_DIRS: [&str; 6] =
    ["usr/bin", "usr/sbin", "usr/local/bin", "usr/local/sbin", "bin", "sbin"];
/// So many characters of what a program complained of are told.
const MAX_ERROR_LENGTH: usize = 256;

/// A host, by its root. In a pod that is where the host's root is mounted.
#[derive(Debug, Clone)]
pub(super) struct HostCommands {
    root: PathBuf,
}

/// What became of a program.
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

    /// Where a path of the host is.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// Whether the host has a program.
    pub(super) fn has_command(&self, program: &str) -> bool {
        BINARY_DIRS.iter().any(|folder| self.root.join(folder).join(program).is_file())
    }

    /// The text of a file, where there is one.
    pub(super) fn read_text(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.path(path)).ok()
    }

    /// The credentials that images are fetched with, if there are any.
    pub(super) fn credentials(&self) -> Option<&'static str> {
        let internal = fs::read(self.path(INTERNAL_REGISTRY_PULL_SECRET)).ok();
        pull_secret::choose_auth_file(internal.as_deref(), self.path(PULL_SECRET).is_file())
    }

    /// What the kernel was booted with; none where the root is not that of a running machine.
    pub(super) fn command_line(&self) -> Option<String> {
        self.read_text("/proc/cmdline")
    }

    /// Runs a program and gives what it has said.
    pub(super) fn stdout<S: AsRef<str>>(&self, program: &str, arguments: &[S]) -> Result<String> {
        self.run(program, arguments, false)
    }

    /// Runs a program that does something; all that it says goes to the log.
    pub(super) fn run_logged<S: AsRef<str>>(&self, program: &str, arguments: &[S]) -> Result<()> {
        let words: Vec<&str> = arguments.iter().map(AsRef::as_ref).collect();
        tracing::info!("Running {program} {words:?}");
        self.run(program, arguments, true).map(drop)
    }

    fn run<S: AsRef<str>>(&self, program: &str, arguments: &[S], aloud: bool) -> Result<String> {
        let said = self.output(program, arguments, aloud)?;
        if said.status.success() {
            return Ok(String::from_utf8_lossy(&said.stdout).into_owned());
        }
        let first = arguments.first().map(AsRef::as_ref).unwrap_or_default();
        let (complaint, status) = (tail(said.stderr.trim()), said.status);
        Err(anyhow!("error running {program} {first}: {complaint}: {status}"))
    }

    /// Runs a program whose failure is an answer, too. All that it complains of goes to the log, and
    /// what it says if that is wanted.
    pub(super) fn output<S: AsRef<str>>(
        &self,
        program: &str,
        arguments: &[S],
        aloud: bool,
    ) -> Result<HostCommandOutput> {
        let mut command = if self.root == Path::new("/") {
            Command::new(program)
        } else {
            let mut command = Command::new("chroot");
            command.arg(&self.root).arg(program);
            command
        };
        command.args(arguments.iter().map(AsRef::as_ref));
        command.env("LC_ALL", "C").env("RPMOSTREE_CLIENT_ID", "machine-config-operator");
        for name in systemd_notify::VARIABLES {
            command.env_remove(name);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| {
            format!("cannot run {program}: install it on this machine, or in its image")
        })?;
        let streams = child.stdout.take().zip(child.stderr.take());
        let Some((stdout, stderr)) = streams else { bail!("cannot read what {program} says") };
        let name = program.to_owned();
        let complaints = thread::spawn(move || read_stream(stderr, &name, true));
        let stdout = read_stream(stdout, program, aloud);
        let stderr = complaints.join().unwrap_or_default();
        let stderr = String::from_utf8_lossy(&stderr).into_owned();
        let status = child.wait().with_context(|| format!("cannot wait for {program}"))?;
        Ok(HostCommandOutput { status, stdout, stderr })
    }
}

/// Reads all of a stream; line by line into the log, if that is wanted.
fn read_stream(stream: impl Read, program: &str, aloud: bool) -> Vec<u8> {
    let mut all = Vec::new();
    let mut reader = BufReader::new(stream);
    let mut line = Vec::new();
    // Progress bars end their lines without a new one; the log need not see each.
    while reader.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
        let part = String::from_utf8_lossy(&line);
        if aloud && let Some(last) = part.trim_end().rsplit('\r').next().filter(|it| !it.is_empty())
        {
            tracing::info!("{program}: {last}");
        }
        all.extend_from_slice(&line);
        line.clear();
    }
    all
}

/// The end of a long complaint says most.
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
    fn what_a_program_says_and_what_it_complains_of() {
        let host = HostCommands::new(Path::new("/"));
        assert!(host.has_command("sh") && !host.has_command("no-such-program"));
        assert_eq!(host.stdout("sh", &["-c", "echo a; echo b >&2"]).unwrap(), "a\n");
        let error = host.stdout("sh", &["-c", "echo a; echo why >&2; exit 3"]).unwrap_err();
        assert_eq!(error.to_string(), "error running sh -c: why: exit status: 3");
        let error = host.stdout("no-such-program", &["x"]).unwrap_err();
        assert!(
            format!("{error:#}").starts_with("cannot run no-such-program: install"),
            "{error:#}"
        );
        let long = tail(&format!("{}end", "ä".repeat(300)));
        assert!(long.starts_with("[47 more chars] ä") && long.ends_with("end"), "{long}");
    }
}
