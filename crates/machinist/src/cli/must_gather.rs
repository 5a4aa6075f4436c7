//! `machinist must-gather`: the state of everything in one archive, without secrets.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use k8s_openapi::jiff::Timestamp;
use machinist_core::redact::Redactor;
use serde_json::Value;

use super::connection_args::ConnectionArgs;
use super::{CommandOutcome, output};
use crate::daemon::status;
use crate::kubernetes::ApiClient;
use crate::must_gather::{self, Collected};

/// Collect the state of a home, and of this machine, into one archive without secrets
///
/// Pools, MachineConfigs, machines, what configs are generated from, events, leases and versions; on a
/// machine also its status and the log of its daemon. File contents that may be secret are replaced by their
/// size and a digest, and Secrets are not read at all. What cannot be read is said, and the rest is collected
/// all the same; the exit code is then 1.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  machinist must-gather\n  machinist must-gather -o gathered.tar.gz\n  machinist must-gather --out gathered.tar.gz -o json"
)]
pub(super) struct MustGather {
    #[command(flatten)]
    connection: ConnectionArgs,

    /// The archive [default: machinist-must-gather-TIME.tar.gz]; or json: a summary for programs
    #[arg(short, long, value_name = "FILE|json")]
    output: Option<String>,

    /// The archive, where the summary is wanted as JSON
    #[arg(long, alias = "file", value_name = "FILE")]
    out: Option<PathBuf>,

    /// The root of the machine
    #[arg(long, value_name = "DIR", default_value = "/", alias = "root-mount")]
    root: PathBuf,
}

impl MustGather {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        let time = Timestamp::now();
        let stamp = time.strftime("%Y%m%d-%H%M%S").to_string();
        let folder = format!("machinist-must-gather-{stamp}");
        let is_json = self.output.as_deref() == Some("json");
        let named = self.output.as_deref().filter(|_| !is_json).map(PathBuf::from);
        let file = self.out.clone().or(named);
        let file = file.unwrap_or_else(|| PathBuf::from(format!("{folder}.tar.gz")));
        let redactor = Redactor::new(random_key()?);
        let runtime = tokio::runtime::Runtime::new().context("cannot start the runtime")?;
        let collected = runtime.block_on(self.collect(&redactor))?;
        let mut summary = collected.summary(&time.to_string());
        let mut files = collected.files;
        let mut text = serde_json::to_vec_pretty(&summary)?;
        text.push(b'\n');
        files.insert("summary.json".to_owned(), text);
        let seconds = u64::try_from(time.as_second()).unwrap_or_default();
        write(&file, &must_gather::pack(&folder, &files, seconds)?)?;
        summary["archive"] = Value::String(file.display().to_string());
        match is_json {
            true => output::print_json(&summary)?,
            false => output::print(&format!("{}\n", file.display()))?,
        }
        for missing in &collected.missing {
            output::print_error(&format!("{} is missing: {}", missing.what, missing.why));
        }
        Ok(if collected.missing.is_empty() { CommandOutcome::Done } else { CommandOutcome::Failed })
    }

    async fn collect(&self, redactor: &Redactor) -> Result<Collected> {
        let is_machine = must_gather::is_managed(&self.root);
        let mut collected = Collected::default();
        match self.connection.long_running_client().await {
            Ok(client) => {
                let told = |line: &str| output::print_note(line);
                collected.merge(
                    must_gather::collect_cluster(&ApiClient::new(client), redactor, told).await,
                );
                if collected.objects.is_empty() && !is_machine {
                    let why = collected.missing.first().map(|it| it.why.clone());
                    bail!(
                        "the home answers no question ({}); name another with --kubeconfig, or run this on a machine",
                        why.unwrap_or_else(|| "it has none of the kinds".to_owned())
                    );
                }
            }
            Err(error) if !is_machine => return Err(error),
            Err(error) => collected.missing.push(must_gather::MissingItem {
                what: "the home".to_owned(),
                why: format!("{error:#}"),
            }),
        }
        if is_machine {
            output::print_note("this machine");
            let status = status::gather(&self.root).await;
            let status = status.and_then(|status| Ok(serde_json::to_value(&status)?));
            collected.merge(must_gather::collect_machine(&self.root, status, redactor));
        }
        Ok(collected)
    }
}

/// A key that nobody else has, and that is forgotten with the process.
fn random_key() -> Result<[u8; 32]> {
    let mut key = [0; 32];
    let mut random = fs::File::open("/dev/urandom").context("/dev/urandom")?;
    std::io::Read::read_exact(&mut random, &mut key).context("/dev/urandom")?;
    Ok(key)
}

/// Writes the archive: all of it or nothing, and for its owner only.
fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let context = || format!("cannot write {}", path.display());
    let name = path.file_name().with_context(context)?.to_string_lossy();
    let part = path.with_file_name(format!(".{name}.part"));
    let mut options = fs::OpenOptions::new();
    let options = options.write(true).create(true).truncate(true).mode(0o600);
    let written = options.open(&part).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&part, path)
    });
    if written.is_err() {
        let _ = fs::remove_file(&part);
    }
    written.with_context(context)
}
