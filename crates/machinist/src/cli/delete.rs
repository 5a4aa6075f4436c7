//! `machinist delete`: deletes objects and waits until they are gone.

use std::cell::RefCell;
use std::io::{BufRead as _, IsTerminal as _, Read as _};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use clap::{ArgAction, Args};
use http::Method;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use machinist_core::api::MachineConfigPool;
use machinist_core::duration::parse_duration;
use machinist_core::rollout::nodes_of;
use serde_json::Value;

use super::cluster::session::{ClusterSession, ObjectTarget, SelectionArgs, SessionArgs};
use super::cluster::snapshot::SnapshotKind;
use super::cluster::wait_condition::WaitCondition;
use super::cluster::{self, usage_error};
use super::prune::delete_options;
use super::{CommandOutcome, output};
use crate::kubernetes::request::{ACCEPT_JSON, status_code};
use crate::manifests;

/// The command says what it waits for if an object is not gone after this time.
const NOTE_AFTER: Duration = Duration::from_secs(3);

/// Delete objects by name, by label, by kind or from manifests
///
/// The command waits until the objects are gone, also for those with finalizers. Before it deletes a pool that
/// has machines, it asks; where nobody can answer, it refuses with exit code 3. The rendered configs of a pool stay:
/// they are the history that a rollback needs when the pool is created again.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  machinist delete mc 50-worker-chrony --ignore-not-found")]
pub(super) struct DeleteArgs {
    /// A kind and names (mc a b), or objects with their kinds (mc/a node/b)
    #[arg(value_name = "TYPE NAME", conflicts_with = "filename")]
    resource_args: Vec<String>,

    /// Delete the objects in these manifests: a file, a directory, or - for standard input (repeatable)
    #[arg(short = 'f', long = "filename", value_name = "PATH")]
    filename: Vec<PathBuf>,

    #[command(flatten)]
    selection: SelectionArgs,

    /// Ignore objects that do not exist
    #[arg(long)]
    ignore_not_found: bool,

    /// Wait until the objects are gone
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    wait: bool,

    /// How long to wait for each object [default: no limit]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    timeout: Option<Duration>,

    /// Delete pools with machines without asking
    #[arg(short, long)]
    yes: bool,

    #[command(flatten)]
    session: SessionArgs,
}

impl DeleteArgs {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        let documents =
            if self.filename.is_empty() { Vec::new() } else { manifests::read(&self.filename)? };
        if self.resource_args.is_empty() == self.filename.is_empty() {
            return Err(usage_error("use either a kind and names, or -f"));
        }
        let many = if self.resource_args.is_empty() {
            None
        } else {
            Some(self.selection.select(&self.resource_args)?)
        };
        cluster::block_on(async {
            let session = self.session.connect().await?;
            let targets = match &many {
                Some(many) => session.targets(many).await?,
                None => session.manifests(&documents)?.into_iter().map(|(one, _)| one).collect(),
            };
            if targets.is_empty() {
                output::print_note("No resources found");
            }
            if !self.yes && !confirm_pools(&session, &targets).await? {
                return Ok(CommandOutcome::Refused);
            }
            let mut outcome = CommandOutcome::Done;
            for target in &targets {
                if let Err(error) = self.delete(&session, target).await {
                    output::print_error(&format!("{error:#}"));
                    outcome = CommandOutcome::Failed;
                }
            }
            Ok(outcome)
        })
    }

    async fn delete(&self, session: &ClusterSession, target: &ObjectTarget<'_>) -> Result<()> {
        let options = delete_options(session, target).await;
        let response =
            session.client.write(Method::DELETE, &target.path(), ACCEPT_JSON, &options).await;
        let response = match response {
            // Objects that were listed a moment ago may be gone already.
            Err(error)
                if status_code(&error) == Some(404)
                    && (self.ignore_not_found
                        || self.selection.all
                        || self.selection.selector.is_some()) =>
            {
                return Ok(());
            }
            other => other?,
        };
        let namespace = target.namespace.as_ref().map(|name| format!(" from {name} namespace"));
        let namespace = namespace.unwrap_or_default();
        output::print(&format!(
            "{} {:?} deleted{namespace}\n",
            target.resource.kind_and_group(),
            target.name
        ))?;
        if self.wait { self.wait_until_gone(session, target, &response.body).await } else { Ok(()) }
    }

    /// Waits until the deleted object is gone. Another object with its name counts as gone.
    async fn wait_until_gone(
        &self,
        session: &ClusterSession,
        target: &ObjectTarget<'_>,
        response: &Value,
    ) -> Result<()> {
        let uid = response.pointer("/metadata/uid").or_else(|| response.pointer("/details/uid"));
        let is_other = |object: &Value| uid.is_some() && object.pointer("/metadata/uid") != uid;
        let state = RefCell::new(String::new());
        let check = |object: Option<&Value>| match WaitCondition::Deleted
            .check(object.filter(|object| !is_other(object)))
        {
            Ok(()) => Some(()),
            Err(text) => {
                state.replace(text);
                None
            }
        };
        let gone =
            session.client.until(target.resource, target.namespace.as_deref(), &target.name, check);
        let name = target.object_name();
        let note = async {
            tokio::time::sleep(NOTE_AFTER).await;
            output::print_note(&format!("waiting until {name} is gone: {}", state.borrow()));
            std::future::pending::<()>().await;
        };
        let gone = async {
            tokio::select! { gone = gone => gone, () = note => Ok(()) }
        };
        let context = || format!("{name}: cannot check whether it is gone");
        let Some(timeout) = self.timeout else { return gone.await.with_context(context) };
        match tokio::time::timeout(timeout, gone).await {
            Ok(gone) => gone.with_context(context),
            Err(_) => {
                let state = state.borrow();
                Err(anyhow!("{name}: timed out waiting for it to be deleted: {state}"))
            }
        }
    }
}

/// Whether pools that have machines may be deleted: asks, if there are any.
pub(super) async fn confirm_pools(
    session: &ClusterSession,
    targets: &[ObjectTarget<'_>],
) -> Result<bool> {
    let is_pool = |target: &&ObjectTarget<'_>| target.resource.kind == "MachineConfigPool";
    let names: Vec<&str> = targets.iter().filter(is_pool).map(|it| it.name.as_str()).collect();
    if names.is_empty() {
        return Ok(true);
    }
    let pools: Vec<MachineConfigPool> = session.all(SnapshotKind::Pool).await?;
    let nodes: Vec<Node> = session.all(SnapshotKind::Node).await?;
    let Some(question) = pool_question(&names, &pools, &nodes) else { return Ok(true) };
    if !std::io::stdin().is_terminal() {
        output::print_error(&format!("{question}: to delete anyway, use --yes"));
        return Ok(false);
    }
    output::print(&format!("{question}. Delete anyway? [y/N] "))?;
    let mut answer = String::new();
    std::io::stdin().lock().take(16).read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// What to ask before these pools are deleted; none if no machine is in them.
fn pool_question(names: &[&str], pools: &[MachineConfigPool], nodes: &[Node]) -> Option<String> {
    let (going, left): (Vec<_>, Vec<_>) =
        pools.iter().cloned().partition(|pool| names.contains(&pool.name_any().as_str()));
    let (mut texts, mut machines) = (Vec::new(), Vec::new());
    for pool in &going {
        let members = nodes_of(pool, pools, nodes).0;
        let name = pool.name_any();
        match members.len() {
            0 => {}
            1 => texts.push(format!("pool {name} has 1 machine")),
            count => texts.push(format!("pool {name} has {count} machines")),
        }
        machines.extend(members.into_iter().cloned());
    }
    let moved: usize = left.iter().map(|pool| nodes_of(pool, &left, &machines).0.len()).sum();
    let after = match (moved, machines.len()) {
        (_, 0) => return None,
        (0, _) => "afterwards no pool selects what was in it, which keeps its config".to_owned(),
        (moved, all) if moved == all => {
            "afterwards another pool selects what was in it, and gives it its config".to_owned()
        }
        (moved, all) => format!(
            "afterwards other pools select {moved} of {all} machines; the others keep their config"
        ),
    };
    Some(format!("{}; {after}", texts.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_pools_with_machines_are_asked_about() {
        let pool = |name: &str| -> MachineConfigPool {
            serde_json::from_value(json!({
                "metadata": {"name": name},
                "spec": {"nodeSelector": {"matchLabels": {"role": name}}},
            }))
            .unwrap()
        };
        let node = |name: &str, role: &str| -> Node {
            serde_json::from_value(json!({"metadata": {"name": name, "labels": {"role": role}}}))
                .unwrap()
        };
        let pools = [pool("worker"), pool("storage"), pool("infra")];
        let nodes = [node("a", "storage"), node("b", "storage"), node("c", "worker")];
        let ask = |names: &[&str]| pool_question(names, &pools, &nodes);
        assert_eq!(ask(&["infra", "nosuch"]), None);
        let text = ask(&["storage", "infra", "worker"]).unwrap();
        assert!(
            text.starts_with("pool worker has 1 machine, pool storage has 2 machines; "),
            "{text}"
        );
        assert!(text.ends_with("no pool selects what was in it, which keeps its config"), "{text}");
        // A machine of two pools moves to the other one.
        let mut edge = pool("edge");
        edge.spec.node_selector = pool("worker").spec.node_selector;
        let pools = [pools.to_vec(), vec![edge]].concat();
        let text = pool_question(&["edge"], &pools, &nodes).unwrap();
        assert!(text.starts_with("pool edge has 1 machine; afterwards another pool"), "{text}");
        let text = pool_question(&["edge", "storage"], &pools, &nodes).unwrap();
        assert!(text.ends_with("select 1 of 3 machines; the others keep their config"), "{text}");
    }
}
