//! `machinist rollback`: returns a pool to an earlier rendered config.

use std::fmt::Write as _;

use anyhow::Result;
use clap::Args;
use http::Method;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use machinist_core::api::MachineConfigPool;
use machinist_core::api::names::annotation::machinist;
use machinist_core::node::NodeView;
use machinist_core::plan::{RenderedRevision, RollbackError, plan_rollback, rendered_revisions};
use machinist_core::render::reconcile::PoolRollback;
use machinist_core::rollout::max_unavailable;
use machinist_hub::table::human_duration;
use serde_json::{Value, json};

use super::cluster::session::{ClusterSession, SessionArgs};
use super::cluster::snapshot::{ClusterSnapshot, SnapshotKind};
use super::{CommandOutcome, cluster, output};
use crate::kubernetes::request::{MERGE_PATCH, status_code, with_query};

/// How often a write is retried after a conflict with another writer.
const MAX_CONFLICT_RETRIES: usize = 5;
/// At most this many machines of a config are named.
const MAX_NAMED_MACHINES: usize = 5;

/// Roll a pool back to an earlier rendered config
///
/// The MachineConfigs do not change. The pool stays on the earlier config until one of its MachineConfigs
/// changes, or until the rollback is undone. A rollback that is not possible is refused with exit code 3.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist rollback worker\n\n\
        More examples:\n  machinist rollback worker --undo")]
pub(super) struct RollbackArgs {
    /// The pool to roll back
    pool: String,

    /// The rendered config to return to [default: the one before the current config]
    #[arg(long, value_name = "NAME")]
    to: Option<String>,

    /// Undo a rollback: the pool gets the config of its current MachineConfigs
    #[arg(long, conflicts_with = "to")]
    undo: bool,

    #[command(flatten)]
    session: SessionArgs,
}

impl RollbackArgs {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        cluster::block_on(async {
            let session = self.session.connect().await?;
            let mut tries = 0;
            loop {
                tries += 1;
                let snapshot = session.snapshot().await?;
                let result = if self.undo {
                    self.undo(&session, &snapshot).await
                } else {
                    self.roll_back(&session, &snapshot).await
                };
                match result {
                    Err(error)
                        if tries < MAX_CONFLICT_RETRIES && status_code(&error) == Some(409) => {}
                    result => return result,
                }
            }
        })
    }

    async fn roll_back(
        &self,
        session: &ClusterSession,
        snapshot: &ClusterSnapshot,
    ) -> Result<CommandOutcome> {
        let pool = snapshot.pool(&self.pool)?;
        let members = snapshot.members(pool);
        let wanted = self.to.as_deref();
        let back =
            match plan_rollback(pool, &members, &snapshot.configs, snapshot.image_inputs(), wanted)
            {
                Ok(back) => back,
                Err(refusal) => {
                    output::print_error(&refusal.to_string());
                    let names_others = matches!(
                        refusal,
                        RollbackError::NotOfThisPool { .. }
                            | RollbackError::NoEarlierConfig { .. }
                            | RollbackError::AlreadyCurrent { .. }
                    );
                    if names_others {
                        output::print_note(&config_table(
                            &rendered_revisions(pool, &members, &snapshot.configs),
                            &now(),
                        ));
                    }
                    return Ok(CommandOutcome::Refused);
                }
            };
        write(session, pool, json!(back.from), json!(back.to)).await?;
        let change =
            members.iter().filter(|node| NodeView(node).current_config() != back.to).count();
        let limit = max_unavailable(pool, members.len());
        let limit =
            limit.map_or_else(|error| error.to_string(), |max| format!("at most {max} at a time"));
        let mut text = format!(
            "{} rolls back from {} to {}: {change} of {} machines change, {limit}\n",
            self.pool,
            back.from,
            back.to,
            members.len()
        );
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "The pool stays there until its MachineConfigs change, or until you run `machinist rollback {} --undo`.",
            self.pool
        );
        text.push_str(&paused(pool));
        output::print(&text)?;
        Ok(CommandOutcome::Done)
    }

    async fn undo(
        &self,
        session: &ClusterSession,
        snapshot: &ClusterSnapshot,
    ) -> Result<CommandOutcome> {
        let pool = snapshot.pool(&self.pool)?;
        let annotations = pool.metadata.annotations.as_ref();
        let keys = [machinist::ROLLED_BACK_FROM, machinist::ROLLED_BACK_TO];
        if !keys.iter().any(|key| annotations.is_some_and(|all| all.contains_key(*key))) {
            output::print(&format!("{} is not rolled back; nothing to undo\n", self.pool))?;
            return Ok(CommandOutcome::Done);
        }
        write(session, pool, Value::Null, Value::Null).await?;
        let from = PoolRollback::from_annotations(pool)
            .map_or_else(|| "the config of its MachineConfigs".to_owned(), |b| b.from);
        let text = format!("the rollback is undone; {} gets {from}\n{}", self.pool, paused(pool));
        output::print(&text)?;
        Ok(CommandOutcome::Done)
    }
}

fn now() -> Time {
    Time(k8s_openapi::jiff::Timestamp::now())
}

fn paused(pool: &MachineConfigPool) -> String {
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    if pool.spec.paused == Some(true) {
        format!("The pool is paused: nothing happens until you run `machinist resume {name}`.\n")
    } else {
        String::new()
    }
}

/// Writes the rollback annotations. Fails with a conflict if the pool changed since it was read.
async fn write(
    session: &ClusterSession,
    pool: &MachineConfigPool,
    from: Value,
    to: Value,
) -> Result<()> {
    let path = session.needed(SnapshotKind::Pool)?.path(None, pool.metadata.name.as_deref());
    let path = with_query(&path, &[("fieldManager", "machinist")]);
    let patch = json!({"metadata": {
        "resourceVersion": pool.metadata.resource_version,
        "annotations": {machinist::ROLLED_BACK_FROM: from, machinist::ROLLED_BACK_TO: to},
    }});
    session.client.write(Method::PATCH, &path, MERGE_PATCH, &patch).await?;
    Ok(())
}

/// The rendered configs of a pool, with their age and the machines that have them.
fn config_table(known: &[RenderedRevision], now: &Time) -> String {
    if known.is_empty() {
        return "The pool has no rendered configs.".to_owned();
    }
    let mut text = "Rendered configs of the pool:".to_owned();
    for one in known {
        let age =
            one.created.as_ref().map(|created| human_duration(now.0.duration_since(created.0)));
        let more = one.machines.len().saturating_sub(MAX_NAMED_MACHINES);
        let mut machines = one.machines[..one.machines.len().min(MAX_NAMED_MACHINES)].join(", ");
        if more > 0 {
            let _ = write!(machines, " and {more} more");
        }
        let machines = if machines.is_empty() { "no machine".to_owned() } else { machines };
        let _ = write!(text, "\n  {} ({} old): {machines}", one.name, age.unwrap_or_default());
    }
    text
}
