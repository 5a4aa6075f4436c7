//! Rendering: many MachineConfigs become one, whose name is a hash of its content.
//!
//! ```text
//! pool + MachineConfigs ─ select ─→ merge order ─ validate each ─→ merge ─→ name ─→ RenderedPool
//! pool + annotation, stream, ControllerConfig ─ base_images ─→ images ─┘  └─ provenance
//! RenderedPool + objects in the API ─ reconcile ─→ what the controller writes
//! ```
//!
//! The controller calls [`reconcile`]; `machinist render`, `explain` and `plan` call [`render`].

mod base_images;
mod error;
mod merge;
mod name;
mod on_change;
pub mod pin_image;
pub mod provenance;
pub mod reconcile;
mod select;
mod sources;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::Value;

use crate::api::names::annotation;
use crate::api::{ControllerConfig, MachineConfig, MachineConfigPool, MachineConfigSpec};
use crate::go::yaml;
use crate::ignition::IgnitionReport;
use crate::ignition::unpacked_size::check_unpacked_sizes;
use crate::profile::{TemplateProfile, profile_name};
use crate::validate::validate_spec;

pub use base_images::{AnnotatedImage, BaseImages, ImageSources};
pub use error::RenderError;
pub use merge::{ParsedMachineConfig, RenderedSpec};
pub use name::rendered_name;
pub use select::select;
pub use sources::{ItemSources, item_sources};

/// The largest rendered config, as JSON, that etcd stores.
pub const MAX_RENDERED_BYTES: usize = 1_572_864;

/// A rendered pool.
#[derive(Debug, Clone)]
pub struct RenderedPool<'a> {
    /// `rendered-<pool>-<hash>`.
    pub name: String,
    /// The merged fields.
    pub spec: RenderedSpec,
    /// Its MachineConfigs, in merge order.
    pub sources: Vec<ParsedMachineConfig<'a>>,
    /// Warnings about the Ignition configs of the sources: (MachineConfig, warnings).
    pub warnings: Vec<(&'a str, IgnitionReport)>,
    /// The images before MachineConfigs are merged, and where they come from.
    pub base: BaseImages,
    /// Whether an administrator's MachineConfig or annotation overrides the default OS image.
    pub os_image_overridden: bool,
    /// What administrators say that a change costs, for the annotation of the rendered config.
    pub on_change: Option<String>,
    /// The built-in profile of templates that it comes from, for the annotation of the rendered config.
    pub profile: Option<&'a str>,
}

/// Renders a pool from all MachineConfigs.
pub fn render<'a, 's>(
    pool: &MachineConfigPool,
    machine_configs: impl IntoIterator<Item = &'a MachineConfig>,
    system: impl Into<ImageSources<'s>>,
) -> Result<RenderedPool<'a>, RenderError> {
    render_sources(pool, select(pool, machine_configs)?, system)
}

/// Renders a pool from its MachineConfigs, in merge order. Without any, the result asks for nothing.
pub(crate) fn render_sources<'a, 's>(
    pool: &MachineConfigPool,
    selected: Vec<&'a MachineConfig>,
    system: impl Into<ImageSources<'s>>,
) -> Result<RenderedPool<'a>, RenderError> {
    let mut sources = Vec::new();
    let mut warnings = Vec::new();
    for machine_config in selected {
        let name = select::name_of(machine_config);
        let invalid = |source| RenderError::Invalid { machine_config: name.to_owned(), source };
        let ignition = match validate_spec(&machine_config.spec).map_err(invalid)? {
            Some((config, report)) => {
                if !report.entries.is_empty() {
                    warnings.push((name, report));
                }
                Some(config)
            }
            None => None,
        };
        sources.push(ParsedMachineConfig { machine_config, ignition });
    }
    let base = BaseImages::for_pool(pool, &system.into())?;
    let spec = merge::merge(&sources, &base)?;
    let pool_name = pool.metadata.name.as_deref().unwrap_or_default();
    if spec.os_image_url != base.image() {
        let image = merge::last_set(&sources, |spec| spec.os_image_url.as_deref());
        let machine_config = image.map(|(_, source)| source.name().to_owned()).unwrap_or_default();
        if pool.spec.os_image_stream.as_ref().is_some_and(|stream| !stream.name.is_empty()) {
            return Err(RenderError::ImageAndStream { machine_config });
        }
        // The annotation of the followed pool is a default, so it may be overridden.
        if base.annotated.as_ref().is_some_and(|annotated| annotated.pool == pool_name) {
            let pool = pool_name.to_owned();
            return Err(RenderError::ImageAndAnnotation { machine_config, pool });
        }
    }
    check_unpacked_sizes(&spec.config)
        .map_err(|source| RenderError::UnpackedTooLarge { pool: pool_name.to_owned(), source })?;
    let os_image_overridden = spec.os_image_url != base.system_image;
    let value = to_value(&spec);
    if let Some(refusal) = yaml::go_yaml_error(&value) {
        return Err(RenderError::UnrepresentableInYaml { refusal });
    }
    let name = rendered_name(pool_name, &value);
    let on_change = on_change::collect(pool, &sources)?;
    let profile = profile_of(&sources);
    Ok(RenderedPool {
        name,
        spec,
        sources,
        warnings,
        base,
        os_image_overridden,
        on_change,
        profile,
    })
}

/// The profile of the templates among the sources. While a profile is replaced there may be two: then the one that fits
/// fewer machines counts.
fn profile_of<'a>(sources: &[ParsedMachineConfig<'a>]) -> Option<&'a str> {
    let generated = sources.iter().filter(|source| source.is_generated());
    let names = generated.filter_map(|source| profile_name(source.machine_config));
    names.max_by_key(|name| {
        !TemplateProfile::from_name(name).is_some_and(TemplateProfile::is_beside_installer)
    })
}

/// Converts a type whose serialization cannot fail: maps with string keys, numbers, strings.
fn to_value(value: &impl serde::Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

impl RenderedPool<'_> {
    /// The rendered config as an API object, owned by its pool.
    pub fn into_object(
        self,
        pool: &MachineConfigPool,
        controller_config: Option<&ControllerConfig>,
        controller_version: &str,
    ) -> Result<MachineConfig, RenderError> {
        let release = controller_config.and_then(|cc| {
            cc.metadata.annotations.as_ref()?.get(annotation::RELEASE_IMAGE_VERSION)
        });
        let mut annotations = std::collections::BTreeMap::from([
            (annotation::GENERATED_BY_CONTROLLER_VERSION.to_owned(), controller_version.to_owned()),
            (annotation::RELEASE_IMAGE_VERSION.to_owned(), release.cloned().unwrap_or_default()),
        ]);
        if self.os_image_overridden {
            annotations.insert(annotation::OS_IMAGE_URL_OVERRIDDEN.to_owned(), "true".to_owned());
        }
        let sources = sources::collect(&self.sources);
        if let Some(rules) = self.on_change {
            annotations.insert(annotation::machinist::ON_CHANGE_RULES.to_owned(), rules);
        }
        if let Some(profile) = self.profile {
            annotations.insert(annotation::machinist::PROFILE.to_owned(), profile.to_owned());
        }
        let owner = pool.metadata.uid.as_ref().map(|uid| {
            vec![OwnerReference {
                api_version: "machineconfiguration.openshift.io/v1".to_owned(),
                kind: "MachineConfigPool".to_owned(),
                name: pool.metadata.name.clone().unwrap_or_default(),
                uid: uid.clone(),
                controller: Some(true),
                block_owner_deletion: Some(true),
            }]
        });
        let mut object = MachineConfig {
            metadata: ObjectMeta {
                name: Some(self.name.clone()),
                annotations: Some(annotations),
                owner_references: owner,
                ..ObjectMeta::default()
            },
            spec: MachineConfigSpec {
                os_image_url: Some(self.spec.os_image_url),
                base_os_extensions_container_image: Some(
                    self.spec.base_os_extensions_container_image,
                ),
                config: Some(to_value(&self.spec.config)),
                kernel_arguments: Some(self.spec.kernel_arguments),
                extensions: Some(self.spec.extensions),
                fips: Some(self.spec.fips),
                kernel_type: Some(self.spec.kernel_type),
                ..MachineConfigSpec::default()
            },
        };
        let size = serde_json::to_vec(&object).map(|bytes| bytes.len()).unwrap_or_default();
        if size > MAX_RENDERED_BYTES {
            return Err(RenderError::TooLarge { name: self.name, size, max: MAX_RENDERED_BYTES });
        }
        // It must not make a config too large that is not.
        let fits = |text: &String| size + 2 * text.len() <= MAX_RENDERED_BYTES;
        if let Some(text) = sources.filter(fits) {
            let annotations = object.metadata.annotations.get_or_insert_default();
            annotations.insert(annotation::machinist::SOURCES.to_owned(), text);
        }
        Ok(object)
    }
}
