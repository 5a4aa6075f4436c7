//! systemd over D-Bus: units are started, stopped, restarted and reloaded as jobs, and each job is followed
//! to its end. Called by `agent::post_apply`, `health` and `join`.
//!
//! The socket is the one beneath the root, so that a daemon in a container reaches the systemd of its host.
//! systemd's private socket comes first, as for `systemctl`: it works without a message bus, and while the
//! bus itself is restarted.
//!
//! A connection is opened for a few calls and then closed: an open one receives a signal for every unit
//! that comes and goes, which wakes the process each time.

mod job;
mod private_socket;
mod transient;

use std::io;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use serde::Serialize;
use tokio::net::UnixStream;
use zbus::connection::Builder;
use zbus::{Connection, DynamicType, Message, ObjectPath, OwnedObjectPath, OwnedVariant};

use private_socket::PrivateSocket;
pub(crate) use transient::TransientUnit;

/// Exists when systemd is the init process, see sd_booted(3).
const SYSTEMD_BOOTED: &str = "run/systemd/system";
/// systemd's private socket, which only root may use.
const PRIVATE_SOCKET: &str = "run/systemd/private";
/// The socket of the message bus.
const BUS_SOCKET: &str = "run/dbus/system_bus_socket";

const BUS_NAME: &str = "org.freedesktop.systemd1";
const OBJECT_PATH: &str = "/org/freedesktop/systemd1";
const MANAGER_INTERFACE: &str = "org.freedesktop.systemd1.Manager";
const UNIT_INTERFACE: &str = "org.freedesktop.systemd1.Unit";
const SERVICE_INTERFACE: &str = "org.freedesktop.systemd1.Service";

/// The timeout of a reply. Reloading all units takes long on a slow machine.
const REPLY_TIMEOUT: Duration = Duration::from_secs(180);

/// The suffixes of unit names.
const UNIT_SUFFIXES: [&str; 11] = [
    ".service",
    ".socket",
    ".target",
    ".device",
    ".mount",
    ".automount",
    ".swap",
    ".timer",
    ".path",
    ".slice",
    ".scope",
];

/// The systemd of a root.
#[derive(Debug)]
pub(crate) struct Systemd {
    connection: Connection,
}

impl Systemd {
    /// Connects to the systemd of a root; `None` if systemd does not run there.
    pub(crate) async fn connect(root: &Path) -> Result<Option<Self>> {
        if !root.join(SYSTEMD_BOOTED).is_dir() {
            return Ok(None);
        }
        let connection = match connect_private(root).await {
            Ok(connection) => connection,
            // Not for processes that systemd does not see, as in a container with its own.
            Err(own) => match connect_bus(root).await {
                Ok(connection) => connection,
                Err(bus) => bail!(
                    "systemd does not answer in {}: /{PRIVATE_SOCKET}: {own:#}; /{BUS_SOCKET}: {bus:#}: run as root, with the machine's /run in the root",
                    root.display()
                ),
            },
        };
        let systemd = Self { connection };
        // Without this, the bus does not report the end of jobs.
        systemd.call("Subscribe", &()).await.context("cannot listen to systemd")?;
        Ok(Some(systemd))
    }

    /// Reloads all units.
    pub(crate) async fn daemon_reload(&self) -> Result<()> {
        self.call("Reload", &()).await.map(drop).context("Failed to reload daemon")
    }

    /// Reloads the configuration of a unit.
    pub(crate) async fn reload(&self, unit: &str) -> Result<()> {
        self.run_job("reload", "ReloadUnit", unit).await
    }

    /// Stops a unit if it runs, and starts it.
    pub(crate) async fn restart(&self, unit: &str) -> Result<()> {
        self.run_job("restart", "RestartUnit", unit).await
    }

    /// Asks systemd to restart a unit, without waiting for it: the unit of this process, for example.
    #[allow(dead_code, reason = "the whole-machine tests include this module without the agent")]
    pub(crate) async fn request_restart(&self, unit: &str) -> Result<()> {
        let unit = unit_name(unit);
        let requested = self.call("RestartUnit", &(unit.as_str(), "replace")).await.map(drop);
        requested.with_context(|| format!("Failed to restart {unit}"))
    }

    /// Starts a unit.
    pub(crate) async fn start(&self, unit: &str) -> Result<()> {
        self.run_job("start", "StartUnit", unit).await
    }

    /// Stops a unit.
    pub(crate) async fn stop(&self, unit: &str) -> Result<()> {
        self.run_job("stop", "StopUnit", unit).await
    }

    /// Clears the failure of a unit and its count of starts. A unit that is not loaded has none.
    pub(crate) async fn reset_failed(&self, unit: &str) -> Result<()> {
        let unit = unit_name(unit);
        match self.call("ResetFailedUnit", &unit.as_str()).await {
            Err(error) if error.to_string().contains("not loaded") => Ok(()),
            done => done.map(drop).with_context(|| format!("Failed to reset {unit}")),
        }
    }

    /// The active state of a unit: `active`, `inactive`, `failed` and so on; `inactive` if there is none.
    pub(crate) async fn active_state(&self, unit: &str) -> Result<String> {
        self.property(unit, UNIT_INTERFACE, "ActiveState").await
    }

    /// Whether systemd can load the file of a unit: `loaded`, `not-found`, `masked`, `bad-setting` and so on.
    pub(crate) async fn load_state(&self, unit: &str) -> Result<String> {
        self.property(unit, UNIT_INTERFACE, "LoadState").await
    }

    /// How often systemd has restarted a service by itself.
    pub(crate) async fn restarts(&self, service: &str) -> Result<u32> {
        self.property(service, SERVICE_INTERFACE, "NRestarts").await
    }

    async fn property<T>(&self, unit: &str, interface: &str, name: &str) -> Result<T>
    where
        T: TryFrom<OwnedVariant>,
        T::Error: std::error::Error + Send + Sync + 'static,
    {
        let unit = unit_name(unit);
        let ask = async {
            let loaded = self.call("LoadUnit", &unit.as_str()).await?;
            let path: OwnedObjectPath = loaded.body().deserialize()?;
            let properties = "org.freedesktop.DBus.Properties";
            let answer = self.call_at(&path, properties, "Get", &(interface, name)).await?;
            let value: OwnedVariant = answer.body().deserialize()?;
            anyhow::Ok(T::try_from(value)?)
        };
        ask.await.with_context(|| format!("Failed to get the state of {unit}"))
    }

    /// Runs a command as a transient unit, independent of this process. Waits until it has started.
    pub(crate) async fn run_transient(&self, unit: &TransientUnit<'_>) -> Result<()> {
        let started = self.start_transient(unit, unit.properties()).await;
        started.with_context(|| format!("Failed to start transient unit {}", unit_name(unit.name)))
    }

    /// Runs a command as a transient unit and waits for its end. An exit code other than 0 or a timeout is an
    /// error.
    pub(crate) async fn run_and_wait(
        &self,
        unit: &TransientUnit<'_>,
        limit: Duration,
    ) -> Result<()> {
        self.start_transient(unit, unit.oneshot_properties(limit)).await
    }

    async fn start_transient(
        &self,
        unit: &TransientUnit<'_>,
        properties: transient::UnitProperties,
    ) -> Result<()> {
        let name = unit_name(unit.name);
        let body = (name.as_str(), "fail", properties, transient::NO_AUX_UNITS);
        job::run(self, "StartTransientUnit", &body, &name).await
    }

    async fn run_job(&self, verb: &str, method: &str, unit: &str) -> Result<()> {
        let unit = unit_name(unit);
        job::run(self, method, &(unit.as_str(), "replace"), &unit)
            .await
            .with_context(|| format!("Failed to {verb} {unit}"))
    }

    async fn call<B: Serialize + DynamicType>(&self, method: &str, body: &B) -> Result<Message> {
        self.call_at(&ObjectPath::try_from(OBJECT_PATH)?, MANAGER_INTERFACE, method, body).await
    }

    async fn call_at<B: Serialize + DynamicType>(
        &self,
        path: &ObjectPath<'_>,
        interface: &str,
        method: &str,
        body: &B,
    ) -> Result<Message> {
        let answer =
            self.connection.call_method(Some(BUS_NAME), path, Some(interface), method, body);
        answer.await.map_err(plain_error)
    }
}

/// Connects to systemd's private socket.
async fn connect_private(root: &Path) -> Result<Connection> {
    let stream = UnixStream::connect(root.join(PRIVATE_SOCKET)).await?;
    open(Builder::socket(PrivateSocket(stream)).p2p()).await
}

/// Connects to the message bus.
async fn connect_bus(root: &Path) -> Result<Connection> {
    let stream = UnixStream::connect(root.join(BUS_SOCKET)).await?;
    open(Builder::unix_stream(stream.into_std()?)).await
}

async fn open(builder: Builder<'static>) -> Result<Connection> {
    match tokio::time::timeout(REPLY_TIMEOUT, builder.method_timeout(REPLY_TIMEOUT).build()).await {
        Ok(connection) => connection.map_err(plain_error),
        Err(_) => bail!("it has not answered for {REPLY_TIMEOUT:?}"),
    }
}

/// Completes a unit name: without a suffix it is that of a service.
fn unit_name(unit: &str) -> String {
    if UNIT_SUFFIXES.iter().any(|kind| unit.ends_with(kind)) {
        unit.to_owned()
    } else {
        format!("{unit}.service")
    }
}

/// systemd's error message, without the D-Bus name of the error.
fn plain_error(error: zbus::Error) -> anyhow::Error {
    match error {
        zbus::Error::MethodError(_, Some(text), _) => anyhow!("{text}"),
        zbus::Error::InputOutput(error) if error.kind() == io::ErrorKind::TimedOut => {
            anyhow!("systemd has not answered for {REPLY_TIMEOUT:?}")
        }
        error => anyhow!(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_a_suffix_is_a_service() {
        for (name, expected) in [
            ("crio", "crio.service"),
            ("crio.service", "crio.service"),
            ("a.b", "a.b.service"),
            ("basic.target", "basic.target"),
        ] {
            assert_eq!(unit_name(name), expected);
        }
    }
}
