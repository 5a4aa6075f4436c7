//! `machinist pointer`: the pointer config of a machine that is provisioned by hand.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use machinist_core::user_data::{PointerVersion, manual, pointer_config};
use machinist_hub::name_validation::validate_dns_label;

use super::{CommandOutcome, output};
use crate::controller::EndpointFiles;

/// Print the pointer config with which a machine fetches its config on the first boot
///
/// It contains only the URL, the CA and the token, so no API server is needed. The controller writes the
/// same to the Secret POOL-user-data-managed.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  machinist pointer --pool worker --server-url https://hub.example.com:22623"
)]
pub(super) struct PointerArgs {
    /// The pool of the machine
    #[arg(long, value_name = "NAME")]
    pool: String,

    /// The URL at which machines reach the machine config server
    #[arg(long, alias = "server", value_name = "URL")]
    server_url: String,

    /// The CA certificates of the machine config server
    #[arg(long, alias = "ca-file", value_name = "FILE")]
    server_ca_file: Option<PathBuf>,

    /// A file with a provisioning token, as `machinist token create` prints it
    #[arg(long, alias = "token-file", value_name = "FILE")]
    server_token_file: Option<PathBuf>,

    /// With --as ignition: the version of the Ignition specification
    #[arg(long, value_name = "SPEC", value_enum, default_value = "3")]
    spec: IgnitionSpec,

    /// The output format
    #[arg(long = "as", value_name = "FORM", value_enum, default_value = "ignition")]
    form: PointerFormat,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum IgnitionSpec {
    /// For current boot images
    #[value(name = "3")]
    Three,
    /// For boot images that only support Ignition specification 2
    #[value(name = "2")]
    Two,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PointerFormat {
    /// An Ignition config for user data
    Ignition,
    /// Kernel arguments for a boot image with Ignition
    KernelArguments,
    /// A shell script for hosts without Ignition, to run with cloud-init or by hand
    Script,
}

impl PointerArgs {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        if let Some(problem) = validate_dns_label(&self.pool).first() {
            bail!("--pool: {:?} is not a valid pool name: {problem}", self.pool);
        }
        let files = EndpointFiles {
            url: self.server_url.clone(),
            ca: self.server_ca_file.clone(),
            token: self.server_token_file.clone(),
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
                        "kernel arguments cannot contain the CA: the boot image must already trust the server",
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
