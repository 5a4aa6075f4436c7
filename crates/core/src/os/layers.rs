//! What an entry of an image layer means for the tree that is built from it.

use std::collections::BTreeSet;
use thiserror::Error;

/// What to do with an entry. Paths have no slash at either end, no `.` and no `..`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LayerEntry {
    /// The root of the tree itself.
    Root,
    /// Metadata for other tools, which does not belong in the tree.
    Ignore,
    /// Remove what lower layers have there.
    Whiteout(String),
    /// Remove everything that lower layers have in this directory; keep the directory.
    OpaqueWhiteout(String),
    /// Write the entry.
    Add(String),
}

/// Why a layer is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LayerError {
    /// It points out of the tree.
    #[error("the layer has an entry {0:?} that leads out of the image")]
    EscapesRoot(String),
    /// ostree accepts only UTF-8 names.
    #[error("the layer has an entry {0:?} whose name is not UTF-8")]
    NotUtf8(String),
}

const WHITEOUT: &str = ".wh.";
const OPAQUE: &str = ".wh..wh..opq";

/// What an entry's path means.
pub fn classify(path: &[u8]) -> Result<LayerEntry, LayerError> {
    let path = tree_path(path)?;
    let (directory, name) = path.rsplit_once('/').unwrap_or(("", &path));
    let beside = |name: &str| match directory {
        "" => name.to_owned(),
        directory => format!("{directory}/{name}"),
    };
    Ok(match name.strip_prefix(WHITEOUT) {
        _ if path.is_empty() => LayerEntry::Root,
        _ if name == OPAQUE => LayerEntry::OpaqueWhiteout(directory.to_owned()),
        // Names that are reserved for aufs, and empty names.
        Some(hidden) if matches!(hidden, "" | ".") || hidden.starts_with(WHITEOUT) => {
            LayerEntry::Ignore
        }
        Some(hidden) => LayerEntry::Whiteout(tree_path(beside(hidden).as_bytes())?),
        None => LayerEntry::Add(path),
    })
}

/// Where a path of the image belongs in the tree. `/etc` becomes `/usr/etc`: it holds the defaults of the
/// image, which are merged with the machine's own `/etc`.
pub fn tree_path(path: &[u8]) -> Result<String, LayerError> {
    let lossy = || String::from_utf8_lossy(path).into_owned();
    let text = std::str::from_utf8(path).map_err(|_| LayerError::NotUtf8(lossy()))?;
    let mut parts = Vec::new();
    for part in text.split('/').filter(|part| !matches!(*part, "" | ".")) {
        if part == ".." || part.contains('\0') {
            return Err(LayerError::EscapesRoot(lossy()));
        }
        parts.push(part);
    }
    if parts.first() == Some(&"etc") {
        parts.insert(0, "usr");
    }
    Ok(parts.join("/"))
}

/// The paths that one layer has written. Its whiteouts hide lower layers, never its own entries.
#[derive(Debug, Clone, Default)]
pub struct LayerPaths(BTreeSet<String>);

impl LayerPaths {
    /// Records a path and its parents.
    pub fn insert(&mut self, path: &str) {
        let mut path = path;
        while self.0.insert(path.to_owned()) {
            match path.rsplit_once('/') {
                Some((directory, _)) => path = directory,
                None => return,
            }
        }
    }

    /// Whether the layer itself has written this path or something below it.
    #[must_use]
    pub fn contains(&self, path: &str) -> bool {
        self.0.contains(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn put(path: &str) -> LayerEntry {
        LayerEntry::Add(path.to_owned())
    }

    #[test]
    fn the_meaning_of_paths() {
        for (path, expected) in [
            ("./", LayerEntry::Root),
            ("/", LayerEntry::Root),
            ("./usr/bin/sh", put("usr/bin/sh")),
            ("/usr//bin/./sh/", put("usr/bin/sh")),
            ("etc/passwd", put("usr/etc/passwd")),
            ("etc", put("usr/etc")),
            ("usr/etc/passwd", put("usr/etc/passwd")),
            ("etcetera", put("etcetera")),
            ("usr/.wh.old", LayerEntry::Whiteout("usr/old".into())),
            (".wh.srv", LayerEntry::Whiteout("srv".into())),
            ("etc/.wh.motd", LayerEntry::Whiteout("usr/etc/motd".into())),
            ("usr/share/.wh..wh..opq", LayerEntry::OpaqueWhiteout("usr/share".into())),
            (".wh..wh..opq", LayerEntry::OpaqueWhiteout(String::new())),
            ("usr/.wh..wh.plnk", LayerEntry::Ignore),
            ("usr/.wh.", LayerEntry::Ignore),
            ("usr/.wh..", LayerEntry::Ignore),
            (".wh.etc", LayerEntry::Whiteout("usr/etc".into())),
        ] {
            assert_eq!(classify(path.as_bytes()), Ok(expected), "{path}");
        }
    }

    #[test]
    fn paths_out_of_the_image_are_refused() {
        for path in ["../x", "usr/../../x", "usr/..", "usr/.wh...", "a\0b"] {
            assert!(matches!(classify(path.as_bytes()), Err(LayerError::EscapesRoot(_))), "{path}");
        }
        assert!(matches!(classify(b"usr/\xff"), Err(LayerError::NotUtf8(_))));
    }

    #[test]
    fn a_layer_knows_its_own_paths_and_their_parents() {
        let mut own = LayerPaths::default();
        own.insert("usr/lib/a");
        assert!(own.contains("usr/lib/a") && own.contains("usr/lib") && own.contains("usr"));
        assert!(!own.contains("usr/lib/b") && !own.contains("usr/li"));
    }

    proptest! {
        #[test]
        fn no_path_ever_leads_out(path in prop::collection::vec(prop::sample::select(b"./wh.opqetc\xff".to_vec()), 0..40)) {
            let paths = match classify(&path) {
                Ok(LayerEntry::Whiteout(path) | LayerEntry::OpaqueWhiteout(path) | LayerEntry::Add(path)) => path,
                _ => String::new(),
            };
            prop_assert!(!paths.starts_with('/') && !paths.ends_with('/'));
            prop_assert!(paths.split('/').all(|part| part != ".." && part != "."));
            prop_assert!(paths.is_empty() || paths.split('/').all(|part| !part.is_empty()));
        }
    }
}
