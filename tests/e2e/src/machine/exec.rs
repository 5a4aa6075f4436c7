//! Running commands in a machine and moving files in and out.

use super::Machine;
use super::file_tree::FileTree;
use crate::command::{self, ExitOutput};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What a command in a machine finds in its environment, and nothing else.
const ENVIRONMENT: [&str; 5] = [
    "env",
    "-i",
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME=/root",
    "LANG=C.UTF-8",
];

impl Machine {
    /// Runs a command in the machine; any exit code is an answer.
    pub fn exec(&self, words: &[&str]) -> Result<ExitOutput> {
        command::output(&mut self.command_inside(words)?)
    }

    /// Runs a shell script in the machine that has to succeed; gives its stdout.
    pub fn sh(&self, script: &str) -> Result<String> {
        let answer = self.exec(&["sh", "-ec", script])?;
        if !answer.succeeded() {
            let said = [answer.stderr.trim(), answer.stdout.trim()].join("\n");
            anyhow::bail!("{}: `{script}` ended with {}: {said}", self.name(), answer.code);
        }
        Ok(answer.stdout)
    }

    /// Writes a file in the machine, with the folders above it.
    pub fn write_file(&self, path: &str, contents: impl AsRef<[u8]>) -> Result<()> {
        let script = r#"mkdir -p "$(dirname "$1")" && cat >"$1""#;
        let mut command = self.command_inside(&["sh", "-ec", script, "sh", path])?;
        let answer = command::output_with_stdin(&mut command, contents.as_ref())?;
        command::check_success(&command, &answer).with_context(|| format!("put {path}"))
    }

    /// Writes a program in the machine.
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

    /// Whether there is something at a path in the machine.
    pub fn exists(&self, path: &str) -> Result<bool> {
        Ok(self.exec(&["test", "-e", path])?.succeeded())
    }

    /// A digest of every file below a folder of the machine, to compare before and after.
    pub fn tree(&self, folder: &str) -> Result<FileTree> {
        FileTree::read(&self.root()?, Path::new(folder))
    }

    /// The machine's root as its processes see it, with all that is mounted there: what a pod sees of its host.
    pub fn root(&self) -> Result<PathBuf> {
        let leader = self.supervisor.leader()?.as_raw_nonzero();
        Ok(PathBuf::from(format!("/proc/{leader}/root")))
    }

    /// A command that runs inside the machine's namespaces.
    pub fn command_inside(&self, words: &[&str]) -> Result<Command> {
        let leader = self.supervisor.leader()?.as_raw_nonzero().to_string();
        let mut command = Command::new("nsenter");
        command.args(["-t", &leader, "-m", "-u", "-i", "-p", "-n", "-C", "-r", "-w", "--"]);
        command.args(ENVIRONMENT).args(words);
        Ok(command)
    }
}
