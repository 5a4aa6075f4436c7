//! Container images made by the kit: a layer of given files and a command, optionally on top of a whole system.

use anyhow::{Context, Result, anyhow};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::fs;
use std::path::{Path, PathBuf};

use crate::cache::{self, hex};

/// An image with one layer, or with one on top of a system's layers.
#[derive(Debug, Clone, Default)]
pub struct ContainerImage {
    base: Vec<CachedLayer>,
    files: Vec<(String, u32, ImageFile)>,
    entrypoint: Vec<String>,
}

/// A layer from the cache.
#[derive(Debug, Clone)]
struct CachedLayer {
    file: PathBuf,
    kind: String,
    digest: String,
    size: u64,
    diff_id: String,
}

#[derive(Debug, Clone)]
enum ImageFile {
    Bytes(Vec<u8>),
    Link(String),
    Directory,
}

impl ContainerImage {
    /// An empty image.
    pub fn new() -> Self {
        Self::default()
    }

    /// A bootable Debian, the same as `debian/v1` of the ostree machines. Added files form a layer on top.
    pub fn system() -> Result<Self> {
        Self::from_artifact("os-image")
    }

    /// The smallest system that boots and runs the daemon, the same as `debian-small/v2` of the ostree machines.
    pub fn small_system() -> Result<Self> {
        Self::from_artifact("ostree-small")
    }

    fn from_artifact(artifact: &str) -> Result<Self> {
        let artifact = cache::artifact(artifact)?;
        let text = fs::read_to_string(artifact.join("layers"))?;
        let base = text.lines().map(|line| {
            let fields: Vec<_> = line.split(' ').map(str::to_owned).collect();
            let [name, kind, digest, size, diff_id] =
                <[String; 5]>::try_from(fields).map_err(|_| anyhow!("a bad line: {line}"))?;
            Ok(CachedLayer {
                file: artifact.join(name),
                kind,
                digest,
                size: size.parse()?,
                diff_id,
            })
        });
        Ok(Self { base: base.collect::<Result<_>>()?, ..Self::default() })
    }

    /// The digests of the layers below the one with the added files.
    pub fn base_layers(&self) -> Vec<String> {
        self.base.iter().map(|layer| layer.digest.clone()).collect()
    }

    /// Busybox with its applets, for pods that only need a shell.
    pub fn busybox() -> Result<Self> {
        let binary = fs::read("/usr/bin/busybox")
            .or_else(|_| fs::read("/bin/busybox"))
            .context("environment: busybox missing, run make testkit")?;
        let mut image =
            Self::new().directory("tmp").directory("proc").directory("sys").directory("dev");
        image = image.directory("etc").file("bin/busybox", 0o755, binary);
        for name in ["sh", "cat", "chroot", "sleep", "ls", "mkdir", "echo", "nsenter", "true", "id"]
        {
            image = image.link(&format!("bin/{name}"), "busybox");
        }
        Ok(image)
    }

    /// Busybox that waits for a signal to end. Unlike its own `sleep` it handles the signal even as process 1.
    pub fn sleeping() -> Result<Self> {
        const WAIT: &str =
            "#!/bin/sh\ntrap 'exit 0' TERM INT\nwhile :; do sleep 1000 & wait $!; done\n";
        Ok(Self::busybox()?.file("bin/wait", 0o755, WAIT).entrypoint(&["/bin/wait"]))
    }

    /// Adds a file.
    #[must_use]
    pub fn file(mut self, path: &str, mode: u32, contents: impl Into<Vec<u8>>) -> Self {
        self.files.push((path.to_owned(), mode, ImageFile::Bytes(contents.into())));
        self
    }

    /// Adds a symbolic link.
    #[must_use]
    pub fn link(mut self, path: &str, target: &str) -> Self {
        self.files.push((path.to_owned(), 0o777, ImageFile::Link(target.to_owned())));
        self
    }

    /// Adds a whiteout, which removes a path of the layers below.
    #[must_use]
    pub fn whiteout(self, path: &str) -> Self {
        let (dir, name) = path.rsplit_once('/').unwrap_or((".", path));
        self.file(&format!("{dir}/.wh.{name}"), 0o600, "")
    }

    /// Adds a directory.
    #[must_use]
    pub fn directory(mut self, path: &str) -> Self {
        self.files.push((path.to_owned(), 0o755, ImageFile::Directory));
        self
    }

    /// Sets the command of the image.
    #[must_use]
    pub fn entrypoint(mut self, args: &[&str]) -> Self {
        self.entrypoint = args.iter().map(|&arg| arg.to_owned()).collect();
        self
    }

    /// The layer as a tar file.
    fn layer(&self) -> Result<Vec<u8>> {
        let mut tar = tar::Builder::new(Vec::new());
        for (path, mode, contents) in &self.files {
            let mut header = tar::Header::new_gnu();
            header.set_mode(*mode);
            header.set_mtime(1);
            header.set_uid(0);
            header.set_gid(0);
            header.set_size(0);
            match contents {
                ImageFile::Bytes(bytes) => {
                    header.set_size(bytes.len() as u64);
                    tar.append_data(&mut header, path, bytes.as_slice())?;
                }
                ImageFile::Link(target) => {
                    header.set_entry_type(tar::EntryType::Symlink);
                    tar.append_link(&mut header, path, target)?;
                }
                ImageFile::Directory => {
                    header.set_entry_type(tar::EntryType::Directory);
                    tar.append_data(&mut header, path, std::io::empty())?;
                }
            }
        }
        Ok(tar.into_inner()?)
    }

    fn config(&self, layer: &[u8]) -> Value {
        let base = self.base.iter().map(|layer| layer.diff_id.clone());
        let diff_ids: Vec<_> = base.chain([digest(layer)]).collect();
        let history: Vec<_> = diff_ids.iter().map(|_| json!({"created_by": "kit"})).collect();
        json!({
            "architecture": "amd64",
            "os": "linux",
            "config": {
                "Entrypoint": self.entrypoint,
                "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            },
            "rootfs": {"type": "layers", "diff_ids": diff_ids},
            "history": history,
        })
    }

    /// Writes the image as an OCI layout with the tag `latest`. Returns the manifest's digest.
    pub fn write_oci(&self, dir: &Path) -> Result<String> {
        let blobs = dir.join("blobs/sha256");
        fs::create_dir_all(&blobs)?;
        let blob = |kind: &str, bytes: &[u8]| -> Result<Value> {
            let digest = digest(bytes);
            fs::write(blobs.join(&digest["sha256:".len()..]), bytes)?;
            let kind = format!("application/vnd.oci.image.{kind}");
            Ok(json!({"mediaType": kind, "digest": digest, "size": bytes.len()}))
        };
        let layer = self.layer()?;
        let config = serde_json::to_vec(&self.config(&layer))?;
        let mut layers = Vec::new();
        for below in &self.base {
            let blob = blobs.join(&below.digest["sha256:".len()..]);
            if !blob.exists() {
                fs::hard_link(&below.file, &blob)
                    .or_else(|_| fs::copy(&below.file, &blob).map(drop))?;
            }
            let CachedLayer { kind, digest, size, .. } = below;
            layers.push(json!({"mediaType": kind, "digest": digest, "size": size}));
        }
        layers.push(blob("layer.v1.tar+gzip", &gzip(&layer)?)?);
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": blob("config.v1+json", &config)?,
            "layers": layers,
        });
        let mut entry = blob("manifest.v1+json", &serde_json::to_vec(&manifest)?)?;
        let digest = entry["digest"].as_str().unwrap_or_default().to_owned();
        entry["annotations"] = json!({"org.opencontainers.image.ref.name": "latest"});
        let index = json!({"schemaVersion": 2, "manifests": [entry]});
        fs::write(dir.join("index.json"), serde_json::to_vec(&index)?)?;
        fs::write(dir.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)?;
        Ok(digest)
    }

    /// The image as a tar file that `docker load` and `ctr images import` accept, under a name.
    pub fn archive(&self, name: &str) -> Result<Vec<u8>> {
        let layer = self.layer()?;
        let config = serde_json::to_vec(&self.config(&layer))?;
        let manifest =
            json!([{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]);
        let manifest = serde_json::to_vec(&manifest)?;
        let mut tar = tar::Builder::new(Vec::new());
        let parts = [("config.json", config), ("layer.tar", layer), ("manifest.json", manifest)];
        for (path, bytes) in parts {
            let mut header = tar::Header::new_gnu();
            header.set_mode(0o644);
            header.set_size(bytes.len() as u64);
            tar.append_data(&mut header, path, bytes.as_slice())?;
        }
        Ok(tar.into_inner()?)
    }
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex(&Sha256::digest(bytes)))
}

fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    std::io::Write::write_all(&mut encoder, bytes)?;
    Ok(encoder.finish()?)
}
