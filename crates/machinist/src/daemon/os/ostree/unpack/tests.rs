//! Layers on a disk: whiteouts, links, owners, and hostile layers.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use tempfile::TempDir;

use super::*;

/// A layer as text: `dir/`, `file=contents`, `link->target`, `second=>first`.
fn tar(entries: &[&str]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for entry in entries {
        let mut header = tar::Header::new_gnu();
        let here = fs::metadata("/proc/self").unwrap();
        header.set_uid(u64::from(here.uid()));
        header.set_gid(u64::from(here.gid()));
        header.set_mode(0o644);
        header.set_size(0);
        if let Some((path, target)) = entry.split_once("->") {
            header.set_entry_type(EntryType::Symlink);
            tar.append_link(&mut header, path, target).unwrap();
        } else if let Some((path, first)) = entry.split_once("=>") {
            header.set_entry_type(EntryType::Link);
            tar.append_link(&mut header, path, first).unwrap();
        } else if let Some((path, contents)) = entry.split_once('=') {
            header.set_size(contents.len() as u64);
            header.set_mode(0o4755);
            tar.append_data(&mut header, path, contents.as_bytes()).unwrap();
        } else {
            header.set_entry_type(EntryType::Directory);
            header.set_mode(0o750);
            tar.append_data(&mut header, entry, io::empty()).unwrap();
        }
    }
    tar.into_inner().unwrap()
}

fn sum(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn file(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    io::Seek::rewind(&mut file).unwrap();
    file
}

fn unpack(layers: &[&[&str]]) -> Result<TempDir> {
    let directory = tempfile::tempdir().unwrap();
    let mut tree = UnpackTree::open(directory.path()).unwrap();
    for entries in layers {
        let bytes = tar(entries);
        unpack_layer(&mut tree, file(&bytes), LayerCompression::None, &sum(&bytes))?;
    }
    Ok(directory)
}

fn listed(directory: &Path) -> Vec<String> {
    fn walk(directory: &Path, above: &str, list: &mut Vec<String>) {
        for entry in fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{above}{}", entry.file_name().to_string_lossy());
            if entry.file_type().unwrap().is_dir() {
                walk(&entry.path(), &format!("{name}/"), list);
                list.push(format!("{name}/"));
            } else {
                list.push(name);
            }
        }
    }
    let mut list = Vec::new();
    walk(directory, "", &mut list);
    list.sort();
    list
}

#[test]
fn layers_are_stacked() {
    let base: &[&str] =
        &["usr/", "usr/a=1", "usr/gone=1", "usr/d/x=1", "usr/d/y=1", "etc/motd=old"];
    for (upper, expected) in [
        (
            vec!["usr/a=2"],
            vec![
                "usr/",
                "usr/a",
                "usr/d/",
                "usr/d/x",
                "usr/d/y",
                "usr/etc/",
                "usr/etc/motd",
                "usr/gone",
            ],
        ),
        (
            vec!["usr/.wh.gone=", "etc/.wh.motd="],
            vec!["usr/", "usr/a", "usr/d/", "usr/d/x", "usr/d/y", "usr/etc/"],
        ),
        // A whiteout of a directory may come before or after the layer's own entries in it.
        (vec!["usr/.wh..wh..opq=", "usr/d/new="], vec!["usr/", "usr/d/", "usr/d/new"]),
        (vec!["usr/d/new=", "usr/.wh..wh..opq="], vec!["usr/", "usr/d/", "usr/d/new"]),
        (
            vec!["usr/d/x=2", "usr/.wh.d="],
            vec!["usr/", "usr/a", "usr/d/", "usr/d/x", "usr/etc/", "usr/etc/motd", "usr/gone"],
        ),
        (
            vec!["usr/d->a", "usr/b=>usr/a", "etc/new=>etc/motd"],
            vec![
                "usr/",
                "usr/a",
                "usr/b",
                "usr/d",
                "usr/etc/",
                "usr/etc/motd",
                "usr/etc/new",
                "usr/gone",
            ],
        ),
    ] {
        let directory = unpack(&[base, &upper]).unwrap();
        assert_eq!(listed(directory.path()), expected, "{upper:?}");
    }
}

#[test]
fn modes_links_and_contents_are_kept() {
    let directory =
        unpack(&[&["usr/d", "usr/d/su=12345", "usr/l->/etc/far", "usr/h=>usr/d/su"]]).unwrap();
    let at = |path: &str| directory.path().join(path);
    assert_eq!(fs::read(at("usr/h")).unwrap(), b"12345");
    assert_eq!(
        fs::metadata(at("usr/h")).unwrap().ino(),
        fs::metadata(at("usr/d/su")).unwrap().ino()
    );
    assert_eq!(fs::metadata(at("usr/d/su")).unwrap().permissions().mode() & 0o7777, 0o4755);
    assert_eq!(fs::metadata(at("usr/d")).unwrap().permissions().mode() & 0o7777, 0o750);
    assert_eq!(fs::read_link(at("usr/l")).unwrap(), Path::new("/etc/far"));
}

#[test]
fn attributes_are_kept_except_for_labels() {
    let mut tar = tar::Builder::new(Vec::new());
    let attributes: [(&str, &[u8]); 3] = [
        ("SCHILY.xattr.user.mine", b"yes"),
        ("SCHILY.xattr.security.selinux", b"label"),
        ("SCHILY.xattr.trusted.overlay.opaque", b"y"),
    ];
    tar.append_pax_extensions(attributes).unwrap();
    let mut header = tar::Header::new_ustar();
    header.set_size(0);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mode(0o644);
    tar.append_data(&mut header, "x", io::empty()).unwrap();
    let bytes = tar.into_inner().unwrap();
    let mut archive = Archive::new(bytes.as_slice());
    let mut entry = archive.entries().unwrap().next().unwrap().unwrap();
    let meta = meta(&mut entry).unwrap();
    assert_eq!(meta.xattrs, [("user.mine".to_owned(), b"yes".to_vec())]);
}

#[test]
fn hostile_layers_are_refused() {
    let outside = tempfile::tempdir().unwrap();
    let link = format!("way->{}", outside.path().display());
    for layers in
        [vec!["h=>../../etc/passwd"], vec!["h=>/no/such/file"], vec![link.as_str(), "way/file=x"]]
    {
        let refused = unpack(&[&layers]);
        assert!(refused.is_err(), "{layers:?}");
    }
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
}

#[test]
fn a_layer_with_other_contents_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let mut tree = UnpackTree::open(directory.path()).unwrap();
    let bytes = tar(&["usr/a=1"]);
    let error =
        unpack_layer(&mut tree, file(&bytes), LayerCompression::None, &sum(b"other")).unwrap_err();
    assert!(error.to_string().contains("should have"), "{error}");
    let cut = unpack_layer(&mut tree, file(&bytes[..700]), LayerCompression::None, &sum(&bytes));
    assert!(cut.is_err());
}

#[test]
fn every_compression_gives_the_same_tree() {
    let bytes = tar(&["usr/a=1", "usr/b=2"]);
    let (first, second) = bytes.split_at(512);
    let gzip = |bytes: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let zstd = |bytes: &[u8]| {
        let level = ruzstd::encoding::CompressionLevel::Fastest;
        ruzstd::encoding::compress_to_vec(bytes, level)
    };
    // An empty frame: tools hide their tables of contents in such.
    let skipped = [0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 1, 2, 3];
    for (packed, blob) in [
        (LayerCompression::None, bytes.clone()),
        (LayerCompression::Gzip, [gzip(first), gzip(second)].concat()),
        (LayerCompression::Zstd, [&zstd(first)[..], &skipped, &zstd(second), &skipped].concat()),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let mut tree = UnpackTree::open(directory.path()).unwrap();
        unpack_layer(&mut tree, file(&blob), packed, &sum(&bytes)).unwrap();
        assert_eq!(listed(directory.path()), ["usr/", "usr/a", "usr/b"], "{packed:?}");
    }
}
