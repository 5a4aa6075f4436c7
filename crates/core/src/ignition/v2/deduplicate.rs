//! Removes duplicates from a specification 2 config as the Machine Config Operator does, because
//! specification 3 would refuse them: the last definition of a file or unit wins.

use std::collections::{HashMap, HashSet};

use super::schema::{Config, File, PasswdUser, Unit};
use super::to_v3::UpgradeError;

/// Keeps the last definition of every file and unit (drop-ins of an earlier unit are kept if the
/// later ones lack them), merges the keys of all `core` users, and refuses any other user. The
/// order of the lists of files and units is reversed.
pub fn remove_duplicates(mut config: Config) -> Result<Config, UpgradeError> {
    let users = std::mem::take(&mut config.passwd.users).into_vec();
    config.passwd.users = Vec::from_iter(last_user(users)?).into();
    config.storage.files = last_files(std::mem::take(&mut config.storage.files).into_vec()).into();
    config.systemd.units = last_units(std::mem::take(&mut config.systemd.units).into_vec()).into();
    Ok(config)
}

fn last_files(files: Vec<File>) -> Vec<File> {
    let mut seen = HashSet::new();
    files.into_iter().rev().filter(|file| seen.insert(file.path.clone())).collect()
}

fn last_units(units: Vec<Unit>) -> Vec<Unit> {
    let mut kept: Vec<Unit> = Vec::with_capacity(units.len());
    let mut places: HashMap<String, usize> = HashMap::new();
    for unit in units.into_iter().rev() {
        let Some(&place) = places.get(&unit.name) else {
            places.insert(unit.name.clone(), kept.len());
            kept.push(unit);
            continue;
        };
        let dropins = &mut kept[place].dropins;
        for dropin in unit.dropins.into_vec() {
            if dropins.iter().all(|known| known.name != dropin.name) {
                dropins.push(dropin);
            }
        }
    }
    kept
}

/// One user with the keys of all, the last user's first.
fn last_user(users: Vec<PasswdUser>) -> Result<Option<PasswdUser>, UpgradeError> {
    if let Some(other) = users.iter().rev().find(|user| user.name != "core") {
        return Err(UpgradeError::UnexpectedUser { name: other.name.clone() });
    }
    let mut seen = HashSet::new();
    let keys: Vec<String> = users
        .iter()
        .rev()
        .flat_map(|user| &user.ssh_authorized_keys)
        .filter(|key| seen.insert(*key))
        .cloned()
        .collect();
    Ok(users
        .into_iter()
        .next_back()
        .map(|user| PasswdUser { ssh_authorized_keys: keys.into(), ..user }))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::parse;
    use super::*;

    fn deduplicated(sections: Value) -> Result<Value, String> {
        let mut raw = sections;
        raw["ignition"] = json!({"version": "2.2.0"});
        let (config, _) = parse(&raw, 2).unwrap();
        let config = remove_duplicates(config).map_err(|problem| problem.to_string())?;
        let mut value = serde_json::to_value(config).unwrap();
        value.as_object_mut().unwrap().remove("ignition");
        Ok(value)
    }

    #[test]
    fn the_last_file_wins_and_the_list_is_reversed() {
        let file =
            |path: &str, mode: i64| json!({"filesystem": "root", "path": path, "mode": mode});
        let raw = json!({"storage": {"files": [file("/a", 1), file("/b", 2), file("/a", 3)]}});
        let expected = json!({"storage": {"files": [file("/a", 3), file("/b", 2)]}});
        assert_eq!(deduplicated(raw), Ok(expected));
    }

    #[test]
    fn units_are_reversed_and_their_dropins_merged() {
        let dropin = |name: &str, contents: &str| json!({"name": name, "contents": contents});
        let raw = json!({"systemd": {"units": [
            {"name": "a.service", "dropins": [dropin("1.conf", "[A]"), dropin("2.conf", "[B]")]},
            {"name": "b.service"},
            {"name": "a.service", "mask": true, "dropins": [dropin("2.conf", "[C]")]},
        ]}});
        let expected = json!({"systemd": {"units": [
            {"name": "a.service", "mask": true,
             "dropins": [dropin("2.conf", "[C]"), dropin("1.conf", "[A]")]},
            {"name": "b.service"},
        ]}});
        assert_eq!(deduplicated(raw), Ok(expected));
    }

    #[test]
    fn only_core_is_allowed_and_its_keys_are_deduplicated() {
        let core = |keys: &[&str]| json!({"name": "core", "sshAuthorizedKeys": keys});
        let raw = json!({"passwd": {"users": [core(&["a", "b"]), core(&["c", "a"])]}});
        let expected = json!({"passwd": {"users": [core(&["c", "a", "b"])]}});
        assert_eq!(deduplicated(raw), Ok(expected));
        let raw = json!({"passwd": {"users": [{"name": "alice"}, {"name": "bob"}, core(&[])]}});
        let problem = "unexpected user with name: bob. Only core user is supported";
        assert_eq!(deduplicated(raw), Err(problem.to_owned()));
    }
}
