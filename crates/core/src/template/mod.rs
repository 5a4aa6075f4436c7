//! Templates: the MachineConfigs that every machine of a cluster starts from.
//!
//! ```text
//! <role>/<name>/<layer>/{files,units,extensions}/<template>  ┐  fill in (engine, functions)
//! common/<layer>/…                                           ┘─► transpile ─► 00-<role>, 01-<role>-kubelet, …
//! ```
//!
//! A template directory written for MCO gives the same MachineConfigs here. `layers` decides which
//! layers apply; `functions` and `platform` are what a template can call.
//!
//! The controller and `generate` call [`generate`]; `kubelet` reads single files with
//! [`render_file_of_role`].

mod builtins;
mod certificates;
mod engine;
mod error;
mod functions;
mod internal_registry;
mod layers;
mod platform;
mod shipped;
mod stale;
mod status;
mod syntax;
mod template_data;
mod transpile;
mod tree;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource as _;
use kube::core::ObjectMeta;
use serde_json::Value;

pub use certificates::certificates;
pub use error::TemplateError;
pub use internal_registry::{AUTH_SECRET, PASSWORD_KEY, with_internal_registry};
pub use shipped::builtin_templates;
pub use stale::stale_configs;
pub use status::{running, status};
pub use tree::TemplateTree;

use crate::api::config::APIServer;
use crate::api::names::{annotation, label, object};
use crate::api::{ControllerConfig, MachineConfig, MachineConfigSpec};
use crate::generated_config::GeneratedConfig;
use crate::tls_profile::tls_parameters;
use functions::TemplateFunctions;
use layers::PlatformInfrastructure;
use transpile::RenderedTemplate;

/// The directory that applies to every role.
const COMMON: &str = "common";

/// The data for the templates.
#[derive(Clone, Copy)]
pub struct TemplateInputs<'a> {
    /// The spec of the ControllerConfig.
    pub controller_config: &'a ControllerConfig,
    /// The cluster's pull secret as JSON, if there is one.
    pub pull_secret: Option<&'a [u8]>,
    /// The APIServer config, for its TLS profile.
    pub api_server: Option<&'a APIServer>,
}

impl std::fmt::Debug for TemplateInputs<'_> {
    /// Omits the pull secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inputs")
            .field("controller_config", self.controller_config)
            .finish_non_exhaustive()
    }
}

/// Templates with everything needed to render them.
struct TemplateRenderer<'a> {
    templates: &'a TemplateTree,
    layers: Vec<String>,
    infrastructure: PlatformInfrastructure,
    data: gotmpl::Value,
    functions: TemplateFunctions,
    pull_secret: String,
}

/// The MachineConfigs of all roles, by name. `version` is the controller's version.
///
/// # Errors
/// A template cannot be parsed or rendered, or the ControllerConfig lacks the platform.
pub fn generate(
    templates: &TemplateTree,
    inputs: &TemplateInputs<'_>,
    version: &str,
) -> Result<Vec<GeneratedConfig>, TemplateError> {
    let pull_secret = compact(inputs.pull_secret)?;
    let renderer = TemplateRenderer::new(templates, inputs, pull_secret)?;
    let mut configs = Vec::new();
    for role in templates.directories_in(&[]) {
        let is_arbiter_elsewhere = role == object::POOL_ARBITER
            && !renderer.infrastructure.has_topology("HighlyAvailableArbiter");
        if role != COMMON && !is_arbiter_elsewhere {
            configs.extend(renderer.render_role(role)?);
        }
    }
    let owner = owner(inputs.controller_config);
    for config in &mut configs {
        config.metadata.owner_references = Some(vec![owner.clone()]);
        let annotations = config.metadata.annotations.get_or_insert_default();
        annotations
            .insert(annotation::GENERATED_BY_CONTROLLER_VERSION.to_owned(), version.to_owned());
        if let Some(profile) = templates.profile() {
            let profile = profile.as_str().to_owned();
            annotations.insert(annotation::machinist::PROFILE.to_owned(), profile);
        }
    }
    configs.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    let name = inputs.controller_config.metadata.name.as_deref().unwrap_or_default();
    let from = vec![format!("ControllerConfig {name}")];
    Ok(configs
        .into_iter()
        .map(|machine_config| GeneratedConfig {
            machine_config,
            from: from.clone(),
            warnings: vec![],
        })
        .collect())
}

/// Renders a template with plain data and the functions that need no cluster. Public only for the test that compares
/// the engine with Go.
///
/// # Errors
/// The template cannot be parsed or rendered.
#[doc(hidden)]
pub fn fill_plain(text: &str, data: &Value) -> Result<String, TemplateError> {
    engine::render_plain(text, &template_data::untyped(data), &TemplateFunctions::plain())
}

/// The contents of a file that the templates of a role generate, if any does. Custom pools use the
/// templates of `worker`.
///
/// Renders only the templates that may be relevant: those that name the path, and those of the same
/// base name in other layers.
///
/// # Errors
/// One of them cannot be parsed or rendered.
pub fn render_file_of_role(
    templates: &TemplateTree,
    inputs: &TemplateInputs<'_>,
    role: &str,
    path: &str,
) -> Result<Option<Vec<u8>>, TemplateError> {
    let templates = templates.with_names_of(path);
    // No caller needs a file that depends on the pull secret.
    let configs = TemplateRenderer::new(&templates, inputs, String::new())?.render_role(role)?;
    Ok(configs.iter().find_map(|config| decoded_file(config, path)))
}

impl<'a> TemplateRenderer<'a> {
    fn new(
        templates: &'a TemplateTree,
        inputs: &TemplateInputs<'_>,
        pull_secret: String,
    ) -> Result<Self, TemplateError> {
        let spec = serde_json::to_value(&inputs.controller_config.spec).unwrap_or_default();
        let infrastructure = PlatformInfrastructure::new(&spec);
        let profile =
            inputs.api_server.and_then(|server| server.spec.tls_security_profile.as_ref());
        Ok(Self {
            templates,
            layers: infrastructure.layers()?,
            data: template_data::data(&spec, &pull_secret, &tls_parameters(profile)),
            functions: TemplateFunctions::new(&infrastructure),
            infrastructure,
            pull_secret,
        })
    }

    fn render_role(&self, role: &str) -> Result<Vec<MachineConfig>, TemplateError> {
        let built_in = [object::POOL_WORKER, object::POOL_MASTER, object::POOL_ARBITER];
        let directory = if built_in.contains(&role) { role } else { object::POOL_WORKER };
        if !self.templates.has_directory(&[directory])? {
            return Err(TemplateError::NoDirectory(directory.to_owned()));
        }
        let names = self.templates.directories_in(&[directory]);
        names
            .iter()
            .enumerate()
            .map(|(index, name)| self.machine_config(role, directory, name, index == 0))
            .collect()
    }

    /// One MachineConfig. The first of a role also contains the common templates.
    fn machine_config(
        &self,
        role: &str,
        directory: &str,
        name: &str,
        is_first: bool,
    ) -> Result<MachineConfig, TemplateError> {
        let mut bases: Vec<Vec<&str>> = Vec::new();
        if is_first {
            bases.push(vec![COMMON]);
        }
        bases.push(vec![directory, name]);
        let (mut files, mut units) = (BTreeMap::new(), BTreeMap::new());
        let mut extensions = BTreeMap::new();
        for base in &bases {
            for layer in &self.layers {
                let at = [base.as_slice(), &[layer.as_str()]].concat();
                if !self.templates.has_directory(&at)? {
                    continue;
                }
                self.fill(&mut files, &at, "files")?;
                self.fill(&mut units, &at, "units")?;
                self.fill(&mut extensions, &at, "extensions")?;
            }
        }
        let config = transpile::transpile(files.values(), units.values())?;
        let extensions: BTreeSet<String> = extensions.into_keys().collect();
        Ok(MachineConfig {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                labels: Some([(label::ROLE.to_owned(), role.to_owned())].into()),
                ..ObjectMeta::default()
            },
            spec: MachineConfigSpec {
                os_image_url: Some(String::new()),
                base_os_extensions_container_image: Some(String::new()),
                config: Some(serde_json::to_value(&config).unwrap_or_default()),
                extensions: (!extensions.is_empty()).then(|| extensions.into_iter().collect()),
                ..MachineConfigSpec::default()
            },
        })
    }

    /// Renders the templates of one directory. A template replaces an earlier one of the same base name;
    /// an empty file removes it; empty output leaves it unchanged.
    fn fill(
        &self,
        into: &mut BTreeMap<String, RenderedTemplate>,
        layer: &[&str],
        kind: &str,
    ) -> Result<(), TemplateError> {
        let directory = [layer, &[kind]].concat();
        if !self.templates.has_directory(&directory)? {
            return Ok(());
        }
        for template in self.templates.files_below(&directory) {
            if template.contents.is_empty() {
                into.remove(template.base_name());
                continue;
            }
            let file = template.name();
            let text = std::str::from_utf8(template.contents)
                .map_err(|_| TemplateError::NotText(file.clone()))?;
            let text = engine::render(&file, text, &self.data, &self.functions)
                .map_err(|error| self.without_secret(error))?;
            if !text.trim().is_empty() {
                into.insert(template.base_name().to_owned(), RenderedTemplate { file, text });
            }
        }
        Ok(())
    }

    /// Removes the pull secret from an error of the engine, which may quote values.
    fn without_secret(&self, error: TemplateError) -> TemplateError {
        match error {
            TemplateError::Execute { file, message } if !self.pull_secret.is_empty() => {
                let message = message.replace(&self.pull_secret, "<the pull secret>");
                TemplateError::Execute { file, message }
            }
            other => other,
        }
    }
}

/// A pull secret in one line, without whitespace.
fn compact(pull_secret: Option<&[u8]>) -> Result<String, TemplateError> {
    let Some(bytes) = pull_secret else { return Ok(String::new()) };
    let wrong = |error: &serde_json::Error| TemplateError::PullSecret {
        line: error.line(),
        column: error.column(),
    };
    // Validation only: the output has to keep key order and number formats.
    serde_json::from_slice::<serde::de::IgnoredAny>(bytes).map_err(|error| wrong(&error))?;
    Ok(without_blanks(&String::from_utf8_lossy(bytes)))
}

/// JSON without whitespace between tokens.
fn without_blanks(json: &str) -> String {
    let (mut inside, mut escaped) = (false, false);
    json.chars()
        .filter(|&c| {
            let keep = inside || !matches!(c, ' ' | '\t' | '\n' | '\r');
            match c {
                '"' if !escaped => inside = !inside,
                _ => {}
            }
            escaped = inside && c == '\\' && !escaped;
            keep
        })
        .collect()
}

fn owner(config: &ControllerConfig) -> OwnerReference {
    OwnerReference {
        api_version: ControllerConfig::api_version(&()).into_owned(),
        kind: ControllerConfig::kind(&()).into_owned(),
        name: config.metadata.name.clone().unwrap_or_default(),
        uid: config.metadata.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// The decoded contents of a file in a MachineConfig.
#[must_use]
pub fn decoded_file(config: &MachineConfig, path: &str) -> Option<Vec<u8>> {
    const MAX_FILE_BYTES: u64 = 1 << 20;
    let value: &Value = config.spec.config.as_ref()?;
    let (config, _) = crate::ignition::parse_and_upgrade(value).ok()?;
    let file = config.storage.files.iter().find(|file| file.path == path)?;
    crate::ignition::contents::decode(&file.contents, MAX_FILE_BYTES).ok()
}
