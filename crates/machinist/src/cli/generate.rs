//! `machinist generate`: which MachineConfigs would be made out of other objects, and from what.

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

use super::generate_inputs::GenerateInputs;
use super::template_args::TemplateArgs;
use super::{CommandOutcome, output};
use crate::manifests;

/// Show which MachineConfigs a pool gets out of image mirrors, image policies and settings
///
/// The inputs hold ImageDigestMirrorSets, ImageTagMirrorSets, ImageContentSourcePolicies, the Image
/// `cluster`, ClusterImagePolicies, ImagePolicies, ContainerRuntimeConfigs and, where they are not
/// the usual ones, MachineConfigPools. MachineConfigs of templates among them are built on. The
/// annotation machinist.dev/generated-from says what each result comes from.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  machinist generate --pool worker -f examples/mirrors.yaml\n  machinist generate --pool worker -f examples/mirrors.yaml -o out/"
)]
pub(super) struct Generate {
    /// The pool to generate for
    #[arg(long, value_name = "NAME")]
    pool: String,

    /// Manifests: a file, a folder or - for standard input; may be given more than once
    #[arg(short = 'f', long = "filename", value_name = "PATH", required = true)]
    filename: Vec<PathBuf>,

    #[command(flatten)]
    templates: TemplateArgs,

    /// yaml, json, or a folder: each MachineConfig as NAME.yaml and its files below NAME/files
    #[arg(short, long, value_name = "yaml|json|DIR", default_value = "yaml")]
    output: String,
}

impl Generate {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        let documents = manifests::read(&self.filename)?;
        let inputs = GenerateInputs::find(&documents)?;
        let pool = inputs.pool(&self.pool)?;
        let templates = self.templates.read()?;
        let made = generate(&inputs.sources(&templates));
        for error in &made.errors {
            output::print_error(&error.to_string());
        }
        if !made.errors.is_empty() {
            return Ok(CommandOutcome::Failed);
        }
        let mut ours = Vec::new();
        for generated in made.generated {
            if is_selected(pool, &generated.machine_config)? {
                ours.push(generated);
            }
        }
        for warning in ours.iter().flat_map(|generated| &generated.warnings) {
            output::print_warning(warning);
        }
        if ours.is_empty() {
            output::print_note(&format!("nothing is generated for the pool {}", self.pool));
        }
        let ours: Vec<MachineConfig> = ours.into_iter().map(with_origin).collect();
        match self.output.as_str() {
            "yaml" => print_yaml(&ours)?,
            "json" => {
                output::print_json(&json!({"apiVersion": "v1", "kind": "List", "items": ours}))?;
            }
            folder => write(Path::new(folder), &ours)?,
        }
        Ok(CommandOutcome::Done)
    }
}

/// Whether the pool takes a MachineConfig: also those that it has from the pool of workers.
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

/// A MachineConfig that says what it comes from.
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

fn write(folder: &Path, configs: &[MachineConfig]) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    for config in configs {
        let name = config.name_any();
        let manifest = folder.join(format!("{name}.yaml"));
        write_file(&manifest, to_go_yaml(&serde_json::to_value(config)?).as_bytes())?;
        for GeneratedFile { path, contents } in decoded_files(config)? {
            let place = folder.join(&name).join("files").join(path.trim_start_matches('/'));
            write_file(&place, &contents)?;
        }
        output::print_note(&format!("wrote {}", manifest.display()));
    }
    Ok(())
}

fn write_file(path: &Path, contents: &[u8]) -> Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    }
    fs::write(path, contents).with_context(|| format!("write {}", path.display()))
}
