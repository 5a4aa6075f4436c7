//! A hub as `machinist up` starts it, which a test can stop, kill and start again.
pub mod raw;

use anyhow::{Context, Result, ensure};
use kube::Client;
use machinist_e2e::api_server::wait_for_hub;
use machinist_e2e::lab::LabProcess;
use machinist_e2e::{Lab, binary, cluster};
use rustix::process::Signal;
use std::path::PathBuf;
use std::process::Command;

pub struct HubProcess {
    lab: Lab,
    data: PathBuf,
    history: Option<usize>,
    process: Option<LabProcess>,
}

impl HubProcess {
    /// Starts a hub with a data directory of its own.
    pub fn start() -> Result<Self> {
        Self::with_history(None)
    }

    /// Starts a hub with a limited event history.
    pub fn with_history(history: Option<usize>) -> Result<Self> {
        let lab = Lab::new()?;
        let data = lab.create_dir("hub")?;
        let mut hub = Self { lab, data, history, process: None };
        hub.launch()?;
        hub.wait_until_ready()?;
        Ok(hub)
    }

    /// A hub that is not started, with a data directory of the test.
    pub fn in_directory(lab: &Lab, data: PathBuf) -> Self {
        Self { lab: lab.clone(), data, history: None, process: None }
    }

    /// Starts the process without waiting.
    pub fn launch(&mut self) -> Result<()> {
        self.launch_wrapped(Ok)
    }

    /// Starts the process through another command, for example one that makes system calls fail.
    pub fn launch_wrapped(&mut self, wrap: impl FnOnce(Command) -> Result<Command>) -> Result<()> {
        let mut up = Command::new(binary::machinist_binary()?);
        up.arg("up").arg("--data").arg(&self.data);
        up.arg("--api-listen").arg(self.address());
        if let Some(history) = self.history {
            up.arg("--history").arg(history.to_string());
        }
        self.process = Some(self.lab.spawn("machinist-up", &wrap(up)?)?);
        Ok(())
    }

    /// Waits until the process is ready, or has ended. Returns what it printed if it has ended.
    pub fn wait_until_ready_or_ended(&mut self) -> Result<Option<String>> {
        match self.wait_until_ready() {
            Ok(()) => Ok(None),
            Err(error) => {
                let mut process = self.process.take().context("the hub is not running")?;
                ensure!(process.has_ended()?, "the hub hangs: {error:#}\n{}", process.log());
                Ok(Some(process.log()))
            }
        }
    }

    pub fn wait_until_ready(&mut self) -> Result<()> {
        let kubeconfig = self.kubeconfig();
        let process = self.process.as_mut().context("the hub is not running")?;
        wait_for_hub(process, &kubeconfig)?;
        Ok(())
    }

    /// Kills the process with SIGKILL.
    pub fn kill(&mut self) -> Result<()> {
        let mut process = self.process.take().context("the hub is not running")?;
        process.signal(Signal::KILL)?;
        process.wait()?;
        Ok(())
    }

    /// Stops the process as a service manager does. It must exit successfully.
    pub fn terminate(&mut self) -> Result<()> {
        let mut process = self.process.take().context("the hub is not running")?;
        process.signal(Signal::TERM)?;
        let status = process.wait()?;
        ensure!(status.success(), "the hub ended with {status}:\n{}", process.log());
        Ok(())
    }

    /// Kills the process and everything that it was started through.
    pub fn kill_all(&mut self) {
        self.process = None; // dropping it does
    }

    pub fn lab(&self) -> &Lab {
        &self.lab
    }

    pub fn address(&self) -> String {
        format!("{}:6443", self.lab.loopback())
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.data.join("kubeconfig")
    }

    /// A client with its own connections.
    pub fn client(&self) -> Result<Client> {
        cluster::client(&self.kubeconfig())
    }

    /// Memory in use, in bytes.
    pub fn memory(&self) -> u64 {
        self.process.as_ref().map_or(0, LabProcess::memory)
    }

    pub fn id(&self) -> u32 {
        self.process.as_ref().map_or(0, LabProcess::id)
    }

    /// Fails if the process has ended.
    pub fn check_alive(&mut self) -> Result<()> {
        self.process.as_mut().context("the hub is not running")?.check_alive()
    }
}

/// A small pseudo-random number generator.
pub struct RandomGenerator(pub u64);

impl RandomGenerator {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}
