//! `machinist enrol` on a new machine, and `machinist enrolment` for the administrator who approves it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::{Args, Subcommand};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use machinist_core::api::names::object;
use machinist_core::duration::parse_duration;
use machinist_core::serve::enrol::{
    ENROLMENT_LABEL, EnrolmentRecord, EnrolmentState, SECRET_PREFIX,
};
use serde_json::json;

use super::connection_args::ConnectionArgs;
use super::log_args::LogArgs;
use super::{CommandOutcome, output};
use crate::enrol;

/// Enrol this machine and write the sealed part of its config
///
/// The open part of a sealed config contains no secret and runs this command on the first boot. The
/// machine creates a key. It gets a certificate for the key with the provisioning token in
/// /etc/machinist/enrol-token, or when an administrator approves it. The exit code is 3 if the server
/// refuses.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist enrol --root /")]
pub(super) struct EnrolArgs {
    /// The root directory of the machine
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,

    /// The name to show to the administrator [default: the host name]
    #[arg(long, alias = "name", value_name = "NAME")]
    node_name: Option<String>,

    /// How long to wait for the approval, such as 10m [default: no limit]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    timeout: Option<Duration>,

    #[command(flatten)]
    log: LogArgs,
}

impl EnrolArgs {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        self.log.init();
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let name = self.node_name.as_deref().unwrap_or(&host);
        let options = enrol::EnrolOptions { root: &self.root, name, timeout: self.timeout };
        let runtime = tokio::runtime::Runtime::new().context("cannot start the async runtime")?;
        match runtime.block_on(enrol::run(&options, output::print_note))? {
            enrol::EnrolOutcome::Done { paths, units } => {
                for path in &paths {
                    output::print_progress(&format!("wrote {path}\n"));
                }
                if self.root == Path::new("/") {
                    enrol::relabel(&paths);
                    enrol::start_units(&units)?;
                }
                output::print_progress("This machine has its whole config now.\n");
                Ok(CommandOutcome::Done)
            }
            enrol::EnrolOutcome::AlreadyEnrolled => {
                output::print_progress("This machine already has its whole config.\n");
                Ok(CommandOutcome::Done)
            }
            enrol::EnrolOutcome::Refused(why) => {
                output::print_error(&why);
                Ok(CommandOutcome::Refused)
            }
            enrol::EnrolOutcome::TimedOut => {
                output::print_error(
                    "this machine is not approved yet: approve it with machinist enrolment, then run this command again",
                );
                Ok(CommandOutcome::Failed)
            }
        }
    }
}

/// List, approve and deny machines that request the sealed part of their config
#[derive(Debug, Subcommand)]
pub(super) enum EnrolmentCommand {
    List(ListEnrolmentsArgs),
    Approve(ApproveArgs),
    Deny(DenyArgs),
}

impl EnrolmentCommand {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        let runtime = tokio::runtime::Runtime::new().context("cannot start the async runtime")?;
        runtime.block_on(async {
            match self {
                Self::List(command) => command.run().await,
                Self::Approve(command) => command.ids.set(EnrolmentState::Approved).await,
                Self::Deny(command) => command.ids.set(EnrolmentState::Denied).await,
            }
        })
    }
}

/// Where enrolments are stored.
#[derive(Debug, Args)]
struct EnrolmentNamespaceArgs {
    #[command(flatten)]
    connection: ConnectionArgs,

    /// The namespace of Machinist's own objects
    #[arg(long, value_name = "NAME", default_value = object::NAMESPACE)]
    namespace: String,
}

impl EnrolmentNamespaceArgs {
    async fn api(&self) -> Result<Api<Secret>> {
        Ok(Api::namespaced(self.connection.client().await?, &self.namespace))
    }
}

/// List the machines that requested enrolment, and their state
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist enrolment list")]
pub(super) struct ListEnrolmentsArgs {
    #[command(flatten)]
    namespace_args: EnrolmentNamespaceArgs,
}

impl ListEnrolmentsArgs {
    async fn run(&self) -> Result<CommandOutcome> {
        let all = self
            .namespace_args
            .api()
            .await?
            .list(&ListParams::default().labels(ENROLMENT_LABEL))
            .await?;
        let records: Vec<EnrolmentRecord> = all.items.iter().filter_map(read).collect();
        output::print(&table(&records))?;
        Ok(CommandOutcome::Done)
    }
}

fn read(secret: &Secret) -> Option<EnrolmentRecord> {
    let label = secret.metadata.labels.as_ref()?.get(ENROLMENT_LABEL)?;
    EnrolmentRecord::from_secret(secret.metadata.name.as_deref()?, label, secret.data.as_ref()?)
}

fn table(records: &[EnrolmentRecord]) -> String {
    let mut rows = vec![["ID", "POOL", "NAME", "FROM", "STATE", "TOKEN"].map(str::to_owned)];
    for record in records {
        let token = if record.token.is_empty() { "-" } else { &record.token };
        let cells =
            [&record.id, &record.pool, &record.name, &record.address, record.state.as_str(), token];
        // The machine chooses its name, so it may contain control characters.
        rows.push(cells.map(|cell| cell.chars().filter(|c| !c.is_control()).collect()));
    }
    output::format_columns(&rows)
}

/// The enrolments to change.
#[derive(Debug, Args)]
struct EnrolmentIdArgs {
    #[command(flatten)]
    namespace_args: EnrolmentNamespaceArgs,

    /// The ids of the enrolments; a machine shows its id while it waits
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
}

/// Approve machines: they get the sealed part of their config. Compare the id with the one on the machine
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist enrolment approve 0123456789abcdef0123456789abcdef")]
pub(super) struct ApproveArgs {
    #[command(flatten)]
    ids: EnrolmentIdArgs,
}

/// Deny machines: they do not get the sealed part of their config, not even with a token
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist enrolment deny 0123456789abcdef0123456789abcdef")]
pub(super) struct DenyArgs {
    #[command(flatten)]
    ids: EnrolmentIdArgs,
}

impl EnrolmentIdArgs {
    async fn set(&self, state: EnrolmentState) -> Result<CommandOutcome> {
        let api = self.namespace_args.api().await?;
        let mut outcome = CommandOutcome::Done;
        for id in &self.ids {
            let patch = json!({"metadata": {"labels": {ENROLMENT_LABEL: state.as_str()}}});
            let name = format!("{SECRET_PREFIX}{id}");
            match api.patch(&name, &PatchParams::default(), &Patch::Merge(&patch)).await {
                Ok(_) => output::print(&format!("enrolment {id} {}\n", state.as_str()))?,
                Err(kube::Error::Api(status)) if status.code == 404 => {
                    let hint = "machinist enrolment list shows all";
                    output::print_error(&format!("enrolment {id} does not exist; {hint}"));
                    outcome = CommandOutcome::Failed;
                }
                Err(error) => return Err(error).context(format!("enrolment {id}")),
            }
        }
        Ok(outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_safe_to_show() {
        let record = EnrolmentRecord {
            id: "ab".into(),
            pool: "worker".into(),
            name: "n\u{1b}[2J1".into(),
            address: "10.0.0.1".into(),
            token: String::new(),
            state: EnrolmentState::Pending,
        };
        let text = table(&[record]);
        assert!(text.starts_with("ID  POOL    NAME"), "{text}");
        assert!(text.contains("pending  -") && !text.contains('\u{1b}'), "{text}");
    }
}
