//! The flags that select templates.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueEnum};
use machinist_core::profile::TemplateProfile;
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
    profile: ProfileArg,
}

/// The built-in templates.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum ProfileArg {
    /// Machines of a Kubernetes cluster that Machinist installs
    Kubernetes,
    /// Nodes that kubeadm made: settings of the kubelet beside those of kubeadm
    Kubeadm,
    /// Nodes that k3s made: the same beside those of k3s
    K3s,
    /// Nodes that RKE2 made: the same beside those of RKE2
    Rke2,
    /// Machines without a kubelet: almost nothing
    Machine,
    /// No templates: machines get only the MachineConfigs that you write
    None,
}

impl From<ProfileArg> for TemplateProfile {
    fn from(argument: ProfileArg) -> Self {
        match argument {
            ProfileArg::Kubernetes => Self::Kubernetes,
            ProfileArg::Kubeadm => Self::Kubeadm,
            ProfileArg::K3s => Self::K3s,
            ProfileArg::Rke2 => Self::Rke2,
            ProfileArg::Machine => Self::Machine,
            ProfileArg::None => Self::None,
        }
    }
}

impl TemplateArgs {
    /// The templates.
    pub(super) fn read(&self) -> Result<TemplateTree> {
        match &self.templates {
            Some(directory) => read_templates(directory),
            None => Ok(template::builtin_templates(self.profile.into())),
        }
    }
}
