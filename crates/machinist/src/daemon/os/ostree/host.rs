//! The host: its paths and its commands.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use anyhow::{Context as _, Result, bail};
use rustix::fs::{StatVfsMountFlags, statvfs};

use super::super::command;

/// A host, seen from its own root or from a pod in which that root is mounted.
#[derive(Debug)]
pub(super) struct OstreeHost {
    inner: command::HostCommands,
}

/// Makes the sysroot writable for one command, as ostree's own commands do for themselves.
const REMOUNT_SCRIPT: &str = "mount -o remount,rw /sysroot && exec \"$@\"";

impl OstreeHost {
    pub(super) fn new(root: &Path) -> Self {
        Self { inner: command::HostCommands::new(root) }
    }

    /// The path of a file of the host for this process.
    pub(super) fn path(&self, inside: &str) -> PathBuf {
        self.inner.path(inside)
    }

    /// The credentials to pull images with, if there are any.
    pub(super) fn credentials(&self) -> Option<&'static str> {
        self.inner.credentials()
    }

    /// Whether the host has a command.
    pub(super) fn has_command(&self, command_name: &str) -> bool {
        self.inner.has_command(command_name)
    }

    /// The contents of a file; `None` if there is no such file.
    pub(super) fn read(&self, inside: &str) -> Result<Option<String>> {
        match fs::read_to_string(self.path(inside)) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {inside}")),
        }
    }

    /// Runs a command that has to succeed, and returns its output.
    pub(super) fn run(&self, words: &[&str]) -> Result<String> {
        Ok(String::from_utf8_lossy(&self.run_bytes(words)?).into_owned())
    }

    /// The same, with the output as bytes.
    pub(super) fn run_bytes(&self, words: &[&str]) -> Result<Vec<u8>> {
        self.run_checked(words, false)
    }

    /// Runs a long command whose output goes to the log.
    pub(super) fn run_logged(&self, words: &[&str]) -> Result<()> {
        self.run_checked(words, true).map(drop)
    }

    fn run_checked(&self, words: &[&str], is_logged: bool) -> Result<Vec<u8>> {
        let answer = self.output(words, is_logged)?;
        if answer.status.success() {
            return Ok(answer.stdout);
        }
        let shown = words.iter().take(3).copied().collect::<Vec<_>>().join(" ");
        bail!("{shown}: {}", stderr_summary(&answer.stderr, answer.status))
    }

    /// Runs a command that may fail.
    pub(super) fn try_run(&self, words: &[&str]) -> Result<Option<String>> {
        let output = self.output(words, false)?;
        let output = output.status.success().then_some(output.stdout);
        Ok(output.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// Runs a command that writes to the sysroot, even if that is mounted read-only.
    pub(super) fn run_on_sysroot(&self, words: &[&str]) -> Result<String> {
        let is_read_only = statvfs(self.path("sysroot"))
            .is_ok_and(|stat| stat.f_flag.contains(StatVfsMountFlags::RDONLY));
        if !is_read_only {
            return self.run(words);
        }
        let mut wrapped = vec!["unshare", "--mount", "--", "sh", "-c", REMOUNT_SCRIPT, "sh"];
        wrapped.extend(words);
        self.run(&wrapped)
    }

    fn output(&self, words: &[&str], is_logged: bool) -> Result<command::HostCommandOutput> {
        let (command_name, arguments) = words.split_first().context("nothing to run")?;
        tracing::debug!(?words, "run");
        self.inner.output(command_name, arguments, is_logged)
    }

    /// The free bytes on the file system of a directory.
    pub(super) fn free_space(&self, inside: &str) -> Result<u64> {
        let stat =
            statvfs(self.path(inside)).with_context(|| format!("cannot look at {inside}"))?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    /// Whether two paths lead to the same file.
    pub(super) fn is_same_file(&self, one: &str, other: &str) -> bool {
        let id = |inside: &str| {
            fs::metadata(self.path(inside)).ok().map(|meta| (meta.dev(), meta.ino()))
        };
        id(one).is_some() && id(one) == id(other)
    }
}

/// The last lines of an error message, which say why. A command that was killed has none.
fn stderr_summary(stderr: &str, status: ExitStatus) -> String {
    let lines: Vec<_> = stderr.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(3)..];
    match (last, status.signal()) {
        (_, Some(signal)) => format!("it was ended by signal {signal}"),
        ([], None) => "it failed without a word".to_owned(),
        (last, None) => last.join(" / "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_command_says_why() {
        let host = OstreeHost::new(Path::new("/"));
        let error = host.run(&["sh", "-c", "echo one >&2; echo two >&2; exit 4"]).unwrap_err();
        assert_eq!(error.to_string(), "sh -c echo one >&2; echo two >&2; exit 4: one / two");
        let error = host.run(&["sh", "-c", "echo one >&2; kill -9 $$"]).unwrap_err();
        assert!(error.to_string().ends_with(": it was ended by signal 9"), "{error}");
        assert_eq!(host.try_run(&["false"]).unwrap(), None);
        assert_eq!(host.run(&["echo", "yes"]).unwrap(), "yes\n");
        let error = host.run(&["no-such-command"]).unwrap_err().to_string();
        assert!(error.contains("cannot run no-such-command"), "{error}");
    }
}
