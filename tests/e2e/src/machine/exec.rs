//! Runs commands in a machine and copies files in and out.

use super::Machine;
use super::file_tree::FileTree;
use crate::command::{self, ExitOutput};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The whole environment of a command in a machine.
const ENVIRONMENT: [&str; 5] = [
    "env",
    "-i",
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME=/root",
    "LANG=C.UTF-8",
];

impl Machine {
    /// Runs a command in the machine. Any exit code is accepted.
    pub fn exec(&self, args: &[&str]) -> Result<ExitOutput> {
        command::output(&mut self.command_inside(args)?)
    }

    /// Runs a shell script in the machine, which must succeed. Returns its stdout.
    pub fn sh(&self, script: &str) -> Result<String> {
        let output = self.exec(&["sh", "-ec", script])?;
        if !output.succeeded() {
            let text = [output.stderr.trim(), output.stdout.trim()].join("\n");
            anyhow::bail!("{}: `{script}` ended with {}: {text}", self.name(), output.code);
        }
        Ok(output.stdout)
    }

    /// Writes a file in the machine and creates its parent directories.
    pub fn write_file(&self, path: &str, contents: impl AsRef<[u8]>) -> Result<()> {
        let script = r#"mkdir -p "$(dirname "$1")" && cat >"$1""#;
        let mut command = self.command_inside(&["sh", "-ec", script, "sh", path])?;
        let output = command::output_with_stdin(&mut command, contents.as_ref())?;
        command::check_success(&command, &output).with_context(|| format!("put {path}"))
    }

    /// Writes an executable file in the machine.
    pub fn write_executable(&self, path: &str, contents: impl AsRef<[u8]>) -> Result<()> {
        self.write_file(path, contents)?;
        self.exec(&["chmod", "755", path]).map(drop)
    }

    /// The bytes of a file in the machine.
    pub fn read_file(&self, path: &str) -> Result<Vec<u8>> {
        let mut command = self.command_inside(&["cat", "--", path])?;
        let output = command.stdin(Stdio::null()).output().context("start nsenter")?;
        command::check_success(&command, &ExitOutput::from_output(&output))
            .with_context(|| format!("get {path}"))?;
        Ok(output.stdout)
    }

    /// Whether a path exists in the machine.
    pub fn exists(&self, path: &str) -> Result<bool> {
        Ok(self.exec(&["test", "-e", path])?.succeeded())
    }

    /// A digest of every file below a directory of the machine, to compare before and after.
    pub fn tree(&self, dir: &str) -> Result<FileTree> {
        FileTree::read(&self.root()?, Path::new(dir))
    }

    /// The machine's root as its processes see it, mounts included, as a pod sees its host.
    pub fn root(&self) -> Result<PathBuf> {
        let leader = self.supervisor.leader()?.as_raw_nonzero();
        Ok(PathBuf::from(format!("/proc/{leader}/root")))
    }

    /// A command that runs inside the machine's namespaces.
    ///
    /// A shell starts it, not nsenter: nsenter stops itself with its child, and a machine that goes down stops and
    /// resumes all processes. nsenter would stay stopped, nobody would collect its child, and the kernel would wait
    /// for that before it ends the machine.
    pub fn command_inside(&self, args: &[&str]) -> Result<Command> {
        let leader = self.supervisor.leader()?.as_raw_nonzero().to_string();
        let mut command = Command::new("nsenter");
        command.args([
            "-t",
            &leader,
            "-m",
            "-u",
            "-i",
            "-p",
            "-n",
            "-C",
            "-r",
            "-w",
            "--no-fork",
            "--",
        ]);
        command.args(ENVIRONMENT).args(["sh", "-c", "\"$@\"; exit $?", "sh"]).args(args);
        Ok(command)
    }
}
