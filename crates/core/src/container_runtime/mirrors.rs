//! Mirrors from three kinds of objects, converted to one form, validated and merged by source.

use std::collections::BTreeMap;

use super::mirror_order::PrecedenceGraph;
use super::scope::{is_mirror, is_source};
use crate::api::ImageContentSourcePolicy;
use crate::api::config::{ImageDigestMirrorSet, ImageMirrors, ImageTagMirrorSet};
use crate::generated_config::{GenerateError, SourceRef};

/// The policy that never contacts the source.
const NEVER: &str = "NeverContactSource";
/// The default policy.
const ALLOW: &str = "AllowContactingSource";

/// Which pulls a mirror serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PullBy {
    /// Pulls by digest.
    Digest,
    /// Pulls by tag.
    Tag,
}

/// One entry of one object: a source and its mirrors.
#[derive(Clone, Debug)]
pub(super) struct MirrorEntry<'a> {
    pub(super) object: SourceRef,
    pub(super) field: String,
    pub(super) source: &'a str,
    pub(super) mirrors: Vec<&'a str>,
    pub(super) never_contact_source: bool,
    pub(super) by: PullBy,
}

impl MirrorEntry<'_> {
    pub(super) fn error(&self, part: &str, message: String, remedy: &str) -> GenerateError {
        GenerateError {
            object: self.object.clone(),
            field: format!("{}{part}", self.field),
            message,
            remedy: remedy.to_owned(),
        }
    }
}

/// All entries: by digest first, then by tag.
pub(super) fn mirror_entries<'a>(
    digest: &[&'a ImageDigestMirrorSet],
    old: &[&'a ImageContentSourcePolicy],
    tag: &[&'a ImageTagMirrorSet],
) -> Result<Vec<MirrorEntry<'a>>, GenerateError> {
    let mut entries = Vec::new();
    for set in digest {
        let object = SourceRef::of(*set);
        let mirrors = set.spec.image_digest_mirrors.as_deref().unwrap_or_default();
        add(&mut entries, &object, "imageDigestMirrors", mirrors, PullBy::Digest)?;
    }
    for policy in old {
        let object = SourceRef::of(*policy);
        let mirrors = policy.spec.repository_digest_mirrors.as_deref().unwrap_or_default();
        entries.extend(mirrors.iter().enumerate().map(|(at, set)| MirrorEntry {
            object: object.clone(),
            field: format!("spec.repositoryDigestMirrors[{at}]"),
            source: &set.source,
            mirrors: set.mirrors.iter().flatten().map(String::as_str).collect(),
            never_contact_source: false,
            by: PullBy::Digest,
        }));
    }
    for set in tag {
        let object = SourceRef::of(*set);
        let mirrors = set.spec.image_tag_mirrors.as_deref().unwrap_or_default();
        add(&mut entries, &object, "imageTagMirrors", mirrors, PullBy::Tag)?;
    }
    Ok(entries)
}

fn add<'a>(
    entries: &mut Vec<MirrorEntry<'a>>,
    object: &SourceRef,
    field: &str,
    sets: &'a [ImageMirrors],
    by: PullBy,
) -> Result<(), GenerateError> {
    for (at, set) in sets.iter().enumerate() {
        let policy = set.mirror_source_policy.as_deref().filter(|policy| !policy.is_empty());
        let entry = MirrorEntry {
            object: object.clone(),
            field: format!("spec.{field}[{at}]"),
            source: &set.source,
            mirrors: set.mirrors.iter().flatten().map(String::as_str).collect(),
            never_contact_source: policy == Some(NEVER),
            by,
        };
        if let Some(policy) = policy.filter(|policy| ![NEVER, ALLOW].contains(policy)) {
            let message = format!("unknown mirrorSourcePolicy {policy:?}");
            let remedy = "use AllowContactingSource or NeverContactSource";
            return Err(entry.error(".mirrorSourcePolicy", message, remedy));
        }
        entries.push(entry);
    }
    Ok(())
}

/// Checks the entries, each on its own and all together.
pub(super) fn check(entries: &[MirrorEntry<'_>]) -> Result<(), GenerateError> {
    let mut policies: BTreeMap<&str, &MirrorEntry<'_>> = BTreeMap::new();
    for entry in entries {
        let source = entry.source;
        if !is_source(source) {
            let message = format!("invalid format for source {source:?}");
            let remedy = "write host[:port][/path] in small letters, or *.domain, without a scheme, tag or digest";
            return Err(entry.error(".source", message, remedy));
        }
        let first = *policies.entry(source).or_insert(entry);
        if first.never_contact_source != entry.never_contact_source {
            let message = format!(
                "conflicting mirrorSourcePolicy is set for the same source {source:?} in imagedigestmirrorsets, imagetagmirrorsets, or imagecontentsourcepolicies"
            );
            let remedy = format!("make it the same as in {} {}", first.object, first.field);
            return Err(entry.error(".mirrorSourcePolicy", message, &remedy));
        }
        for (at, mirror) in entry.mirrors.iter().enumerate() {
            if !is_mirror(mirror) {
                let message = format!("invalid format for mirror {mirror:?}");
                let remedy =
                    "write host[:port][/path] in small letters, without a scheme, tag or digest";
                return Err(entry.error(&format!(".mirrors[{at}]"), message, remedy));
            }
            if entry.never_contact_source && *mirror == source {
                let message = format!(
                    "cannot set mirrorSourcePolicy: NeverContactSource if the source {source:?} is one of the mirrors"
                );
                let remedy = "remove the source from the mirrors, or allow to contact it";
                return Err(entry.error(&format!(".mirrors[{at}]"), message, remedy));
            }
        }
    }
    Ok(())
}

/// All mirrors of a source, in the order in which they are tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MergedMirrors<'a> {
    pub(super) source: &'a str,
    pub(super) mirrors: Vec<&'a str>,
    pub(super) never_contact_source: bool,
}

/// The mirrors for pulls by digest or by tag, sorted by source. An entry whose only mirror is the
/// source itself is ignored, including its policy.
pub(super) fn merge_mirrors<'a>(entries: &[MirrorEntry<'a>], by: PullBy) -> Vec<MergedMirrors<'a>> {
    let mut by_source: BTreeMap<&str, Vec<&MirrorEntry<'a>>> = BTreeMap::new();
    for entry in entries.iter().filter(|entry| entry.by == by) {
        if entry.mirrors.iter().any(|mirror| *mirror != entry.source) {
            by_source.entry(entry.source).or_default().push(entry);
        }
    }
    let merge = |(source, entries): (&'a str, Vec<&MirrorEntry<'a>>)| {
        let mut order = PrecedenceGraph::default();
        for MirrorEntry { mirrors, .. } in &entries {
            mirrors.windows(2).for_each(|pair| order.add(pair[0], pair[1]));
            if !mirrors.contains(&source)
                && let Some(last) = mirrors.last()
            {
                order.add(last, source);
            }
        }
        let mut mirrors = order.topological_order();
        // The source is always tried last.
        if mirrors.last() == Some(&source) {
            mirrors.pop();
        }
        let never_contact_source = entries.iter().any(|entry| entry.never_contact_source);
        MergedMirrors { source, mirrors, never_contact_source }
    };
    by_source.into_iter().map(merge).collect()
}
