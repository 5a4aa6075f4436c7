//! The inputs of rendering, found in manifests: the pool, the MachineConfigs, the ControllerConfig and the
//! OSImageStream.

use std::collections::HashMap;
use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use machinist_core::api::names::object::{CONTROLLER_CONFIG, POOL_WORKER, RENDERED_PREFIX};
use machinist_core::api::{ControllerConfig, MachineConfig, MachineConfigPool, OSImageStream};
use machinist_core::render::ImageSources;

use super::cluster::documents::read_documents;
use super::cluster::session::SessionArgs;
use super::generate_inputs::cluster_object;
use crate::manifests::ManifestDocument;

/// The flags that name the inputs of one pool.
#[derive(Debug, Args)]
pub(super) struct PoolArgs {
    /// The pool to render
    #[arg(long, value_name = "NAME")]
    pub(super) pool: String,

    /// The manifests: a file, a directory, or - for standard input (repeatable) [default: the objects of the API
    /// server]
    #[arg(short = 'f', long = "filename", value_name = "PATH")]
    filename: Vec<PathBuf>,

    #[command(flatten)]
    session: SessionArgs,
}

/// The inputs of one pool.
#[derive(Debug)]
pub(super) struct PoolInputs {
    pub(super) pool: MachineConfigPool,
    pub(super) machine_configs: Vec<MachineConfig>,
    pub(super) controller_config: Option<ControllerConfig>,
    streams: Option<OSImageStream>,
    worker: Option<MachineConfigPool>,
}

impl PoolInputs {
    /// The sources of OS images other than MachineConfigs.
    pub(super) fn image_inputs(&self) -> ImageSources<'_> {
        ImageSources {
            controller_config: self.controller_config.as_ref(),
            streams: self.streams.as_ref(),
            worker: self.worker.as_ref(),
        }
    }
}

impl PoolArgs {
    /// Reads the manifests and finds the inputs of the pool.
    pub(super) fn read(&self) -> Result<PoolInputs> {
        find(&self.documents()?, &self.pool)
    }

    /// The manifests, or the objects of the API server.
    pub(super) fn documents(&self) -> Result<Vec<ManifestDocument>> {
        read_documents(&self.filename, &self.session)
    }
}

/// Finds the inputs of a pool in documents.
pub(super) fn find(documents: &[ManifestDocument], pool: &str) -> Result<PoolInputs> {
    refuse_duplicates(documents)?;
    let pools: Vec<&ManifestDocument> = of_kind(documents, "MachineConfigPool").collect();
    let Some(found) = pools.iter().find(|document| document.name() == pool) else {
        let names: Vec<&str> = pools.iter().map(|document| document.name()).collect();
        let existing = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        bail!(
            "MachineConfigPool {pool} is not in the inputs, which contain {existing}: \
             add its manifest with -f, or name another with --pool"
        );
    };
    let machine_configs = of_kind(documents, "MachineConfig")
        .filter(|document| !document.name().starts_with(RENDERED_PREFIX))
        .map(ManifestDocument::typed)
        .collect::<Result<Vec<MachineConfig>>>()?;
    let controller_configs: Vec<&ManifestDocument> =
        of_kind(documents, "ControllerConfig").collect();
    let controller_config = match controller_configs.as_slice() {
        [] => None,
        [one] => Some(one.typed()?),
        many => match many.iter().find(|document| document.name() == CONTROLLER_CONFIG) {
            Some(document) => Some(document.typed()?),
            None => bail!(
                "{} ControllerConfigs are given and none is named {CONTROLLER_CONFIG}: keep one",
                many.len()
            ),
        },
    };
    let worker = pools.iter().find(|document| document.name() == POOL_WORKER);
    Ok(PoolInputs {
        pool: found.typed()?,
        machine_configs,
        controller_config,
        streams: cluster_object(documents)?,
        worker: worker.map(|document| document.typed()).transpose()?,
    })
}

/// The documents of one of MCO's kinds. For a document without `apiVersion`, the kind alone decides.
pub(super) fn of_kind<'a>(
    documents: &'a [ManifestDocument],
    kind: &'static str,
) -> impl Iterator<Item = &'a ManifestDocument> {
    documents.iter().filter(move |document| {
        let group = document.api_version().split('/').next().unwrap_or_default();
        document.kind() == kind && matches!(group, "" | "machineconfiguration.openshift.io")
    })
}

/// Rejects an object that is given twice: choosing one would be a guess.
fn refuse_duplicates(documents: &[ManifestDocument]) -> Result<()> {
    let mut seen: HashMap<(&str, &str), &ManifestDocument> = HashMap::new();
    for kind in ["MachineConfigPool", "MachineConfig", "ControllerConfig"] {
        for document in of_kind(documents, kind) {
            if let Some(first) = seen.insert((kind, document.name()), document) {
                bail!(
                    "{} is given twice: in {} and in {}; remove one",
                    document.object_name(),
                    first.origin,
                    document.origin
                );
            }
        }
    }
    Ok(())
}
