//! Random Ignition configs of every version: mostly valid, with a few mistakes.

use serde_json::{Map, Value, json};

use super::Rng;
use super::storage_configs::storage;

/// A random config of a random version; one in four is damaged somewhere.
pub fn any_config(rng: &mut Rng) -> Value {
    let mut config = if rng.chance(1, 4) { config_v2(rng) } else { config_v3(rng) };
    if rng.chance(1, 4) {
        damage(rng, &mut config);
    }
    config
}

/// A random specification 3 config.
pub fn config_v3(rng: &mut Rng) -> Value {
    let version =
        *rng.pick(&["3.0.0", "3.1.0", "3.2.0", "3.3.0", "3.4.0", "3.5.0", "3.5.0", "3.5.0"]);
    let mut ignition = object(json!({"version": version}));
    maybe(
        rng,
        10,
        &mut ignition,
        "timeouts",
        |r| json!({"httpTotal": r.below(9), "httpResponseHeaders": r.below(3)}),
    );
    maybe(rng, 12, &mut ignition, "proxy", |r| {
        let proxies = ["http://proxy:3128", "https://p", "socks5://x", "http://[::1", ""];
        let mut proxy = Map::new();
        maybe(r, 2, &mut proxy, "httpProxy", |r| json!(*r.pick(&proxies)));
        maybe(r, 2, &mut proxy, "httpsProxy", |r| json!(*r.pick(&proxies)));
        maybe(r, 2, &mut proxy, "noProxy", |r| strings(r, &["a", "b", "c"], 3));
        Value::Object(proxy)
    });
    maybe(rng, 12, &mut ignition, "config", |r| {
        let mut config = Map::new();
        maybe(r, 2, &mut config, "merge", |r| list(r, 2, resource));
        maybe(r, 3, &mut config, "replace", resource);
        Value::Object(config)
    });
    maybe(
        rng,
        12,
        &mut ignition,
        "security",
        |r| json!({"tls": {"certificateAuthorities": list(r, 2, resource)}}),
    );
    let mut config = object(json!({}));
    config.insert("ignition".to_owned(), Value::Object(ignition));
    maybe(rng, 2, &mut config, "storage", storage);
    maybe(rng, 2, &mut config, "systemd", |r| json!({"units": list(r, 3, unit)}));
    maybe(rng, 3, &mut config, "passwd", |r| {
        let mut passwd = Map::new();
        maybe(r, 2, &mut passwd, "users", |r| list(r, 2, user));
        maybe(r, 4, &mut passwd, "groups", |r| list(r, 2, group));
        Value::Object(passwd)
    });
    maybe(rng, 8, &mut config, "kernelArguments", |r| {
        json!({
            "shouldExist": strings(r, &["a", "b=1", "c"], 2),
            "shouldNotExist": strings(r, &["a", "d", "e"], 2)
        })
    });
    Value::Object(config)
}

/// A random specification 2 config.
pub fn config_v2(rng: &mut Rng) -> Value {
    let version = *rng.pick(&["2.2.0", "2.2.0", "2.1.0", "2.0.0"]);
    let mut config = object(json!({"ignition": {"version": version}}));
    maybe(rng, 2, &mut config, "storage", |r| {
        let mut storage = Map::new();
        maybe(r, 2, &mut storage, "files", |r| list(r, 3, file_v2));
        maybe(r, 6, &mut storage, "directories", |r| {
            list(r, 2, |r| json!({"filesystem": "root", "path": path(r), "mode": mode(r)}))
        });
        maybe(r, 6, &mut storage, "links", |r| {
            list(
                r,
                2,
                |r| json!({"filesystem": "root", "path": path(r), "target": *r.pick(&["/a", "b", ""])}),
            )
        });
        maybe(
            r,
            12,
            &mut storage,
            "filesystems",
            |r| json!([{"name": *r.pick(&["root", "data"]), "mount": {"device": "/dev/sda", "format": "ext4"}}]),
        );
        Value::Object(storage)
    });
    maybe(rng, 2, &mut config, "systemd", |r| json!({"units": list(r, 3, unit)}));
    maybe(rng, 4, &mut config, "passwd", |r| {
        json!({"users": list(r, 3, |r| {
            let mut user = object(json!({"name": *r.pick(&["core", "core", "core", "bob"])}));
            maybe(r, 2, &mut user, "sshAuthorizedKeys", |r| strings(r, &["k1", "k2", "k3"], 3));
            maybe(r, 4, &mut user, "passwordHash", |_| json!("$6$x"));
            Value::Object(user)
        })})
    });
    maybe(
        rng,
        20,
        &mut config,
        "networkd",
        |_| json!({"units": [{"name": "a.network", "contents": ""}]}),
    );
    Value::Object(config)
}

fn file_v2(rng: &mut Rng) -> Value {
    let mut file = object(json!({"filesystem": "root", "path": path(rng)}));
    maybe(rng, 1, &mut file, "contents", |r| json!({"source": source(r)}));
    maybe(rng, 2, &mut file, "mode", mode);
    maybe(rng, 6, &mut file, "append", |r| json!(r.chance(1, 2)));
    maybe(rng, 6, &mut file, "overwrite", |r| json!(r.chance(1, 2)));
    maybe(rng, 6, &mut file, "user", |r| json!({"id": r.below(3)}));
    maybe(rng, 6, &mut file, "group", |_| json!({"name": "g"}));
    Value::Object(file)
}

pub(super) fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// Adds a field, one time in `of` (and a little more often than never if `of` is 1).
pub(super) fn maybe(
    rng: &mut Rng,
    of: usize,
    map: &mut Map<String, Value>,
    key: &str,
    value: impl FnOnce(&mut Rng) -> Value,
) {
    if of <= 1 && !rng.chance(1, 10) || of > 1 && rng.chance(1, of) {
        let value = value(rng);
        map.insert(key.to_owned(), value);
    }
}

pub(super) fn list(rng: &mut Rng, most: usize, mut item: impl FnMut(&mut Rng) -> Value) -> Value {
    let count = rng.below(most + 1);
    Value::Array((0..count).map(|_| item(rng)).collect())
}

pub(super) fn strings(rng: &mut Rng, choices: &[&str], most: usize) -> Value {
    list(rng, most, |r| json!(*r.pick(choices)))
}

fn path(rng: &mut Rng) -> Value {
    let paths = [
        "/etc/a",
        "/etc/b",
        "/etc/c",
        "/etc/d/e",
        "/etc/d",
        "/opt/x y",
        "/etc/systemd/system/a.service",
        "/etc/systemd/system/a.service.d/10-x.conf",
        "/run/x",
        "/usr/local/bin/y",
        "/a",
        "/",
        "",
        "rel",
        "/a/",
        "/a/../b",
        "/etc//a",
    ];
    let index = if rng.chance(9, 10) { rng.below(11) } else { rng.below(paths.len()) };
    json!(paths[index])
}

pub(super) fn mode(rng: &mut Rng) -> Value {
    json!(*rng.pick(&[420, 420, 384, 493, 0, 511, 512, 2541, 4095, 4096, -1]))
}

fn source(rng: &mut Rng) -> Value {
    let common = [
        "data:,hello",
        "data:,a%20b",
        "data:;base64,aGVsbG8=",
        "data:text/plain;charset=utf-8;base64,aGk=",
        "data:,",
    ];
    let odd = [
        "",
        "http://example.com/a",
        "https://x/%zz",
        "s3://b/k?versionId=",
        "s3://b/k",
        "gs://b/k",
        "arn:aws:s3:::b/k",
        "arn:aws:s3:r:1:accesspoint/a/b",
        "arn:aws:s3:r:1:accesspoint/a",
        "arn:x",
        "tftp://h/x",
        "ftp://x",
        "data:x",
        "data:,%2",
        "data:;base64,a",
        "data:,é",
        "DATA:,x",
        "a b",
        "data:foo/bar,x",
        "oem:///x",
        "data:,a#b",
        "http://a b/",
    ];
    json!(if rng.chance(4, 5) { *rng.pick(&common) } else { *rng.pick(&odd) })
}

pub(super) fn resource(rng: &mut Rng) -> Value {
    let mut resource = Map::new();
    maybe(rng, 1, &mut resource, "source", source);
    maybe(rng, 6, &mut resource, "compression", |r| json!(*r.pick(&["", "gzip", "gzip", "xz"])));
    maybe(rng, 12, &mut resource, "httpHeaders", |r| {
        list(r, 2, |r| {
            let mut header = object(json!({"name": *r.pick(&["A", "B", ""])}));
            maybe(r, 1, &mut header, "value", |r| json!(*r.pick(&["1", "2", ""])));
            Value::Object(header)
        })
    });
    maybe(rng, 10, &mut resource, "verification", |r| {
        let hashes = ["sha512-00", "sha256-00", "md5-x", "nodash"];
        let good = [format!("sha512-{}", "a".repeat(128)), format!("sha256-{}", "b".repeat(64))];
        if r.chance(3, 4) {
            json!({"hash": r.pick(&good)})
        } else {
            json!({"hash": *r.pick(&hashes)})
        }
    });
    Value::Object(resource)
}

fn owner(rng: &mut Rng) -> Value {
    let mut owner = Map::new();
    maybe(rng, 2, &mut owner, "id", |r| json!(r.below(3)));
    maybe(rng, 5, &mut owner, "name", |r| json!(*r.pick(&["root", "core", ""])));
    Value::Object(owner)
}

pub(super) fn node(rng: &mut Rng) -> Map<String, Value> {
    let mut node = Map::new();
    maybe(rng, 1, &mut node, "path", path);
    maybe(rng, 6, &mut node, "user", owner);
    maybe(rng, 6, &mut node, "group", owner);
    maybe(rng, 6, &mut node, "overwrite", |r| json!(r.chance(1, 2)));
    node
}

pub(super) fn file(rng: &mut Rng) -> Value {
    let mut file = node(rng);
    maybe(rng, 1, &mut file, "contents", resource);
    maybe(rng, 12, &mut file, "append", |r| list(r, 2, resource));
    maybe(rng, 2, &mut file, "mode", mode);
    Value::Object(file)
}

fn unit_text(rng: &mut Rng) -> Value {
    let texts = [
        "",
        "[Unit]\nDescription=x\n",
        "[Service]\nExecStart=/bin/true\n\n[Install]\nWantedBy=multi-user.target\n",
        "[Service]\nA=b \\\n  c\n",
        "# only a comment",
        "[Unit]",
        "[Unit]\nno equals\n",
        "[Unit",
        "[Unit] x\n",
        "garbage\n[X]\na=b",
        "[Service]\nX=y",
        "[Service]\nEnvironment=\"A=b c\"\n",
        "\n\n",
        "[Install]\n",
        "[A]\n;c \\\nd\ne=f",
    ];
    json!(if rng.chance(4, 5) { texts[rng.below(4)] } else { *rng.pick(&texts) })
}

fn unit(rng: &mut Rng) -> Value {
    let names =
        ["a.service", "b.service", "c.timer", "x@.service", "x@y.service", "d.mount", "noext", ""];
    let index = if rng.chance(9, 10) { rng.below(6) } else { rng.below(names.len()) };
    let mut unit = object(json!({"name": names[index]}));
    maybe(rng, 2, &mut unit, "contents", unit_text);
    maybe(rng, 2, &mut unit, "enabled", |r| json!(r.chance(1, 2)));
    maybe(rng, 6, &mut unit, "enable", |r| json!(r.chance(1, 2)));
    maybe(rng, 6, &mut unit, "mask", |r| json!(r.chance(1, 2)));
    maybe(rng, 3, &mut unit, "dropins", |r| {
        list(r, 3, |r| {
            let mut dropin = object(
                json!({"name": *r.pick(&["10-x.conf", "20-y.conf", "30-z.conf", "40-w.conf", "x"])}),
            );
            maybe(r, 1, &mut dropin, "contents", unit_text);
            Value::Object(dropin)
        })
    });
    Value::Object(unit)
}

fn user(rng: &mut Rng) -> Value {
    let mut user = object(json!({"name": *rng.pick(&["core", "core", "bob"])}));
    maybe(rng, 2, &mut user, "sshAuthorizedKeys", |r| strings(r, &["k1", "k2", "k3", "k4"], 2));
    maybe(rng, 4, &mut user, "passwordHash", |r| json!(*r.pick(&["$6$x", ""])));
    maybe(rng, 5, &mut user, "groups", |r| strings(r, &["g1", "g2", "g3"], 2));
    maybe(rng, 6, &mut user, "shell", |_| json!("/bin/sh"));
    maybe(rng, 6, &mut user, "uid", |r| json!(r.below(3)));
    maybe(rng, 8, &mut user, "system", |r| json!(r.chance(1, 2)));
    maybe(rng, 8, &mut user, "shouldExist", |r| json!(r.chance(1, 2)));
    maybe(rng, 8, &mut user, "noCreateHome", |r| json!(r.chance(1, 2)));
    Value::Object(user)
}

fn group(rng: &mut Rng) -> Value {
    let mut group = object(json!({"name": *rng.pick(&["g1", "g2"])}));
    maybe(rng, 3, &mut group, "gid", |r| json!(r.below(3)));
    maybe(rng, 5, &mut group, "shouldExist", |r| json!(r.chance(1, 2)));
    maybe(rng, 5, &mut group, "passwordHash", |_| json!("x"));
    Value::Object(group)
}

/// Changes one place: another type, null, an unknown or differently written key, another version.
fn damage(rng: &mut Rng, config: &mut Value) {
    match rng.below(8) {
        0 => {
            let versions = ["3.6.0", "3.5.0-x", "2.3.0", "1.0.0", "", "3", "3.5.1", "4.0.0"];
            config["ignition"]["version"] = json!(*rng.pick(&versions));
        }
        1 => config["unknownKey"] = json!({"a": 1}),
        _ => damage_somewhere(rng, config),
    }
}

fn damage_somewhere(rng: &mut Rng, value: &mut Value) {
    let go_on = rng.chance(5, 6);
    match value {
        Value::Object(map) if go_on && !map.is_empty() => {
            let keys: Vec<String> = map.keys().cloned().collect();
            let key = rng.pick(&keys).clone();
            if rng.chance(1, 12) {
                // Go matches field names case-insensitively.
                if let Some(value) = map.remove(&key) {
                    map.insert(key.to_uppercase(), value);
                }
            } else if let Some(inner) = map.get_mut(&key) {
                damage_somewhere(rng, inner);
            }
        }
        Value::Array(values) if go_on && !values.is_empty() => {
            let index = rng.below(values.len());
            damage_somewhere(rng, &mut values[index]);
        }
        other => {
            *other = rng
                .pick(&[
                    json!(null),
                    json!(1),
                    json!(1.5),
                    json!("x"),
                    json!([]),
                    json!({}),
                    json!(true),
                    json!([null]),
                ])
                .clone();
        }
    }
}
