//! A commit and kernel arguments become what the next boot starts.

use std::fs;

use anyhow::{Context as _, Result, bail};
use machinist_core::os::OsChange;
use machinist_core::os::image_ref::DigestImageRef;
use machinist_core::os::kernel_arguments::apply;
use machinist_core::os::ostree::StagedDeployment;

use super::host::OstreeHost;
use super::status::{self, STAGED_RECORD};
use super::{REPO_OPTION, fetch};

/// Completes what is staged while the machine goes down; it has to run before that.
const FINALIZE_UNIT: &str = "ostree-finalize-staged.service";

/// Makes a change for the next boot, image and kernel arguments in one.
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
    // Without the present arguments the machine would not find its root.
    let present = status::arguments(&entries, booted)
        .context("/boot/loader/entries: the booted system has no entry there")?;
    let arguments = apply(present, &change.kernel_arguments);

    let later = !now && can_finalize(host)?;
    let note = StagedDeployment { checksum: commit.clone(), kernel_arguments: arguments.clone() };
    write_staged_record(host, &note)?;
    let os = format!("--os={}", booted.os);
    let appended: Vec<_> = arguments.iter().map(|each| format!("--karg-append={each}")).collect();
    // All arguments are given: what ostree would take over by itself depends on its version.
    let mut words = vec!["ostree", "admin", "deploy", os.as_str(), "--karg-none"];
    words.extend(appended.iter().map(String::as_str));
    words.extend(later.then_some("--stage"));
    words.push(&commit);
    host.run(&words)?;
    if later {
        // ostree leaves it to a path unit to start this; a restart that is quicker would find nothing.
        host.run(&["systemctl", "start", FINALIZE_UNIT])?;
    }
    match status::list(host)?.first() {
        Some(first) if first.checksum == commit && first.staged == later => Ok(()),
        first => bail!("ostree was told to deploy {commit}, and the next boot starts {first:?}"),
    }
}

/// Takes back what has not been booted.
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

/// Removes deployments beyond the booted one, the one before it, and one for the next boot.
pub(super) fn confirm(host: &OstreeHost) -> Result<()> {
    let list = status::list(host)?;
    let booted = list.iter().position(|each| each.booted).unwrap_or(list.len());
    for index in (0..list.len()).rev().take_while(|index| *index > booted + 1) {
        host.run(&["ostree", "admin", "undeploy", &index.to_string()])?;
    }
    Ok(())
}

/// Whether this host can complete a deployment while it goes down.
fn can_finalize(host: &OstreeHost) -> Result<bool> {
    let state =
        host.try_run(&["systemctl", "show", "--property=LoadState", "--value", FINALIZE_UNIT])?;
    Ok(state.is_some_and(|state| state.trim() == "loaded"))
}

fn write_staged_record(host: &OstreeHost, note: &StagedDeployment) -> Result<()> {
    let path = host.path(STAGED_RECORD);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let text = serde_json::to_vec(note)?;
    fs::write(&path, text).with_context(|| format!("cannot write {STAGED_RECORD}"))
}
