//! Reads the endpoint of the machine config server from files: the CA and the token may be replaced at any time.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use machinist_core::user_data::ServerEndpoint;
use machinist_hub::failure_log::FailureLog;
use tokio::sync::watch;

use crate::kubernetes::reflectors::publish;

/// How often the files are read again.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// The files of an endpoint.
#[derive(Debug, Clone)]
pub struct EndpointFiles {
    /// The URL of the server.
    pub url: String,
    /// The CA bundle to trust.
    pub ca: Option<PathBuf>,
    /// The provisioning token.
    pub token: Option<PathBuf>,
}

impl EndpointFiles {
    /// Reads the files.
    ///
    /// # Errors
    /// The URL is invalid, or a file cannot be read.
    pub fn read(&self) -> Result<ServerEndpoint> {
        let is_url = ["https://", "http://"].iter().any(|scheme| self.url.starts_with(scheme));
        ensure!(
            is_url && !self.url.contains(char::is_whitespace),
            "{:?} is not the address of a machine config server; write https://HOST:22623",
            self.url
        );
        let authority = self.ca.as_deref().map(read_text).transpose()?;
        let token = self.token.as_deref().map(read_text).transpose()?;
        let token = token.map(|token| token.trim().to_owned());
        Ok(ServerEndpoint {
            url: self.url.trim_end_matches('/').to_owned(),
            ca_bundle: authority,
            token,
        })
    }

    /// Reads the files again and again, for as long as the receiver lives.
    ///
    /// # Errors
    /// The files cannot be read now.
    pub fn watch(self, failures: FailureLog) -> Result<watch::Receiver<ServerEndpoint>> {
        const TASK: &str = "read the files of the machine config server";
        let (sender, receiver) = watch::channel(self.read()?);
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = tokio::time::sleep(POLL_INTERVAL) => {}
                    () = sender.closed() => return,
                }
                match self.read() {
                    Ok(endpoint) => {
                        failures.succeeded(TASK, &self.url);
                        publish(&sender, endpoint);
                    }
                    // A file that is just being replaced is read the next time.
                    Err(error) => drop(failures.failed(TASK, &self.url, &format!("{error:#}"))),
                }
            }
        });
        Ok(receiver)
    }
}

fn read_text(path: &Path) -> Result<String> {
    let text = std::fs::read_to_string(path);
    let text = text.with_context(|| format!("cannot read {}", path.display()))?;
    ensure!(!text.trim().is_empty(), "{} is empty", path.display());
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_url_or_the_file() {
        let missing = Some(PathBuf::from("/does/not/exist"));
        let files = |url: &str, authority: Option<PathBuf>| {
            let url = url.to_owned();
            format!("{:#}", EndpointFiles { url, ca: authority, token: None }.read().unwrap_err())
        };
        assert!(files("host:22623", None).contains("host:22623"));
        assert!(files("https://host:22623", missing).contains("/does/not/exist"));
    }
}
