//! The command line: one grammar, one file per command. Called by `main`.
//!
//! Results go to standard output, everything else to standard error. Exit codes: 0 done, 1 an
//! error, 2 wrong usage, 3 refused (for example, a change that a machine would reject).

mod adopt;
#[cfg(test)]
#[allow(clippy::panic, clippy::unwrap_used, reason = "tests may panic")]
mod aliases_test;
mod apply;
mod ask_machine;
mod bootstrap;
mod cluster;
mod completions;
mod connection_args;
mod controller;
mod crds;
mod daemon;
mod daemon_guard;
mod daemon_status;
mod daily_backup_args;
mod delete;
mod describe;
mod diff;
mod diff_inputs;
#[cfg(test)]
#[allow(clippy::panic, clippy::unwrap_used, reason = "tests may panic")]
mod docs_test;
mod enrol;
mod explain;
mod findings;
mod firstboot;
mod generate;
mod generate_inputs;
mod get;
mod heal;
mod hold;
mod hub;
mod hub_check;
mod ignition;
mod join;
mod label;
mod lease_args;
mod live_diff;
mod log_args;
mod logs;
mod man;
mod managed;
mod metrics_args;
mod migrate;
mod must_gather;
mod node_request;
mod once;
mod operator;
mod os;
mod output;
mod pause;
mod plan;
mod plan_generated;
mod pointer;
mod pool_inputs;
mod prune;
mod reboot;
mod render;
mod rollback;
mod rollout;
mod schema_check;
mod server;
mod signals;
mod status;
mod template_args;
mod token;
mod up;
mod upgrade;
mod validate;
mod version;
mod wait;

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::kubernetes::connect;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandOutcome {
    /// Done.
    Done,
    /// It ran and found errors, which it has printed.
    Failed,
    /// It ran and refuses, or reports that a machine would refuse.
    Refused,
}

impl From<CommandOutcome> for ExitCode {
    fn from(outcome: CommandOutcome) -> Self {
        match outcome {
            CommandOutcome::Done => Self::SUCCESS,
            CommandOutcome::Failed => Self::from(1),
            CommandOutcome::Refused => Self::from(3),
        }
    }
}

/// Keep machines in the state that you declare
///
/// An administrator writes MachineConfigs (files, systemd units, users, kernel arguments, an OS
/// image) and groups machines into pools. Machinist renders one configuration per pool, serves it
/// to machines on their first boot, and rolls changes out to running machines.
///
/// `machinist up` runs a hub: the API server and the controller in one process. `get`, `apply`,
/// `delete`, `describe`, `label`, `annotate` and `wait` work with objects of a hub or of a Kubernetes
/// cluster. `plan`, `rollout`, `rollback`, `pause` and `resume` control rollouts; `status`, `heal`,
/// `hold`, `release`, `reboot` and `logs` are about single machines, `upgrade` about their daemons. The other commands
/// work offline, on manifests in files.
#[derive(Debug, Parser)]
#[command(
    name = "machinist",
    version,
    max_term_width = 100,
    after_help = "Exit codes: 0 done, 1 an error, 2 wrong usage, 3 refused (for example, a change that a machine would reject)."
)]
struct Cli {
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    Up(up::UpArgs),
    Controller(controller::ControllerArgs),
    Operator(operator::OperatorArgs),
    #[command(subcommand)]
    Server(server::ServerCommand),
    Bootstrap(bootstrap::BootstrapArgs),
    #[command(subcommand)]
    Token(token::TokenCommand),
    Pointer(pointer::PointerArgs),
    Enrol(enrol::EnrolArgs),
    #[command(subcommand)]
    Enrolment(enrol::EnrolmentCommand),
    #[command(subcommand)]
    Hub(hub::HubCommand),
    Get(get::GetArgs),
    Apply(apply::ApplyArgs),
    Delete(delete::DeleteArgs),
    Describe(describe::DescribeArgs),
    Label(label::LabelArgs),
    Annotate(label::AnnotateArgs),
    Wait(wait::WaitArgs),
    Plan(plan::PlanArgs),
    #[command(subcommand)]
    Rollout(rollout::RolloutCommand),
    Rollback(rollback::RollbackArgs),
    Pause(pause::PauseArgs),
    Resume(pause::ResumeArgs),
    Status(status::StatusArgs),
    Heal(heal::HealArgs),
    Hold(hold::HoldArgs),
    Release(hold::ReleaseArgs),
    Reboot(reboot::RebootArgs),
    Logs(logs::LogsArgs),
    Upgrade(upgrade::UpgradeArgs),
    Adopt(adopt::AdoptArgs),
    #[command(alias = "move")]
    Migrate(migrate::MigrateArgs),
    MustGather(must_gather::MustGatherArgs),
    Join(join::JoinArgs),
    Leave(join::LeaveArgs),
    Daemon(Box<daemon::DaemonArgs>),
    Managed(managed::ManagedArgs),
    Once(once::OnceArgs),
    #[command(name = "firstboot")]
    FirstBoot(firstboot::FirstBootArgs),
    #[command(subcommand)]
    Os(os::OsCommand),
    Render(render::RenderArgs),
    Diff(diff::DiffArgs),
    Validate(validate::ValidateArgs),
    Explain(explain::ExplainArgs),
    Generate(generate::GenerateArgs),
    #[command(subcommand)]
    Ignition(ignition::IgnitionCommand),
    Crds(crds::CrdsArgs),
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
    Version(version::VersionArgs),
}

/// Parses the command line and runs the command.
#[must_use]
pub fn run() -> ExitCode {
    let mut command = Cli::command();
    if connect::is_kubectl_plugin() {
        command = command.bin_name("kubectl machinist");
    }
    let cli = Cli::from_arg_matches(&command.get_matches()).unwrap_or_else(|error| error.exit());
    let result = match cli.command {
        CliCommand::Up(command) => command.run(),
        CliCommand::Controller(command) => command.run(),
        CliCommand::Operator(command) => command.run(),
        CliCommand::Server(command) => command.run(),
        CliCommand::Bootstrap(command) => command.run(),
        CliCommand::Token(command) => command.run(),
        CliCommand::Pointer(command) => command.run(),
        CliCommand::Enrol(command) => command.run(),
        CliCommand::Enrolment(command) => command.run(),
        CliCommand::Hub(command) => command.run(),
        CliCommand::Get(command) => command.run(),
        CliCommand::Apply(command) => command.run(),
        CliCommand::Delete(command) => command.run(),
        CliCommand::Describe(command) => command.run(),
        CliCommand::Label(command) => command.run(),
        CliCommand::Annotate(command) => command.run(),
        CliCommand::Wait(command) => command.run(),
        CliCommand::Plan(command) => command.run(),
        CliCommand::Rollback(command) => command.run(),
        CliCommand::Pause(command) => command.run(),
        CliCommand::Resume(command) => command.run(),
        CliCommand::Status(command) => command.run(),
        CliCommand::Heal(command) => command.run(),
        CliCommand::Hold(command) => command.run(),
        CliCommand::Release(command) => command.run(),
        CliCommand::Reboot(command) => command.run(),
        CliCommand::Logs(command) => command.run(),
        CliCommand::Upgrade(command) => command.run(),
        CliCommand::Adopt(command) => command.run(),
        CliCommand::Migrate(command) => command.run(),
        CliCommand::MustGather(command) => command.run(),
        CliCommand::Join(command) => command.run(),
        CliCommand::Leave(command) => command.run(),
        CliCommand::Daemon(command) => command.run(),
        CliCommand::Managed(command) => command.run(),
        CliCommand::Once(command) => command.run(),
        CliCommand::FirstBoot(command) => command.run(),
        CliCommand::Os(command) => command.run(),
        CliCommand::Render(command) => command.run(),
        CliCommand::Diff(command) => command.run(),
        CliCommand::Validate(command) => command.run(),
        CliCommand::Explain(command) => command.run(),
        CliCommand::Generate(command) => command.run(),
        CliCommand::Ignition(command) => command.run(),
        CliCommand::Rollout(command) => command.run(),
        CliCommand::Crds(command) => command.run(),
        CliCommand::Completions(command) => command.run(),
        CliCommand::Man(command) => command.run(),
        CliCommand::Version(command) => command.run(),
    };
    match result {
        Ok(outcome) => outcome.into(),
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // Some wrong usage shows only while the command runs.
            let is_usage = error.is::<clap::Error>();
            output::print_error(format!("{error:#}").trim_start_matches("error: ").trim_end());
            ExitCode::from(if is_usage { 2 } else { 1 })
        }
    }
}

/// A reader that closes the pipe early, such as `head`, is not an error.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|cause| cause.kind() == std::io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grammar_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_an_example() {
        for command in Cli::command().get_subcommands() {
            let mut commands = vec![command];
            if command.has_subcommands() {
                commands = command.get_subcommands().collect();
            }
            for command in commands {
                let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
                assert!(help.contains("machinist "), "{}: no example", command.get_name());
            }
        }
    }
}
