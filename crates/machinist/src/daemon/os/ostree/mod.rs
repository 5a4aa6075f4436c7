//! Machines that boot ostree deployments: a Debian or anything else with the `ostree` command, and `skopeo`
//! for images.
//!
//! | module | does |
//! |---|---|
//! | `status` | reads what is booted, staged and kept |
//! | `fetch` | imports an image as a commit into the repository of the machine |
//! | `pull` | downloads the parts of an image and checks their digests |
//! | `unpack`, `tree` | unpacks layers into a directory that no link leads out of |
//! | `bootable` | turns a tree of files into an operating system |
//! | `deploy` | deploys a commit with kernel arguments for the next boot |
//! | `host` | commands and paths of the host |

mod bootable;
mod deploy;
mod fetch;
mod host;
mod pull;
mod status;
mod tree;
mod unpack;

use std::path::Path;

use anyhow::Result;
use machinist_core::os::image_ref::DigestImageRef;
use machinist_core::os::{OsChange, OsStatus};

use super::HostOs;
use host::OstreeHost;

/// The repository of the machine.
const REPO_OPTION: &str = "--repo=/ostree/repo";

/// The metadata key of a commit that names its image.
const IMAGE_KEY: &str = "machinist.image";

/// A host with ostree.
#[derive(Debug)]
pub(crate) struct OstreeBackend {
    host: OstreeHost,
}

impl OstreeBackend {
    /// The host with this root.
    pub(crate) fn new(root: &Path) -> Self {
        Self { host: OstreeHost::new(root) }
    }
}

impl HostOs for OstreeBackend {
    fn backend_name(&self) -> &'static str {
        "ostree"
    }

    fn status(&self) -> Result<OsStatus> {
        status::read(&self.host)
    }

    fn refusal(&self, change: &OsChange) -> Option<String> {
        refusal(change, self.host.has_command("skopeo"))
    }

    fn fetch(&self, change: &OsChange) -> Result<()> {
        match &change.image {
            // A deployment with a checksum is on the machine already.
            Some(image) if change.checksum.is_none() => {
                fetch::fetch(&self.host, &DigestImageRef::parse(image)?)
            }
            _ => Ok(()),
        }
    }

    fn stage(&self, change: &OsChange, now: bool) -> Result<()> {
        deploy::stage(&self.host, change, now)
    }

    fn unstage(&self) -> Result<()> {
        deploy::unstage(&self.host)
    }

    fn confirm(&self) -> Result<()> {
        deploy::confirm(&self.host)?;
        fetch::prune(&self.host)
    }
}

/// Why a host with ostree cannot make a change.
fn refusal(change: &OsChange, has_skopeo: bool) -> Option<String> {
    if let Some(image) = &change.image
        && change.checksum.is_none()
    {
        if let Err(error) = DigestImageRef::parse(image) {
            return Some(error.to_string());
        }
        if !has_skopeo {
            return Some(format!(
                "osImageURL {image}: skopeo, which fetches it, is not installed: add it to the OS image"
            ));
        }
    }
    let arguments = &change.kernel_arguments;
    let mut words = arguments.append.iter().chain(&arguments.delete);
    if let Some(word) = words.find(|word| word.starts_with("ostree=")) {
        return Some(format!(
            "kernelArguments: {word}: this one is the machine's own, it names what is booted: leave it out"
        ));
    }
    match &change.kernel_type {
        Some((_, to)) if !matches!(to.as_str(), "" | "default") => {
            return Some(format!(
                "kernelType {to}: a machine with ostree has the kernel of its image: use an image with that one"
            ));
        }
        _ => {}
    }
    change.extensions.as_ref().and_then(|extensions| extensions.first()).map(|extension| {
        format!(
            "extensions: {extension}: a machine with ostree takes no packages: use an image with it"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinist_core::os::KernelArgumentsChange;

    fn image(image: &str) -> OsChange {
        OsChange { image: Some(image.to_owned()), ..OsChange::default() }
    }

    #[test]
    fn unsupported_changes_are_refused_with_a_remedy() {
        let pinned = format!("quay.io/os@sha256:{}", "0".repeat(64));
        let argument =
            |word: &str| KernelArgumentsChange { delete: vec![], append: vec![word.into()] };
        for (change, has_skopeo, reason) in [
            (image("quay.io/os:latest"), true, Some("no digest")),
            (image(&pinned), false, Some("skopeo, which fetches it, is not installed")),
            (image(&pinned), true, None),
            (
                OsChange {
                    kernel_type: Some(("".into(), "realtime".into())),
                    ..OsChange::default()
                },
                true,
                Some("kernelType realtime"),
            ),
            (
                OsChange {
                    kernel_type: Some(("x".into(), "default".into())),
                    ..OsChange::default()
                },
                true,
                None,
            ),
            (
                OsChange { extensions: Some(vec!["usbguard".into()]), ..OsChange::default() },
                true,
                Some("extensions: usbguard"),
            ),
            (
                OsChange { kernel_arguments: argument("ostree=/x"), ..OsChange::default() },
                true,
                Some("kernelArguments: ostree=/x"),
            ),
            (OsChange { kernel_arguments: argument("quiet"), ..OsChange::default() }, true, None),
        ] {
            let found = refusal(&change, has_skopeo);
            let fits = match (&found, reason) {
                (Some(found), Some(reason)) => found.contains(reason),
                (found, reason) => found.is_none() && reason.is_none(),
            };
            assert!(fits, "{change:?}: {found:?}");
        }
    }
}
