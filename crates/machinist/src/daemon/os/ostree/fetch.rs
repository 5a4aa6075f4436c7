//! Imports an image as a commit into the repository of the machine. After an interruption the machine is as
//! before, and the next run continues after the last complete part.

use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use machinist_core::os::image_ref::{DigestImageRef, OSTREE_REF_PREFIX};
use machinist_core::os::manifest::{ImageBlob, ImageLayers, diff_ids};

use super::host::OstreeHost;
use super::pull::{self, ImageStore};
use super::tree::UnpackTree;
use super::{IMAGE_KEY, REPO_OPTION, bootable, unpack};

/// Where images are kept during the import.
const DOWNLOAD_DIR: &str = "/var/lib/machinist/images";

/// Imports an image into the repository, unless it is there.
pub(super) fn fetch(host: &OstreeHost, image: &DigestImageRef) -> Result<()> {
    if commit_of(host, image)?.is_some() {
        return Ok(());
    }
    let place = ImageStore { host, dir: format!("{DOWNLOAD_DIR}/{}", image.sha256) };
    let directory = host.path(&place.dir);
    // Only root may read an image before it is booted: it contains set-user-ID binaries.
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&directory);
    made.with_context(|| format!("cannot make {}", directory.display()))?;
    remove_all(&directory.join("tree"))?;
    prune_other_downloads(host, &image.sha256)?;
    let layers = pull::manifest(host, image)?;
    place.remove_invalid(&layers)?;
    check_free_space(&place, image, &layers)?;
    tracing::info!(%image, "fetching the image");
    place.download(image, &layers)?;
    let config = place.verify(image, &layers)?;
    tracing::info!(%image, "unpacking the image");
    let done =
        unpack_layers(&place, &layers, &config).and_then(|()| commit(&place, image, &config));
    if done.is_err() {
        // Leftovers do not help a full disk; the layers stay for the next attempt.
        remove_all(&directory.join("tree"))?;
    }
    done.with_context(|| format!("{image}"))?;
    remove_all(&directory)
}

/// The commit of an image.
pub(super) fn commit_of(host: &OstreeHost, image: &DigestImageRef) -> Result<Option<String>> {
    let commit = host.try_run(&["ostree", "rev-parse", REPO_OPTION, &image.ostree_ref()])?;
    Ok(commit.map(|commit| commit.trim().to_owned()))
}

/// Removes downloads, and the refs of images without a deployment.
pub(super) fn prune(host: &OstreeHost) -> Result<()> {
    remove_all(&host.path(DOWNLOAD_DIR))?;
    let deployed = super::status::list(host)?;
    for name in host.run(&["ostree", "refs", REPO_OPTION, "--list", OSTREE_REF_PREFIX])?.lines() {
        let commit = host.run(&["ostree", "rev-parse", REPO_OPTION, name])?;
        if !deployed.iter().any(|each| each.checksum == commit.trim()) {
            host.run_on_sysroot(&["ostree", "refs", REPO_OPTION, "--delete", name])?;
        }
    }
    // Removes objects that no ref and no deployment holds.
    host.run(&["ostree", "admin", "cleanup"]).map(drop)
}

/// Removes the parts of other images. They are left when a pool moved on to another image during a download.
fn prune_other_downloads(host: &OstreeHost, sha256: &str) -> Result<()> {
    let images = host.path(DOWNLOAD_DIR);
    let entries = fs::read_dir(&images);
    for entry in entries.with_context(|| format!("cannot read {}", images.display()))? {
        let entry = entry?;
        if entry.file_name() != sha256 {
            remove_all(&entry.path())?;
        }
    }
    Ok(())
}

fn check_free_space(
    place: &ImageStore<'_>,
    image: &DigestImageRef,
    layers: &ImageLayers,
) -> Result<()> {
    const REPOSITORY: &str = "/ostree/repo";
    let unpacked = layers.unpacked_bytes();
    // Damaged parts are removed by now.
    let is_here = |blob: &ImageBlob| place.blob_path(&blob.sha256).exists();
    let need = layers.bytes_to_fetch(is_here).saturating_add(unpacked);
    let mut needs = vec![(DOWNLOAD_DIR, need)];
    // Files that can be moved from the tree into the repository need no space there.
    if repository_side_path(place.host, DOWNLOAD_DIR)?.is_none() {
        needs.push((REPOSITORY, unpacked));
    }
    needs
        .into_iter()
        .try_for_each(|(directory, need)| require_free_space(place.host, image, directory, need))
}

/// Another path to a directory in /var from which files can be moved into the repository: /var is a mount of its
/// own, and files move within a mount only. `None` if /var is a separate file system.
fn repository_side_path(host: &OstreeHost, directory: &str) -> Result<Option<String>> {
    let list = super::status::list(host)?;
    let os = &super::status::booted(&list)?.os;
    let way = format!("/sysroot/ostree/deploy/{os}{directory}");
    Ok(host.is_same_file(&way, directory).then_some(way))
}

fn require_free_space(
    host: &OstreeHost,
    image: &DigestImageRef,
    directory: &str,
    need: u64,
) -> Result<()> {
    let free = host.free_space(directory)?;
    if free < need {
        bail!(
            "{image}: not enough space: it needs {} on the file system of {directory}, and {} are free: free some space there",
            megabytes(need),
            megabytes(free)
        );
    }
    Ok(())
}

fn megabytes(bytes: u64) -> String {
    format!("{} MB", bytes.div_ceil(1_000_000))
}

/// Unpacks the layers into the directory `tree` and makes it bootable.
fn unpack_layers(place: &ImageStore<'_>, layers: &ImageLayers, config: &[u8]) -> Result<()> {
    let path = place.host.path(&place.dir).join("tree");
    DirBuilder::new().mode(0o755).create(&path)?;
    let mut tree = UnpackTree::open(&path)?;
    let diff_ids = diff_ids(config)?;
    if diff_ids.len() != layers.layers.len() {
        bail!("its config speaks of {} layers, there are {}", diff_ids.len(), layers.layers.len());
    }
    for (blob, diff_id) in layers.layers.iter().zip(&diff_ids) {
        let file = File::open(place.blob_path(&blob.sha256))?;
        unpack::unpack_layer(&mut tree, file, blob.compression, diff_id)
            .with_context(|| format!("layer sha256:{}", blob.sha256))?;
    }
    let boot = bootable::make_bootable(&mut tree)?;
    let free = place.host.free_space("/boot")?;
    if free < boot {
        let (boot, free) = (megabytes(boot), megabytes(free));
        bail!("its kernel needs {boot} in /boot, and {free} are free: free some space there");
    }
    Ok(())
}

fn commit(place: &ImageStore<'_>, image: &DigestImageRef, config: &[u8]) -> Result<()> {
    let moved = repository_side_path(place.host, &place.dir)?;
    let tree = format!("--tree=dir={}/tree", moved.as_ref().unwrap_or(&place.dir));
    let branch = format!("--branch={}", image.ostree_ref());
    let origin = format!("--add-metadata-string={IMAGE_KEY}={image}");
    let version = format!("--add-metadata-string=version={}", version(image, config));
    let mut words = vec!["ostree", "commit", REPO_OPTION, "--bootable"];
    words.extend(moved.is_some().then_some("--consume"));
    words.extend([branch.as_str(), &tree, &origin, &version, "--subject=An image, unpacked"]);
    place.host.run_on_sysroot(&words)?;
    // ostree syncs the files but not the ref. Without the ref they would be downloaded again.
    let repository = File::open(place.host.path("/ostree/repo"))?;
    rustix::fs::syncfs(repository).context("cannot write to the disk")
}

/// The version in the label of an image, otherwise the beginning of its digest.
fn version(image: &DigestImageRef, config: &[u8]) -> String {
    let config: serde_json::Value = serde_json::from_slice(config).unwrap_or_default();
    let label = config["config"]["Labels"]["org.opencontainers.image.version"].as_str();
    let is_plain = |version: &&str| !version.is_empty() && !version.contains(char::is_control);
    label.filter(is_plain).map_or_else(|| image.sha256[..12].to_owned(), ToOwned::to_owned)
}

fn remove_all(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_the_label_or_the_digest() {
        let sha256 = "0123456789abcdef".repeat(4);
        let image = DigestImageRef { repository: "q.io/os".to_owned(), sha256 };
        let labelled = br#"{"config":{"Labels":{"org.opencontainers.image.version":"42.1"}}}"#;
        assert_eq!(version(&image, labelled), "42.1");
        assert_eq!(version(&image, b"{}"), "0123456789ab");
        assert_eq!(version(&image, b"not JSON"), "0123456789ab");
    }

    #[test]
    fn parts_of_other_images_are_removed() {
        let root = tempfile::tempdir().unwrap();
        let images = root.path().join(&DOWNLOAD_DIR[1..]);
        for name in ["wanted/oci", "other/oci/blobs"] {
            fs::create_dir_all(images.join(name)).unwrap();
        }
        prune_other_downloads(&OstreeHost::new(root.path()), "wanted").unwrap();
        let left: Vec<_> =
            fs::read_dir(&images).unwrap().map(|it| it.unwrap().file_name()).collect();
        assert_eq!(left, ["wanted"]);
    }

    #[test]
    fn too_little_space_is_reported_with_path_and_numbers() {
        let image = DigestImageRef { repository: "q.io/os".to_owned(), sha256: "0".repeat(64) };
        let host = OstreeHost::new(Path::new("/"));
        let error = require_free_space(&host, &image, "/tmp", u64::MAX).unwrap_err().to_string();
        assert!(error.contains("18446744073710 MB on the file system of /tmp"), "{error}");
        require_free_space(&host, &image, "/tmp", 0).unwrap();
    }
}
