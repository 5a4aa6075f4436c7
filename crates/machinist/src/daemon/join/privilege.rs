//! Whether a user may let a machine join or leave. Asked before anything is read: a missing privilege is not a problem
//! of the first file that only root can open.

use std::path::Path;

/// Why the user may not run a command on a whole machine, with the remedy; none if it may.
pub(crate) fn missing_privilege(command: &str, root: &Path, is_root: bool) -> Option<String> {
    (root == Path::new("/") && !is_root).then(|| {
        format!(
            "only root can run machinist {command} on a machine: run it with sudo, or name a directory of your own with --root"
        )
    })
}

/// The same for the user of this process.
pub(crate) fn check(command: &str, root: &Path) -> anyhow::Result<()> {
    let is_root = rustix::process::geteuid().is_root();
    missing_privilege(command, root, is_root).map_or(Ok(()), |why| Err(anyhow::anyhow!(why)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_machine_needs_root() {
        for (root, is_root, is_allowed) in [
            ("/", true, true),
            ("/", false, false),
            ("/.", false, false),
            ("//", false, false),
            ("/srv/machine-1", false, true),
            ("machine-1", false, true),
        ] {
            let missing = missing_privilege("join", Path::new(root), is_root);
            assert_eq!(missing.is_none(), is_allowed, "{root} {is_root}");
            if let Some(missing) = missing {
                assert!(
                    missing.contains("machinist join") && missing.contains("sudo"),
                    "{missing}"
                );
            }
        }
    }
}
