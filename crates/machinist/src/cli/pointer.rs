//! `machinist pointer`: what a machine is given to begin with, for a person who starts it by hand.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use machinist_core::user_data::{PointerVersion, manual, pointer_config};
use machinist_hub::selector::name_validation::validate_dns_label;

use super::{CommandOutcome, output};
use crate::controller::EndpointFiles;

/// Print what points a machine at its pool's config on its first boot
///
/// It needs no API: the address, the CA and the token are all that is in it. Managed clusters find the same in the Secret
/// POOL-user-data-managed.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  machinist pointer --pool worker --server-url https://hub.example.com:22623"
)]
pub(super) struct PointerArgs {
    /// The pool that the machine is to be in
    #[arg(long, value_name = "NAME")]
    pool: String,

    /// Where machines reach the machine config server
    #[arg(long, alias = "server", value_name = "URL")]
    server_url: String,

    /// The certificates that the server's is signed with
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,

    /// A file with a provisioning token, as `machinist token create` prints it
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// Which version of Ignition's configs (with --as ignition)
    #[arg(long, value_name = "SPEC", value_enum, default_value = "3")]
    spec: IgnitionSpec,

    /// What it is for
    #[arg(long = "as", value_name = "FORM", value_enum, default_value = "ignition")]
    form: PointerFormat,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum IgnitionSpec {
    /// For boot images of today
    #[value(name = "3")]
    Three,
    /// For boot images of long ago
    #[value(name = "2")]
    Two,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PointerFormat {
    /// An Ignition config, for user data
    Ignition,
    /// Arguments for the kernel of a boot image with Ignition
    KernelArguments,
    /// A shell script for hosts without Ignition, for cloud-init or by hand
    Script,
}

impl PointerArgs {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        if let Some(problem) = validate_dns_label(&self.pool).first() {
            bail!("--pool: {:?} is no name of a pool: {problem}", self.pool);
        }
        let files = EndpointFiles {
            url: self.server_url.clone(),
            ca: self.ca_file.clone(),
            token: self.token_file.clone(),
        };
        let endpoint = files.read()?;
        let text = match self.form {
            PointerFormat::Ignition => {
                let version = match self.spec {
                    IgnitionSpec::Three => PointerVersion::V3,
                    IgnitionSpec::Two => PointerVersion::V2,
                };
                pointer_config(&endpoint, &self.pool, version) + "\n"
            }
            PointerFormat::KernelArguments => {
                if endpoint.ca_bundle.is_some() {
                    output::print_warning(
                        "a command line cannot hold the CA: the boot image has to trust the server already",
                    );
                }
                manual::kernel_arguments(&endpoint, &self.pool) + "\n"
            }
            PointerFormat::Script => manual::script(&endpoint, &self.pool),
        };
        output::print(&text)?;
        Ok(CommandOutcome::Done)
    }
}
