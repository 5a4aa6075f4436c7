//! The outline of a MachineConfig: what it manages, without any contents.
//!
//! Only fields that are known to be harmless stay, so that a field of a later Ignition version cannot leak.

use serde_json::{Map, Value, json};

use super::OBJECT_COPY_ANNOTATIONS;

/// What stays of the entries of a list in the Ignition config: section, list, fields.
const KEPT_LISTS: [(&str, &str, &[&str]); 6] = [
    ("storage", "files", &["path", "mode", "overwrite", "user", "group", "filesystem"]),
    ("storage", "directories", &["path", "mode", "overwrite", "user", "group", "filesystem"]),
    ("storage", "links", &["path", "overwrite", "hard", "user", "group", "filesystem"]),
    ("systemd", "units", &["name", "enabled", "enable", "mask"]),
    ("passwd", "users", &["name"]),
    ("passwd", "groups", &["name", "gid"]),
];

/// Replaces the Ignition config in a MachineConfig by its outline: which files, units and users there are.
pub fn outline_machine_config(object: &mut Value) {
    if let Some(annotations) =
        object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut)
    {
        for copy in OBJECT_COPY_ANNOTATIONS {
            annotations.remove(copy);
        }
    }
    if let Some(config) = object.pointer_mut("/spec/config") {
        *config = outline(config);
    }
}

fn outline(config: &Value) -> Value {
    let mut new = Map::new();
    if let Some(version) = config["ignition"]["version"].as_str() {
        new.insert("ignition".to_owned(), json!({"version": version}));
    }
    for (section, list, fields) in KEPT_LISTS {
        let Some(entries) = config[section][list].as_array() else { continue };
        let entries: Vec<Value> = entries.iter().map(|entry| keep(entry, fields)).collect();
        let section = new.entry(section).or_insert_with(|| json!({}));
        section[list] = entries.into();
    }
    Value::Object(new)
}

fn keep(entry: &Value, fields: &[&str]) -> Value {
    let kept =
        fields.iter().filter_map(|field| Some(((*field).to_owned(), entry.get(*field)?.clone())));
    Value::Object(kept.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outline_has_names_and_no_contents() {
        let mut object = json!({
            "kind": "MachineConfig",
            "metadata": {"name": "a", "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": "SECRET", "b": "c",
            }},
            "spec": {
                "kernelArguments": ["quiet"],
                "config": {
                    "ignition": {
                        "version": "3.5.0",
                        "config": {"merge": [{"source": "SECRET", "httpHeaders": [{"value": "SECRET"}]}]},
                    },
                    "storage": {
                        "files": [{
                            "path": "/etc/a", "mode": 384,
                            "contents": {"source": "SECRET"}, "append": [{"source": "SECRET"}],
                        }],
                        "luks": [{"keyFile": {"source": "SECRET"}}],
                        "later": "SECRET",
                    },
                    "systemd": {"units": [{
                        "name": "a.service", "enabled": true, "contents": "SECRET",
                        "dropins": [{"name": "b.conf", "contents": "SECRET"}],
                    }]},
                    "passwd": {"users": [{
                        "name": "core", "passwordHash": "SECRET", "sshAuthorizedKeys": ["SECRET"],
                    }]},
                },
            },
        });
        outline_machine_config(&mut object);
        assert!(!object.to_string().contains("SECRET"), "{object:#}");
        assert_eq!(
            object["spec"]["config"]["storage"]["files"],
            json!([{"path": "/etc/a", "mode": 384}])
        );
        assert_eq!(object["spec"]["config"]["systemd"]["units"][0]["name"], "a.service");
        assert_eq!(object["spec"]["config"]["passwd"]["users"], json!([{"name": "core"}]));
        assert_eq!(object["spec"]["kernelArguments"], json!(["quiet"]));
        for odd in [json!("SECRET"), json!(["SECRET"]), json!(null), json!({"storage": "SECRET"})] {
            let mut object = json!({"spec": {"config": odd}});
            outline_machine_config(&mut object);
            assert!(!object.to_string().contains("SECRET"), "{object}");
        }
    }
}
