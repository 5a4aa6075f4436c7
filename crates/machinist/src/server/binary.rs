//! The program itself, for machines that complete their first boot with it.

use std::fmt;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use http::Response;
use http::header::{self, HeaderValue};
use http_body_util::Full;
use machinist_core::hex::hex;
use machinist_core::serve::first_boot::FirstBootConfig;
use sha2::{Digest as _, Sha512};

/// The program, as it runs here.
#[derive(Clone)]
pub struct ServedBinary {
    bytes: Bytes,
    sha512: String,
    url: String,
    joins: bool,
}

impl fmt::Debug for ServedBinary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program").field("url", &self.url).finish_non_exhaustive()
    }
}

impl ServedBinary {
    /// The program of this process; machines of any other architecture have to bring their own.
    ///
    /// # Errors
    /// It cannot be read, or the URL is none.
    pub fn current(url: &str, joins: bool) -> Result<Self> {
        let is_url = ["https://", "http://"].iter().any(|scheme| url.starts_with(scheme));
        ensure!(is_url, "first boot: {url:?} is no URL: name the server as machines reach it");
        // The file that runs, also when another has taken its place meanwhile.
        let bytes = std::fs::read("/proc/self/exe").context("first boot: cannot read machinist")?;
        let sha512 = hex(&Sha512::digest(&bytes));
        let url = url.trim_end_matches('/').to_owned();
        Ok(Self { bytes: bytes.into(), sha512, url, joins })
    }

    /// What a machine of a pool is told about it.
    pub(super) fn first_boot(&self, pool: &str) -> FirstBootConfig {
        let joins = self.joins.then(|| pool.to_owned());
        FirstBootConfig { url: self.url.clone(), sha512: self.sha512.clone(), join_pool: joins }
    }

    /// The page.
    pub(super) fn response(&self) -> Response<Full<Bytes>> {
        let mut answer = Response::new(Full::new(self.bytes.clone()));
        let kind = HeaderValue::from_static("application/octet-stream");
        answer.headers_mut().insert(header::CONTENT_TYPE, kind);
        answer
    }
}
