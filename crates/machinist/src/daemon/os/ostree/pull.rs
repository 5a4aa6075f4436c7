//! Downloads the parts of an image with `skopeo`, which handles registries, mirrors, pull secrets and
//! signature policies. The downloaded parts are checked here again.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Error, Result, bail};
use machinist_core::hex::hex;
use machinist_core::os::download::{MAX_INTERRUPTIONS, is_interruption};
use machinist_core::os::image_ref::DigestImageRef;
use machinist_core::os::manifest::{ImageBlob, ImageLayers, ImageManifest, image_architecture};
use machinist_core::os::pull_secret;
use sha2::{Digest as _, Sha256};

use super::host::OstreeHost;

/// Where an image is kept during the import.
#[derive(Debug)]
pub(super) struct ImageStore<'a> {
    pub(super) host: &'a OstreeHost,
    /// The directory, by its path on the host.
    pub(super) dir: String,
}

/// The parts of an image, with the digest it was requested by.
pub(super) fn manifest(host: &OstreeHost, image: &DigestImageRef) -> Result<ImageLayers> {
    let ours = image_architecture(std::env::consts::ARCH);
    match ImageManifest::parse(&raw_manifest(host, image)?, ours)? {
        ImageManifest::Image(layers) => Ok(layers),
        ImageManifest::PlatformManifest(sha256) => {
            let image = image.with_digest(&sha256);
            match ImageManifest::parse(&raw_manifest(host, &image)?, ours)? {
                ImageManifest::Image(layers) => Ok(layers),
                ImageManifest::PlatformManifest(_) => {
                    bail!("{image}: a list of images within a list")
                }
            }
        }
    }
}

fn raw_manifest(host: &OstreeHost, image: &DigestImageRef) -> Result<Vec<u8>> {
    let name = format!("docker://{image}");
    let mut words = vec!["skopeo", "inspect", "--raw", "--retry-times=3"];
    let secret = auth_option(host);
    words.extend(secret.as_deref());
    words.push(&name);
    let bytes = host.run_bytes(&words).map_err(|error| with_remedy(host, image, error))?;
    let found = hex(&Sha256::digest(&bytes));
    if found != image.sha256 {
        bail!("{image}: its manifest has the digest sha256:{found}: it was changed on the way");
    }
    Ok(bytes)
}

/// The option that names the pull secret.
fn auth_option(host: &OstreeHost) -> Option<String> {
    host.credentials().map(|path| format!("--authfile={path}"))
}

/// Adds a remedy to the error of a failed command.
fn with_remedy(host: &OstreeHost, image: &DigestImageRef, error: Error) -> Error {
    let file = host.credentials();
    let secret = file.map(|file| (file, fs::read(host.path(file)).unwrap_or_default()));
    let secret = secret.as_ref().map(|(file, bytes)| (*file, bytes.as_slice()));
    match pull_secret::auth_failure(&error.to_string(), image, secret) {
        Some(remedy) => error.context(remedy),
        None => error,
    }
}

impl ImageStore<'_> {
    fn layout(&self) -> PathBuf {
        self.host.path(&self.dir).join("oci")
    }

    /// The file of a part.
    pub(super) fn blob_path(&self, sha256: &str) -> PathBuf {
        self.layout().join("blobs/sha256").join(sha256)
    }

    /// Whether a part is complete and correct.
    pub(super) fn has_blob(&self, blob: &ImageBlob) -> bool {
        let path = self.blob_path(&blob.sha256);
        let size = fs::metadata(&path).map(|meta| meta.len());
        size.is_ok_and(|size| size == blob.size) && is_intact(&path, &blob.sha256)
    }

    /// Removes leftovers of an interrupted run and damaged parts, so that they are downloaded again. Complete
    /// parts stay.
    pub(super) fn remove_invalid(&self, layers: &ImageLayers) -> Result<()> {
        for blob in &layers.layers {
            if !self.has_blob(blob) {
                remove(&self.blob_path(&blob.sha256))?;
            }
        }
        let Ok(entries) = fs::read_dir(self.layout()) else { return Ok(()) };
        for entry in entries {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with("oci-put-blob") || name == "index.json" {
                remove(&path)?;
            }
        }
        Ok(())
    }

    /// Downloads what is missing. A broken connection is retried, and complete parts stay.
    pub(super) fn download(&self, image: &DigestImageRef, layers: &ImageLayers) -> Result<()> {
        let (from, to) = (format!("docker://{image}"), format!("oci:{}/oci:image", self.dir));
        let mut words = vec!["skopeo", "copy", "--retry-times=3"];
        // The signatures have been checked by then; a directory cannot keep them.
        words.push("--remove-signatures");
        // Another compression would have another digest.
        words.push("--dest-oci-accept-uncompressed-layers");
        let secret = auth_option(self.host);
        words.extend(secret.as_deref());
        words.extend([from.as_str(), &to]);
        let mut interruptions = 0;
        loop {
            match self.host.run_logged(&words) {
                Err(error)
                    if is_interruption(&error.to_string()) && interruptions < MAX_INTERRUPTIONS =>
                {
                    interruptions += 1;
                    let error = format_args!("{error:#}");
                    tracing::warn!(%error, %image, "the connection broke: retrying");
                    self.remove_invalid(layers)?;
                }
                Err(error) => return Err(with_remedy(self.host, image, error)),
                Ok(()) => return Ok(()),
            }
        }
    }

    /// Checks that the parts match the manifest. Returns the config of the image.
    pub(super) fn verify(&self, image: &DigestImageRef, layers: &ImageLayers) -> Result<Vec<u8>> {
        for blob in &layers.layers {
            if !self.has_blob(blob) {
                remove(&self.blob_path(&blob.sha256))?;
                bail!("{image}: the layer sha256:{} is not what it should be", blob.sha256);
            }
        }
        let found = self.stored_manifest()?;
        if !found.digests().eq(layers.digests()) {
            bail!("{image}: other layers have come than its manifest names");
        }
        let config =
            fs::read(self.blob_path(&found.config.sha256)).context("its config is missing")?;
        if hex(&Sha256::digest(&config)) != found.config.sha256 {
            bail!("{image}: its config is not what it should be");
        }
        Ok(config)
    }

    /// The manifest in the directory. It may differ from the registry's: older formats are converted.
    fn stored_manifest(&self) -> Result<ImageLayers> {
        let index = self.layout().join("index.json");
        let index = fs::read(&index).with_context(|| format!("cannot read {}", index.display()))?;
        let index: serde_json::Value = serde_json::from_slice(&index)?;
        let digest = index["manifests"][0]["digest"].as_str().unwrap_or_default();
        let sha256 = digest.strip_prefix("sha256:").unwrap_or_default();
        if sha256.len() != 64 || sha256.contains('/') {
            bail!("what skopeo has written names no manifest");
        }
        let bytes = fs::read(self.blob_path(sha256)).context("the manifest is missing")?;
        match ImageManifest::parse(&bytes, image_architecture(std::env::consts::ARCH))? {
            ImageManifest::Image(layers) => Ok(layers),
            ImageManifest::PlatformManifest(_) => {
                bail!("what skopeo has written is a list of images")
            }
        }
    }
}

fn is_intact(path: &Path, sha256: &str) -> bool {
    let sum = || -> io::Result<String> {
        let mut sum = Sha256::new();
        let mut file = File::open(path)?;
        let mut buffer = vec![0; 1 << 18];
        loop {
            match io::Read::read(&mut file, &mut buffer)? {
                0 => return Ok(hex(&sum.finalize())),
                count => sum.update(&buffer[..count]),
            }
        }
    };
    sum().is_ok_and(|found| found == sha256)
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinist_core::api::names::path::{INTERNAL_REGISTRY_PULL_SECRET, PULL_SECRET};
    use machinist_core::os::manifest::LayerCompression;

    #[test]
    fn damaged_parts_are_removed_and_complete_ones_stay() {
        let root = tempfile::tempdir().unwrap();
        let host = OstreeHost::new(root.path());
        let place = ImageStore { host: &host, dir: "/images/x".to_owned() };
        fs::create_dir_all(root.path().join("images/x/oci/blobs/sha256")).unwrap();
        let blob = |bytes: &[u8]| {
            let sha256 = hex(&Sha256::digest(bytes));
            ImageBlob { sha256, size: bytes.len() as u64, compression: LayerCompression::None }
        };
        let (good, short, changed) = (blob(b"good"), blob(b"short"), blob(b"same size"));
        for (blob, bytes) in [(&good, "good"), (&short, "sho"), (&changed, "SAME SIZE")] {
            fs::write(place.blob_path(&blob.sha256), bytes).unwrap();
        }
        fs::write(root.path().join("images/x/oci/oci-put-blob123"), "half").unwrap();
        let all = vec![good.clone(), short.clone(), changed.clone(), blob(b"missing")];
        place.remove_invalid(&ImageLayers { config: ImageBlob::default(), layers: all }).unwrap();
        assert!(place.has_blob(&good) && place.blob_path(&good.sha256).exists());
        assert!(
            !place.blob_path(&short.sha256).exists() && !place.blob_path(&changed.sha256).exists()
        );
        assert!(!root.path().join("images/x/oci/oci-put-blob123").exists());
    }

    #[test]
    fn the_first_readable_pull_secret_is_used() {
        let root = tempfile::tempdir().unwrap();
        let host = OstreeHost::new(root.path());
        assert_eq!(auth_option(&host), None);
        let paths = [INTERNAL_REGISTRY_PULL_SECRET, PULL_SECRET];
        for path in paths {
            fs::create_dir_all(host.path(path).parent().unwrap()).unwrap();
        }
        fs::write(host.path(paths[0]), "not JSON").unwrap();
        fs::write(host.path(paths[1]), r#"{"auths":{}}"#).unwrap();
        assert_eq!(auth_option(&host).unwrap(), "--authfile=/var/lib/kubelet/config.json");
        fs::write(host.path(paths[0]), r#"{"auths":{}}"#).unwrap();
        let first = "--authfile=/etc/mco/internal-registry-pull-secret.json";
        assert_eq!(auth_option(&host).unwrap(), first);
    }
}
