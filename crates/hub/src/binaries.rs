//! The binaries that machines fetch to upgrade their daemons: the one that runs here, and files that administrators have
//! uploaded, named by their SHA-256 digest.
//!
//! A file has its name only when it is complete, synced and has this digest. Who may do what is decided in the router.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use sha2::{Digest as _, Sha256};
use tokio::fs::{self, File};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{Mutex, OnceCell};
use tokio::time::timeout;

use crate::hex::encode;

/// The largest binary.
pub(crate) const MAX_BINARY_BYTES: u64 = 512 << 20;
/// How many uploaded binaries are kept. The oldest one goes first.
const MAX_STORED: usize = 4;
/// The space on the disk that an upload leaves free for the store.
const RESERVED_BYTES: u64 = 256 << 20;
/// How long the next part of an upload may take.
const PART_TIMEOUT: Duration = Duration::from_secs(60);
/// How much is hashed at once.
const CHUNK: usize = 1 << 16;
/// The binary of this process.
const OWN: &str = "/proc/self/exe";

/// A binary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredBinary {
    pub(crate) sha256: String,
    pub(crate) size: u64,
}

/// Why an upload is refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UploadError {
    #[error("this hub has no directory for binaries")]
    NoDirectory,
    #[error("another upload runs: wait for its end")]
    Busy,
    #[error("a binary has 1 to {MAX_BINARY_BYTES} bytes, and this one {0}")]
    Size(u64),
    #[error("the disk of the hub is too full for {0} more bytes: free some space in {1}")]
    DiskFull(u64, PathBuf),
    #[error("the upload ended after {received} of {size} bytes")]
    Truncated {
        /// What arrived.
        received: u64,
        /// What was announced.
        size: u64,
    },
    #[error("the upload has more than the {0} bytes that were announced")]
    TooLong(u64),
    #[error("the upload has the SHA-256 digest {0}, and not the one in its path")]
    Digest(String),
    #[error("the upload broke off: {0}")]
    Broken(String),
    #[error("cannot store the binary: {0}")]
    Disk(#[from] io::Error),
}

/// The binaries of a hub.
#[derive(Debug, Default)]
pub(crate) struct BinaryStore {
    directory: Option<PathBuf>,
    own: OnceCell<StoredBinary>,
    uploading: Mutex<()>,
}

/// Whether a text is a digest as file names have it.
pub(crate) fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

impl BinaryStore {
    /// The store in a directory, which is created with the first upload.
    pub(crate) fn new(directory: Option<PathBuf>) -> Self {
        Self { directory, ..Self::default() }
    }

    /// The binary of this process.
    pub(crate) async fn own(&self) -> io::Result<&StoredBinary> {
        self.own
            .get_or_try_init(|| async {
                let (mut file, mut hash, mut size) = (File::open(OWN).await?, Sha256::new(), 0);
                let mut chunk = vec![0; CHUNK];
                loop {
                    match file.read(&mut chunk).await? {
                        0 => return Ok(StoredBinary { sha256: encode(&hash.finalize()), size }),
                        read => {
                            hash.update(&chunk[..read]);
                            size += read as u64;
                        }
                    }
                }
            })
            .await
    }

    /// The uploaded binaries, newest first.
    pub(crate) async fn uploaded(&self) -> io::Result<Vec<StoredBinary>> {
        let Some(directory) = &self.directory else { return Ok(Vec::new()) };
        let mut entries = match fs::read_dir(directory).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut found = Vec::new();
        while let Some(entry) = entries.next_entry().await? {
            let name = entry.file_name().to_string_lossy().into_owned();
            let metadata = entry.metadata().await?;
            if is_digest(&name) && metadata.is_file() {
                found.push((
                    metadata.modified()?,
                    StoredBinary { sha256: name, size: metadata.len() },
                ));
            }
        }
        found.sort_by_key(|(modified, _)| std::cmp::Reverse(*modified));
        Ok(found.into_iter().map(|(_, binary)| binary).collect())
    }

    /// Opens a binary; none if there is none with this digest. Returns it with its size.
    pub(crate) async fn open(&self, sha256: &str) -> io::Result<Option<(File, u64)>> {
        if !is_digest(sha256) {
            return Ok(None);
        }
        let path = match &self.directory {
            Some(directory) if fs::try_exists(directory.join(sha256)).await? => {
                directory.join(sha256)
            }
            _ if self.own().await?.sha256 == sha256 => PathBuf::from(OWN),
            _ => return Ok(None),
        };
        let file = File::open(path).await?;
        let size = file.metadata().await?.len();
        Ok(Some((file, size)))
    }

    /// Stores a binary. Its digest is checked while it arrives.
    pub(crate) async fn receive(
        &self,
        sha256: &str,
        size: u64,
        body: Body,
    ) -> Result<(), UploadError> {
        let directory = self.directory.as_deref().ok_or(UploadError::NoDirectory)?;
        if size == 0 || size > MAX_BINARY_BYTES {
            return Err(UploadError::Size(size));
        }
        let _only = self.uploading.try_lock().map_err(|_| UploadError::Busy)?;
        create_private(directory).await?;
        let space = rustix::fs::statvfs(directory).map_err(io::Error::from)?;
        if space.f_bavail.saturating_mul(space.f_frsize) < size + RESERVED_BYTES {
            return Err(UploadError::DiskFull(size, directory.to_owned()));
        }
        let part = directory.join("upload.part");
        let received = receive_to(&part, sha256, size, body).await;
        if received.is_err() {
            // The first error is the one to report. What a crash leaves is replaced by the next upload.
            let _ = fs::remove_file(&part).await;
        }
        received?;
        fs::rename(&part, directory.join(sha256)).await?;
        File::open(directory).await?.sync_all().await?;
        for old in self.uploaded().await?.iter().skip(MAX_STORED) {
            fs::remove_file(directory.join(&old.sha256)).await?;
        }
        Ok(())
    }
}

async fn create_private(directory: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.mode(0o700).recursive(true).create(directory).await
}

async fn receive_to(
    part: &Path,
    sha256: &str,
    size: u64,
    mut body: Body,
) -> Result<(), UploadError> {
    let mut file = File::create(part).await?;
    let (mut hash, mut received) = (Sha256::new(), 0);
    loop {
        let frame = timeout(PART_TIMEOUT, body.frame()).await;
        let Some(frame) = frame.map_err(|_| UploadError::Truncated { received, size })? else {
            break;
        };
        let frame = frame.map_err(|error| UploadError::Broken(error.to_string()))?;
        let data: Bytes = frame.into_data().unwrap_or_default();
        received += data.len() as u64;
        if received > size {
            return Err(UploadError::TooLong(size));
        }
        hash.update(&data);
        file.write_all(&data).await?;
    }
    if received < size {
        return Err(UploadError::Truncated { received, size });
    }
    let found = encode(&hash.finalize());
    if found != sha256 {
        return Err(UploadError::Digest(found));
    }
    file.flush().await?;
    Ok(file.sync_all().await?)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests may panic")]
mod tests {
    use super::*;

    fn digest(bytes: &[u8]) -> String {
        encode(&Sha256::digest(bytes))
    }

    async fn names(directory: &Path) -> usize {
        std::fs::read_dir(directory).map_or(0, Iterator::count)
    }

    #[tokio::test]
    async fn only_complete_binaries_with_their_digest_are_stored() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("binaries");
        let store = BinaryStore::new(Some(path.clone()));
        let good = digest(b"good");
        let cases = [
            (digest(b"other"), 4, "digest"),
            (good.clone(), 5, "ended after 4 of 5"),
            (good.clone(), 3, "more than the 3"),
            (good.clone(), 0, "1 to"),
            (good.clone(), MAX_BINARY_BYTES + 1, "1 to"),
        ];
        for (sha256, size, part) in cases {
            let error = store.receive(&sha256, size, Body::from("good")).await.unwrap_err();
            assert!(error.to_string().contains(part), "{part}: {error}");
            assert_eq!((names(&path).await, store.uploaded().await.unwrap().len()), (0, 0));
        }
        store.receive(&good, 4, Body::from("good")).await.unwrap();
        let (mut file, size) = store.open(&good).await.unwrap().unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).await.unwrap();
        assert_eq!((text.as_str(), size), ("good", 4));
        for unknown in [digest(b"x").as_str(), "", "..", "../store"] {
            assert!(store.open(unknown).await.unwrap().is_none(), "{unknown}");
        }
        let error = BinaryStore::new(None).receive(&good, 4, Body::from("good")).await;
        assert!(matches!(error, Err(UploadError::NoDirectory)));
    }

    #[tokio::test]
    async fn the_oldest_binaries_go_and_the_own_one_is_always_there() {
        let directory = tempfile::tempdir().unwrap();
        let store = BinaryStore::new(Some(directory.path().to_owned()));
        for number in 0..=MAX_STORED {
            let text = format!("binary {number}");
            let sha256 = digest(text.as_bytes());
            store.receive(&sha256, text.len() as u64, Body::from(text)).await.unwrap();
            // Times of files are coarse.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(store.uploaded().await.unwrap().len(), MAX_STORED);
        assert!(store.open(&digest(b"binary 0")).await.unwrap().is_none());
        let own = store.own().await.unwrap().clone();
        let (_, size) = store.open(&own.sha256).await.unwrap().unwrap();
        assert_eq!(size, own.size);
    }
}
