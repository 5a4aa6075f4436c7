//! `machinist generate`: the MachineConfigs that are generated from other objects.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use kube::ResourceExt as _;
use machinist_core::api::names::annotation::machinist::GENERATED_FROM;
use machinist_core::api::selector;
use machinist_core::api::{MachineConfig, MachineConfigPool};
use machinist_core::generate::generate;
use machinist_core::generated_config::{GeneratedConfig, GeneratedFile, decoded_files};
use machinist_core::go::yaml::to_go_yaml;
use serde_json::json;

use super::cluster::documents::read_documents;
use super::cluster::session::SessionArgs;
use super::generate_inputs::{GenerateInputs, read_pull_secret};
use super::template_args::TemplateArgs;
use super::{CommandOutcome, output};

/// Generate the MachineConfigs that a pool gets from image mirrors, image policies and settings
///
/// The inputs contain ImageDigestMirrorSets, ImageTagMirrorSets, ImageContentSourcePolicies, the Image
/// `cluster`, ClusterImagePolicies, ImagePolicies, ContainerRuntimeConfigs and MachineConfigPools other
/// than master and worker. MachineConfigs of templates in the inputs are used as a base. The annotation
/// machinist.dev/generated-from names the sources of each result.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  machinist generate --pool worker -f examples/mirrors.yaml\n  machinist generate --pool worker -f examples/mirrors.yaml --out out/"
)]
pub(super) struct GenerateArgs {
    /// The pool to generate for
    #[arg(long, value_name = "NAME")]
    pool: String,

    /// The manifests: a file, a directory, or - for standard input (repeatable) [default: the objects of the API
    /// server]
    #[arg(short = 'f', long = "filename", value_name = "PATH")]
    filename: Vec<PathBuf>,

    #[command(flatten)]
    session: SessionArgs,

    #[command(flatten)]
    templates: TemplateArgs,

    /// A file with the pull secret: a Secret of type kubernetes.io/dockerconfigjson, or its JSON with
    /// "auths" [default: the Secret in the manifests that the ControllerConfig names]
    #[arg(long, value_name = "FILE")]
    pull_secret: Option<PathBuf>,

    /// The output format: yaml or json
    // Anything else is the output directory, which this flag named once.
    #[arg(short, long, value_name = "OUTPUT", default_value = "yaml", conflicts_with = "out")]
    output: String,

    /// Write each MachineConfig to this directory as NAME.yaml, and its files to NAME/files
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl GenerateArgs {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        let documents = read_documents(&self.filename, &self.session)?;
        let mut inputs = GenerateInputs::find(&documents)?;
        if let Some(path) = &self.pull_secret {
            inputs.pull_secret = Some(read_pull_secret(path)?);
        }
        let pool = inputs.pool(&self.pool)?;
        let templates = self.templates.read()?;
        let made = generate(&inputs.sources(&templates));
        for error in &made.errors {
            output::print_error(&error.to_string());
        }
        if !made.errors.is_empty() {
            return Ok(CommandOutcome::Failed);
        }
        let mut selected = Vec::new();
        for generated in made.generated {
            if is_selected(pool, &generated.machine_config)? {
                selected.push(generated);
            }
        }
        for warning in selected.iter().flat_map(|generated| &generated.warnings) {
            output::print_warning(warning);
        }
        if selected.is_empty() {
            output::print_note(&format!("nothing is generated for pool {}", self.pool));
        }
        let selected: Vec<MachineConfig> = selected.into_iter().map(with_origin).collect();
        match (&self.out, self.output.as_str()) {
            (Some(directory), _) => write(directory, &selected)?,
            (None, "yaml") => print_yaml(&selected)?,
            (None, "json") => {
                output::print_json(
                    &json!({"apiVersion": "v1", "kind": "List", "items": selected}),
                )?;
            }
            (None, directory) => write(Path::new(directory), &selected)?,
        }
        Ok(CommandOutcome::Done)
    }
}

/// Whether the pool selects a MachineConfig, which may be one of the worker pool.
fn is_selected(pool: &MachineConfigPool, config: &MachineConfig) -> Result<bool> {
    let selector = pool.spec.machine_config_selector.as_ref();
    let Some(selector) = selector.filter(|selector| !selector::is_empty(selector)) else {
        bail!(
            "MachineConfigPool {}: spec.machineConfigSelector is empty: a non-empty selector is required",
            pool.name_any()
        );
    };
    selector::matches(selector, config.labels()).with_context(|| {
        format!("MachineConfigPool {}: spec.machineConfigSelector", pool.name_any())
    })
}

/// Adds the annotation that names the sources.
fn with_origin(generated: GeneratedConfig) -> MachineConfig {
    let mut config = generated.machine_config;
    let from = generated.from.join(", ");
    config.annotations_mut().insert(GENERATED_FROM.to_owned(), from);
    config
}

fn print_yaml(configs: &[MachineConfig]) -> Result<()> {
    for (at, config) in configs.iter().enumerate() {
        if at > 0 {
            output::print("---\n")?;
        }
        output::print_yaml(config)?;
    }
    Ok(())
}

fn write(directory: &Path, configs: &[MachineConfig]) -> Result<()> {
    fs::create_dir_all(directory).with_context(|| format!("create {}", directory.display()))?;
    for config in configs {
        let name = config.name_any();
        let manifest = directory.join(format!("{name}.yaml"));
        write_file(&manifest, to_go_yaml(&serde_json::to_value(config)?).as_bytes())?;
        for GeneratedFile { path, contents } in decoded_files(config)? {
            let target = directory.join(&name).join("files").join(path.trim_start_matches('/'));
            write_file(&target, &contents)?;
        }
        output::print_note(&format!("wrote {}", manifest.display()));
    }
    Ok(())
}

fn write_file(path: &Path, contents: &[u8]) -> Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).with_context(|| format!("create {}", directory.display()))?;
    }
    fs::write(path, contents).with_context(|| format!("write {}", path.display()))
}
