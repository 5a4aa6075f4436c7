//! `machinist enrol`: a new machine makes a key of its own, becomes known with it, and gets the half of its config that
//! is not for everyone.
//!
//! ```text
//! instructions (from Ignition) ─ key ─ link: POST /enrol/POOL ─→ certificate ─ link: GET /sealed/POOL ─ disk ─→ root
//! ```
//!
//! Everything may be done again at any time: the key is kept, files are written whole or not at all, and the mark that
//! all is done comes last.

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

use disk::EnrolRoot;
use key::MachineKey;
use server_client::ServerClient;

/// How long to wait after the server could not be reached.
const RETRY_DELAY: Duration = Duration::from_secs(2);
/// The longest that a server may tell us to wait.
const MAX_RETRY_AFTER: u64 = 60;

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EnrolOutcome {
    /// The machine has everything.
    Done {
        /// What was written.
        paths: Vec<String>,
        /// Units that may start now.
        units: Vec<String>,
    },
    /// It had everything before.
    AlreadyEnrolled,
    /// The server says no, and will not change its mind.
    Refused(String),
    /// The time is over; somebody has yet to look at it.
    TimedOut,
}

/// What to do on the way.
#[derive(Debug)]
pub struct EnrolOptions<'a> {
    /// The root of the machine.
    pub root: &'a Path,
    /// What the machine calls itself.
    pub name: &'a str,
    /// How long to wait for a person; nothing is for ever.
    pub timeout: Option<Duration>,
}

/// Enrols a machine; `say` tells the person in front of it what to do.
///
/// # Errors
/// The root has no instructions, or cannot be written.
pub async fn run(options: &EnrolOptions<'_>, say: impl Fn(&str)) -> Result<EnrolOutcome> {
    let disk = EnrolRoot::open(options.root)?;
    if disk.read(DONE_FILE)?.is_some() {
        return Ok(EnrolOutcome::AlreadyEnrolled);
    }
    let instructions = disk.read(INSTRUCTIONS_FILE)?.with_context(|| {
        format!("{INSTRUCTIONS_FILE} is not there: this machine's config was not split")
    })?;
    let instructions: EnrolInstructions =
        serde_json::from_slice(&instructions).with_context(|| INSTRUCTIONS_FILE.to_owned())?;
    let authority = disk.read(CA_FILE)?.with_context(|| format!("{CA_FILE} is not there"))?;
    let token =
        disk.read(TOKEN_FILE)?.map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned());
    let key = MachineKey::load_or_create(&disk, &instructions.pool)?;
    let link = ServerClient::new(&instructions.server, &authority)?;
    let ask = fetch_sealed(&link, &key, &instructions, token.as_deref(), options.name, &say);
    let sealed = match options.timeout {
        None => ask.await?,
        Some(time) => match tokio::time::timeout(time, ask).await {
            Ok(sealed) => sealed?,
            Err(_) => return Ok(EnrolOutcome::TimedOut),
        },
    };
    let sealed = match sealed {
        Ok(sealed) => sealed,
        Err(refused) => return Ok(EnrolOutcome::Refused(refused)),
    };
    let sealed = serde_json::from_slice(&sealed).context("the server's answer is not JSON")?;
    let (config, _) = parse_and_upgrade(&sealed).context("the server's answer is no config")?;
    let written = disk.apply(&config)?;
    // A token that was used lies about for nobody.
    disk.remove(TOKEN_FILE)?;
    disk.write_empty(DONE_FILE)?;
    Ok(EnrolOutcome::Done { paths: written.paths, units: written.units })
}

/// The sealed half; or why the server does not give it.
async fn fetch_sealed(
    link: &ServerClient,
    key: &MachineKey,
    instructions: &EnrolInstructions,
    token: Option<&str>,
    name: &str,
    say: &impl Fn(&str),
) -> Result<Result<Vec<u8>, String>> {
    let pool = &instructions.pool;
    let index = instructions.etcd_index.map(|index| format!("?etcd_index={index}"));
    let sealed = format!("/sealed/{pool}{}", index.unwrap_or_default());
    let enrol = format!("/enrol/{pool}?name={}", percent_encode(name));
    let mut has_told = false;
    loop {
        let told = link.post(&enrol, token, key.csr()).await;
        let answer = match told {
            Ok(answer) if answer.status == 200 => {
                let certificate = String::from_utf8(answer.body).context("the certificate")?;
                link.get(&sealed, &certificate, key.private_key()).await
            }
            told => told,
        };
        let wait = match answer {
            Ok(answer) if answer.status == 200 => return Ok(Ok(answer.body)),
            Ok(answer) if answer.status == 202 => {
                if !has_told {
                    say(&format!(
                        "waiting until somebody approves this machine:\n  machinist enrolment approve {}",
                        key.id()
                    ));
                    has_told = true;
                }
                Duration::from_secs(answer.retry_after.unwrap_or(1).min(MAX_RETRY_AFTER))
            }
            Ok(answer) if answer.status >= 500 => {
                tracing::warn!(
                    status = answer.status,
                    "the server cannot answer yet; trying again"
                );
                RETRY_DELAY
            }
            Ok(answer) => return Ok(Err(refusal_message(answer.status, pool))),
            Err(error) => {
                tracing::warn!(
                    error = format!("{error:#}"),
                    "the server cannot be reached; trying again"
                );
                RETRY_DELAY
            }
        };
        tokio::time::sleep(wait).await;
    }
}

fn refusal_message(status: u16, pool: &str) -> String {
    let why = match status {
        401 => format!("it wants a provisioning token: put a good one into {TOKEN_FILE}"),
        403 => "it refuses this machine; see its log".to_owned(),
        404 => format!("there is no pool {pool}, or its configs are not split"),
        status => format!("it answers {status}; see its log"),
    };
    format!("the server does not enrol this machine: {why}")
}

/// A text as it can stand in a query.
fn percent_encode(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    let escape = |byte: u8| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}

/// Lets units start that were sealed or wait for what was, where this machine's own systemd runs.
///
/// # Errors
/// systemd does not answer.
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
    for unit in units {
        systemctl(&["enable", unit])?;
        // Not waited for: it may be ordered after us.
        systemctl(&["start", "--no-block", unit])?;
    }
    // It was passed over if an earlier attempt of ours had failed: what it completes was not there then.
    if Path::new("/etc/systemd/system").join(first_boot::FIRST_BOOT_UNIT).exists() {
        systemctl(&["start", "--no-block", first_boot::FIRST_BOOT_UNIT])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_a_query() {
        assert_eq!(percent_encode("n1.example.com"), "n1.example.com");
        assert_eq!(percent_encode("a b&c"), "a%20b%26c");
    }
}
