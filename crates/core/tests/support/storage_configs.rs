//! Random `storage` sections of specification 3.

use serde_json::{Map, Value, json};

use super::Rng;
use super::configs::{file, list, maybe, mode, node, object, resource, strings};

pub(super) fn storage(rng: &mut Rng) -> Value {
    let mut storage = Map::new();
    maybe(rng, 1, &mut storage, "files", |r| list(r, 4, file));
    maybe(rng, 4, &mut storage, "directories", |r| {
        list(r, 2, |r| {
            let mut directory = node(r);
            maybe(r, 2, &mut directory, "mode", mode);
            Value::Object(directory)
        })
    });
    maybe(rng, 4, &mut storage, "links", |r| {
        list(r, 2, |r| {
            let mut link = node(r);
            maybe(r, 1, &mut link, "target", |r| json!(*r.pick(&["/etc/d", "x", "../a", ""])));
            maybe(r, 3, &mut link, "hard", |r| json!(r.chance(1, 2)));
            Value::Object(link)
        })
    });
    maybe(rng, 6, &mut storage, "disks", |r| list(r, 2, disk));
    maybe(rng, 6, &mut storage, "filesystems", |r| list(r, 2, filesystem));
    maybe(rng, 8, &mut storage, "raid", |r| list(r, 2, raid));
    maybe(rng, 8, &mut storage, "luks", |r| list(r, 2, luks));
    Value::Object(storage)
}

fn disk(rng: &mut Rng) -> Value {
    let guids = ["", "01234567-89AB-CDEF-EDCB-A98765432101", "x"];
    let mut disk = object(json!({"device": *rng.pick(&["/dev/a", "/dev/b", "/dev/a", "", "dev"])}));
    maybe(rng, 3, &mut disk, "wipeTable", |r| json!(r.chance(1, 2)));
    maybe(rng, 2, &mut disk, "partitions", |r| {
        list(r, 3, |r| {
            let mut partition = Map::new();
            maybe(r, 2, &mut partition, "number", |r| json!(r.below(3)));
            maybe(r, 2, &mut partition, "label", |r| json!(*r.pick(&["x", "y", "a:b", ""])));
            maybe(r, 3, &mut partition, "sizeMiB", |r| json!(r.below(100)));
            maybe(r, 3, &mut partition, "startMiB", |r| json!(r.below(100)));
            maybe(r, 6, &mut partition, "shouldExist", |r| json!(r.chance(1, 2)));
            maybe(r, 6, &mut partition, "resize", |r| json!(r.chance(1, 2)));
            maybe(r, 6, &mut partition, "guid", |r| json!(*r.pick(&guids)));
            maybe(r, 6, &mut partition, "typeGuid", |r| json!(*r.pick(&guids)));
            maybe(r, 6, &mut partition, "wipePartitionEntry", |r| json!(r.chance(1, 2)));
            Value::Object(partition)
        })
    });
    Value::Object(disk)
}

fn filesystem(rng: &mut Rng) -> Value {
    let mut filesystem = object(json!({"device": *rng.pick(&["/dev/a", "/dev/c", "/dev/d"])}));
    maybe(rng, 1, &mut filesystem, "format", |r| {
        json!(*r.pick(&["ext4", "xfs", "vfat", "swap", "btrfs", "none", "zfs"]))
    });
    maybe(rng, 3, &mut filesystem, "label", |r| {
        json!(*r.pick(&["x", "a-label-of-13", "a-label-of-16-ch", "a-label-of-17-cha", ""]))
    });
    maybe(rng, 3, &mut filesystem, "path", |r| json!(*r.pick(&["/var", "/etc/d", "var", ""])));
    maybe(rng, 3, &mut filesystem, "options", |r| strings(r, &["-m", "-n"], 2));
    maybe(rng, 4, &mut filesystem, "mountOptions", |r| strings(r, &["ro", "rw"], 2));
    maybe(rng, 4, &mut filesystem, "wipeFilesystem", |r| json!(r.chance(1, 2)));
    maybe(rng, 4, &mut filesystem, "uuid", |_| json!("u"));
    Value::Object(filesystem)
}

fn raid(rng: &mut Rng) -> Value {
    let mut raid = object(json!({"name": *rng.pick(&["md0", "md1"])}));
    maybe(rng, 1, &mut raid, "level", |r| {
        json!(*r.pick(&["raid1", "0", "linear", "raid10", "raid7", ""]))
    });
    maybe(rng, 1, &mut raid, "devices", |r| strings(r, &["/dev/a", "/dev/b", "/dev/c", "x"], 3));
    maybe(rng, 4, &mut raid, "spares", |r| json!(r.below(2)));
    maybe(rng, 4, &mut raid, "options", |r| strings(r, &["-a", "-a", "-b"], 2));
    Value::Object(raid)
}

fn luks(rng: &mut Rng) -> Value {
    let mut luks = object(json!({"name": *rng.pick(&["l0", "l1", "a/b"])}));
    maybe(rng, 1, &mut luks, "device", |r| json!(*r.pick(&["/dev/a", "/dev/b", ""])));
    maybe(rng, 3, &mut luks, "keyFile", resource);
    maybe(rng, 4, &mut luks, "label", |r| {
        json!(*r.pick(&["x", "a-label-that-is-longer-than-forty-seven-characters-is"]))
    });
    maybe(rng, 4, &mut luks, "discard", |r| json!(r.chance(1, 2)));
    maybe(rng, 4, &mut luks, "openOptions", |r| strings(r, &["-a", "-b"], 2));
    maybe(rng, 4, &mut luks, "options", |r| strings(r, &["-a", "-a"], 2));
    maybe(rng, 6, &mut luks, "cex", |r| json!({"enabled": r.chance(1, 2)}));
    maybe(rng, 2, &mut luks, "clevis", |r| {
        let mut clevis = Map::new();
        maybe(r, 2, &mut clevis, "tang", |r| {
            list(r, 2, |r| {
                let mut tang =
                    object(json!({"url": *r.pick(&["http://t", "https://u", "ftp://x", ""])}));
                maybe(r, 1, &mut tang, "thumbprint", |r| json!(*r.pick(&["t", "t", ""])));
                maybe(r, 4, &mut tang, "advertisement", |r| json!(*r.pick(&["{}", "{", ""])));
                Value::Object(tang)
            })
        });
        maybe(r, 4, &mut clevis, "tpm2", |r| json!(r.chance(1, 2)));
        maybe(r, 4, &mut clevis, "threshold", |r| json!(r.below(3)));
        maybe(
            r,
            4,
            &mut clevis,
            "custom",
            |r| json!({"pin": *r.pick(&["tpm2", "sss", "x", ""]), "config": *r.pick(&["c", ""]), "needsNetwork": r.chance(1, 2)}),
        );
        Value::Object(clevis)
    });
    Value::Object(luks)
}
