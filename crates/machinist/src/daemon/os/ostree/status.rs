//! Reads what is booted, staged and kept.

use std::fs;

use anyhow::{Context as _, Result};
use machinist_core::os::ostree::{self, LoaderEntry, OstreeDeployment, StagedDeployment};
use machinist_core::os::{OsDeployment, OsStatus};
use machinist_core::versioned;

use super::host::OstreeHost;
use super::{IMAGE_KEY, REPO_OPTION};

/// The record of what is staged, until the machine reboots.
pub(super) const STAGED_RECORD: &str = "/run/machinist/os-staged.json";
/// The version of the record that this version writes.
pub(super) const STAGED_VERSION: u32 = 1;

/// The deployments, the next one first.
pub(super) fn list(host: &OstreeHost) -> Result<Vec<OstreeDeployment>> {
    Ok(ostree::parse_admin_status(&host.run(&["ostree", "admin", "status"])?))
}

/// The booted one.
pub(super) fn booted(list: &[OstreeDeployment]) -> Result<&OstreeDeployment> {
    list.iter().find(|each| each.booted).context(
        "ostree admin status: no deployment is marked as booted: this machine runs something else",
    )
}

/// The status of the host's deployments.
pub(super) fn read(host: &OstreeHost) -> Result<OsStatus> {
    let list = list(host)?;
    let entries = entries(host)?;
    let booted = booted(&list)?.clone();
    let mut status =
        OsStatus { booted: deployment(host, &booted, &entries)?, ..OsStatus::default() };
    let mut before = true;
    for (index, each) in list.iter().enumerate() {
        if each.booted {
            before = false;
            continue;
        }
        let deployment = deployment(host, each, &entries)?;
        if before && index == 0 {
            status.next = Some(deployment);
        } else {
            status.kept.push(deployment);
        }
    }
    Ok(status)
}

/// The kernel arguments of each deployment, by directory, as the boot loader has them.
pub(super) fn entries(host: &OstreeHost) -> Result<Vec<(String, Vec<String>)>> {
    const ENTRIES: &str = "/boot/loader/entries";
    let mut found = Vec::new();
    let directory = host.path(ENTRIES);
    for file in fs::read_dir(&directory).with_context(|| format!("cannot read {ENTRIES}"))? {
        let path = file?.path();
        let text =
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let Some(entry) = LoaderEntry::parse(&text) else { continue };
        // The link may belong to a deployment that is about to be removed.
        let Ok(target) = fs::read_link(host.path(&entry.link)) else { continue };
        let name = target.file_name().unwrap_or_default().to_string_lossy().into_owned();
        found.push((name, entry.arguments));
    }
    Ok(found)
}

/// The kernel arguments that the boot loader has for a deployment.
pub(super) fn arguments<'a>(
    entries: &'a [(String, Vec<String>)],
    listed: &OstreeDeployment,
) -> Option<&'a [String]> {
    let directory = listed.directory_name();
    entries.iter().find(|(name, _)| *name == directory).map(|(_, arguments)| arguments.as_slice())
}

fn deployment(
    host: &OstreeHost,
    listed: &OstreeDeployment,
    entries: &[(String, Vec<String>)],
) -> Result<OsDeployment> {
    let kernel_arguments = match arguments(entries, listed) {
        Some(arguments) => arguments.to_vec(),
        None => staged(host)?
            .filter(|staged| staged.checksum == listed.checksum)
            .map(|staged| staged.kernel_arguments)
            .unwrap_or_default(),
    };
    Ok(OsDeployment {
        image: image(host, listed)?,
        checksum: listed.checksum.clone(),
        version: listed.version.clone(),
        kernel_arguments,
        ..OsDeployment::default()
    })
}

fn staged(host: &OstreeHost) -> Result<Option<StagedDeployment>> {
    // A truncated record belongs to a deployment that was not staged completely.
    let Some(text) = host.read(STAGED_RECORD)? else { return Ok(None) };
    let read = versioned::from_json(STAGED_RECORD, STAGED_VERSION, text.as_bytes());
    Ok(versioned::ignore_damage(read)?)
}

fn image(host: &OstreeHost, listed: &OstreeDeployment) -> Result<Option<String>> {
    let key = format!("--print-metadata-key={IMAGE_KEY}");
    let output = host.try_run(&["ostree", "show", REPO_OPTION, &key, &listed.checksum])?;
    if let Some(image) = output.as_deref().and_then(ostree::parse_gvariant_string) {
        return Ok(Some(image));
    }
    let origin = format!("/ostree/deploy/{}/deploy/{}.origin", listed.os, listed.directory_name());
    Ok(host.read(&origin)?.as_deref().and_then(ostree::image_of_origin))
}
