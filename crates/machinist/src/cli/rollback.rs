//! `machinist rollback`: a pool back to a config that it had.

use std::fmt::Write as _;

use anyhow::Result;
use clap::Args;
use http::Method;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use machinist_core::api::MachineConfigPool;
use machinist_core::api::names::annotation::machinist;
use machinist_core::node::NodeView;
use machinist_core::plan::{RenderedRevision, RollbackError, plan_rollback, rendered_revisions};
use machinist_core::render::reconcile::PoolRollback as Back;
use machinist_core::rollout::max_unavailable;
use machinist_hub::table::human_duration;
use serde_json::{Value, json};

use super::cluster::session::{ClusterSession, SessionArgs};
use super::cluster::snapshot::{ClusterSnapshot, SnapshotKind};
use super::{CommandOutcome, cluster, output};
use crate::kubernetes::request::{MERGE_PATCH, status_code, with_query};

/// How often a write is tried again after somebody else was quicker.
const MAX_CONFLICT_RETRIES: usize = 5;
/// How many machines of a config are named.
const MAX_NAMED_MACHINES: usize = 5;

/// Send a pool back to a rendered config that it had before
///
/// The MachineConfigs stay as they are. The rollback holds until one of them changes, or until it is
/// undone. What cannot be done is refused with exit code 3.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist rollback worker\n\n\
        Others:\n  machinist rollback worker --undo")]
pub(super) struct RollbackArgs {
    /// The pool
    pool: String,

    /// The rendered config to go to [default: the one that the pool had before]
    #[arg(long, value_name = "NAME")]
    to: Option<String>,

    /// End a rollback: the pool goes forward to what its MachineConfigs make
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
                let world = session.world().await?;
                let result = if self.undo {
                    self.undo(&session, &world).await
                } else {
                    self.roll_back(&session, &world).await
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
        world: &ClusterSnapshot,
    ) -> Result<CommandOutcome> {
        let pool = world.pool(&self.pool)?;
        let members = world.members(pool);
        let wanted = self.to.as_deref();
        let back = match plan_rollback(pool, &members, &world.configs, world.image_inputs(), wanted)
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
                        &rendered_revisions(pool, &members, &world.configs),
                        &now(),
                    ));
                }
                return Ok(CommandOutcome::Refused);
            }
        };
        write(session, pool, json!(back.from), json!(back.to)).await?;
        let change =
            members.iter().filter(|node| NodeView(node).current_config() != back.to).count();
        let most = max_unavailable(pool, members.len());
        let most =
            most.map_or_else(|error| error.to_string(), |max| format!("at most {max} at a time"));
        let mut text = format!(
            "{} goes back from {} to {}: {change} of {} machines change, {most}\n",
            self.pool,
            back.from,
            back.to,
            members.len()
        );
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "It stays there until its MachineConfigs change, or until `machinist rollback {} --undo`.",
            self.pool
        );
        text.push_str(&paused(pool));
        output::print(&text)?;
        Ok(CommandOutcome::Done)
    }

    async fn undo(
        &self,
        session: &ClusterSession,
        world: &ClusterSnapshot,
    ) -> Result<CommandOutcome> {
        let pool = world.pool(&self.pool)?;
        let annotations = pool.metadata.annotations.as_ref();
        let keys = [machinist::ROLLED_BACK_FROM, machinist::ROLLED_BACK_TO];
        if !keys.iter().any(|key| annotations.is_some_and(|all| all.contains_key(*key))) {
            output::print(&format!("{} was not rolled back; nothing changes\n", self.pool))?;
            return Ok(CommandOutcome::Done);
        }
        write(session, pool, Value::Null, Value::Null).await?;
        let from = Back::from_annotations(pool)
            .map_or_else(|| "what its MachineConfigs make".to_owned(), |b| b.from);
        let text = format!("{} goes forward again, to {from}\n{}", self.pool, paused(pool));
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
        format!("It is paused: nothing happens before `machinist resume {name}`.\n")
    } else {
        String::new()
    }
}

/// Writes where a pool is to be, unless it changed since we looked.
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

/// The rendered configs that there are, with their age and who has them.
fn config_table(known: &[RenderedRevision], now: &Time) -> String {
    if known.is_empty() {
        return "It has no rendered configs.".to_owned();
    }
    let mut text = "Its rendered configs:".to_owned();
    for one in known {
        let age =
            one.created.as_ref().map(|created| human_duration(now.0.duration_since(created.0)));
        let more = one.machines.len().saturating_sub(MAX_NAMED_MACHINES);
        let mut who = one.machines[..one.machines.len().min(MAX_NAMED_MACHINES)].join(", ");
        if more > 0 {
            let _ = write!(who, " and {more} more");
        }
        let who = if who.is_empty() { "no machine".to_owned() } else { who };
        let _ = write!(text, "\n  {} ({} old): {who}", one.name, age.unwrap_or_default());
    }
    text
}
