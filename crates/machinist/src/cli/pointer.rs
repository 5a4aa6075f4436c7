//! `machinist pointer`: what a machine is given to begin with, for a person who starts it by hand.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use machinist_core::user_data::{PointerVersion, manual, pointer_config};
use machinist_hub::selector::names::dns_label;

use super::{Outcome, output};
use crate::controller::Files;

/// Print what points a machine at its pool's config on its first boot
///
/// It needs no API: the address, the CA and the token are all that is in it. Managed clusters find the same in the Secret
/// POOL-user-data-managed.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  machinist pointer --pool worker --server https://hub.example.com:22623"
)]
pub(super) struct Pointer {
    /// The pool that the machine is to be in
    #[arg(long, value_name = "NAME")]
    pool: String,

    /// Where machines reach the machine config server
    #[arg(long, value_name = "URL")]
    server: String,

    /// The certificates that the server's is signed with
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,

    /// A file with a provisioning token, as `machinist token create` prints it
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// Which version of Ignition's configs (with --as ignition)
    #[arg(long, value_name = "SPEC", value_enum, default_value = "3")]
    spec: Spec,

    /// What it is for
    #[arg(long = "as", value_name = "FORM", value_enum, default_value = "ignition")]
    form: Form,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Spec {
    /// For boot images of today
    #[value(name = "3")]
    Three,
    /// For boot images of long ago
    #[value(name = "2")]
    Two,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Form {
    /// An Ignition config, for user data
    Ignition,
    /// Arguments for the kernel of a boot image with Ignition
    KernelArguments,
    /// A shell script for hosts without Ignition, for cloud-init or by hand
    Script,
}

impl Pointer {
    pub(super) fn run(&self) -> Result<Outcome> {
        if let Some(problem) = dns_label(&self.pool).first() {
            bail!("--pool: {:?} is no name of a pool: {problem}", self.pool);
        }
        let files = Files {
            url: self.server.clone(),
            authority: self.ca_file.clone(),
            token: self.token_file.clone(),
        };
        let endpoint = files.read()?;
        let text = match self.form {
            Form::Ignition => {
                let version = match self.spec {
                    Spec::Three => PointerVersion::V3,
                    Spec::Two => PointerVersion::V2,
                };
                pointer_config(&endpoint, &self.pool, version) + "\n"
            }
            Form::KernelArguments => {
                if endpoint.ca_bundle.is_some() {
                    output::warning(
                        "a command line cannot hold the CA: the boot image has to trust the server already",
                    );
                }
                manual::kernel_arguments(&endpoint, &self.pool) + "\n"
            }
            Form::Script => manual::script(&endpoint, &self.pool),
        };
        output::print(&text)?;
        Ok(Outcome::Done)
    }
}
