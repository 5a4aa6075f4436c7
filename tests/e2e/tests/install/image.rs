//! Our own image, as the nodes of a cluster load it.

use anyhow::{Context as _, Result};
use machinist_e2e::{Cluster, ContainerImage, Lab, Machine, binary, cache, command};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Its name in `deploy/`.
const NAME: &str = "localhost/machinist:0.1.0";

/// Loads our own image into nodes.
pub(crate) fn load(lab: &Lab, cluster: &Cluster, machines: &[Machine]) -> Result<()> {
    let binary = binary::machinist_binary()?;
    let linked = shared_libraries(&binary)?;
    let archive = match linked.is_empty() {
        true => release_image(lab, &binary)?,
        false => test_image(lab, &binary, &linked)?,
    };
    machines.iter().try_for_each(|machine| cluster.load_archive(machine, &archive))
}

/// The libraries that a binary needs: none if it is static, as a release is.
fn shared_libraries(binary: &Path) -> Result<Vec<String>> {
    let output = command::output(Command::new("ldd").arg(binary))?.stdout;
    let words = output.split_whitespace().filter(|word| word.starts_with('/'));
    Ok(words.map(str::to_owned).collect())
}

/// The image that `make image` builds from a static binary, used with `MACHINIST_BIN=$(scripts/static)`.
fn release_image(lab: &Lab, binary: &Path) -> Result<Vec<u8>> {
    let out = lab.create_dir("image")?;
    let mut make = Command::new(cache::source_root().join("scripts/image"));
    command::run(make.env("BINARY", binary).env("OUT", &out).env("TAG", NAME))?;
    let [made, archive] = ["machinist-image.tar", "loadable.tar"].map(|name| out.join(name));
    let mut skopeo = Command::new("skopeo");
    skopeo.args(["copy", "--quiet", "--insecure-policy"]);
    skopeo.arg(format!("oci-archive:{}", made.display()));
    command::run(skopeo.arg(format!("docker-archive:{}:{NAME}", archive.display())))?;
    Ok(fs::read(archive)?)
}

/// An image with a test build and the libraries that it is linked with.
fn test_image(lab: &Lab, binary: &Path, libraries: &[String]) -> Result<Vec<u8>> {
    let small = lab.dir().join("machinist");
    command::run(Command::new("strip").arg("-o").arg(&small).arg(binary))?;
    let mut image = ContainerImage::new().file("usr/bin/machinist", 0o755, fs::read(&small)?);
    for library in libraries {
        let bytes = fs::read(library).with_context(|| library.clone())?;
        image = image.file(library.trim_start_matches('/'), 0o755, bytes);
    }
    image.entrypoint(&["/usr/bin/machinist"]).archive(NAME)
}
