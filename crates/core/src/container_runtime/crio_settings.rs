//! ContainerRuntimeConfig: validates the settings and converts them to files of CRI-O, or with `containerd_settings` to
//! drop-ins on nodes that others installed.

use super::base_files::BaseFiles;
use super::containerd_settings::{InstallerFiles, InstallerLayout, installer_files};
use super::storage_conf::{self, StorageConfChanges};
use super::toml_text::{list, quoted};
use crate::api::{
    AdditionalStore, ContainerRuntimeConfig, ContainerRuntimeConfiguration, MachineConfigPool,
    Quantity,
};
use crate::generated_config::naming::{AssignedNames, ConfigNaming, NamedSource};
use crate::generated_config::{
    GenerateError, GeneratedConfig, GeneratedFile, SourceRef, machine_config,
};
use crate::profile::TemplateProfile;

/// CRI-O's drop-in directory.
const CRIO_CONF_DIR: &str = "/etc/crio/crio.conf.d";
/// MCO's minimum of `pidsLimit`.
const MIN_PIDS_LIMIT: i64 = 20;
/// `logSizeMax` has to be larger than this.
const MIN_LOG_SIZE_EXCLUSIVE: i64 = 8192;
const LOG_LEVELS: [&str; 7] = ["error", "fatal", "panic", "warn", "info", "debug", "trace"];
const RUNTIMES: [&str; 2] = ["crun", "runc"];

/// How the MachineConfigs of ContainerRuntimeConfigs are named.
pub const CONTAINER_RUNTIME_NAMING: ConfigNaming = ConfigNaming {
    kind: "ContainerRuntimeConfig",
    infix: "containerruntime",
    limit_message: "max number of supported ctrcfgs (10) has been reached. Please delete old ctrcfgs before retrying",
};

/// The desired objects of one ContainerRuntimeConfig.
#[derive(Clone, Debug, PartialEq)]
pub struct RuntimeConfigOutput {
    /// The number at the end of the names; may be empty.
    pub suffix: String,
    /// Its MachineConfigs, one for each of its pools.
    pub generated: Vec<GeneratedConfig>,
}

/// The plans for all ContainerRuntimeConfigs, in input order. `profile` is that of the templates, `exists` reports
/// whether there is a MachineConfig of a name, and `base` returns the base files of a pool.
pub fn generate_all(
    configs: &[&ContainerRuntimeConfig],
    profile: Option<TemplateProfile>,
    pools: &[&MachineConfigPool],
    exists: impl Fn(&str) -> bool,
    base: impl Fn(&str) -> BaseFiles,
) -> Vec<Result<RuntimeConfigOutput, GenerateError>> {
    let members: Vec<NamedSource<'_>> = configs
        .iter()
        .map(|config| NamedSource {
            metadata: &config.metadata,
            selector: config.spec.machine_config_pool_selector.as_ref(),
        })
        .collect();
    let names = CONTAINER_RUNTIME_NAMING.assign(&members, pools, exists);
    let plan =
        |(config, names): (&&ContainerRuntimeConfig, Result<AssignedNames, GenerateError>)| {
            // MCO reports an invalid setting before an invalid selector.
            check(config)?;
            let AssignedNames { suffix, by_pool } = names?;
            let generated = by_pool
                .iter()
                .map(|(pool, name)| generate(config, profile, pool, name, &base(pool)));
            Ok(RuntimeConfigOutput { suffix, generated: generated.collect::<Result<_, _>>()? })
        };
    configs.iter().zip(names).map(plan).collect()
}

/// The MachineConfig of one ContainerRuntimeConfig for one pool.
///
/// # Errors
/// A setting is invalid.
pub fn generate(
    config: &ContainerRuntimeConfig,
    profile: Option<TemplateProfile>,
    pool: &str,
    name: &str,
    base: &BaseFiles,
) -> Result<GeneratedConfig, GenerateError> {
    check(config)?;
    let InstallerFiles { files, notes } =
        match (&config.spec.container_runtime_config, InstallerLayout::of_profile(profile)) {
            (Some(settings), Some(layout)) => installer_files(config, settings, layout)?,
            (Some(settings), None) => {
                InstallerFiles { files: files(config, settings, base)?, notes: Vec::new() }
            }
            (None, _) => InstallerFiles::default(),
        };
    let mut warnings: Vec<String> =
        notes.iter().map(|note| format!("{}: {note}", object(config))).collect();
    if files.is_empty() && warnings.is_empty() {
        warnings.push(format!(
            "{}: spec.containerRuntimeConfig sets nothing: pools are not changed by it",
            object(config)
        ));
    }
    Ok(GeneratedConfig {
        machine_config: machine_config(name, pool, &files),
        from: vec![object(config).to_string()],
        warnings,
    })
}

/// Checks all settings.
///
/// # Errors
/// A setting is invalid.
pub fn check(config: &ContainerRuntimeConfig) -> Result<(), GenerateError> {
    let Some(settings) = &config.spec.container_runtime_config else { return Ok(()) };
    let wrong = |field: &str, message: String, remedy: &str| {
        Err(error(config, field, message, remedy.to_owned()))
    };
    // An unknown setting is an error: ignoring it would hide that it has no effect.
    if let Some(name) = settings.other.keys().next() {
        let message = "is not a setting that is known here".to_owned();
        return wrong(name, message, "correct its name, or remove it");
    }
    if let Some(limit) = settings.pids_limit.filter(|limit| *limit != 0 && *limit < MIN_PIDS_LIMIT)
    {
        let remedy = "use 20 or more, or 0 for no limit of its own";
        return wrong("pidsLimit", format!("invalid PidsLimit {limit}"), remedy);
    }
    if let Some((value, shown)) = parse_quantity(config, "logSizeMax", &settings.log_size_max)?
        && (1..=MIN_LOG_SIZE_EXCLUSIVE).contains(&value)
    {
        let message = format!("invalid LogSizeMax {shown:?}, cannot be less than 8kB");
        return wrong("logSizeMax", message, "use more than 8192 bytes, or -1 for no limit");
    }
    if let Some((value, shown)) = parse_quantity(config, "overlaySize", &settings.overlay_size)?
        && value < 0
    {
        let message = format!("invalid overlaySize {shown:?}, cannot be less than 0");
        return wrong("overlaySize", message, "use a size such as 8G, or 0 for no limit");
    }
    if let Some(level) = set(&settings.log_level).filter(|level| !LOG_LEVELS.contains(level)) {
        let message = format!(
            "invalid LogLevel {level:?}, must be one of error, fatal, panic, warn, info, debug, or trace"
        );
        return wrong("logLevel", message, "use one of them, or leave it out");
    }
    if let Some(runtime) = set(&settings.default_runtime).filter(|name| !RUNTIMES.contains(name)) {
        let message = format!("invalid DefaultRuntime {runtime:?}, must be one of crun, runc");
        return wrong("defaultRuntime", message, "use one of them, or leave it out");
    }
    for (field, title, stores) in [
        ("additionalLayerStores", "AdditionalLayerStores", &settings.additional_layer_stores),
        ("additionalImageStores", "AdditionalImageStores", &settings.additional_image_stores),
        (
            "additionalArtifactStores",
            "AdditionalArtifactStores",
            &settings.additional_artifact_stores,
        ),
    ] {
        for (at, store) in stores.iter().flatten().enumerate() {
            if let Some(message) = path_problem(title, &store.path) {
                return wrong(&format!("{field}[{at}].path"), message, "write an absolute path");
            }
        }
    }
    Ok(())
}

fn files(
    config: &ContainerRuntimeConfig,
    settings: &ContainerRuntimeConfiguration,
    base: &BaseFiles,
) -> Result<Vec<GeneratedFile>, GenerateError> {
    let mut files = Vec::new();
    if let Some(changes) = storage_changes(config, settings)? {
        let text =
            storage_conf::apply_changes(&base.storage_conf, &changes).map_err(|message| {
                let message = format!(
                    "cannot change the template's {}: {message}",
                    storage_conf::STORAGE_CONF
                );
                error(config, "overlaySize", message, "fix the template".to_owned())
            })?;
        files.push(GeneratedFile::new(storage_conf::STORAGE_CONF, text));
    }
    let mut drop_in = |name: &str, line: String| {
        let text = format!("[crio]\n  [crio.runtime]\n{line}");
        files.push(GeneratedFile::new(format!("{CRIO_CONF_DIR}/01-ctrcfg-{name}"), text));
    };
    if let Some(level) = set(&settings.log_level) {
        drop_in("logLevel", format!("    log_level = {}\n", quoted(level)));
    }
    if let Some(limit) = settings.pids_limit {
        drop_in("pidsLimit", format!("    pids_limit = {limit}\n"));
    }
    if let Some((size, _)) = parse_quantity(config, "logSizeMax", &settings.log_size_max)?
        && size != 0
    {
        drop_in("logSizeMax", format!("    log_size_max = {size}\n"));
    }
    if let Some(runtime) = set(&settings.default_runtime) {
        drop_in("defaultRuntime", format!("    default_runtime = {}\n", quoted(runtime)));
    }
    let artifacts = paths(&settings.additional_artifact_stores);
    if !artifacts.is_empty() {
        let line = format!("    additional_artifact_stores = {}\n", list(&artifacts));
        drop_in("additionalArtifactStores", line);
    }
    Ok(files)
}

/// The changes to `storage.conf`, if any.
fn storage_changes(
    config: &ContainerRuntimeConfig,
    settings: &ContainerRuntimeConfiguration,
) -> Result<Option<StorageConfChanges>, GenerateError> {
    let size = parse_quantity(config, "overlaySize", &settings.overlay_size)?;
    let changes = StorageConfChanges {
        size: size.filter(|(value, _)| *value != 0).map(|(_, shown)| shown),
        // The storage library requires `:ref` to find layers by reference.
        layer_stores: paths(&settings.additional_layer_stores)
            .into_iter()
            .map(|path| if path.ends_with(":ref") { path } else { format!("{path}:ref") })
            .collect(),
        image_stores: paths(&settings.additional_image_stores),
    };
    let nothing = changes.size.is_none()
        && changes.layer_stores.is_empty()
        && changes.image_stores.is_empty();
    Ok((!nothing).then_some(changes))
}

/// A quantity as a number and in Kubernetes' canonical form.
pub(super) fn parse_quantity(
    config: &ContainerRuntimeConfig,
    field: &str,
    quantity: &Option<Quantity>,
) -> Result<Option<(i64, String)>, GenerateError> {
    let Some(quantity) = quantity else { return Ok(None) };
    match quantity.parse() {
        Ok(amount) => Ok(Some((amount.value(), amount.to_string()))),
        Err(remedy) => {
            let text = serde_json::to_string(quantity).unwrap_or_default();
            let message = format!("{text} is no amount");
            Err(error(config, field, message, remedy.to_string()))
        }
    }
}

fn path_problem(title: &str, path: &str) -> Option<String> {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte);
    if path.is_empty() {
        return Some(format!("invalid {title}: path must not be empty"));
    }
    if path.len() < 2 || !path.starts_with('/') || !path.bytes().all(is_good) {
        return Some(format!(
            "invalid {title} path {path:?}: must be an absolute path containing only alphanumeric characters, '/', '.', '_', and '-'"
        ));
    }
    path.contains("//").then(|| {
        format!("invalid {title} path {path:?}: must not contain consecutive forward slashes")
    })
}

fn set(text: &Option<String>) -> Option<&str> {
    text.as_deref().filter(|text| !text.is_empty())
}

fn paths(stores: &Option<Vec<AdditionalStore>>) -> Vec<String> {
    stores.iter().flatten().map(|store| store.path.clone()).collect()
}

fn object(config: &ContainerRuntimeConfig) -> SourceRef {
    SourceRef::of(config)
}

fn error(
    config: &ContainerRuntimeConfig,
    field: &str,
    message: String,
    remedy: String,
) -> GenerateError {
    let field = format!("spec.containerRuntimeConfig.{field}");
    GenerateError { object: object(config), field, message, remedy }
}
