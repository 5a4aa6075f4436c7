//! What an entry of an image's layer means for the tree that is made of it.

use std::collections::BTreeSet;
use thiserror::Error;

/// What has to be done for an entry. Paths have no slash at either end, no `.` and no `..`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meaning {
    /// The root of the tree itself.
    Root,
    /// Something for others; nothing of it gets into the tree.
    Nothing,
    /// What lower layers have there goes.
    Gone(String),
    /// All that lower layers have in this folder goes; the folder stays.
    Emptied(String),
    /// The entry is put there.
    Put(String),
}

/// Why a layer is refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LayerError {
    /// It points out of the tree.
    #[error("the layer has an entry {0:?} that leads out of the image")]
    Outside(String),
    /// ostree takes no other names.
    #[error("the layer has an entry {0:?} whose name is not UTF-8")]
    NotUtf8(String),
}

const WHITEOUT: &str = ".wh.";
const OPAQUE: &str = ".wh..wh..opq";

/// What an entry's path means.
pub fn meaning(path: &[u8]) -> Result<Meaning, LayerError> {
    let path = place(path)?;
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", &path));
    let beside = |name: &str| match folder {
        "" => name.to_owned(),
        folder => format!("{folder}/{name}"),
    };
    Ok(match name.strip_prefix(WHITEOUT) {
        _ if path.is_empty() => Meaning::Root,
        _ if name == OPAQUE => Meaning::Emptied(folder.to_owned()),
        // Names that aufs keeps for itself, and those that name nothing.
        Some(hidden) if matches!(hidden, "" | ".") || hidden.starts_with(WHITEOUT) => {
            Meaning::Nothing
        }
        Some(hidden) => Meaning::Gone(place(beside(hidden).as_bytes())?),
        None => Meaning::Put(path),
    })
}

/// Where a path of the image is in the tree: `/etc` is what the image was shipped with, and so is
/// `/usr/etc` there; a machine's own `/etc` is merged with it.
pub fn place(path: &[u8]) -> Result<String, LayerError> {
    let lossy = || String::from_utf8_lossy(path).into_owned();
    let text = std::str::from_utf8(path).map_err(|_| LayerError::NotUtf8(lossy()))?;
    let mut parts = Vec::new();
    for part in text.split('/').filter(|part| !matches!(*part, "" | ".")) {
        if part == ".." || part.contains('\0') {
            return Err(LayerError::Outside(lossy()));
        }
        parts.push(part);
    }
    if parts.first() == Some(&"etc") {
        parts.insert(0, "usr");
    }
    Ok(parts.join("/"))
}

/// What one layer has put: what it hides is what is below it, never its own.
#[derive(Debug, Clone, Default)]
pub struct Own(BTreeSet<String>);

impl Own {
    /// Remembers a path, and so the folders above it.
    pub fn put(&mut self, path: &str) {
        let mut path = path;
        while self.0.insert(path.to_owned()) {
            match path.rsplit_once('/') {
                Some((folder, _)) => path = folder,
                None => return,
            }
        }
    }

    /// Whether the layer itself has put this path or something below it.
    #[must_use]
    pub fn has(&self, path: &str) -> bool {
        self.0.contains(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn put(path: &str) -> Meaning {
        Meaning::Put(path.to_owned())
    }

    #[test]
    fn what_paths_mean() {
        for (path, expected) in [
            ("./", Meaning::Root),
            ("/", Meaning::Root),
            ("./usr/bin/sh", put("usr/bin/sh")),
            ("/usr//bin/./sh/", put("usr/bin/sh")),
            ("etc/passwd", put("usr/etc/passwd")),
            ("etc", put("usr/etc")),
            ("usr/etc/passwd", put("usr/etc/passwd")),
            ("etcetera", put("etcetera")),
            ("usr/.wh.old", Meaning::Gone("usr/old".into())),
            (".wh.srv", Meaning::Gone("srv".into())),
            ("etc/.wh.motd", Meaning::Gone("usr/etc/motd".into())),
            ("usr/share/.wh..wh..opq", Meaning::Emptied("usr/share".into())),
            (".wh..wh..opq", Meaning::Emptied(String::new())),
            ("usr/.wh..wh.plnk", Meaning::Nothing),
            ("usr/.wh.", Meaning::Nothing),
            ("usr/.wh..", Meaning::Nothing),
            (".wh.etc", Meaning::Gone("usr/etc".into())),
        ] {
            assert_eq!(meaning(path.as_bytes()), Ok(expected), "{path}");
        }
    }

    #[test]
    fn what_leads_out_is_refused() {
        for path in ["../x", "usr/../../x", "usr/..", "usr/.wh...", "a\0b"] {
            assert!(matches!(meaning(path.as_bytes()), Err(LayerError::Outside(_))), "{path}");
        }
        assert!(matches!(meaning(b"usr/\xff"), Err(LayerError::NotUtf8(_))));
    }

    #[test]
    fn a_layer_knows_its_own_and_the_folders_above() {
        let mut own = Own::default();
        own.put("usr/lib/a");
        assert!(own.has("usr/lib/a") && own.has("usr/lib") && own.has("usr"));
        assert!(!own.has("usr/lib/b") && !own.has("usr/li"));
    }

    proptest! {
        #[test]
        fn no_path_ever_leads_out(path in prop::collection::vec(prop::sample::select(b"./wh.opqetc\xff".to_vec()), 0..40)) {
            let paths = match meaning(&path) {
                Ok(Meaning::Gone(path) | Meaning::Emptied(path) | Meaning::Put(path)) => path,
                _ => String::new(),
            };
            prop_assert!(!paths.starts_with('/') && !paths.ends_with('/'));
            prop_assert!(paths.split('/').all(|part| part != ".." && part != "."));
            prop_assert!(paths.is_empty() || paths.split('/').all(|part| !part.is_empty()));
        }
    }
}
