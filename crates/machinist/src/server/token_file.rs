//! Provisioning tokens in a file: the same Secrets as in an API server. A file next to it counts their uses.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Secret;
use machinist_core::serve::ServeError;
use machinist_core::serve::provisioning_token::ProvisioningToken;
use parking_lot::Mutex;

use super::tokens::token_used_up;
use crate::durable_file;
use crate::manifests;

/// The name of the file in the served directory.
pub const TOKEN_FILE_NAME: &str = "provisioning-tokens.yaml";

/// Identifies a version of a file: inode, modification time, size.
type TokenFileStamp = (u64, i64, i64, u64);

/// A file with tokens, which is read again when it changes. A clone shares the cache.
#[derive(Debug, Clone)]
pub struct TokenFile {
    path: PathBuf,
    cache: Arc<Mutex<CachedTokens>>,
}

#[derive(Debug, Default)]
struct CachedTokens {
    stamp: Option<TokenFileStamp>,
    tokens: Vec<ProvisioningToken>,
    uses: BTreeMap<String, u32>,
}

impl TokenFile {
    /// Uses a file, which need not exist yet.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self { path, cache: Arc::default() }
    }

    /// The Secrets in the file; none if it does not exist.
    ///
    /// # Errors
    /// The file cannot be read, or contains other objects.
    pub fn secrets(&self) -> Result<Vec<Secret>> {
        if !self.path.exists() {
            return Ok(Vec::new());
        }
        let documents = manifests::read(std::slice::from_ref(&self.path))?;
        documents.iter().map(manifests::ManifestDocument::typed).collect()
    }

    /// The tokens in the file, with their uses.
    ///
    /// # Errors
    /// The file cannot be read, or contains other objects.
    pub fn tokens(&self) -> Result<Vec<ProvisioningToken>> {
        let uses = self.uses()?;
        let secrets = self.secrets()?;
        let tokens = secrets.iter().filter_map(|secret| {
            let mut token = ProvisioningToken::from_secret(
                secret.metadata.name.as_deref()?,
                secret.data.as_ref()?,
            )?;
            token.uses = uses.get(&token.id).copied().unwrap_or(token.uses).max(token.uses);
            Some(token)
        });
        Ok(tokens.collect())
    }

    /// Replaces the contents of the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, secrets: &[Secret]) -> Result<()> {
        let mut text = String::new();
        for secret in secrets {
            text += &format!("---\n{}\n", serde_json::to_string(secret)?);
        }
        write_private(&self.path, &text)
    }

    pub(super) fn find(&self, id: &str) -> Option<ProvisioningToken> {
        let mut known = self.cache.lock();
        self.reload_if_changed(&mut known);
        let mut token = known.tokens.iter().find(|token| token.id == id)?.clone();
        token.uses = token.uses.max(known.uses.get(id).copied().unwrap_or_default());
        Some(token)
    }

    /// Reads the file again if it has changed. Without a readable file, no token is valid.
    fn reload_if_changed(&self, known: &mut CachedTokens) {
        let stamp = fs::metadata(&self.path).ok();
        let stamp = stamp.map(|it| (it.ino(), it.mtime(), it.mtime_nsec(), it.len()));
        if stamp.is_some() && stamp == known.stamp {
            return;
        }
        known.stamp = stamp;
        known.tokens = match self.tokens() {
            Ok(tokens) => tokens,
            Err(error) => {
                let (file, error) = (self.path.display(), format!("{error:#}"));
                tracing::warn!(%file, error, "cannot read the provisioning tokens");
                Vec::new()
            }
        };
    }

    pub(super) async fn count_use(&self, id: &str) -> Result<(), ServeError> {
        let (file, id) = (self.clone(), id.to_owned());
        let counted = tokio::task::spawn_blocking(move || file.count_use_blocking(&id)).await;
        counted.map_err(|error| ServeError::TokenUseNotRecorded(error.to_string()))?
    }

    fn count_use_blocking(&self, id: &str) -> Result<(), ServeError> {
        let mut known = self.cache.lock();
        let failed = |error: anyhow::Error| ServeError::TokenUseNotRecorded(format!("{error:#}"));
        let mut uses = self.uses().map_err(failed)?;
        let token = known.tokens.iter().find(|token| token.id == id).ok_or_else(token_used_up)?;
        let count = uses.entry(id.to_owned()).or_default();
        *count = token.uses.max(*count);
        if token.max_uses.is_some_and(|max| *count >= max) {
            return Err(token_used_up());
        }
        *count += 1;
        let text = serde_json::to_string(&uses).map_err(|error| failed(error.into()))?;
        write_private(&self.uses_path(), &text).map_err(failed)?;
        known.uses = uses;
        Ok(())
    }

    fn uses_path(&self) -> PathBuf {
        self.path.with_extension("uses.json")
    }

    /// The uses per token. A damaged file is an error, so that tokens with limited uses are rejected.
    fn uses(&self) -> Result<BTreeMap<String, u32>> {
        let path = self.uses_path();
        match fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(BTreeMap::new()),
            bytes => {
                let bytes = bytes.with_context(|| format!("cannot read {}", path.display()))?;
                serde_json::from_slice(&bytes).with_context(|| {
                    format!(
                        "{} is not a valid count of token uses: correct or delete it",
                        path.display()
                    )
                })
            }
        }
    }
}

/// Writes a file that only its owner may read.
fn write_private(path: &Path, text: &str) -> Result<()> {
    durable_file::write(path, text.as_bytes(), durable_file::PRIVATE)
        .with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinist_core::serve::provisioning_token;

    fn secret(new: &provisioning_token::NewProvisioningToken) -> Secret {
        let name = Some(format!("{}{}", provisioning_token::SECRET_PREFIX, new.token.id));
        let mut secret = Secret { data: Some(new.token.to_secret_data()), ..Secret::default() };
        secret.metadata.name = name;
        secret
    }

    #[test]
    fn uses_are_counted_across_restarts() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(TOKEN_FILE_NAME);
        let mut new = provisioning_token::generate_token([5; 32]);
        new.token.max_uses = Some(2);
        let file = TokenFile::new(path.clone());
        assert!(file.find(&new.token.id).is_none());
        file.write(&[secret(&new)]).unwrap();
        for uses in 0..2 {
            // Another process each time.
            let file = TokenFile::new(path.clone());
            assert_eq!(file.find(&new.token.id).unwrap().uses, uses);
            file.count_use_blocking(&new.token.id).unwrap();
        }
        let file = TokenFile::new(path);
        assert!(file.find(&new.token.id).unwrap().is_exhausted());
        assert_eq!(file.count_use_blocking(&new.token.id).unwrap_err().status(), 401);
        fs::write(file.uses_path(), "junk").unwrap();
        assert_eq!(file.count_use_blocking(&new.token.id).unwrap_err().status(), 503);
        file.write(&[]).unwrap();
        assert!(file.find(&new.token.id).is_none());
    }
}
