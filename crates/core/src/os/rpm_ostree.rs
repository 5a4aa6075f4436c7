//! rpm-ostree: which commands are run, in which order, and how their output is read.

use std::time::Duration;

use serde::Deserialize;

use super::{OsChange, OsDeployment, OsStatus, extensions, kernel_type};

/// How often a download is tried.
pub const MAX_DOWNLOAD_ATTEMPTS: u32 = 7;

/// The pause after this many failures in a row: 10 seconds, doubled, a minute at most.
#[must_use]
pub fn download_backoff(failures: u32) -> Duration {
    let seconds = 10_u64.saturating_mul(1 << failures.saturating_sub(1).min(8));
    Duration::from_secs(seconds.min(60))
}

/// One call of rpm-ostree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RpmOstreeCall {
    /// The arguments.
    pub arguments: Vec<String>,
    /// Whether it downloads something and may be retried.
    pub is_download: bool,
}

fn call(arguments: Vec<String>) -> RpmOstreeCall {
    RpmOstreeCall { arguments, is_download: false }
}

fn to_strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// The reference of an image in a registry in rpm-ostree's notation.
fn reference(image: &str) -> String {
    format!("ostree-unverified-registry:{image}")
}

/// The call that drops everything that has not been booted.
#[must_use]
pub fn unstage() -> RpmOstreeCall {
    call(to_strings(&["cleanup", "-p"]))
}

/// The call that only downloads an image; `None` if no image changes.
#[must_use]
pub fn fetch(change: &OsChange) -> Option<RpmOstreeCall> {
    let image = change.image.as_deref().filter(|_| change.checksum.is_none())?;
    let arguments =
        [to_strings(&["rebase", "--experimental", "--download-only"]), vec![reference(image)]];
    Some(RpmOstreeCall { arguments: arguments.concat(), is_download: true })
}

/// The calls that stage a change. A rollback is a change like any other: the kept deployment has the files
/// of the new config in its /etc, so it must not simply be booted again.
#[must_use]
pub fn stage(change: &OsChange, booted: &OsDeployment) -> Vec<RpmOstreeCall> {
    let target = change.image.as_deref().map(reference).or_else(|| change.checksum.clone());
    let mut calls = vec![unstage()];
    if target.is_some() || change.kernel_type.is_some() {
        calls.extend(kernel_type::reset_arguments(booted).map(call));
    }
    if let Some(target) = target {
        let arguments = [to_strings(&["rebase", "--experimental"]), vec![target]].concat();
        calls.push(RpmOstreeCall { arguments, is_download: true });
    }
    calls.extend(kernel_arguments(change).map(call));
    let kernel =
        change.kernel_type.as_ref().and_then(|(_, new)| kernel_type::switch_arguments(new));
    calls.extend(kernel.map(call));
    let wanted = change.extensions.as_deref();
    let update =
        wanted.and_then(|wanted| extensions::update_arguments(wanted, &booted.requested_packages));
    calls.extend(update.map(call));
    calls
}

/// All kernel arguments in one call; `None` if none change.
#[must_use]
pub fn kernel_arguments(change: &OsChange) -> Option<Vec<String>> {
    let arguments = &change.kernel_arguments;
    if arguments.is_empty() {
        return None;
    }
    let delete = arguments.delete.iter().map(|word| format!("--delete-if-present={word}"));
    let append = arguments.append.iter().map(|word| format!("--append={word}"));
    Some(std::iter::once("kargs".to_owned()).chain(delete).chain(append).collect())
}

#[derive(Debug, Deserialize)]
struct RpmOstreeStatus {
    deployments: Vec<RpmOstreeDeployment>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct RpmOstreeDeployment {
    checksum: String,
    base_checksum: Option<String>,
    version: Option<String>,
    booted: bool,
    staged: bool,
    custom_origin: Option<Vec<String>>,
    container_image_reference: Option<String>,
    requested_packages: Vec<String>,
    requested_base_removals: Vec<String>,
}

/// The reference of an image without the prefixes for verification and transport.
#[must_use]
pub fn image_name(reference: &str) -> &str {
    let (kind, rest) = reference.split_once(':').unwrap_or(("", reference));
    match kind {
        // ostree-unverified-registry:NAME
        "ostree-unverified-registry" => rest,
        // ostree-remote-registry:REMOTE:NAME
        "ostree-remote-registry" => rest.split_once(':').map_or(rest, |(_, name)| name),
        // ostree-unverified-image:TRANSPORT:NAME, ostree-image-signed:TRANSPORT:NAME
        "ostree-unverified-image" | "ostree-image-signed" => without_transport(rest),
        // ostree-remote-image:REMOTE:TRANSPORT:NAME
        "ostree-remote-image" => without_transport(rest.split_once(':').map_or(rest, |(_, it)| it)),
        _ => reference,
    }
}

fn without_transport(text: &str) -> &str {
    let name = text.split_once(':').map_or(text, |(_, name)| name);
    name.strip_prefix("//").unwrap_or(name)
}

impl RpmOstreeDeployment {
    fn image(&self) -> Option<String> {
        let reference = self.container_image_reference.as_deref().filter(|it| !it.is_empty());
        if let Some(reference) = reference {
            return Some(image_name(reference).to_owned());
        }
        let origin = self.custom_origin.as_ref()?.first()?;
        origin.strip_prefix("pivot://").map(str::to_owned)
    }

    fn deployment(self) -> OsDeployment {
        OsDeployment {
            image: self.image(),
            // Layered packages change the checksum; an image is identified by its base.
            checksum: self.base_checksum.unwrap_or(self.checksum),
            version: self.version.filter(|version| !version.is_empty()),
            kernel_arguments: Vec::new(),
            requested_packages: self.requested_packages,
            removed_packages: self.requested_base_removals,
        }
    }
}

/// Reads `rpm-ostree status --json`.
///
/// # Errors
/// The output is not valid, or nothing is booted.
pub fn parse_status(json: &str) -> Result<OsStatus, String> {
    let status: RpmOstreeStatus = serde_json::from_str(json)
        .map_err(|error| format!("rpm-ostree status --json cannot be read: {error}"))?;
    let mut entries = status.deployments;
    let at = entries.iter().position(|entry| entry.booted);
    let at = at.ok_or("rpm-ostree status --json: no deployment is booted")?;
    let booted = entries.remove(at);
    // The first deployment is the default of the boot loader.
    let next = (at > 0 || entries.first().is_some_and(|entry| entry.staged))
        .then(|| entries.remove(0).deployment());
    let kept = entries.into_iter().map(RpmOstreeDeployment::deployment).collect();
    Ok(OsStatus { booted: booted.deployment(), next, kept })
}

#[cfg(test)]
mod tests;
