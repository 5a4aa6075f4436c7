//! Limits of Linux on paths. Checked wherever a config is judged (`validate`, `reconcile_check`), so that
//! a path that no kernel accepts is refused before a machine sees it.

use super::schema::Config;

/// The maximum length of a file name, in bytes.
pub const NAME_MAX: usize = 255;
/// The maximum length of a path, in bytes. The kernel counts the zero byte at its end too.
pub const PATH_MAX: usize = 4095;
/// How much of a path an error shows: the annotations of a Node have limits as well.
const MAX_SHOWN: usize = 200;

/// A path that Linux does not accept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathTooLong {
    /// One of its names is too long.
    #[error(
        "path {path:?} has a name of {length} bytes (shorten it: Linux allows {NAME_MAX} bytes between two slashes)"
    )]
    Name {
        /// The path, shortened.
        path: String,
        /// The length of the name.
        length: usize,
    },
    /// The path as a whole is too long.
    #[error("path {path:?} has {length} bytes (shorten it: Linux allows {PATH_MAX} bytes)")]
    Path {
        /// The path, shortened.
        path: String,
        /// Its length.
        length: usize,
    },
}

/// Checks one path.
pub fn check_path_length(path: &str) -> Result<(), PathTooLong> {
    let shown = || match path.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}…", &path[..end]),
        None => path.to_owned(),
    };
    if let Some(length) = path.split('/').map(str::len).find(|length| *length > NAME_MAX) {
        return Err(PathTooLong::Name { path: shown(), length });
    }
    if path.len() > PATH_MAX {
        return Err(PathTooLong::Path { path: shown(), length: path.len() });
    }
    Ok(())
}

/// Checks every path that a config writes.
pub fn check_path_lengths(config: &Config) -> Result<(), PathTooLong> {
    let storage = &config.storage;
    let files = storage.files.iter().map(|file| file.path.as_str());
    let directories = storage.directories.iter().map(|directory| directory.path.as_str());
    let links = storage.links.iter().map(|link| link.path.as_str());
    files.chain(directories).chain(links).try_for_each(check_path_length)?;
    for unit in &config.systemd.units {
        check_path_length(&format!("/etc/systemd/system/{}", unit.name))?;
        for dropin in &unit.dropins {
            check_path_length(&format!("/etc/systemd/system/{}.d/{}", unit.name, dropin.name))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_and_paths_have_the_limits_of_linux() {
        let name = |length: usize| format!("/etc/{}", "n".repeat(length));
        let deep = |length: usize| "/d".repeat(length / 2) + &"x".repeat(length % 2);
        for (path, expected) in [
            (name(255), None),
            (name(256), Some("a name of 256 bytes")),
            // Bytes count, not characters.
            (format!("/etc/{}", "ä".repeat(127)), None),
            (format!("/etc/{}", "ä".repeat(128)), Some("a name of 256 bytes")),
            (format!("{}/x", name(256)), Some("a name of 256 bytes")),
            (deep(4095), None),
            (deep(4096), Some("has 4096 bytes")),
        ] {
            let found = check_path_length(&path).err().map(|error| error.to_string());
            match expected {
                None => assert_eq!(found, None, "{path}"),
                Some(part) => {
                    let found = found.unwrap();
                    assert!(found.contains(part) && found.contains("shorten it"), "{found}");
                    assert!(found.len() < 800, "{found}");
                }
            }
        }
    }

    #[test]
    fn every_path_of_a_config_is_checked() {
        let (long, fits) = ("n".repeat(256), "n".repeat(245));
        let unit = |name: &str| json!({"systemd": {"units": [{"name": name}]}});
        let dropin = |unit: &str, name: &str| json!({"systemd": {"units": [{"name": unit, "dropins": [{"name": name}]}]}});
        for (section, is_valid) in [
            (json!({"storage": {"files": [{"path": format!("/{long}")}]}}), false),
            (json!({"storage": {"files": [{"path": format!("/{fits}")}]}}), true),
            (json!({"storage": {"directories": [{"path": format!("/{long}/x")}]}}), false),
            (json!({"storage": {"links": [{"path": format!("/{long}"), "target": "/x"}]}}), false),
            (unit(&format!("{long}.service")), false),
            (unit(&format!("{fits}.service")), true),
            // The directory of its drop-ins has two bytes more.
            (dropin(&format!("{}.service", "n".repeat(246)), "a.conf"), false),
            (dropin("a.service", &format!("{long}.conf")), false),
            (dropin("a.service", "a.conf"), true),
        ] {
            let mut section = section;
            section["ignition"] = json!({"version": "3.5.0"});
            let (config, _) = crate::ignition::parse_and_upgrade(&section).unwrap();
            assert_eq!(check_path_lengths(&config).is_ok(), is_valid, "{section}");
        }
    }
}
