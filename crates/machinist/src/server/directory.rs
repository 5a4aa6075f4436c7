//! Responses from a directory of manifests, before an API server exists. Every request checks the files, which are
//! read again only when they change.

use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use machinist_core::api::names::object;
use machinist_core::api::{ControllerConfig, MachineConfig, MachineConfigPool};
use machinist_core::serve::etcd_index::is_control_plane;
use machinist_core::serve::seal::AnnotatedPaths;
use machinist_core::serve::{ServeError, ServeMode, kubeconfig, select_config};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;

use super::responses::{PoolResponses, ResponseInputs, ServeResult};
use super::{EnrolmentOptions, ServedBinary};
use crate::manifests::{self, ManifestText};

/// Identifies a version of a file: inode, modification time, size.
type FileStamp = (u64, i64, i64, u64);

/// A directory of manifests to serve from.
#[derive(Debug)]
pub struct ManifestDirectory {
    /// Contains `machine-pools/`, `machine-configs/` and `controller-config/`.
    pub base: PathBuf,
    /// The kubeconfig for the machines of the new cluster.
    pub kubeconfig: PathBuf,
    /// Certificates for image registries: `name=file`.
    pub certificates: Vec<String>,
    /// Whether other pools than those of the control plane are served.
    pub all_pools: bool,
    /// How configs are sealed, if at all.
    pub enrolment: Option<EnrolmentOptions>,
    /// The binary that machines download to complete their first boot, if any.
    pub binary: Option<ServedBinary>,
    cache: Mutex<HashMap<String, CachedPool>>,
}

#[derive(Debug, Clone)]
struct CachedPool {
    files: Vec<(PathBuf, FileStamp)>,
    responses: Arc<PoolResponses>,
}

impl ManifestDirectory {
    /// Serves from `base`.
    #[must_use]
    pub fn new(
        base: PathBuf,
        kubeconfig: PathBuf,
        certificates: Vec<String>,
        all_pools: bool,
    ) -> Self {
        Self {
            base,
            kubeconfig,
            certificates,
            all_pools,
            enrolment: None,
            binary: None,
            cache: Mutex::default(),
        }
    }

    /// The responses for a pool.
    pub(super) async fn pool(self: &Arc<Self>, name: &str) -> ServeResult<Arc<PoolResponses>> {
        // The name comes from a client and goes into the log.
        let shown = || name.chars().take(100).collect::<String>();
        if !self.all_pools && !is_control_plane(name) {
            return Err(Arc::new(ServeError::NotInBootstrap(shown())));
        }
        if !is_valid_name(name) {
            return Err(Arc::new(ServeError::UnknownPool(shown())));
        }
        if let Some(responses) = self.cached(name) {
            return Ok(responses);
        }
        let (directory, pool) = (Arc::clone(self), name.to_owned());
        let read = tokio::task::spawn_blocking(move || directory.read(&pool)).await;
        let read = read.map_err(|error| Arc::new(ServeError::Unreadable(error.to_string())))?;
        let known = read.map_err(Arc::new)?;
        let responses = Arc::clone(&known.responses);
        let mut all = self.cache.lock();
        all.insert(name.to_owned(), known);
        Ok(responses)
    }

    /// The cached responses, unless a file has changed.
    fn cached(&self, name: &str) -> Option<Arc<PoolResponses>> {
        let known = self.cache.lock().get(name).cloned()?;
        let is_unchanged = |(path, stamp): &(PathBuf, FileStamp)| {
            fs::metadata(path).is_ok_and(|now| self::stamp(&now) == *stamp)
        };
        known.files.iter().all(is_unchanged).then_some(known.responses)
    }

    fn read(&self, name: &str) -> Result<CachedPool, ServeError> {
        let mut files = Vec::new();
        let path = self.base.join("machine-pools").join(format!("{name}.yaml"));
        let pool: MachineConfigPool = read_object(&path, &mut files)?;
        let config = select_config::config_name(&pool);
        let config = config.ok_or_else(|| ServeError::NotRendered(name.to_owned()))?;
        if !is_valid_name(config) {
            return Err(ServeError::Unreadable(format!(
                "{}: status.configuration.name is not a valid name",
                path.display()
            )));
        }
        let path = self.base.join("machine-configs").join(format!("{config}.yaml"));
        let machine_config: MachineConfig = read_object(&path, &mut files)?;
        let path = format!("controller-config/{}.yaml", object::CONTROLLER_CONFIG);
        let controller_config: ControllerConfig =
            match read_object(&self.base.join(path), &mut files) {
                Err(ServeError::FileMissing(path)) => {
                    let why = "could not find controller config on initial bootstrap";
                    return Err(ServeError::Unreadable(format!("{why}: {path}")));
                }
                other => other?,
            };
        let annotations = [&pool.metadata, &machine_config.metadata];
        let annotations = annotations.map(|meta| meta.annotations.as_ref());
        let paths = AnnotatedPaths::from_annotations(annotations);
        let sealing = self.enrolment.as_ref().map(|it| it.sealing(name.to_owned(), paths));
        let inputs = ResponseInputs {
            machine_config: Arc::new(machine_config),
            controller_config: Some(Arc::new(controller_config)),
            kubeconfig: Arc::new(self.read_kubeconfig(&mut files)?),
            image: None,
            certificates: Arc::new(self.read_certificates(&mut files)?),
            mode: ServeMode::Bootstrap,
            sealing: sealing.map(Arc::new),
            first_boot: self.binary.as_ref().map(|binary| binary.first_boot(name)),
        };
        Ok(CachedPool { files, responses: Arc::new(PoolResponses::new(inputs)) })
    }

    fn read_kubeconfig(
        &self,
        files: &mut Vec<(PathBuf, FileStamp)>,
    ) -> Result<Vec<u8>, ServeError> {
        let shown = self.kubeconfig.display();
        let bad = |why: String| ServeError::Kubeconfig(format!("{shown}: {why}"));
        let bytes = read(&self.kubeconfig, files).map_err(|error| bad(error.to_string()))?;
        let text = String::from_utf8(bytes.clone()).map_err(|_| bad("not text".to_owned()))?;
        let parsed = manifests::parse(&ManifestText { file: self.kubeconfig.clone(), text });
        let parsed = parsed.map_err(|error| bad(format!("{error:#}")))?;
        let first = parsed.into_iter().next().map(|document| document.value).unwrap_or_default();
        match kubeconfig::kubeconfig_problem(&first) {
            Some(problem) => Err(bad(problem.to_owned())),
            None => Ok(bytes),
        }
    }

    fn read_certificates(
        &self,
        files: &mut Vec<(PathBuf, FileStamp)>,
    ) -> Result<Vec<(String, Vec<u8>)>, ServeError> {
        let read = |element: &String| {
            let parts: Vec<&str> = element.split('=').collect();
            let [name, file] = parts[..] else {
                let why = format!("could not use cert, missing key or value {element}");
                return Err(ServeError::Certificate(why));
            };
            let path = self.base.join(file);
            let bytes = read(&path, files).map_err(|error| {
                ServeError::Certificate(format!(
                    "could not read cert file {}: {error}",
                    path.display()
                ))
            })?;
            Ok((name.to_owned(), bytes))
        };
        self.certificates.iter().map(read).collect()
    }
}

/// Whether a name is a valid object name. It becomes a file name, so it must not leave the directory.
fn is_valid_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
    (1..=253).contains(&name.len()) && name.bytes().all(plain) && !name.starts_with('.')
}

fn read_object<K: DeserializeOwned>(
    path: &Path,
    files: &mut Vec<(PathBuf, FileStamp)>,
) -> Result<K, ServeError> {
    let shown = path.display().to_string();
    let bytes = match read(path, files) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(ServeError::FileMissing(shown));
        }
        Err(error) => return Err(ServeError::Unreadable(format!("{shown}: {error}"))),
        Ok(bytes) => bytes,
    };
    let text = String::from_utf8(bytes)
        .map_err(|_| ServeError::Unreadable(format!("{shown}: not text")))?;
    let documents = manifests::parse(&ManifestText { file: path.to_owned(), text });
    let typed = documents.and_then(|documents| match documents.first() {
        Some(document) => document.typed(),
        None => Err(anyhow::anyhow!("{shown}: contains no object")),
    });
    typed.map_err(|error| ServeError::Unreadable(format!("{error:#}")))
}

/// Reads a file. The stamp is taken before, so that the next request sees a change in between.
fn read(path: &Path, files: &mut Vec<(PathBuf, FileStamp)>) -> std::io::Result<Vec<u8>> {
    files.push((path.to_owned(), stamp(&fs::metadata(path)?)));
    fs::read(path)
}

fn stamp(file: &Metadata) -> FileStamp {
    (file.ino(), file.mtime(), file.mtime_nsec(), file.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_leave_the_directory() {
        for (name, expected) in [
            ("worker", true),
            ("rendered-worker-1.2", true),
            ("", false),
            ("..", false),
            (".hidden", false),
            ("a/b", false),
            ("w x", false),
            ("a\0", false),
        ] {
            assert_eq!(is_valid_name(name), expected, "{name:?}");
        }
        assert!(!is_valid_name(&"a".repeat(254)));
    }
}
