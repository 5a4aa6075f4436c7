//! The answers for one pool: made once for each version, and kept until the pool gets others.

use std::collections::HashMap;
use std::fmt;
use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::HeaderValue;
use kube::Resource;
use machinist_core::api::{ControllerConfig, MachineConfig};
use machinist_core::ignition::IgnitionVersion;
use machinist_core::serve::enrol::SealingConfig;
use machinist_core::serve::first_boot::FirstBootConfig;
use machinist_core::serve::{
    ConfigHalf, ConfigRequest, ServeError, ServeInputs, ServeMode, assemble,
};
use sha2::{Digest as _, Sha256};
use tokio::sync::OnceCell;

/// As many answers with an index are kept for a pool.
const MAX_INDEXED: usize = 32;
/// As many versions of the specification are served.
const VERSION_COUNT: usize = 7;

/// An answer, or why there is none.
pub(super) type ServeResult<T> = Result<T, Arc<ServeError>>;

/// What the answers of a pool are made of.
#[derive(Clone)]
pub(super) struct ResponseInputs {
    pub machine_config: Arc<MachineConfig>,
    pub controller_config: Option<Arc<ControllerConfig>>,
    pub kubeconfig: Arc<Vec<u8>>,
    pub image: Option<String>,
    pub certificates: Arc<Vec<(String, Vec<u8>)>>,
    pub mode: ServeMode,
    pub sealing: Option<Arc<SealingConfig>>,
    pub first_boot: Option<FirstBootConfig>,
}

impl ResponseInputs {
    /// Whether the same answers would come out.
    pub(super) fn is_unchanged(&self, other: &Self) -> bool {
        let authorities = match (&self.controller_config, &other.controller_config) {
            (Some(one), Some(other)) => is_same_object(one, other),
            (None, None) => true,
            _ => false,
        };
        authorities
            && is_same_object(&self.machine_config, &other.machine_config)
            && self.kubeconfig == other.kubeconfig
            && self.image == other.image
            && self.certificates == other.certificates
            && self.sealing == other.sealing
            && self.first_boot == other.first_boot
    }

    fn inputs(&self) -> ServeInputs<'_> {
        ServeInputs {
            machine_config: &self.machine_config,
            controller_config: self.controller_config.as_deref(),
            kubeconfig: &self.kubeconfig,
            image: self.image.as_deref(),
            certificates: &self.certificates,
            mode: self.mode,
            sealing: self.sealing.as_deref(),
            first_boot: self.first_boot.as_ref(),
        }
    }
}

/// Whether two versions of an object are one: a watch that starts anew brings all of them again.
fn is_same_object<K: Resource>(one: &Arc<K>, other: &Arc<K>) -> bool {
    let version = |object: &K| {
        let meta = object.meta();
        Some((meta.name.clone()?, meta.uid.clone()?, meta.resource_version.clone()?))
    };
    Arc::ptr_eq(one, other) || version(one).is_some_and(|it| Some(it) == version(other))
}

/// The bytes of an answer.
pub(super) struct CachedBody {
    /// As it is.
    pub body: Bytes,
    /// What tells it from others.
    pub etag: HeaderValue,
    gzip: OnceCell<(Bytes, HeaderValue)>,
}

impl CachedBody {
    fn new(body: Vec<u8>) -> Self {
        let tag = etag(&body, "");
        Self { body: body.into(), etag: tag, gzip: OnceCell::new() }
    }

    /// The bytes compressed, and their tag.
    pub(super) async fn gzip(&self) -> (Bytes, HeaderValue) {
        let make = || async {
            let body = self.body.clone();
            let packed = tokio::task::spawn_blocking(move || compress(&body)).await;
            let packed = packed.ok().flatten().unwrap_or_else(|| self.body.clone());
            (packed, etag(&self.body, "-gzip"))
        };
        self.gzip.get_or_init(make).await.clone()
    }
}

fn compress(body: &Bytes) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body).ok()?;
    encoder.finish().ok().map(Bytes::from)
}

fn etag(body: &[u8], end: &str) -> HeaderValue {
    let hash: String =
        Sha256::digest(body).iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    HeaderValue::try_from(format!("\"{hash}{end}\""))
        .unwrap_or_else(|_| HeaderValue::from_static("\"\""))
}

type ResponseCell = Arc<OnceCell<ServeResult<Arc<CachedBody>>>>;

/// The answers for one pool.
pub(super) struct PoolResponses {
    /// What they are made of.
    pub inputs: ResponseInputs,
    plain: [ResponseCell; VERSION_COUNT],
    indexed: Mutex<HashMap<(usize, u16), ResponseCell>>,
    sealed: Mutex<HashMap<Option<u16>, ResponseCell>>,
}

impl fmt::Debug for PoolResponses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answers").field("config", &self.config_name()).finish_non_exhaustive()
    }
}

impl PoolResponses {
    pub(super) fn new(material: ResponseInputs) -> Self {
        Self {
            inputs: material,
            plain: Default::default(),
            indexed: Mutex::default(),
            sealed: Mutex::default(),
        }
    }

    /// The config that machines get.
    pub(super) fn config_name(&self) -> &str {
        self.inputs.machine_config.metadata.name.as_deref().unwrap_or_default()
    }

    /// The answer to a question; it is made by the first who asks.
    pub(super) async fn response(&self, asked: &ConfigRequest) -> ServeResult<Arc<CachedBody>> {
        let cell = self.cell(asked);
        let make = || async {
            let (material, asked) = (self.inputs.clone(), asked.clone());
            let made = tokio::task::spawn_blocking(move || assemble(&material.inputs(), &asked));
            match made.await {
                Ok(made) => made.map(|body| Arc::new(CachedBody::new(body))).map_err(Arc::new),
                Err(error) => Err(Arc::new(ServeError::Unreadable(error.to_string()))),
            }
        };
        cell.get_or_init(make).await.clone()
    }

    fn cell(&self, asked: &ConfigRequest) -> ResponseCell {
        // The sealed half is always of the newest version.
        if asked.half == ConfigHalf::Sealed {
            return cached_cell(&self.sealed, asked.etcd_index);
        }
        let slot = slot(&asked.version);
        match asked.etcd_index {
            Some(index) => cached_cell(&self.indexed, (slot, index)),
            None => Arc::clone(&self.plain[slot]),
        }
    }

    /// The versions that were asked for.
    pub(super) fn versions(&self) -> Vec<IgnitionVersion> {
        let made = (0..self.plain.len()).filter(|slot| self.plain[*slot].initialized());
        made.map(version).collect()
    }
}

/// The place of an answer among those that are kept.
fn cached_cell<K: Eq + std::hash::Hash>(
    cells: &Mutex<HashMap<K, ResponseCell>>,
    key: K,
) -> ResponseCell {
    let mut cells = cells.lock().unwrap_or_else(PoisonError::into_inner);
    if cells.len() >= MAX_INDEXED && !cells.contains_key(&key) {
        // A control plane has three members, or five; whoever asks for more is playing.
        cells.clear();
    }
    Arc::clone(cells.entry(key).or_default())
}

/// Where the answer of a version is kept.
fn slot(version: &IgnitionVersion) -> usize {
    match version.major {
        3 => usize::try_from(version.minor).map_or(0, |minor| (minor + 1).min(6)),
        _ => 0,
    }
}

fn version(slot: usize) -> IgnitionVersion {
    match i64::try_from(slot) {
        Ok(slot @ 1..) => IgnitionVersion::new(3, slot - 1),
        _ => IgnitionVersion::new(2, 2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_has_its_place() {
        for served in [(2, 2), (3, 0), (3, 1), (3, 2), (3, 3), (3, 4), (3, 5)] {
            let served = IgnitionVersion::new(served.0, served.1);
            assert_eq!(version(slot(&served)), served);
        }
    }
}
