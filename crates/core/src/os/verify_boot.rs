//! Whether a machine has booted what its config asks for, and what follows if not.

use super::{DesiredOs, OsChange, OsDeployment, OsStatus, is_same_image, kernel_arguments};

/// How often an OS that was lost before it was booted is staged again.
pub const MAX_STAGE_ATTEMPTS: u32 = 3;

/// What is wrong with the image of a machine, in MCO's words.
#[must_use]
pub fn image_mismatch(wanted: &DesiredOs, booted: &OsDeployment) -> Option<String> {
    let image = wanted.image.as_deref()?;
    let have = booted.image.as_deref().unwrap_or_default();
    (!is_same_image(image, have))
        .then(|| format!("expected target osImageURL {image:?}, have {have:?}"))
}

/// What is wrong with the kernel arguments of a machine, in MCO's words.
#[must_use]
pub fn kernel_arguments_mismatch(wanted: &DesiredOs, command_line: &str) -> Option<String> {
    let missing = kernel_arguments::missing(&wanted.kernel_arguments, command_line);
    (!missing.is_empty())
        .then(|| format!("missing expected kernel arguments: [{}]", missing.join(" ")))
}

/// The state of a change after the reboot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BootOutcome {
    /// It is in effect.
    Booted,
    /// It was lost: a power cut discards what was only staged. Stage it again.
    Lost,
    /// It is deployed, or was staged often enough, and something else runs.
    NotBooted {
        /// What is wrong.
        problem: String,
    },
}

/// The state of a change on a machine that had booted `was` before. `command_line` is `None` where nothing
/// reads kernel arguments; `attempts` says how often the change was staged again.
#[must_use]
pub fn after_reboot(
    change: &OsChange,
    was: &OsDeployment,
    wanted: &DesiredOs,
    status: &OsStatus,
    command_line: Option<&str>,
    attempts: u32,
) -> BootOutcome {
    // By image if there is one: the checksum of an image may differ between imports.
    let target = DesiredOs { image: change.image.clone(), ..DesiredOs::default() };
    let image = image_mismatch(&target, &status.booted);
    let line = command_line.filter(|_| !change.kernel_arguments.is_empty());
    let arguments = line.and_then(|line| {
        kernel_arguments_mismatch(wanted, line)
            .or_else(|| stale_arguments(change, was, &status.booted))
    });
    let checksum = change.checksum.as_deref().filter(|_| change.image.is_none());
    let checksum = checksum.filter(|it| **it != status.booted.checksum);
    let checksum = checksum
        .map(|it| format!("expected the operating system {it}, have {}", status.booted.checksum));
    let Some(problem) = image.or(checksum).or(arguments) else { return BootOutcome::Booted };
    if is_default_deployment(change, was, wanted, status) || attempts >= MAX_STAGE_ATTEMPTS {
        return BootOutcome::NotBooted { problem };
    }
    BootOutcome::Lost
}

/// Kernel arguments that should be gone and are not: there are more of them than the change leaves. Not
/// checked if the image changes as well, which is proof enough; and others may add the same arguments.
fn stale_arguments(change: &OsChange, was: &OsDeployment, booted: &OsDeployment) -> Option<String> {
    if change.image.is_some() || change.checksum.is_some() || was.kernel_arguments.is_empty() {
        return None;
    }
    let left = kernel_arguments::apply(&was.kernel_arguments, &change.kernel_arguments);
    let stale =
        kernel_arguments::surplus(&change.kernel_arguments.delete, &booted.kernel_arguments, &left);
    (!stale.is_empty()).then(|| format!("unexpected kernel arguments: [{}]", stale.join(" ")))
}

/// Whether the new deployment is the default and something else was booted.
fn is_default_deployment(
    change: &OsChange,
    was: &OsDeployment,
    wanted: &DesiredOs,
    status: &OsStatus,
) -> bool {
    let fits = |deployment: &OsDeployment| {
        let image = wanted.image.as_deref().filter(|_| change.image.is_some());
        let has_image =
            |image| deployment.image.as_deref().is_some_and(|it| is_same_image(image, it));
        let missing = kernel_arguments::missing(
            &change.kernel_arguments.append,
            &deployment.kernel_arguments.join(" "),
        );
        // Without an image only the arguments distinguish the deployments.
        image.map_or_else(
            || {
                // Some hosts do not report the arguments of each deployment.
                !deployment.kernel_arguments.is_empty()
                    && missing.is_empty()
                    && stale_arguments(change, was, deployment).is_none()
            },
            has_image,
        )
    };
    change.checksum.is_none() && status.next.as_ref().is_some_and(fits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::KernelArgumentsChange;

    const A: &str = "r/os@sha256:aaaa";
    const B: &str = "r/os@sha256:bbbb";

    fn deployment(image: &str, arguments: &[&str]) -> OsDeployment {
        OsDeployment {
            checksum: image.to_owned(),
            image: Some(image.to_owned()),
            kernel_arguments: arguments.iter().map(|&word| word.to_owned()).collect(),
            ..OsDeployment::default()
        }
    }

    fn wanted(image: Option<&str>, argument: &str) -> DesiredOs {
        DesiredOs {
            image: image.map(str::to_owned),
            kernel_arguments: vec![argument.to_owned()],
            ..DesiredOs::default()
        }
    }

    #[test]
    fn problems_are_described_in_mco_words() {
        let (wanted, booted) = (wanted(Some(A), "a b=1 c"), deployment(B, &[]));
        assert_eq!(
            image_mismatch(&wanted, &booted).unwrap(),
            format!("expected target osImageURL {A:?}, have {B:?}")
        );
        assert_eq!(image_mismatch(&wanted, &deployment(A, &[])), None);
        assert_eq!(
            kernel_arguments_mismatch(&wanted, "root=x c\n").unwrap(),
            "missing expected kernel arguments: [a b=1]"
        );
    }

    #[test]
    fn the_state_of_a_change() {
        let image = OsChange { image: Some(B.to_owned()), ..OsChange::default() };
        let append = vec!["k=1".to_owned()];
        let kernel_arguments = KernelArgumentsChange { append, ..KernelArgumentsChange::default() };
        let both = OsChange { kernel_arguments: kernel_arguments.clone(), ..image.clone() };
        let only = OsChange { kernel_arguments, ..OsChange::default() };
        let back = OsChange { checksum: Some(A.to_owned()), ..OsChange::default() };
        // A kept deployment may be older than the change and does not count.
        let status = |booted: &str, next: Option<OsDeployment>| OsStatus {
            booted: deployment(booted, &[]),
            kept: vec![deployment(B, &["k=1"])],
            next,
        };
        let with = |line: &'static str| Some(line);
        let not = |problem: &str| BootOutcome::NotBooted { problem: problem.to_owned() };
        let wrong = format!("expected target osImageURL {B:?}, have {A:?}");
        let (a_next, b_next) = (deployment(A, &[]), deployment(B, &["k=1"]));
        let k_next = deployment(A, &["k=1"]);
        let missing = "missing expected kernel arguments: [k=1]";
        for (change, status, line, attempts, expected) in [
            (&image, status(B, Some(a_next.clone())), with(""), 0, BootOutcome::Booted),
            (&image, status(A, None), with(""), 0, BootOutcome::Lost),
            (&image, status(A, None), with(""), 3, not(&wrong)),
            (&image, status(A, Some(b_next.clone())), with(""), 0, not(&wrong)),
            (&both, status(B, Some(a_next.clone())), with("k=1"), 0, BootOutcome::Booted),
            (&both, status(B, Some(a_next.clone())), with("x"), 0, BootOutcome::Lost),
            (&both, status(A, Some(b_next)), with("x"), 0, not(&wrong)),
            (&only, status(A, None), with("x k=1"), 0, BootOutcome::Booted),
            (&only, status(A, None), with("x"), 0, BootOutcome::Lost),
            (&only, status(A, Some(k_next)), with("x"), 0, not(missing)),
            // Where nothing reads arguments, they are not checked.
            (&only, status(A, None), None, 0, BootOutcome::Booted),
            (&back, status(A, None), with(""), 0, BootOutcome::Booted),
            (&back, status(B, Some(a_next)), with(""), 1, BootOutcome::Lost),
        ] {
            let was = deployment(A, &[]);
            let wanted = wanted(change.image.as_deref(), "k=1");
            let found = after_reboot(change, &was, &wanted, &status, line, attempts);
            assert_eq!(found, expected, "{change:?} {status:?}");
        }
    }

    #[test]
    fn a_change_that_only_deletes_arguments() {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        let change = OsChange {
            kernel_arguments: KernelArgumentsChange {
                delete: words(&["k=1", "q"]),
                append: words(&["q"]),
            },
            ..OsChange::default()
        };
        let wanted = DesiredOs { kernel_arguments: words(&["q"]), ..DesiredOs::default() };
        // The installer added the same argument: one of the two stays.
        let was = deployment(A, &["root=x", "k=1", "k=1", "q"]);
        let (old, new) = (was.clone(), deployment(A, &["root=x", "k=1", "q"]));
        let status = |booted: &OsDeployment, next: Option<&OsDeployment>| OsStatus {
            booted: booted.clone(),
            next: next.cloned(),
            ..OsStatus::default()
        };
        let not =
            || BootOutcome::NotBooted { problem: "unexpected kernel arguments: [k=1]".to_owned() };
        for (status, attempts, expected) in [
            (status(&new, None), 0, BootOutcome::Booted),
            (status(&old, None), 0, BootOutcome::Lost),
            (status(&old, None), 3, not()),
            (status(&old, Some(&new)), 0, not()),
            (status(&old, Some(&old)), 0, BootOutcome::Lost),
        ] {
            let line = status.booted.kernel_arguments.join(" ");
            let found = after_reboot(&change, &was, &wanted, &status, Some(&line), attempts);
            assert_eq!(found, expected, "{status:?}");
        }
        // Not on a host that does not report what it was booted with.
        let unknown = OsDeployment::default();
        let status = status(&old, None);
        let found = after_reboot(&change, &unknown, &wanted, &status, Some("k=1 q"), 0);
        assert_eq!(found, BootOutcome::Booted);
    }
}
