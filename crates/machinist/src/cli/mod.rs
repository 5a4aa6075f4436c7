//! The command line: one grammar, a file per command.
//!
//! Results go to standard output, everything else to standard error. Exit codes: 0 done, 1 an
//! error, 2 wrong usage, 3 a clear "no" (a change that a machine would refuse).

mod adopt;
mod apply;
mod bootstrap;
mod completions;
mod controller;
mod crds;
mod daemon;
mod daemon_looks;
mod delete;
mod describe;
mod diff;
#[cfg(test)]
#[allow(clippy::panic, clippy::unwrap_used, reason = "tests may panic")]
mod documented;
mod enrol;
mod explain;
mod firstboot;
mod generate;
mod generate_inputs;
mod get;
mod home_args;
mod hub;
mod ignition;
mod join;
mod label;
mod lease_args;
mod live;
mod man;
mod move_house;
mod must_gather;
mod once;
mod operator;
mod os;
mod output;
mod pause;
mod plan;
mod pointer;
mod pool_inputs;
mod reboot;
mod render;
mod rollback;
mod rollout;
mod schema_check;
mod server;
mod signals;
mod template_args;
mod token;
mod up;
mod validate;
mod version;
mod wait;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Done.
    Done,
    /// It ran, and what it looked at has errors (already shown).
    Failed,
    /// It ran, and the answer is no.
    Refused,
}

impl From<Outcome> for ExitCode {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Done => Self::SUCCESS,
            Outcome::Failed => Self::from(1),
            Outcome::Refused => Self::from(3),
        }
    }
}

/// Keeps machines as they are declared.
///
/// An administrator writes MachineConfigs (files, systemd units, users, kernel arguments, an OS
/// image) and groups machines into pools. Machinist renders one configuration per pool, serves it
/// to machines on their first boot, and rolls changes out to running machines.
///
/// `machinist up` runs the system on this machine. `get`, `apply`, `delete`, `describe`, `label`,
/// `annotate` and `wait` ask it, or any Kubernetes; `plan`, `rollout`, `rollback`, `pause`, `resume`
/// and `reboot` are about its rollouts. The other commands work offline, on manifests in files.
#[derive(Debug, Parser)]
#[command(
    name = "machinist",
    version,
    max_term_width = 100,
    after_help = "Exit codes: 0 done, 1 an error, 2 wrong usage, 3 a clear \"no\" (a change a machine would refuse)."
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Up(up::Up),
    Controller(controller::Controller),
    Operator(operator::Operator),
    #[command(subcommand)]
    Server(server::Server),
    Bootstrap(bootstrap::Bootstrap),
    #[command(subcommand)]
    Token(token::Token),
    Pointer(pointer::Pointer),
    Enrol(enrol::Enrol),
    #[command(subcommand)]
    Enrolment(enrol::Enrolment),
    #[command(subcommand)]
    Hub(hub::Hub),
    Get(get::Get),
    Apply(apply::Apply),
    Delete(delete::Delete),
    Describe(describe::Describe),
    Label(label::Label),
    Annotate(label::Annotate),
    Wait(wait::Wait),
    Plan(plan::Plan),
    #[command(subcommand)]
    Rollout(rollout::Rollout),
    Rollback(rollback::Rollback),
    Pause(pause::Pause),
    Resume(pause::Resume),
    Reboot(reboot::Reboot),
    Adopt(adopt::Adopt),
    Move(move_house::Move),
    MustGather(must_gather::MustGather),
    Join(join::Join),
    Leave(join::Leave),
    Daemon(Box<daemon::Daemon>),
    Once(once::Once),
    #[command(name = "firstboot")]
    FirstBoot(firstboot::FirstBoot),
    #[command(subcommand)]
    Os(os::OsCommand),
    Render(render::Render),
    Diff(diff::Diff),
    Validate(validate::Validate),
    Explain(explain::Explain),
    Generate(generate::Generate),
    #[command(subcommand)]
    Ignition(ignition::Ignition),
    Crds(crds::Crds),
    Completions(completions::Completions),
    Man(man::Man),
    Version(version::Version),
}

/// Reads the command line and runs the command.
#[must_use]
pub fn run() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Up(command) => command.run(),
        Command::Controller(command) => command.run(),
        Command::Operator(command) => command.run(),
        Command::Server(command) => command.run(),
        Command::Bootstrap(command) => command.run(),
        Command::Token(command) => command.run(),
        Command::Pointer(command) => command.run(),
        Command::Enrol(command) => command.run(),
        Command::Enrolment(command) => command.run(),
        Command::Hub(command) => command.run(),
        Command::Get(command) => command.run(),
        Command::Apply(command) => command.run(),
        Command::Delete(command) => command.run(),
        Command::Describe(command) => command.run(),
        Command::Label(command) => command.run(),
        Command::Annotate(command) => command.run(),
        Command::Wait(command) => command.run(),
        Command::Plan(command) => command.run(),
        Command::Rollback(command) => command.run(),
        Command::Pause(command) => command.run(),
        Command::Resume(command) => command.run(),
        Command::Reboot(command) => command.run(),
        Command::Adopt(command) => command.run(),
        Command::Move(command) => command.run(),
        Command::MustGather(command) => command.run(),
        Command::Join(command) => command.run(),
        Command::Leave(command) => command.run(),
        Command::Daemon(command) => command.run(),
        Command::Once(command) => command.run(),
        Command::FirstBoot(command) => command.run(),
        Command::Os(command) => command.run(),
        Command::Render(command) => command.run(),
        Command::Diff(command) => command.run(),
        Command::Validate(command) => command.run(),
        Command::Explain(command) => command.run(),
        Command::Generate(command) => command.run(),
        Command::Ignition(command) => command.run(),
        Command::Rollout(command) => command.run(),
        Command::Crds(command) => command.run(),
        Command::Completions(command) => command.run(),
        Command::Man(command) => command.run(),
        Command::Version(command) => command.run(),
    };
    match result {
        Ok(outcome) => outcome.into(),
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // Wrong usage that only showed while the command ran.
            let is_usage = error.is::<clap::Error>();
            output::error(format!("{error:#}").trim_start_matches("error: ").trim_end());
            ExitCode::from(if is_usage { 2 } else { 1 })
        }
    }
}

/// Whoever reads our output has read enough: that is no error.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|cause| cause.kind() == std::io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_grammar_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_an_example() {
        for command in Cli::command().get_subcommands() {
            let mut words = vec![command];
            if command.has_subcommands() {
                words = command.get_subcommands().collect();
            }
            for command in words {
                let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
                assert!(help.contains("machinist "), "{}: no example", command.get_name());
            }
        }
    }
}
