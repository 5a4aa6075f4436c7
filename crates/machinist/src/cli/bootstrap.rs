//! `machinist bootstrap`: the rendered configs for the first control-plane machines of a new cluster.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt as _;
use machinist_core::api::config::NodeConfig;
use machinist_core::api::names::object::{CLUSTER, CONFIG_NAMESPACE};
use machinist_core::api::{ControllerConfig, MachineConfigPool};
use machinist_core::bootstrap::{self, BootstrapError, BootstrapOutput};
use serde_json::{Value, json};

use super::CommandOutcome;
use super::generate_inputs::{GenerateInputs, objects_of_kind, read_pull_secret};
use super::output::{self, OutputFormat};
use super::template_args::TemplateArgs;
use crate::manifests::{self, ManifestDocument};

/// The version annotation of rendered configs; it must be the same as the controller's.
const VERSION: &str = concat!("machinist-", env!("CARGO_PKG_VERSION"));

/// Render the pools of a new cluster for its first control-plane machines
///
/// The manifests contain the ControllerConfig machine-config-controller and the pools, MachineConfigs,
/// KubeletConfigs, ContainerRuntimeConfigs, mirrors, policies and cluster settings (FeatureGate, Node,
/// APIServer) of the cluster. `machinist server bootstrap` serves from the output directory. The
/// controller later gives the rendered configs the same names, so no machine changes when it takes over.
/// Invalid input writes nothing.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  machinist bootstrap -f examples/kubelet-config.yaml --out bootstrap"
)]
pub(super) struct BootstrapArgs {
    /// The manifests: a file or a directory (repeatable)
    #[arg(short, long, aliases = ["manifests", "manifest-dir"], value_name = "PATH", required = true)]
    filename: Vec<PathBuf>,

    #[command(flatten)]
    templates: TemplateArgs,

    /// The output directory; files of an earlier run are replaced, other files stay
    #[arg(long, value_name = "DIR", alias = "dest-dir")]
    out: PathBuf,

    /// A file with the pull secret: a Secret of type kubernetes.io/dockerconfigjson, or its JSON with
    /// "auths" [default: the Secret in the manifests that the ControllerConfig names]
    #[arg(long, value_name = "FILE")]
    pull_secret: Option<PathBuf>,

    /// Assume an empty config.openshift.io Node `cluster`, which OpenShift clusters have, if the manifests have none
    #[arg(long)]
    default_node_config: bool,

    /// The output format; both list each pool with its rendered config, json also lists the sources
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
                "{}: {}: apiVersion and kind are missing: add them, or move the file elsewhere",
                document.origin,
                document.object_name()
            );
        }
        Ok(documents)
    }

    /// Returns nothing if the inputs have errors, which are printed.
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
            inputs.node = Some(NodeConfig::new(CLUSTER, Default::default()));
        }
        if inputs.node.is_none() && inputs.feature_gate.is_some() {
            output::print_warning(
                "the manifests contain no Node cluster: if the cluster will have one, as OpenShift clusters do, \
                 add it or use --default-node-config; otherwise its machines will get another config",
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
        // Fails if the same Secret is given twice: choosing one would be a guess.
        let _: Vec<Secret> = objects_of_kind(documents)?;
        let found = documents.iter().find(|document| {
            let at = |pointer: &str| document.value.pointer(pointer).and_then(Value::as_str);
            document.kind() == "Secret"
                && document.name() == name
                && at("/metadata/namespace") == Some(namespace)
        });
        let Some(document) = found else {
            bail!(
                "ControllerConfig: spec.pullSecret: Secret {namespace}/{name} is not in the manifests: \
                 add it, or name a file with --pull-secret"
            );
        };
        let bytes = bootstrap::pull_secret(&document.value, "")
            .with_context(|| format!("{}: {}", document.origin, document.object_name()))?;
        Ok(Some(bytes))
    }
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

/// One line per pool with its rendered config.
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
