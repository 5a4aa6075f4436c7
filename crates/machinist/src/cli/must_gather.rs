//! `machinist must-gather`: the state of a cluster and of this machine in one archive, without secrets.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use k8s_openapi::jiff::Timestamp;
use machinist_core::redact::Redactor;
use machinist_hub::random;
use serde_json::Value;

use super::connection_args::ConnectionArgs;
use super::{CommandOutcome, output};
use crate::daemon::status;
use crate::durable_file;
use crate::kubernetes::ApiClient;
use crate::must_gather::{self, Collected};

/// Collect the state of the cluster and of this machine into an archive without secrets
///
/// The archive contains pools, MachineConfigs, machines, the sources of generated configs, events, leases
/// and versions; on a machine, also its status and the log of its daemon. File contents that may be
/// secret are replaced by their size and a digest, and Secrets are never read. If something cannot be
/// read, the command collects the rest, names what is missing, and exits with code 1.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  machinist must-gather\n  machinist must-gather --out gathered.tar.gz\n  machinist must-gather --out gathered.tar.gz -o json"
)]
pub(super) struct MustGatherArgs {
    #[command(flatten)]
    connection: ConnectionArgs,

    /// The output format: text prints the path of the archive, json a summary
    // Anything else is the archive, which this flag named once.
    #[arg(short, long, value_name = "OUTPUT", default_value = "text")]
    output: String,

    /// Write the archive to this file [default: machinist-must-gather-TIME.tar.gz]
    #[arg(long, alias = "file", value_name = "FILE")]
    out: Option<PathBuf>,

    /// The root directory of the machine
    #[arg(long, value_name = "DIR", default_value = "/", alias = "root-mount")]
    root: PathBuf,
}

impl MustGatherArgs {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        let time = Timestamp::now();
        let stamp = time.strftime("%Y%m%d-%H%M%S").to_string();
        let directory = format!("machinist-must-gather-{stamp}");
        let (is_json, named) = match self.output.as_str() {
            "text" => (false, None),
            "json" => (true, None),
            file => (false, Some(PathBuf::from(file))),
        };
        let file = self.out.clone().or(named);
        let file = file.unwrap_or_else(|| PathBuf::from(format!("{directory}.tar.gz")));
        // The key is not stored, so nobody can test guesses against the digests in the archive.
        let redactor = Redactor::new(random::bytes::<32>()?);
        let runtime = tokio::runtime::Runtime::new().context("cannot start the async runtime")?;
        let collected = runtime.block_on(self.collect(&redactor))?;
        let mut summary = collected.summary(&time.to_string());
        let mut files = collected.files;
        let mut text = serde_json::to_vec_pretty(&summary)?;
        text.push(b'\n');
        files.insert("summary.json".to_owned(), text);
        let seconds = u64::try_from(time.as_second()).unwrap_or_default();
        write(&file, &must_gather::pack(&directory, &files, seconds)?)?;
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
                let report = |line: &str| output::print_note(line);
                collected.merge(
                    must_gather::collect_cluster(&ApiClient::new(client), redactor, report).await,
                );
                if collected.objects.is_empty() && !is_machine {
                    let why = collected.missing.first().map(|it| it.why.clone());
                    bail!(
                        "the API server returns no objects ({}): name another with --kubeconfig, or run this on a machine",
                        why.unwrap_or_else(|| "it serves none of the kinds".to_owned())
                    );
                }
            }
            Err(error) if !is_machine => return Err(error),
            Err(error) => collected.missing.push(must_gather::MissingItem {
                what: "the API server".to_owned(),
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

/// Writes the archive atomically, readable only for its owner.
fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    durable_file::write(path, bytes, durable_file::PRIVATE)
        .with_context(|| format!("cannot write {}", path.display()))
}
