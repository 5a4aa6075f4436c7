//! Manifests of images: layers, platforms, and how much space an image needs.

use serde::Deserialize;
use thiserror::Error;

/// What a digest refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageManifest {
    /// An image.
    Image(ImageLayers),
    /// The images of several platforms: the digest (64 digits) of the one for this machine.
    PlatformManifest(String),
}

/// The parts of an image.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImageLayers {
    /// The config, which lists the contents of the layers.
    pub config: ImageBlob,
    /// The layers, the lowest first.
    pub layers: Vec<ImageBlob>,
}

/// One part of an image.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImageBlob {
    /// Its digest: 64 hexadecimal digits of a SHA-256.
    pub sha256: String,
    /// Its size in bytes.
    pub size: u64,
    /// The compression of a layer, which is all that matters in its media type.
    pub compression: LayerCompression,
}

/// The compression of a layer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LayerCompression {
    /// None.
    #[default]
    None,
    /// By gzip.
    Gzip,
    /// By zstd.
    Zstd,
}

/// Why a manifest cannot be used.
#[derive(Debug, Error)]
pub enum ManifestError {
    /// Not a manifest.
    #[error("the manifest cannot be read: {0}")]
    Json(#[from] serde_json::Error),
    /// A format that only very old images have.
    #[error("the manifest is of a kind that is not supported: {0}; push the image again as OCI")]
    UnsupportedKind(String),
    /// No image for this platform.
    #[error("the image has no version for linux/{0}, only for {1}")]
    NoMatchingPlatform(String, String),
    /// Not a SHA-256.
    #[error("the manifest names a part by the digest {0}; only sha256 is supported")]
    InvalidDigest(String),
    /// Encrypted, or of an unknown media type.
    #[error("the layer {0} is of the kind {1}, which cannot be unpacked")]
    UnsupportedLayer(String, String),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawManifest {
    schema_version: u32,
    media_type: Option<String>,
    config: Option<RawBlob>,
    #[serde(default)]
    layers: Vec<RawBlob>,
    manifests: Option<Vec<RawBlob>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawBlob {
    #[serde(default)]
    media_type: String,
    digest: String,
    #[serde(default)]
    size: u64,
    platform: Option<RawPlatform>,
}

#[derive(Deserialize)]
struct RawPlatform {
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    os: String,
}

impl ImageManifest {
    /// Reads a manifest for an architecture in Go's notation: `amd64`, `arm64`.
    pub fn parse(bytes: &[u8], architecture: &str) -> Result<Self, ManifestError> {
        let raw: RawManifest = serde_json::from_slice(bytes)?;
        let kind = || raw.media_type.clone().unwrap_or_else(|| "unknown".to_owned());
        if raw.schema_version != 2 {
            return Err(ManifestError::UnsupportedKind(format!("schema {}", raw.schema_version)));
        }
        if let Some(manifests) = &raw.manifests {
            return platform_digest(manifests, architecture).map(Self::PlatformManifest);
        }
        let config = raw.config.as_ref().ok_or_else(|| ManifestError::UnsupportedKind(kind()))?;
        let config = ImageBlob {
            sha256: sha256(&config.digest)?,
            size: config.size,
            compression: LayerCompression::None,
        };
        let layers = raw.layers.iter().map(layer).collect::<Result<_, _>>()?;
        Ok(Self::Image(ImageLayers { config, layers }))
    }
}

impl ImageLayers {
    /// The digests of the layers.
    pub fn digests(&self) -> impl Iterator<Item = &str> {
        self.layers.iter().map(|layer| layer.sha256.as_str())
    }

    /// How many bytes have to be downloaded, without the layers that are already here.
    #[must_use]
    pub fn bytes_to_fetch(&self, is_here: impl Fn(&ImageBlob) -> bool) -> u64 {
        let missing = self.layers.iter().filter(|layer| !is_here(layer));
        missing.fold(0, |sum: u64, layer| sum.saturating_add(layer.size))
    }

    /// How many bytes the unpacked image needs, with some reserve. The exact size is known only after
    /// unpacking; images compress to a half or a third.
    #[must_use]
    pub fn unpacked_bytes(&self) -> u64 {
        self.layers.iter().fold(SPARE_BYTES, |sum, layer| match layer.compression {
            LayerCompression::None => sum.saturating_add(layer.size),
            LayerCompression::Gzip | LayerCompression::Zstd => {
                sum.saturating_add(layer.size.saturating_mul(3))
            }
        })
    }
}

/// Space that has to stay free for everything else that a machine writes.
const SPARE_BYTES: u64 = 64 << 20;

fn platform_digest(manifests: &[RawBlob], architecture: &str) -> Result<String, ManifestError> {
    let is_ours =
        |platform: &RawPlatform| platform.os == "linux" && platform.architecture == architecture;
    match manifests.iter().find(|each| each.platform.as_ref().is_some_and(is_ours)) {
        Some(found) => sha256(&found.digest),
        None => {
            let name =
                |platform: &RawPlatform| format!("{}/{}", platform.os, platform.architecture);
            let names: Vec<_> =
                manifests.iter().filter_map(|each| each.platform.as_ref().map(name)).collect();
            Err(ManifestError::NoMatchingPlatform(architecture.to_owned(), names.join(", ")))
        }
    }
}

fn layer(raw: &RawBlob) -> Result<ImageBlob, ManifestError> {
    let unknown = || ManifestError::UnsupportedLayer(raw.digest.clone(), raw.media_type.clone());
    let packed = match raw.media_type.rsplit_once("tar") {
        Some((_, "")) => LayerCompression::None,
        Some((_, "+gzip" | ".gzip")) => LayerCompression::Gzip,
        Some((_, "+zstd" | ".zstd")) => LayerCompression::Zstd,
        _ => return Err(unknown()),
    };
    Ok(ImageBlob { sha256: sha256(&raw.digest)?, size: raw.size, compression: packed })
}

fn sha256(digest: &str) -> Result<String, ManifestError> {
    let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let sum = digest.strip_prefix("sha256:").filter(|sum| sum.len() == 64 && sum.bytes().all(hex));
    sum.map(ToOwned::to_owned).ok_or_else(|| ManifestError::InvalidDigest(digest.to_owned()))
}

/// The digests of the uncompressed layers from the config of an image, the lowest first.
pub fn diff_ids(config: &[u8]) -> Result<Vec<String>, ManifestError> {
    #[derive(Deserialize)]
    struct RawImageConfig {
        rootfs: RawRootFs,
    }
    #[derive(Deserialize)]
    struct RawRootFs {
        diff_ids: Vec<String>,
    }
    let config: RawImageConfig = serde_json::from_slice(config)?;
    config.rootfs.diff_ids.iter().map(|digest| sha256(digest)).collect()
}

/// An architecture as images name it, from Rust's name.
#[must_use]
pub fn image_architecture(rust: &str) -> &str {
    match rust {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "powerpc64" => "ppc64le",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sum(digit: char) -> String {
        String::from_iter([digit; 64])
    }

    fn parse(value: &serde_json::Value) -> Result<ImageManifest, ManifestError> {
        ImageManifest::parse(&serde_json::to_vec(value).unwrap(), "amd64")
    }

    fn blob(kind: &str, digit: char, size: u64) -> serde_json::Value {
        json!({"mediaType": kind, "digest": format!("sha256:{}", sum(digit)), "size": size})
    }

    #[test]
    fn both_kinds_of_images_are_read() {
        let oci = "application/vnd.oci.image.layer.v1.tar";
        let docker = "application/vnd.docker.image.rootfs.diff.tar.gzip";
        let manifest = parse(&json!({
            "schemaVersion": 2,
            "config": blob("application/vnd.oci.image.config.v1+json", 'c', 7),
            "layers": [blob(oci, '1', 10), blob(&format!("{oci}+gzip"), '2', 20),
                       blob(docker, '3', 30), blob(&format!("{oci}+zstd"), '4', 40)],
        }))
        .unwrap();
        let ImageManifest::Image(layers) = manifest else { panic!("{manifest:?}") };
        let packed: Vec<_> = layers.layers.iter().map(|layer| layer.compression).collect();
        assert_eq!(
            packed,
            [
                LayerCompression::None,
                LayerCompression::Gzip,
                LayerCompression::Gzip,
                LayerCompression::Zstd
            ]
        );
        assert_eq!(layers.config.sha256, sum('c'));
        assert_eq!(layers.digests().next(), Some(sum('1').as_str()));
        assert_eq!(layers.unpacked_bytes(), SPARE_BYTES + 10 + 3 * (20 + 30 + 40));
        assert_eq!(layers.bytes_to_fetch(|layer| layer.size == 30), 10 + 20 + 40);
    }

    #[test]
    fn the_image_of_this_platform_is_chosen() {
        let with = |digit: char, os: &str, architecture: &str| {
            let mut blob = blob("application/vnd.oci.image.manifest.v1+json", digit, 1);
            blob["platform"] = json!({"os": os, "architecture": architecture});
            blob
        };
        let list = json!({"schemaVersion": 2, "manifests": [
            with('a', "linux", "arm64"), with('b', "windows", "amd64"), with('c', "linux", "amd64")]});
        assert_eq!(parse(&list).unwrap(), ImageManifest::PlatformManifest(sum('c')));
        let list = json!({"schemaVersion": 2, "manifests": [with('a', "linux", "arm64")]});
        let error = parse(&list).unwrap_err().to_string();
        assert_eq!(error, "the image has no version for linux/amd64, only for linux/arm64");
    }

    #[test]
    fn unusable_manifests_are_refused() {
        for (value, reason) in [
            (json!({"schemaVersion": 1}), "schema 1"),
            (json!({"schemaVersion": 2, "mediaType": "x"}), "not supported: x"),
            (json!([]), "cannot be read"),
            (json!({"schemaVersion": 2, "config": {"digest": "sha512:1"}}), "only sha256"),
            (
                json!({"schemaVersion": 2, "config": blob("", 'c', 1),
                       "layers": [blob("application/vnd.oci.image.layer.v1.tar+gzip+encrypted", '1', 1)]}),
                "cannot be unpacked",
            ),
        ] {
            let error = parse(&value).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn a_huge_size_does_not_overflow() {
        let layer =
            ImageBlob { sha256: sum('1'), size: u64::MAX, compression: LayerCompression::Gzip };
        let layers =
            ImageLayers { config: ImageBlob::default(), layers: vec![layer.clone(), layer] };
        assert_eq!(
            (layers.unpacked_bytes(), layers.bytes_to_fetch(|_| false)),
            (u64::MAX, u64::MAX)
        );
    }

    #[test]
    fn diff_ids_are_read() {
        let config =
            json!({"rootfs": {"type": "layers", "diff_ids": [format!("sha256:{}", sum('d'))]}});
        assert_eq!(diff_ids(&serde_json::to_vec(&config).unwrap()).unwrap(), [sum('d')]);
        assert!(diff_ids(b"{}").is_err());
    }
}
