//! `machinist enrol`: a new machine creates a key, enrols with it, and writes the sealed part of its config.
//!
//! ```text
//! instructions (from Ignition) ─ key ─ POST /enrol/POOL ─→ certificate ─ GET /sealed/POOL ─ disk ─→ root
//! ```
//!
//! Every step can be repeated: the key is kept, files are written atomically, and the file that marks completion comes
//! last. Called by the unit that the open part of a sealed config contains.

mod disk;
mod key;
mod server_client;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use machinist_core::ignition::parse_and_upgrade;
use machinist_core::serve::enrol::{
    CA_FILE, DONE_FILE, EnrolInstructions, INSTRUCTIONS_FILE, TOKEN_FILE,
};
use machinist_core::serve::first_boot;
use machinist_hub::failure_log::FailureLog;

use disk::EnrolRoot;
use key::MachineKey;
use server_client::ServerClient;

/// The delay before a retry after a failed request.
const RETRY_DELAY: Duration = Duration::from_secs(2);
/// How many paths one command gets.
const PATHS_PER_COMMAND: usize = 500;
/// The longest delay that a server may request, in seconds.
const MAX_RETRY_AFTER: u64 = 60;

/// The task under which failed requests are reported.
const TASK: &str = "reach the machine config server";

/// The result of an enrolment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnrolOutcome {
    /// The machine has its whole config.
    Done {
        /// The files that were written.
        paths: Vec<String>,
        /// The units that may start now.
        units: Vec<String>,
    },
    /// The machine already had its whole config.
    AlreadyEnrolled,
    /// The server refuses; a retry does not help.
    Refused(String),
    /// The timeout is over, and the enrolment is not approved.
    TimedOut,
}

/// The options of an enrolment.
#[derive(Debug)]
pub struct EnrolOptions<'a> {
    /// The root directory of the machine.
    pub root: &'a Path,
    /// The name that the administrator sees.
    pub name: &'a str,
    /// How long to wait for an approval; none waits without limit.
    pub timeout: Option<Duration>,
}

/// Enrols a machine; `report` shows messages to the person at the console.
///
/// # Errors
/// The root directory contains no instructions, or cannot be written.
pub async fn run(options: &EnrolOptions<'_>, report: impl Fn(&str)) -> Result<EnrolOutcome> {
    let disk = EnrolRoot::open(options.root)?;
    if disk.read(DONE_FILE)?.is_some() {
        return Ok(EnrolOutcome::AlreadyEnrolled);
    }
    let instructions = disk.read(INSTRUCTIONS_FILE)?.with_context(|| {
        format!("{INSTRUCTIONS_FILE} does not exist: this machine has no sealed config")
    })?;
    let instructions: EnrolInstructions =
        serde_json::from_slice(&instructions).with_context(|| INSTRUCTIONS_FILE.to_owned())?;
    let authority = disk.read(CA_FILE)?.with_context(|| format!("{CA_FILE} does not exist"))?;
    let token =
        disk.read(TOKEN_FILE)?.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned());
    let key = MachineKey::load_or_create(&disk, &instructions.pool)?;
    let client = ServerClient::new(&instructions.server, &authority)?;
    let fetch = fetch_sealed(&client, &key, &instructions, token.as_deref(), options.name, &report);
    let sealed = match options.timeout {
        None => fetch.await?,
        Some(time) => match tokio::time::timeout(time, fetch).await {
            Ok(sealed) => sealed?,
            Err(_) => return Ok(EnrolOutcome::TimedOut),
        },
    };
    let sealed = match sealed {
        Ok(sealed) => sealed,
        Err(refused) => return Ok(EnrolOutcome::Refused(refused)),
    };
    let sealed =
        serde_json::from_slice(&sealed).context("the response of the server is not JSON")?;
    let (config, _) = parse_and_upgrade(&sealed)
        .context("the response of the server is not an Ignition config")?;
    let written = disk.apply(&config)?;
    // A used token must not stay on the disk.
    disk.remove(TOKEN_FILE)?;
    disk.write_empty(DONE_FILE)?;
    Ok(EnrolOutcome::Done { paths: written.paths, units: written.units })
}

/// The sealed part, or why the server refuses it.
async fn fetch_sealed(
    client: &ServerClient,
    key: &MachineKey,
    instructions: &EnrolInstructions,
    token: Option<&str>,
    name: &str,
    report: &impl Fn(&str),
) -> Result<Result<Vec<u8>, String>> {
    let pool = &instructions.pool;
    let index = instructions.etcd_index.map(|index| format!("?etcd_index={index}"));
    let sealed = format!("/sealed/{pool}{}", index.unwrap_or_default());
    let enrol = format!("/enrol/{pool}?name={}", percent_encode(name));
    let (mut has_reported, failures) = (false, FailureLog::default());
    loop {
        let enrolled = client.post(&enrol, token, key.csr()).await;
        let response = match enrolled {
            Ok(response) if response.status == 200 => {
                let certificate = String::from_utf8(response.body).context("the certificate")?;
                client.get(&sealed, &certificate, key.private_key()).await
            }
            enrolled => enrolled,
        };
        let wait = match response {
            Ok(response) if response.status == 200 => return Ok(Ok(response.body)),
            Ok(response) if response.status == 202 => {
                if !has_reported {
                    report(&format!(
                        "waiting for approval of this machine; to approve it, run:\n  machinist enrolment approve {}",
                        key.id()
                    ));
                    has_reported = true;
                }
                failures.succeeded(TASK, "");
                Duration::from_secs(response.retry_after.unwrap_or(1).min(MAX_RETRY_AFTER))
            }
            Ok(response) if response.status >= 500 => {
                let status = response.status;
                failures.failed(TASK, "", &format!("it is not ready: it responds with {status}"));
                RETRY_DELAY
            }
            Ok(response) => return Ok(Err(refusal_message(response.status, pool))),
            Err(error) => {
                failures.failed(TASK, "", &format!("{error:#}"));
                RETRY_DELAY
            }
        };
        tokio::time::sleep(wait).await;
    }
}

fn refusal_message(status: u16, pool: &str) -> String {
    let why = match status {
        401 => format!("it requires a provisioning token: write a valid one to {TOKEN_FILE}"),
        403 => "it denies this machine; its log shows why".to_owned(),
        404 => format!("pool {pool} does not exist, or its configs are not sealed"),
        status => format!("it responds with {status}; its log shows why"),
    };
    format!("the server does not enrol this machine: {why}")
}

/// Percent-encodes text for a query.
fn percent_encode(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    let escape = |byte: u8| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}

/// Sets the SELinux labels of files, as Ignition does. A machine without SELinux has no such command.
pub fn relabel(paths: &[String]) {
    for some in paths.chunks(PATHS_PER_COMMAND) {
        match std::process::Command::new("restorecon").arg("-F").args(some).status() {
            Ok(status) if !status.success() => tracing::warn!(%status, "restorecon failed"),
            _ => {}
        }
    }
}

/// Starts the units that were sealed or waited for sealed files, with the systemd of this machine. A unit that
/// cannot be enabled does not keep the others from starting.
///
/// # Errors
/// systemd does not respond.
pub fn start_units(units: &[String]) -> Result<()> {
    let systemctl = |arguments: &[&str]| -> Result<()> {
        let status = std::process::Command::new("systemctl").args(arguments).status();
        match status.context("cannot run systemctl")?.success() {
            true => Ok(()),
            false => bail!("systemctl {} failed", arguments.join(" ")),
        }
    };
    if !units.is_empty() {
        systemctl(&["daemon-reload"])?;
    }
    let warn = |error: anyhow::Error, unit: &str| {
        tracing::warn!(error = format!("{error:#}"), unit, "cannot start a unit of the config");
    };
    // All are enabled before the first starts: they may require each other.
    for unit in units {
        systemctl(&["enable", unit]).unwrap_or_else(|error| warn(error, unit));
    }
    for unit in units {
        // --no-block: the unit may be ordered after this one.
        systemctl(&["start", "--no-block", unit]).unwrap_or_else(|error| warn(error, unit));
    }
    // systemd skipped this unit if an earlier attempt failed, because its input did not exist then.
    if Path::new("/etc/systemd/system").join(first_boot::FIRST_BOOT_UNIT).exists() {
        systemctl(&["start", "--no-block", first_boot::FIRST_BOOT_UNIT])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_percent_encoded() {
        assert_eq!(percent_encode("n1.example.com"), "n1.example.com");
        assert_eq!(percent_encode("a b&c"), "a%20b%26c");
    }
}
