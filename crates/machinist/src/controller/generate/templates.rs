//! Templates: `00-<role>`, `01-<role>-kubelet` and so on, out of the ControllerConfig.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::{Api, Resource as _, ResourceExt as _};
use machinist_core::api::ControllerConfig;
use machinist_core::api::names::{label, object};
use machinist_core::generate::{Generated, about_templates};
use machinist_core::template::{self, Inputs, status};
use serde_json::json;

use super::super::render::VERSION;
use super::super::shell::Shell;
use super::tell::Memory;
use super::write::ensure;
use super::{Outcome, Turn};

/// The type and the key of a pull secret.
const DOCKER_CONFIG: &str = "kubernetes.io/dockerconfigjson";
const DOCKER_CONFIG_KEY: &str = ".dockerconfigjson";

/// Fills the templates in, where there is a ControllerConfig, and tells it how it went.
pub(super) async fn pass(turn: &mut Turn<'_>, memory: &mut Memory) -> Outcome {
    let shell = turn.shell;
    let Some(config) = shell.world.controller_config() else { return Ok(()) };
    if config.meta().deletion_timestamp.is_some() {
        return Ok(());
    }
    let outcome = match make(shell, &config).await {
        Ok(all) => {
            for made in &all {
                ensure(shell, &made.machine_config).await?;
            }
            Ok(())
        }
        Err(message) => {
            let problem = about_templates(message.clone());
            for role in roles(shell) {
                turn.problem(&role, &problem.to_string());
            }
            memory.warn(shell, config.as_ref(), &problem);
            Err(message)
        }
    };
    tell(shell, &config, outcome.as_ref().copied().map_err(String::as_str)).await
}

async fn make(shell: &Shell, config: &ControllerConfig) -> Result<Vec<Generated>, String> {
    let pull_secret = pull_secret(shell, config).await?;
    let api_server = shell.world.kinds.api_servers.get(object::CLUSTER);
    let inputs = Inputs {
        controller_config: config,
        pull_secret: pull_secret.as_deref(),
        api_server: api_server.as_deref(),
    };
    template::generate(&shell.templates, &inputs, VERSION).map_err(|error| error.to_string())
}

/// The pull secret that the ControllerConfig refers to.
pub(in super::super) async fn pull_secret(
    shell: &Shell,
    config: &ControllerConfig,
) -> Result<Option<Vec<u8>>, String> {
    let Some(reference) = &config.spec.pull_secret else { return Ok(None) };
    let namespace = reference.namespace.as_deref().unwrap_or(object::CONFIG_NAMESPACE);
    let name = reference.name.as_deref().unwrap_or_default();
    let api: Api<Secret> = Api::namespaced(shell.client.clone(), namespace);
    let secret = shell.write(api.get(name)).await.map_err(|error| {
        format!("cannot read the pull secret {namespace}/{name} of spec.pullSecret: {error}")
    })?;
    let found = secret.type_.clone().unwrap_or_default();
    if found != DOCKER_CONFIG {
        return Err(format!("expected secret type {DOCKER_CONFIG} found {found}"));
    }
    let data = secret.data.unwrap_or_default().remove(DOCKER_CONFIG_KEY);
    Ok(data.map(|data| data.0))
}

/// The roles that templates made MachineConfigs for before.
fn roles(shell: &Shell) -> BTreeSet<String> {
    let is_of_templates =
        |owner: &k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference| {
            owner.kind == ControllerConfig::kind(&())
        };
    let configs = shell.world.configs.all();
    let made =
        configs.iter().filter(|config| config.owner_references().iter().any(is_of_templates));
    made.filter_map(|config| config.labels().get(label::ROLE).cloned()).collect()
}

/// Says on the ControllerConfig how it went, unless it says so already.
async fn tell(shell: &Shell, config: &Arc<ControllerConfig>, outcome: Result<(), &str>) -> Outcome {
    let generation = config.meta().generation;
    let now = Time(Timestamp::now());
    let after = status(config.status.as_ref(), generation, outcome, VERSION, &now);
    if config.status.as_ref() == Some(&after) {
        return Ok(());
    }
    let patch = json!({
        "metadata": {"resourceVersion": config.resource_version()},
        "status": {"observedGeneration": after.observed_generation, "conditions": after.conditions},
    });
    let written = shell.merge_status(&config.name_any(), &patch).await?;
    shell.world.controller_configs.put(written);
    Ok(())
}
