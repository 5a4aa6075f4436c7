//! The machinist binary, which machines download to complete their first boot.

use std::fmt;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use http::Response;
use http::header::{self, HeaderValue};
use http_body_util::Full;
use machinist_core::hex::hex;
use machinist_core::serve::first_boot::FirstBootConfig;
use sha2::{Digest as _, Sha512};

/// The binary of this process.
#[derive(Clone)]
pub struct ServedBinary {
    bytes: Bytes,
    sha512: String,
    url: String,
    joins: bool,
}

impl fmt::Debug for ServedBinary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServedBinary").field("url", &self.url).finish_non_exhaustive()
    }
}

impl ServedBinary {
    /// Reads the binary of this process. It fits only machines of the same architecture.
    ///
    /// # Errors
    /// The binary cannot be read, or the URL is invalid.
    pub fn current(url: &str, joins: bool) -> Result<Self> {
        let is_url = ["https://", "http://"].iter().any(|scheme| url.starts_with(scheme));
        ensure!(is_url, "first boot: {url:?} is not a URL: name the server as machines reach it");
        // The running file, even if its path has been replaced by an upgrade.
        let bytes = std::fs::read("/proc/self/exe").context("first boot: cannot read machinist")?;
        let sha512 = hex(&Sha512::digest(&bytes));
        let url = url.trim_end_matches('/').to_owned();
        Ok(Self { bytes: bytes.into(), sha512, url, joins })
    }

    /// The instructions for machines of a pool.
    pub(super) fn first_boot(&self, pool: &str) -> FirstBootConfig {
        let joins = self.joins.then(|| pool.to_owned());
        FirstBootConfig { url: self.url.clone(), sha512: self.sha512.clone(), join_pool: joins }
    }

    /// The HTTP response.
    pub(super) fn response(&self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(self.bytes.clone()));
        let kind = HeaderValue::from_static("application/octet-stream");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        response
    }
}
