//! The flags that select templates.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueEnum};
use machinist_core::template::{self, TemplateTree};

use crate::manifests::read_templates;

/// The templates that the base MachineConfigs are generated from.
#[derive(Debug, Clone, Args)]
pub(super) struct TemplateArgs {
    /// Generate the base MachineConfigs from the templates in this directory: ROLE/NAME/LAYER/{files,units,extensions}, common/LAYER/...
    #[arg(long, value_name = "DIR")]
    templates: Option<PathBuf>,

    /// The built-in templates to use without --templates
    #[arg(long, value_name = "NAME", default_value = "kubernetes", conflicts_with = "templates")]
    profile: TemplateProfile,
}

/// The built-in templates.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum TemplateProfile {
    /// Workers and control plane of a Kubernetes cluster
    Kubernetes,
    /// Machines without a kubelet: almost nothing
    Machine,
    /// No templates: machines get only the MachineConfigs that you write
    None,
}

impl TemplateArgs {
    /// The templates.
    pub(super) fn read(&self) -> Result<TemplateTree> {
        match (&self.templates, self.profile) {
            (Some(directory), _) => read_templates(directory),
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
