//! Observes the daemon's service on the machine: its files, and its state in systemd. Decides nothing:
//! `core::watchdog` does. Called by `status` and `watchdog`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use machinist_core::watchdog::{BinaryFile, ObservedService, UnitFileState};

use super::join::paths::JoinPaths;
use super::join::{SERVICE, credentials};
use super::systemd::Systemd;

/// Where systemd looks for the unit, first match first.
const UNIT_DIRS: [&str; 5] = [
    "etc/systemd/system",
    "run/systemd/system",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
];

/// Observes the service; `None` if the machine has not joined.
pub(super) async fn observe(root: &Path) -> Option<ObservedService> {
    let join_paths = JoinPaths::new(root);
    let identity = credentials::read_flattened(&join_paths.kubeconfig()).ok();
    let has_joined = join_paths.kubeconfig().symlink_metadata().is_ok();
    // A damaged one counts too; that of a package does nothing before the machine joins.
    let has_own_unit = join_paths.unit_file(SERVICE).symlink_metadata().is_ok();
    if !has_joined && !has_own_unit {
        return None;
    }
    let (mut unit, text) = unit_file(root);
    let binary = binary_path(&text).map_or(BinaryFile::Present, |path| binary_file(root, path));
    let mut observed = ObservedService {
        has_identity: identity.is_some(),
        has_expired: identity.is_some_and(|identity| credentials::has_expired(&identity)),
        unit,
        is_enabled: UNIT_DIRS.iter().any(|directory| {
            let wants = root.join(directory).join("multi-user.target.wants");
            wants.join(SERVICE).symlink_metadata().is_ok()
        }),
        binary,
        active_state: None,
        restarts: 0,
    };
    if let Ok(Some(systemd)) = Systemd::connect(root).await {
        observed.active_state = systemd.active_state(SERVICE).await.ok();
        // A unit that is not loaded as a service has no such property.
        observed.restarts = systemd.restarts(SERVICE).await.unwrap_or_default();
        let load_state = systemd.load_state(SERVICE).await.unwrap_or_default();
        if unit == UnitFileState::Present && matches!(load_state.as_str(), "bad-setting" | "error")
        {
            unit = UnitFileState::Invalid;
        }
        observed.unit = unit;
    }
    Some(observed)
}

/// The unit that systemd would load, and its text.
pub(super) fn unit_file(root: &Path) -> (UnitFileState, String) {
    let places = UNIT_DIRS.iter().map(|directory| root.join(directory).join(SERVICE));
    let Some(path) = places.into_iter().find(|path| path.symlink_metadata().is_ok()) else {
        return (UnitFileState::Missing, String::new());
    };
    if fs::read_link(&path).is_ok_and(|target| target == Path::new("/dev/null")) {
        return (UnitFileState::Masked, String::new());
    }
    match fs::read_to_string(&path) {
        Ok(text) if text.is_empty() => (UnitFileState::Empty, text),
        Ok(text) => (UnitFileState::Present, text),
        Err(_) => (UnitFileState::Invalid, String::new()),
    }
}

/// The text of the unit of a package, which a unit in `/etc` hides.
pub(super) fn packaged_unit(root: &Path) -> Option<String> {
    let places = UNIT_DIRS.iter().skip(2).map(|directory| root.join(directory).join(SERVICE));
    places.into_iter().find_map(|path| fs::read_to_string(path).ok())
}

/// The binary that a unit runs.
pub(super) fn binary_path(unit: &str) -> Option<&Path> {
    let command = unit.lines().find_map(|line| line.strip_prefix("ExecStart="))?;
    command.split_whitespace().next().map(Path::new)
}

/// The path of the binary that the service of this machine runs, and where it is if a link leads there. `join --binary` may have
/// put it anywhere.
pub(super) fn own_binary(root: &Path) -> Vec<String> {
    let (_, unit) = unit_file(root);
    let Some(path) = binary_path(&unit) else { return Vec::new() };
    let real = path.canonicalize().ok().filter(|real| root == Path::new("/") && real != path);
    let paths = [Some(path.to_owned()), real].into_iter().flatten();
    paths.filter_map(|path| path.into_os_string().into_string().ok()).collect()
}

/// The binary of another root may be the one of this host: `join --binary` names a path of this host.
fn binary_file(root: &Path, path: &Path) -> BinaryFile {
    let is_executable = path.metadata().is_ok_and(|found| {
        found.is_file() && found.len() > 0 && found.permissions().mode() & 0o111 != 0
    });
    if is_executable || root != Path::new("/") { BinaryFile::Present } else { BinaryFile::Missing }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn the_unit_that_systemd_would_load_counts() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let etc = root.join("etc/systemd/system");
        let packaged = root.join("usr/lib/systemd/system");
        for directory in [&etc, &packaged] {
            fs::create_dir_all(directory).unwrap();
        }
        assert_eq!(unit_file(root).0, UnitFileState::Missing);
        fs::write(packaged.join(SERVICE), "ExecStart=/usr/bin/machinist daemon\n").unwrap();
        let (unit, text) = unit_file(root);
        assert_eq!(unit, UnitFileState::Present);
        assert_eq!(binary_path(&text), Some(Path::new("/usr/bin/machinist")));
        assert_eq!(own_binary(root), ["/usr/bin/machinist"]);
        symlink("/dev/null", etc.join(SERVICE)).unwrap();
        assert_eq!(unit_file(root).0, UnitFileState::Masked);
        assert!(own_binary(root).is_empty());
        fs::remove_file(etc.join(SERVICE)).unwrap();
        fs::write(etc.join(SERVICE), "").unwrap();
        assert_eq!(unit_file(root).0, UnitFileState::Empty);
    }
}
