//! The responses of one pool: built once per Ignition version, and cached until the inputs change.

use std::collections::HashMap;
use std::fmt;
use std::io::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::HeaderValue;
use kube::Resource;
use machinist_core::api::{ControllerConfig, MachineConfig};
use machinist_core::hex::hex;
use machinist_core::ignition::{IgnitionVersion, parse_and_upgrade};
use machinist_core::serve::enrol::SealingConfig;
use machinist_core::serve::first_boot::FirstBootConfig;
use machinist_core::serve::{
    ConfigHalf, ConfigRequest, ServeError, ServeInputs, ServeMode, assemble, seal,
};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use tokio::sync::OnceCell;

/// The number of cached responses with an etcd index per pool.
const MAX_INDEXED: usize = 32;
/// The number of served versions of the Ignition specification.
const VERSION_COUNT: usize = 7;

/// A response, or the reason for a refusal.
pub(super) type ServeResult<T> = Result<T, Arc<ServeError>>;

/// The inputs of a pool's responses.
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
    /// Whether the responses would be the same.
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

/// Warns if a config that is not sealed contains what looks like secrets. It misses some: only sealing protects.
fn warn_about_secrets(inputs: &ResponseInputs) {
    let raw = inputs.machine_config.spec.config.as_ref();
    let (None, Some(raw)) = (&inputs.sealing, raw) else { return };
    let Ok((config, _)) = parse_and_upgrade(raw) else { return };
    let paths = seal::suspected_secrets(&config);
    if !paths.is_empty() {
        let config = inputs.machine_config.metadata.name.as_deref().unwrap_or_default();
        tracing::warn!(
            config,
            paths = paths.join(" "),
            "whoever may request this config can read what looks like secrets: seal configs"
        );
    }
}

/// Whether two objects are the same version: a watch that restarts delivers all objects again.
fn is_same_object<K: Resource>(one: &Arc<K>, other: &Arc<K>) -> bool {
    let version = |object: &K| {
        let meta = object.meta();
        Some((meta.name.clone()?, meta.uid.clone()?, meta.resource_version.clone()?))
    };
    Arc::ptr_eq(one, other) || version(one).is_some_and(|it| Some(it) == version(other))
}

/// The bytes of a response.
pub(super) struct CachedBody {
    /// Uncompressed.
    pub body: Bytes,
    /// The entity tag.
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
            let compressed = tokio::task::spawn_blocking(move || compress(&body)).await;
            let compressed = compressed.ok().flatten().unwrap_or_else(|| self.body.clone());
            (compressed, etag(&self.body, "-gzip"))
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
    let hash = hex(&Sha256::digest(body)[..16]);
    HeaderValue::try_from(format!("\"{hash}{end}\""))
        .unwrap_or_else(|_| HeaderValue::from_static("\"\""))
}

type ResponseCell = Arc<OnceCell<ServeResult<Arc<CachedBody>>>>;

/// The responses of one pool.
pub(super) struct PoolResponses {
    /// The inputs of the responses.
    pub inputs: ResponseInputs,
    plain: [ResponseCell; VERSION_COUNT],
    indexed: Mutex<HashMap<(usize, u16), ResponseCell>>,
    sealed: Mutex<HashMap<Option<u16>, ResponseCell>>,
}

impl fmt::Debug for PoolResponses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolResponses").field("config", &self.config_name()).finish_non_exhaustive()
    }
}

impl PoolResponses {
    pub(super) fn new(inputs: ResponseInputs) -> Self {
        warn_about_secrets(&inputs);
        Self {
            inputs,
            plain: Default::default(),
            indexed: Mutex::default(),
            sealed: Mutex::default(),
        }
    }

    /// The config that machines get.
    pub(super) fn config_name(&self) -> &str {
        self.inputs.machine_config.metadata.name.as_deref().unwrap_or_default()
    }

    /// The response to a request. The first request builds it.
    pub(super) async fn response(&self, request: &ConfigRequest) -> ServeResult<Arc<CachedBody>> {
        let cell = self.cell(request);
        let make = || async {
            let (inputs, request) = (self.inputs.clone(), request.clone());
            let made = tokio::task::spawn_blocking(move || assemble(&inputs.inputs(), &request));
            match made.await {
                Ok(made) => made.map(|body| Arc::new(CachedBody::new(body))).map_err(Arc::new),
                Err(error) => Err(Arc::new(ServeError::Unreadable(error.to_string()))),
            }
        };
        cell.get_or_init(make).await.clone()
    }

    fn cell(&self, request: &ConfigRequest) -> ResponseCell {
        // The sealed part always has the newest version.
        if request.half == ConfigHalf::Sealed {
            return cached_cell(&self.sealed, request.etcd_index);
        }
        let slot = slot(&request.version);
        match request.etcd_index {
            Some(index) => cached_cell(&self.indexed, (slot, index)),
            None => Arc::clone(&self.plain[slot]),
        }
    }

    /// The versions that were request for.
    pub(super) fn versions(&self) -> Vec<IgnitionVersion> {
        let made = (0..self.plain.len()).filter(|slot| self.plain[*slot].initialized());
        made.map(version).collect()
    }
}

/// The cell of a cached response.
fn cached_cell<K: Eq + std::hash::Hash>(
    cells: &Mutex<HashMap<K, ResponseCell>>,
    key: K,
) -> ResponseCell {
    let mut cells = cells.lock();
    if cells.len() >= MAX_INDEXED && !cells.contains_key(&key) {
        // A control plane has three or five members: more indexes are abuse.
        cells.clear();
    }
    Arc::clone(cells.entry(key).or_default())
}

/// The slot of a version.
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
    fn every_version_has_its_slot() {
        for served in [(2, 2), (3, 0), (3, 1), (3, 2), (3, 3), (3, 4), (3, 5)] {
            let served = IgnitionVersion::new(served.0, served.1);
            assert_eq!(version(slot(&served)), served);
        }
    }
}
