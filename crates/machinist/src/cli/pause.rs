//! `machinist pause` and `machinist resume`: stop and continue the rollout of a pool.

use anyhow::Result;
use clap::Args;
use http::Method;
use machinist_core::api::MachineConfigPool;
use machinist_core::node::NodeView;
use machinist_core::rollout::max_unavailable;
use serde_json::json;

use super::cluster::session::SessionArgs;
use super::cluster::snapshot::{ClusterSnapshot, SnapshotKind};
use super::{CommandOutcome, cluster, output};
use crate::kubernetes::request::{MERGE_PATCH, with_query};

/// Pause a pool: its machines get no new config until it is resumed
///
/// Machines that are updating finish. Changes are rendered, but not rolled out.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist pause worker")]
pub(super) struct PauseArgs {
    /// The pool to pause
    pool: String,

    #[command(flatten)]
    session: SessionArgs,
}

/// Resume a paused pool: its machines get the changes made in the meantime
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist resume worker")]
pub(super) struct ResumeArgs {
    /// The pool to resume
    pool: String,

    #[command(flatten)]
    session: SessionArgs,
}

impl PauseArgs {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        set_paused(&self.session, &self.pool, true)
    }
}

impl ResumeArgs {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        set_paused(&self.session, &self.pool, false)
    }
}

fn set_paused(session: &SessionArgs, name: &str, paused: bool) -> Result<CommandOutcome> {
    cluster::block_on(async {
        let session = session.connect().await?;
        let snapshot = session.snapshot().await?;
        let pool = snapshot.pool(name)?;
        if pool.spec.paused.unwrap_or_default() != paused {
            let path = session.needed(SnapshotKind::Pool)?.path(None, Some(name));
            let path = with_query(&path, &[("fieldManager", "machinist")]);
            let patch = json!({"spec": {"paused": paused}});
            session.client.write(Method::PATCH, &path, MERGE_PATCH, &patch).await?;
        }
        output::print(&text(&snapshot, pool, paused))?;
        Ok(CommandOutcome::Done)
    })
}

/// What the change means for the machines.
fn text(snapshot: &ClusterSnapshot, pool: &MachineConfigPool, paused: bool) -> String {
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    let target = pool.spec.configuration.as_ref().and_then(|c| c.name.as_deref());
    let members = snapshot.members(pool);
    let views = || members.iter().map(|node| NodeView(node));
    let Some(target) = target else {
        let verb = if paused { "is paused" } else { "is not paused" };
        return format!("{name} {verb}; it has no rendered config yet\n");
    };
    let behind = views().filter(|view| view.needs_target(target)).count();
    let working = views().filter(|view| !view.needs_target(target) && !view.is_done()).count();
    let mut text = match (paused, behind) {
        (true, 0) => format!("{name} is paused; {} {target}", stay_message(members.len())),
        (true, _) => {
            let mut configs: Vec<&str> =
                views().filter(|v| v.needs_target(target)).map(NodeView::current_config).collect();
            configs.sort_unstable();
            configs.dedup();
            format!(
                "{name} is paused; {} {}, and {} not get {target}",
                stay_message(behind),
                configs.join(" or "),
                if behind == 1 { "does" } else { "do" }
            )
        }
        (false, 0) => {
            let have = match members.len() {
                1 => "its machine has".to_owned(),
                count => format!("all {count} machines have"),
            };
            format!("{name} is not paused; {have} {target}")
        }
        (false, _) => {
            let limit = max_unavailable(pool, members.len())
                .map_or_else(|error| error.to_string(), |max| format!("at most {max} at a time"));
            format!("{name} is resumed; {} to get {target}, {limit}", machines(behind))
        }
    };
    if working > 0 {
        text.push_str(&format!("; {} updating to it will finish", machines(working)));
    }
    text.push('\n');
    text
}

fn machines(count: usize) -> String {
    if count == 1 { "1 machine".to_owned() } else { format!("{count} machines") }
}

fn stay_message(count: usize) -> String {
    if count == 1 { "1 machine stays on".to_owned() } else { format!("{count} machines stay on") }
}
