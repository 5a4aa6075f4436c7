//! Which templates a command uses.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueEnum};
use machinist_core::template::{self, TemplateTree};

use crate::manifests::read_templates;

/// Which templates the MachineConfigs of every machine are made from.
#[derive(Debug, Clone, Args)]
pub(super) struct TemplateArgs {
    /// A folder of templates: ROLE/NAME/LAYER/{files,units,extensions}, common/LAYER/...
    #[arg(long, value_name = "DIR")]
    templates: Option<PathBuf>,

    /// The templates that come with machinist, where no folder is given
    #[arg(long, value_name = "NAME", default_value = "kubernetes", conflicts_with = "templates")]
    profile: TemplateProfile,
}

/// The templates that come with machinist.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum TemplateProfile {
    /// Workers and control plane of a plain Kubernetes
    Kubernetes,
    /// Machines without a kubelet: next to nothing
    Machine,
    /// None: machines get what people write, and nothing else
    None,
}

impl TemplateArgs {
    /// The templates.
    pub(super) fn read(&self) -> Result<TemplateTree> {
        match (&self.templates, self.profile) {
            (Some(folder), _) => read_templates(folder),
            (None, TemplateProfile::Kubernetes) => {
                Ok(template::builtin_templates(template::BuiltinProfile::Kubernetes))
            }
            (None, TemplateProfile::None) => Ok(TemplateTree::new()),
            (None, TemplateProfile::Machine) => {
                Ok(template::builtin_templates(template::BuiltinProfile::Machine))
            }
        }
    }
}
