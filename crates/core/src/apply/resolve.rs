//! Resolves links in a path as in a chroot, never above the root.

use std::collections::HashMap;

use super::error::ApplyError;
use super::fs_node::FsNode;

/// More links than this in one path are a loop.
const MAX_LINKS: usize = 40;

/// The components of a path from a config; refuses paths that are not plain.
pub(super) fn path_components(path: &str) -> Result<Vec<&str>, ApplyError> {
    let wrong = |problem| ApplyError::InvalidPath { path: path.to_owned(), problem };
    let rest = path.strip_prefix('/').ok_or_else(|| wrong("is not absolute"))?;
    if path.contains('\0') {
        return Err(wrong("holds a zero byte"));
    }
    if rest.is_empty() || rest.ends_with('/') {
        return Err(wrong("names a directory"));
    }
    let parts: Vec<&str> =
        rest.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    if parts.contains(&"..") {
        return Err(wrong("holds \"..\""));
    }
    if parts.is_empty() {
        return Err(wrong("names a directory"));
    }
    Ok(parts)
}

/// Follows the links in the parents of a path. Components that do not exist are taken literally.
pub(super) fn resolve(
    path: &str,
    known: &mut HashMap<String, String>,
    trusted: u32,
    look: &mut dyn FnMut(&str) -> Result<FsNode, ApplyError>,
) -> Result<String, ApplyError> {
    let parts = path_components(path)?;
    let (name, directories) = parts.split_last().ok_or_else(|| ApplyError::InvalidPath {
        path: path.to_owned(),
        problem: "names a directory",
    })?;
    let literal = directories.iter().fold(String::new(), |path, part| path + "/" + part);
    if let Some(directory) = known.get(&literal) {
        return Ok(format!("{directory}/{name}"));
    }
    let mut ahead: Vec<String> = directories.iter().rev().map(|part| (*part).to_owned()).collect();
    let (mut at, mut links) = (String::new(), 0);
    while let Some(part) = ahead.pop() {
        match part.as_str() {
            "" | "." => continue,
            ".." => {
                at.truncate(at.rfind('/').unwrap_or(0));
                continue;
            }
            _ => {}
        }
        let next = format!("{at}/{part}");
        let FsNode::Link { target, owner } = look(&next)? else {
            at = next;
            continue;
        };
        if owner.uid != 0 && owner.uid != trusted {
            return Err(ApplyError::ForeignLink {
                path: path.to_owned(),
                link: next,
                uid: owner.uid,
            });
        }
        links += 1;
        if links > MAX_LINKS {
            return Err(ApplyError::TooManyLinks { path: path.to_owned() });
        }
        if target.starts_with('/') {
            at.clear();
        }
        ahead.extend(target.split('/').rev().map(str::to_owned));
    }
    known.insert(literal, at.clone());
    Ok(format!("{at}/{name}"))
}
