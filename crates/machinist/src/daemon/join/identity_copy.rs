//! A copy of the machine's identity beside the last good daemon. Without its identity a machine is lost until somebody
//! comes with a token, so one that was removed or damaged comes back from the copy. The copy is protected as the identity
//! is, and `leave` removes both.
//!
//! Stored by `watchdog` when the daemon has completed a pass; restored by the start of the daemon, by the renewal of the
//! certificate and by `join`.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::credentials;
use super::paths::JoinPaths;
use crate::durable_file;

/// The name of the copy.
pub(super) const NAME: &str = "kubeconfig";

/// Stores the identity if it can be read and differs from the copy.
pub(in super::super) fn store(root: &Path) -> Result<()> {
    let join_paths = JoinPaths::new(root);
    let (path, copy) = (join_paths.kubeconfig(), join_paths.last_good(NAME));
    let Ok(identity) = fs::read(&path) else { return Ok(()) };
    if credentials::read_flattened(&path).is_err() || fs::read(&copy).is_ok_and(|it| it == identity)
    {
        return Ok(());
    }
    let directory = join_paths.last_good("");
    durable_file::create_directory(&directory, 0o700)
        .with_context(|| format!("cannot create {}", directory.display()))?;
    durable_file::write(&copy, &identity, durable_file::PRIVATE)
        .with_context(|| format!("cannot write {}", copy.display()))
}

/// Replaces an identity that is missing or cannot be used. Returns whether there was another one.
pub(crate) fn restore(root: &Path) -> Result<bool> {
    let join_paths = JoinPaths::new(root);
    let (path, copy) = (join_paths.kubeconfig(), join_paths.last_good(NAME));
    let Ok(identity) = fs::read(&copy) else { return Ok(false) };
    if credentials::read_flattened(&copy).is_err() || fs::read(&path).is_ok_and(|it| it == identity)
    {
        return Ok(false);
    }
    durable_file::write(&path, &identity, durable_file::PRIVATE)
        .with_context(|| format!("cannot write {}", path.display()))?;
    tracing::warn!(path = %path.display(), "restored the identity of this machine from its copy");
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_damaged_identity_comes_back_and_is_never_stored() {
        let root = tempfile::tempdir().unwrap();
        let join_paths = JoinPaths::new(root.path());
        let (path, copy) = (join_paths.kubeconfig(), join_paths.last_good(NAME));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        store(root.path()).unwrap();
        assert!(!restore(root.path()).unwrap() && !copy.exists());
        let identity = |server: &str| {
            json!({
                "apiVersion": "v1", "kind": "Config", "current-context": "c",
                "clusters": [{"name": "c", "cluster": {"server": server}}],
                "users": [{"name": "u", "user": {}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            })
            .to_string()
        };
        for server in ["https://one", "https://two"] {
            fs::write(&path, identity(server)).unwrap();
            store(root.path()).unwrap();
            assert!(!restore(root.path()).unwrap());
            for damage in [Some(""), Some("{"), Some("\0\0"), None] {
                match damage {
                    Some(text) => fs::write(&path, text).unwrap(),
                    None => fs::remove_file(&path).unwrap(),
                }
                store(root.path()).unwrap();
                assert!(restore(root.path()).unwrap(), "{damage:?}");
                assert_eq!(fs::read_to_string(&path).unwrap(), identity(server));
            }
        }
        fs::write(&copy, "{").unwrap();
        fs::write(&path, "").unwrap();
        assert!(!restore(root.path()).unwrap());
    }
}
