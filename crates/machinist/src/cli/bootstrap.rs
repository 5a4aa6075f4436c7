//! `machinist bootstrap`: what the machines of a first control plane start from.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use machinist_core::api::config::Node;
use machinist_core::api::names::object::{CLUSTER, CONFIG_NAMESPACE};
use machinist_core::api::{ControllerConfig, MachineConfigPool};
use machinist_core::bootstrap::{self, BootstrapError, BootstrapOutput};
use serde_json::{Value, json};

use super::CommandOutcome;
use super::generate_inputs::{GenerateInputs, objects_of_kind};
use super::output::{self, OutputFormat};
use super::template_args::TemplateArgs;
use crate::manifests::{self, ManifestDocument, ManifestText};

/// What the controller calls itself in what it makes, and so do we.
const VERSION: &str = concat!("machinist-", env!("CARGO_PKG_VERSION"));

/// Render the pools of a cluster that is being made, for its first control-plane machines
///
/// The manifests hold the ControllerConfig machine-config-controller and whatever pools, MachineConfigs,
/// KubeletConfigs, ContainerRuntimeConfigs, mirrors, policies and cluster settings (FeatureGate, Node,
/// APIServer) the cluster starts with. The folder that is written is what `machinist server bootstrap`
/// serves from; the rendered configs have the names that the controller gives them later, so no machine
/// is touched again when the cluster is there. Bad input writes nothing.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  machinist bootstrap -f examples/kubelet-config.yaml --out bootstrap"
)]
pub(super) struct BootstrapArgs {
    /// The manifests: a folder or a file; may be given more than once
    #[arg(short, long, aliases = ["manifests", "manifest-dir"], value_name = "PATH", required = true)]
    filename: Vec<PathBuf>,

    #[command(flatten)]
    templates: TemplateArgs,

    /// The folder to write; what an earlier run wrote there is replaced, other files stay
    #[arg(long, value_name = "DIR", alias = "dest-dir")]
    out: PathBuf,

    /// The pull secret: a Secret of type kubernetes.io/dockerconfigjson, or the JSON with "auths" itself
    /// [default: the Secret among the manifests that the ControllerConfig names]
    #[arg(long, value_name = "FILE")]
    pull_secret: Option<PathBuf>,

    /// Take an empty Node `cluster` for granted where the manifests hold none, as OpenShift's clusters have one
    #[arg(long)]
    default_node_config: bool,

    /// text, or json for programs: each pool, its rendered config and the sources of it
    #[arg(short, long, value_enum, default_value_t = OutputFormat::Text)]
    output: OutputFormat,
}

impl BootstrapArgs {
    pub(super) fn run(&self) -> Result<CommandOutcome> {
        let documents = self.documents()?;
        let Some(made) = self.build(&documents)? else { return Ok(CommandOutcome::Failed) };
        for warning in &made.warnings {
            output::print_warning(warning);
        }
        crate::bootstrap::write(&self.out, &bootstrap::files(&made))?;
        output::print_note(&format!("wrote {}", self.out.display()));
        match self.output {
            OutputFormat::Text => output::print(&text(&made))?,
            OutputFormat::Json => output::print_json(&summary(&made, &self.out))?,
        }
        Ok(CommandOutcome::Done)
    }

    fn documents(&self) -> Result<Vec<ManifestDocument>> {
        let documents = manifests::read(&self.filename)?;
        let is_pull_secret = |document: &ManifestDocument| {
            self.pull_secret
                .as_deref()
                .is_some_and(|path| is_same_file(path, &document.origin.file))
        };
        let nameless = documents.iter().find(|document| {
            let lacks = document.kind().is_empty() || document.api_version().is_empty();
            lacks && !is_pull_secret(document)
        });
        if let Some(document) = nameless {
            bail!(
                "{}: {}: apiVersion and kind have to say what it is; add them, or move the file elsewhere",
                document.origin,
                document.object_name()
            );
        }
        Ok(documents)
    }

    /// Nothing: the inputs have errors, which are shown.
    fn build(&self, documents: &[ManifestDocument]) -> Result<Option<BootstrapOutput>> {
        let controller_config = GenerateInputs::controller_config_of(documents)?;
        let mut declared = Vec::new();
        for document in documents.iter().filter(|document| is_pool(document)) {
            let pool: MachineConfigPool = document.typed()?;
            declared.push((pool, document.origin.to_string()));
        }
        let pools = match bootstrap::choose_pools(declared, controller_config.as_ref()) {
            Ok(pools) => pools,
            Err(errors) => return Ok(print_errors(&errors)),
        };
        let mut inputs = GenerateInputs::find_with(documents, pools)?;
        inputs.pull_secret = self.pull_secret(documents, controller_config.as_ref())?;
        if inputs.node.is_none() && self.default_node_config {
            inputs.node = Some(Node::new(CLUSTER, Default::default()));
        }
        if inputs.node.is_none() && inputs.feature_gate.is_some() {
            output::print_warning(
                "Node cluster is not among the manifests: where the cluster will have one, as OpenShift's do, \
                 add it or use --default-node-config, or its machines will get another config",
            );
        }
        let templates = self.templates.read()?;
        match bootstrap::bootstrap(&inputs.sources(&templates), inputs.streams.as_ref(), VERSION) {
            Ok(made) => Ok(Some(made)),
            Err(errors) => Ok(print_errors(&errors)),
        }
    }

    fn pull_secret(
        &self,
        documents: &[ManifestDocument],
        config: Option<&ControllerConfig>,
    ) -> Result<Option<Vec<u8>>> {
        if let Some(path) = &self.pull_secret {
            return read_pull_secret(path).map(Some);
        }
        let Some(reference) = config.and_then(|config| config.spec.pull_secret.as_ref()) else {
            return Ok(None);
        };
        let namespace = reference.namespace.as_deref().unwrap_or(CONFIG_NAMESPACE);
        let name = reference.name.as_deref().unwrap_or_default();
        // Twice the same one would be a guess.
        let _: Vec<Secret> = objects_of_kind(documents)?;
        let found = documents.iter().find(|document| {
            let at = |pointer: &str| document.value.pointer(pointer).and_then(Value::as_str);
            document.kind() == "Secret"
                && document.name() == name
                && at("/metadata/namespace") == Some(namespace)
        });
        let Some(document) = found else {
            bail!(
                "ControllerConfig: spec.pullSecret: Secret {namespace}/{name} is not among the manifests; \
                 add it, or name a file with --pull-secret"
            );
        };
        let bytes = bootstrap::pull_secret(&document.value, "")
            .with_context(|| format!("{}: {}", document.origin, document.object_name()))?;
        Ok(Some(bytes))
    }
}

fn read_pull_secret(path: &Path) -> Result<Vec<u8>> {
    let shown = || format!("--pull-secret {}", path.display());
    let text = fs::read_to_string(path).with_context(shown)?;
    let file = ManifestText { file: path.to_owned(), text };
    let documents = manifests::parse(&file).with_context(shown)?;
    let object = documents.first().map(|document| &document.value).unwrap_or(&Value::Null);
    bootstrap::pull_secret(object, &file.text).with_context(shown)
}

fn is_pool(document: &ManifestDocument) -> bool {
    document.kind() == "MachineConfigPool"
        && document.api_version().starts_with("machineconfiguration.openshift.io/")
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    one == other
        || fs::canonicalize(one).ok().is_some_and(|it| fs::canonicalize(other).ok() == Some(it))
}

fn print_errors(errors: &[BootstrapError]) -> Option<BootstrapOutput> {
    for error in errors {
        output::print_error(&error.to_string());
    }
    None
}

/// Each pool and what its machines get.
fn text(made: &BootstrapOutput) -> String {
    let width = made.pools.iter().map(|pool| pool.name_any().len()).max().unwrap_or_default();
    let lines = made.pools.iter().zip(&made.rendered);
    lines
        .map(|(pool, config)| format!("{:width$}  {}\n", pool.name_any(), config.name_any()))
        .collect()
}

fn summary(made: &BootstrapOutput, out: &Path) -> Value {
    let pools = made.pools.iter().map(|pool| {
        let configuration = pool.spec.configuration.clone().unwrap_or_default();
        let source = configuration.source.unwrap_or_default();
        let source: Vec<Option<String>> = source.into_iter().map(|it| it.name).collect();
        json!({"name": pool.name_any(), "rendered": configuration.name, "source": source})
    });
    json!({"out": out, "pools": pools.collect::<Vec<_>>(), "warnings": made.warnings})
}
