//! Upgrades 2.0 and 2.1 to 2.2. Plain values there are optional ones here, and Ignition's
//! translators set them even if they were absent.

use super::schema::{Config, Owner};

/// Upgrades a valid config of version `2.<minor>.0` to 2.2.0.
pub(super) fn lift_to_2_2(config: &mut Config, minor: u8) {
    if minor == 0 {
        lift_2_0(config);
    }
    if minor <= 1 {
        lift_2_1(config);
    }
    "2.2.0".clone_into(&mut config.ignition.version);
}

fn lift_2_0(config: &mut Config) {
    for file in config.storage.files.iter_mut() {
        for owner in [&mut file.user, &mut file.group] {
            owner.get_or_insert_default().id.get_or_insert_default();
        }
        trim_hash(&mut file.contents.verification.hash);
    }
    let references = &mut config.ignition.config;
    for reference in references.append.iter_mut().chain(references.replace.as_mut()) {
        trim_hash(&mut reference.verification.hash);
    }
    for user in config.passwd.users.iter_mut() {
        if user.password_hash.as_deref() == Some("") {
            user.password_hash = None;
        }
    }
}

/// The translator strips quotes from a hash, even those that belong to it.
fn trim_hash(hash: &mut Option<String>) {
    if let Some(hash) = hash {
        *hash = hash.trim_matches('"').to_owned();
    }
}

fn lift_2_1(config: &mut Config) {
    let storage = &mut config.storage;
    let owners = |user: &mut Option<Owner>, group: &mut Option<Owner>| {
        user.get_or_insert_default();
        group.get_or_insert_default();
    };
    for file in storage.files.iter_mut() {
        owners(&mut file.user, &mut file.group);
        file.mode.get_or_insert_default();
    }
    for directory in storage.directories.iter_mut() {
        owners(&mut directory.user, &mut directory.group);
        directory.mode.get_or_insert_default();
    }
    for link in storage.links.iter_mut() {
        owners(&mut link.user, &mut link.group);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::parse;

    fn lifted(raw: &Value, minor: u8) -> Value {
        serde_json::to_value(parse(raw, minor).unwrap().0).unwrap()
    }

    #[test]
    fn a_2_0_file_gets_owner_group_and_mode() {
        let raw = json!({
            "ignition": {"version": "2.0.0"},
            "storage": {"files": [
                {"filesystem": "root", "path": "/a", "contents": {"source": "DATA:,x"}},
                {"filesystem": "root", "path": "/b", "mode": 420, "user": {"id": 5, "name": "x"}},
            ]},
            "passwd": {"users": [{"name": "core", "passwordHash": "", "gecos": "unknown here"}]},
        });
        let expected = json!({
            "ignition": {"version": "2.2.0"},
            "storage": {"files": [
                {"filesystem": "root", "group": {"id": 0}, "path": "/a", "user": {"id": 0},
                 "contents": {"source": "data:,x"}, "mode": 0},
                {"filesystem": "root", "group": {"id": 0}, "path": "/b", "user": {"id": 5},
                 "mode": 420},
            ]},
            "passwd": {"users": [{"name": "core"}]},
        });
        assert_eq!(lifted(&raw, 0), expected);
    }

    #[test]
    fn a_2_1_node_gets_an_empty_owner_and_a_mode() {
        let node = json!({"filesystem": "root", "path": "/a"});
        let raw = json!({
            "ignition": {"version": "2.1.0", "timeouts": {"httpTotal": 3}},
            "storage": {"files": [node], "directories": [node], "links": [node]},
        });
        let filled =
            json!({"filesystem": "root", "path": "/a", "user": {}, "group": {}, "mode": 0});
        let link = json!({"filesystem": "root", "path": "/a", "user": {}, "group": {}});
        let expected = json!({
            "ignition": {"version": "2.2.0", "timeouts": {"httpTotal": 3}},
            "storage": {"files": [filled], "directories": [filled], "links": [link]},
        });
        assert_eq!(lifted(&raw, 1), expected);
    }

    #[test]
    fn numbers_of_2_0_are_unsigned() {
        let group = |minor: u8, gid: Value| {
            let version = format!("2.{minor}.0");
            json!({"ignition": {"version": version}, "passwd": {"groups": [{"gid": gid}]}})
        };
        assert!(parse(&group(0, json!(-1)), 0).is_err());
        assert!(parse(&group(1, json!(-1)), 1).is_ok());
        assert!(parse(&group(1, json!(u64::MAX)), 1).is_err());
        let (config, _) = parse(&group(0, json!(u64::MAX)), 0).unwrap();
        assert_eq!(config.passwd.groups[0].gid.unwrap().0, -1);
    }
}
