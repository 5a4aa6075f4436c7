//! Templates: `00-<role>`, `01-<role>-kubelet` and so on, from the ControllerConfig.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::{Resource as _, ResourceExt as _};
use machinist_core::api::names::{label, object};
use machinist_core::api::{ControllerConfig, ControllerConfigStatus};
use machinist_core::generate::template_error;
use machinist_core::generated_config::GeneratedConfig;
use machinist_core::template::{
    self, TemplateInputs, certificates, running, stale_configs, status,
};
use serde_json::json;

use super::super::context::Context;
use super::super::render::VERSION;
use super::report::Reported;
use super::secrets::SecretCaches;
use super::write::{ensure, remove};
use super::{GeneratePass, GenerateResult};

/// Renders the templates if there is a ControllerConfig, and writes its status.
pub(super) async fn reconcile(
    pass: &mut GeneratePass<'_>,
    reported: &mut Reported,
    secrets: &mut SecretCaches,
) -> GenerateResult {
    let context = pass.context;
    let Some(config) = context.caches.controller_config() else { return Ok(()) };
    if config.meta().deletion_timestamp.is_some() {
        return Ok(());
    }
    let (generation, now) = (config.meta().generation, Time(Timestamp::now()));
    if let Some(begun) = running(config.status.as_ref(), generation, VERSION, &now) {
        write_status(context, &config, &begun).await?;
    }
    let outcome = match render_templates(context, &config, secrets).await {
        Ok(all) => {
            let present = context.caches.configs.all();
            for name in stale_configs(present.iter().map(AsRef::as_ref), &all) {
                remove(context, &name).await?;
            }
            for made in &all {
                ensure(context, &made.machine_config).await?;
            }
            Ok(())
        }
        Err(message) => {
            let problem = template_error(message.clone());
            for role in roles(context) {
                pass.add_problem(&role, &problem.to_string());
            }
            reported.warn(context, config.as_ref(), &problem);
            Err(message)
        }
    };
    // Our own write a moment ago may be newer.
    let config = context.caches.controller_config().unwrap_or(config);
    let outcome = outcome.as_ref().copied().map_err(String::as_str);
    let given = certificates(&config.spec);
    let now = Time(Timestamp::now());
    let after = status(config.status.as_ref(), generation, outcome, given, VERSION, &now);
    if config.status.as_ref() == Some(&after) {
        return Ok(());
    }
    write_status(context, &config, &after).await
}

async fn render_templates(
    context: &Context,
    config: &ControllerConfig,
    secrets: &mut SecretCaches,
) -> Result<Vec<GeneratedConfig>, String> {
    let pull_secret = secrets.pull_secret(context, config).await?;
    let api_server = context.caches.generate.api_servers.get(object::CLUSTER);
    let inputs = TemplateInputs {
        controller_config: config,
        pull_secret: pull_secret.as_deref(),
        api_server: api_server.as_deref(),
    };
    template::generate(&context.templates, &inputs, VERSION).map_err(|error| error.to_string())
}

/// The roles that have templates, or MachineConfigs from earlier ones.
fn roles(context: &Context) -> BTreeSet<String> {
    let is_of_templates =
        |owner: &k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference| {
            owner.kind == ControllerConfig::kind(&())
        };
    let configs = context.caches.configs.all();
    let made =
        configs.iter().filter(|config| config.owner_references().iter().any(is_of_templates));
    let made = made.filter_map(|config| config.labels().get(label::ROLE).cloned());
    made.chain(context.templates.roles()).collect()
}

/// Writes the status of the ControllerConfig.
async fn write_status(
    context: &Context,
    config: &Arc<ControllerConfig>,
    status: &ControllerConfigStatus,
) -> GenerateResult {
    let patch = json!({
        "metadata": {"resourceVersion": config.resource_version()},
        "status": {
            "observedGeneration": status.observed_generation,
            "conditions": status.conditions,
            "controllerCertificates": status.controller_certificates,
        },
    });
    let written = context.merge_patch_status(&config.name_any(), &patch).await?;
    context.caches.controller_configs.upsert(written);
    Ok(())
}
