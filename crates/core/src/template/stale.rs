//! MachineConfigs that a built-in profile made and that the templates of now do not make: what is removed when an
//! administrator changes or removes the profile. MachineConfigs of MCO and of a user's own templates have no profile,
//! and stay.

use std::collections::BTreeSet;

use kube::{Resource as _, ResourceExt as _};

use crate::api::names::annotation;
use crate::api::{ControllerConfig, MachineConfig};
use crate::generated_config::GeneratedConfig;

/// The names of these MachineConfigs. `generated` is what the templates of now make.
#[must_use]
pub fn stale_configs<'a>(
    machine_configs: impl IntoIterator<Item = &'a MachineConfig>,
    generated: &[GeneratedConfig],
) -> Vec<String> {
    let wanted: BTreeSet<String> =
        generated.iter().map(|made| made.machine_config.name_any()).collect();
    let is_stale = |config: &&MachineConfig| {
        let kind = ControllerConfig::kind(&());
        let is_from_templates = config.owner_references().iter().any(|owner| owner.kind == kind);
        is_from_templates
            && config.annotations().contains_key(annotation::machinist::PROFILE)
            && !wanted.contains(&config.name_any())
    };
    machine_configs.into_iter().filter(is_stale).map(kube::ResourceExt::name_any).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::TemplateProfile;
    use crate::template::{TemplateInputs, builtin_templates, generate};
    use serde_json::json;

    #[test]
    fn what_another_profile_made_is_stale() {
        let config = json!({"metadata": {"name": "machine-config-controller", "uid": "u"}, "spec":
            {"infra": {"status": {"platformStatus": {"type": "None"}}}}});
        let controller_config = serde_json::from_value(config).unwrap();
        let inputs = TemplateInputs {
            controller_config: &controller_config,
            pull_secret: None,
            api_server: None,
        };
        let made = |profile| generate(&builtin_templates(profile), &inputs, "v").unwrap();
        let there = made(TemplateProfile::Kubernetes);
        let mut there: Vec<MachineConfig> =
            there.into_iter().map(|made| made.machine_config).collect();
        let names = |profile| stale_configs(&there, &made(profile));
        assert!(names(TemplateProfile::Kubernetes).is_empty());
        let all: Vec<String> = there.iter().map(kube::ResourceExt::name_any).collect();
        assert_eq!(names(TemplateProfile::None), all);
        assert_eq!(
            names(TemplateProfile::Kubeadm),
            [
                "00-master",
                "00-worker",
                "01-master-container-runtime",
                "01-worker-container-runtime"
            ]
        );
        // Those of MCO, of own templates and of administrators, and rendered ones.
        for (index, config) in there.iter_mut().enumerate() {
            if index % 2 == 0 {
                config.annotations_mut().remove(annotation::machinist::PROFILE);
            } else {
                config.metadata.owner_references = None;
            }
        }
        assert!(stale_configs(&there, &[]).is_empty());
    }
}
