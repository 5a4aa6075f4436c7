//! Faults at system calls: the n-th call fails, or kills the process there. The binary needs no change.

use crate::environment;
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A fault at the n-th of some system calls.
#[derive(Debug, Clone)]
pub struct SyscallFault {
    calls: String,
    effect: String,
    when: u32,
    path: Option<PathBuf>,
}

impl SyscallFault {
    /// The calls (separated by commas) fail with an error such as `EIO` or `ENOSPC`.
    pub fn error(calls: &str, error: &str) -> Self {
        Self { calls: calls.to_owned(), effect: format!("error={error}"), when: 1, path: None }
    }

    /// The process is killed at the call, before the call takes effect.
    pub fn kill(calls: &str) -> Self {
        Self {
            calls: calls.to_owned(),
            effect: "signal=KILL:error=EIO".to_owned(),
            when: 1,
            path: None,
        }
    }

    /// Only the n-th call, counted from 1.
    #[must_use]
    pub fn nth(mut self, n: u32) -> Self {
        self.when = n;
        self
    }

    /// Only calls that touch this path.
    #[must_use]
    pub fn on_path(mut self, path: impl AsRef<Path>) -> Self {
        self.path = Some(path.as_ref().to_owned());
        self
    }

    /// Wraps the command so that it runs under this fault.
    pub fn wrap(&self, command: &Command) -> Result<Command> {
        let mut strace = Command::new(environment::find_tool("strace")?);
        strace.args(["-f", "-qq", "-o", "/dev/null", "-e"]).arg(format!("trace={}", self.calls));
        strace.arg("-e").arg(format!("inject={}:{}:when={}", self.calls, self.effect, self.when));
        if let Some(path) = &self.path {
            strace.arg("-P").arg(path);
        }
        strace.arg(command.get_program()).args(command.get_args());
        for (key, value) in command.get_envs() {
            match value {
                Some(value) => strace.env(key, value),
                None => strace.env_remove(key),
            };
        }
        if let Some(dir) = command.get_current_dir() {
            strace.current_dir(dir);
        }
        Ok(strace)
    }
}
