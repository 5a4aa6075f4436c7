//! The differences between the disk of a machine and its config, with the lines of text that differ. Secrets are
//! left out, and the result has a limited size. Called by the daemon for `machinist diff --live`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{DriftFinding, DriftSeverity, ReferenceError, read};
use crate::api::MachineConfig;
use crate::apply::{
    self, ContentSource, FileContent, FileMeta, FsNode, FsTree, HostDefaults, ManagedPart,
    ManagedPath,
};
use crate::diff::{ContentChange, DiffLine, ShownContents, ValueChange, line_diff};
use crate::ignition::contents;
use crate::ignition::schema::Config;
use crate::secrets;

/// Larger contents are compared by digest only.
const MAX_COMPARED_BYTES: u64 = 256 << 10;
/// Texts with more lines are compared by digest only: finding the lines that differ takes quadratic time.
const MAX_COMPARED_LINES: usize = 5000;
/// The most lines that are shown of one file.
const MAX_LINES: usize = 400;
/// The most characters that are shown of one line.
const MAX_LINE_CHARS: usize = 500;
/// The lines around a difference.
const CONTEXT_LINES: usize = 3;

/// How a disk differs from its config.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LiveDiff {
    /// The config that the machine has.
    pub config: String,
    /// The differences, in the order of the config.
    pub changes: Vec<LiveChange>,
    /// How many more there are: the size of the whole is limited.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// A path that differs: from what the config wants, to what is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LiveChange {
    /// The path.
    pub path: String,
    /// The difference in one line.
    pub message: String,
    /// Whether the machine is degraded because of it.
    pub degrades: bool,
    /// Permissions, owner and type.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fields: BTreeMap<String, ValueChange>,
    /// Contents that differ and are not shown line by line: secret, binary or large.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contents: Option<ContentChange>,
    /// The lines that differ.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<DiffLine>,
    /// Whether there are more lines.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// Compares everything that a config manages. As JSON, the result has at most `max_bytes`.
///
/// # Errors
/// The config cannot be read.
pub fn live_diff(
    machine_config: &MachineConfig,
    tree: &dyn FsTree,
    defaults: HostDefaults,
    max_bytes: usize,
) -> Result<LiveDiff, ReferenceError> {
    let config = read(machine_config, apply::member_index(tree))?;
    let (stripped, contents) = apply::split_contents(config.clone())?;
    let verified = apply::verify(&stripped, &contents, tree, defaults);
    let name = machine_config.metadata.name.clone().unwrap_or_default();
    let mut result = LiveDiff { config: name, changes: Vec::new(), left_out: 0 };
    // The number of changes that are left out is longer than the 0 here.
    let mut free = max_bytes.saturating_sub(json_size(&result) + 64);
    let paths = verified.managed.iter().filter_map(|managed| {
        DriftFinding::of(managed).map(|finding| path_change(managed, finding, &config, tree))
    });
    let units = verified.enablement.into_iter().map(|of| summary(DriftFinding::enablement(of)));
    for change in paths.chain(units) {
        match free.checked_sub(json_size(&change) + 1) {
            Some(left) => {
                free = left;
                result.changes.push(change);
            }
            None => result.left_out += 1,
        }
    }
    Ok(result)
}

fn json_size(part: &impl Serialize) -> usize {
    serde_json::to_string(part).map_or(0, |text| text.len())
}

fn summary(finding: DriftFinding) -> LiveChange {
    LiveChange {
        path: finding.path,
        message: finding.message,
        degrades: finding.severity == DriftSeverity::Drift,
        fields: BTreeMap::new(),
        contents: None,
        lines: Vec::new(),
        truncated: false,
    }
}

fn path_change(
    managed: &ManagedPath,
    finding: DriftFinding,
    config: &Config,
    tree: &dyn FsTree,
) -> LiveChange {
    let mut change = summary(finding);
    let Ok(found) = &managed.found else { return change };
    change.fields = field_changes(&managed.wanted, found);
    let is_same = match (&managed.wanted, found) {
        (FsNode::File { content: a, .. }, FsNode::File { content: b, .. }) => a == b,
        (FsNode::File { .. }, _) | (_, FsNode::File { .. }) => false,
        _ => true,
    };
    if !is_same {
        add_contents(&mut change, managed, found, config, tree);
    }
    change
}

/// Permissions, owner and type.
fn field_changes(wanted: &FsNode, found: &FsNode) -> BTreeMap<String, ValueChange> {
    let mut fields = BTreeMap::new();
    let mut compare = |name: &str, old: Option<String>, new: Option<String>| {
        if old != new {
            fields.insert(name.to_owned(), ValueChange { old, new });
        }
    };
    match (wanted, found) {
        (FsNode::File { meta, .. }, FsNode::File { meta: has, .. }) => {
            let mode = |meta: &FileMeta| Some(format!("{:04o}", meta.mode));
            let owner = |meta: &FileMeta| Some(format!("{}:{}", meta.owner.uid, meta.owner.gid));
            compare("mode", mode(meta), mode(has));
            compare("owner", owner(meta), owner(has));
        }
        _ => {
            let kind = |node: &FsNode| match node {
                FsNode::Link { target, .. } => format!("a link to {target}"),
                other => other.kind().to_owned(),
            };
            compare("type", Some(kind(wanted)), Some(kind(found)));
        }
    }
    fields
}

fn add_contents(
    change: &mut LiveChange,
    managed: &ManagedPath,
    found: &FsNode,
    config: &Config,
    tree: &dyn FsTree,
) {
    let wanted_bytes = wanted_bytes(managed, config);
    let found_bytes = found_bytes(managed, found, tree);
    let is_secret = |node: &FsNode, bytes: &Side| {
        let FsNode::File { meta, .. } = node else { return false };
        let bytes = if let Side::Bytes(bytes) = bytes { bytes.as_slice() } else { &[] };
        secrets::is_secret_file(&managed.path, Some(i64::from(meta.mode)), bytes)
    };
    if is_secret(&managed.wanted, &wanted_bytes) || is_secret(found, &found_bytes) {
        change.contents =
            Some(ContentChange { old: ShownContents::Secret, new: ShownContents::Secret });
        return;
    }
    let (old, new) = (wanted_bytes.shown(), found_bytes.shown());
    let text = |shown: &ShownContents| match shown {
        ShownContents::Nothing => Some(String::new()),
        ShownContents::Text { text } if text.lines().count() <= MAX_COMPARED_LINES => {
            Some(text.clone())
        }
        _ => None,
    };
    match (text(&old), text(&new)) {
        (Some(old), Some(new)) => {
            let lines = line_diff(&old, &new, CONTEXT_LINES);
            change.truncated = lines.len() > MAX_LINES;
            change.lines = lines.into_iter().take(MAX_LINES).map(shorten).collect();
        }
        _ => {
            // Text next to something else is not shown in full either.
            let digest = |shown: ShownContents| match shown {
                ShownContents::Text { text } => ShownContents::binary(text.as_bytes()),
                other => other,
            };
            change.contents = Some(ContentChange { old: digest(old), new: digest(new) });
        }
    }
}

fn shorten(line: DiffLine) -> DiffLine {
    match line.text.char_indices().nth(MAX_LINE_CHARS) {
        Some((at, _)) => DiffLine { text: format!("{}…", &line.text[..at]), ..line },
        None => line,
    }
}

/// What is on one side of a comparison.
enum Side {
    Nothing,
    Bytes(Vec<u8>),
    /// Too large to be compared, or not readable.
    Unread(ShownContents),
}

impl Side {
    fn shown(&self) -> ShownContents {
        match self {
            Self::Nothing => ShownContents::Nothing,
            Self::Bytes(bytes) => ShownContents::of_bytes(bytes.clone()),
            Self::Unread(shown) => shown.clone(),
        }
    }
}

/// What the config wants at a path.
fn wanted_bytes(managed: &ManagedPath, config: &Config) -> Side {
    let FsNode::File { content, .. } = &managed.wanted else { return Side::Nothing };
    if managed.part != ManagedPart::File {
        return match &content.source {
            ContentSource::Bytes(bytes) => Side::Bytes(bytes.to_vec()),
            _ => Side::Unread(digest_of(content)),
        };
    }
    // The last entry of a path wins.
    let file = config.storage.files.iter().rev().find(|file| file.path == managed.path);
    match file.map(|file| contents::decode(&file.contents, MAX_COMPARED_BYTES)) {
        Some(Ok(bytes)) => Side::Bytes(bytes),
        _ => Side::Unread(digest_of(content)),
    }
}

/// What is there.
fn found_bytes(managed: &ManagedPath, found: &FsNode, tree: &dyn FsTree) -> Side {
    let FsNode::File { content, .. } = found else { return Side::Nothing };
    let path = managed.resolved_path.as_deref().filter(|_| content.size <= MAX_COMPARED_BYTES);
    // It may have grown since.
    let read = |path| tree.read(path).ok().filter(|bytes| bytes.len() as u64 <= MAX_COMPARED_BYTES);
    path.and_then(read).map_or_else(|| Side::Unread(digest_of(content)), Side::Bytes)
}

fn digest_of(content: &FileContent) -> ShownContents {
    let size = usize::try_from(content.size).unwrap_or(usize::MAX);
    ShownContents::Binary { size, sha256: content.sha256.clone() }
}

#[cfg(test)]
mod tests;
