//! Deploys a commit with kernel arguments for the next boot.

use std::fs;

use anyhow::{Context as _, Result, bail};
use machinist_core::os::OsChange;
use machinist_core::os::image_ref::DigestImageRef;
use machinist_core::os::kernel_arguments::apply;
use machinist_core::os::ostree::StagedDeployment;
use machinist_core::versioned;

use super::host::OstreeHost;
use super::status::{self, STAGED_RECORD, STAGED_VERSION};
use super::{REPO_OPTION, fetch};

/// The unit that finalises what is staged. It has to run before the machine shuts down.
const FINALIZE_UNIT: &str = "ostree-finalize-staged.service";

/// Stages a change for the next boot, image and kernel arguments together.
pub(super) fn stage(host: &OstreeHost, change: &OsChange, now: bool) -> Result<()> {
    let list = status::list(host)?;
    let booted = status::booted(&list)?;
    let commit = match (&change.checksum, &change.image) {
        (Some(checksum), _) => {
            let known = host.try_run(&["ostree", "rev-parse", REPO_OPTION, checksum])?;
            known.map(|commit| commit.trim().to_owned()).with_context(|| {
                format!("the operating system {checksum} is no longer on this machine")
            })?
        }
        (None, Some(image)) => fetch::commit_of(host, &DigestImageRef::parse(image)?)?
            .with_context(|| format!("{image} has not been fetched onto this machine"))?,
        (None, None) => booted.checksum.clone(),
    };
    let entries = status::entries(host)?;
    // Without its current arguments the machine would not find its root.
    let present = status::arguments(&entries, booted)
        .context("/boot/loader/entries: the booted system has no entry there")?;
    let arguments = apply(present, &change.kernel_arguments);

    let later = !now && can_finalize(host)?;
    let note = StagedDeployment { checksum: commit.clone(), kernel_arguments: arguments.clone() };
    write_staged_record(host, &note)?;
    let os = format!("--os={}", booted.os);
    let appended: Vec<_> = arguments.iter().map(|each| format!("--karg-append={each}")).collect();
    // All arguments are given: which of them ostree carries over depends on its version.
    let mut words = vec!["ostree", "admin", "deploy", os.as_str(), "--karg-none"];
    words.extend(appended.iter().map(String::as_str));
    words.extend(later.then_some("--stage"));
    words.push(&commit);
    host.run(&words)?;
    if later {
        // ostree leaves it to a path unit to start this; a quick reboot would come before that.
        host.run(&["systemctl", "start", FINALIZE_UNIT])?;
    }
    match status::list(host)?.first() {
        Some(first) if first.checksum == commit && first.staged == later => Ok(()),
        first => bail!("ostree should have deployed {commit}, but the next boot starts {first:?}"),
    }
}

/// Drops what has not been booted.
pub(super) fn unstage(host: &OstreeHost) -> Result<()> {
    let list = status::list(host)?;
    status::booted(&list)?;
    for _ in list.iter().take_while(|each| !each.booted) {
        host.run(&["ostree", "admin", "undeploy", "0"])?;
    }
    match fs::remove_file(host.path(STAGED_RECORD)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {STAGED_RECORD}"))
        }
        _ => Ok(()),
    }
}

/// Removes deployments other than the booted one, the one before it, and one for the next boot.
pub(super) fn confirm(host: &OstreeHost) -> Result<()> {
    let list = status::list(host)?;
    let booted = list.iter().position(|each| each.booted).unwrap_or(list.len());
    for index in (0..list.len()).rev().take_while(|index| *index > booted + 1) {
        host.run(&["ostree", "admin", "undeploy", &index.to_string()])?;
    }
    Ok(())
}

/// Whether this host can finalise a deployment at shutdown.
fn can_finalize(host: &OstreeHost) -> Result<bool> {
    let state =
        host.try_run(&["systemctl", "show", "--property=LoadState", "--value", FINALIZE_UNIT])?;
    Ok(state.is_some_and(|state| state.trim() == "loaded"))
}

fn write_staged_record(host: &OstreeHost, staged: &StagedDeployment) -> Result<()> {
    let path = host.path(STAGED_RECORD);
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    let bytes = versioned::to_json(STAGED_VERSION, staged)?;
    fs::write(&path, bytes).with_context(|| format!("cannot write {STAGED_RECORD}"))
}
