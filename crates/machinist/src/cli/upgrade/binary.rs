//! The binary of an upgrade: the hub's own, or a file, which is uploaded unless the hub has it.

use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use kube::client::Body;
use machinist_core::hex::hex;
use machinist_core::node::{MAX_DAEMON_BYTES, UpgradeRequest};
use machinist_core::os::manifest::image_architecture;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use crate::cli::cluster::session::ClusterSession;
use crate::kubernetes::request::status_code;

/// The endpoint of the hub.
const BINARIES: &str = "/machinist/v1/binaries";
/// How much is hashed at once.
const CHUNK: usize = 1 << 16;

/// What the hub has.
#[derive(Debug, Deserialize)]
struct HubBinaries {
    own: OwnBinary,
    uploaded: Vec<UploadedBinary>,
}

#[derive(Debug, Deserialize)]
struct OwnBinary {
    sha256: String,
    size: u64,
    architecture: String,
}

#[derive(Debug, Deserialize)]
struct UploadedBinary {
    sha256: String,
}

/// Finds the binary, makes sure that the hub has it, and makes the request.
pub(super) async fn request(
    session: &ClusterSession,
    file: Option<&Path>,
    allow_downgrade: bool,
) -> Result<UpgradeRequest> {
    let list = session.client.get(BINARIES).await.map_err(|error| match status_code(&error) {
        Some(404) => error.context(
            "this API server is no hub of this version, so machines cannot fetch binaries from it: upgrade the hub first; on Kubernetes, upgrade the operator, whose image the daemons have",
        ),
        Some(403) => error.context("only an administrator of the hub can upgrade daemons"),
        _ => error,
    })?;
    let hub: HubBinaries = serde_json::from_value(list).context("the list of binaries")?;
    let id = hex(&machinist_hub::random::bytes::<8>()?);
    let Some(path) = file else {
        return Ok(UpgradeRequest {
            id,
            sha256: hub.own.sha256,
            size: hub.own.size,
            architecture: Some(image_architecture(&hub.own.architecture).to_owned()),
            allow_downgrade,
        });
    };
    let read = path.to_owned();
    let found = tokio::task::spawn_blocking(move || read_file(&read)).await?;
    let (sha256, size, architecture) =
        found.with_context(|| format!("--binary {}", path.display()))?;
    let is_there = hub.own.sha256 == sha256 || hub.uploaded.iter().any(|one| one.sha256 == sha256);
    if !is_there {
        upload(session, path, &sha256, size)
            .await
            .with_context(|| format!("cannot upload {}", path.display()))?;
    }
    Ok(UpgradeRequest { id, sha256, size, architecture, allow_downgrade })
}

/// Sends a binary as a whole: the client has no streams, and the size is limited.
async fn upload(session: &ClusterSession, path: &Path, sha256: &str, size: u64) -> Result<()> {
    let bytes = tokio::fs::read(path).await?;
    session.client.upload(&format!("{BINARIES}/{sha256}?size={size}"), Body::from(bytes)).await?;
    Ok(())
}

/// The digest, the size and the architecture of a file.
fn read_file(path: &Path) -> Result<(String, u64, Option<String>)> {
    let mut file = std::fs::File::open(path)?;
    let metadata = file.metadata()?;
    ensure!(metadata.is_file(), "it is no file");
    let (mut hash, mut size, mut chunk) = (Sha256::new(), 0_u64, vec![0; CHUNK]);
    let mut architecture = None;
    loop {
        let read = file.read(&mut chunk)?;
        if read == 0 {
            break;
        }
        if size == 0 {
            architecture = elf_architecture(&chunk[..read]).map(str::to_owned);
        }
        size += read as u64;
        if size > MAX_DAEMON_BYTES {
            bail!("it has more than {} MiB", MAX_DAEMON_BYTES >> 20);
        }
        hash.update(&chunk[..read]);
    }
    ensure!(size > 0, "it is empty");
    Ok((hex(&hash.finalize()), size, architecture))
}

/// The architecture in the header of an ELF binary, as Nodes name it. Whether the file is machinist is checked on each
/// machine, which runs it.
fn elf_architecture(start: &[u8]) -> Option<&'static str> {
    let is_little_endian_elf = start.starts_with(b"\x7fELF") && start.get(5) == Some(&1);
    match (is_little_endian_elf, start.get(18..20)?) {
        (true, [0x3e, 0]) => Some("amd64"),
        (true, [0xb7, 0]) => Some("arm64"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_binary_says_its_architecture() {
        let own = std::env::current_exe().unwrap();
        let (sha256, size, architecture) = read_file(&own).unwrap();
        assert_eq!(architecture.as_deref(), Some(image_architecture(std::env::consts::ARCH)));
        assert_eq!((sha256.len(), size), (64, own.metadata().unwrap().len()));
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("script");
        std::fs::write(&script, "#!/bin/sh\n").unwrap();
        assert_eq!(read_file(&script).unwrap().2, None);
        std::fs::write(&script, "").unwrap();
        assert!(read_file(&script).unwrap_err().to_string().contains("empty"));
        assert!(read_file(directory.path()).unwrap_err().to_string().contains("no file"));
    }
}
