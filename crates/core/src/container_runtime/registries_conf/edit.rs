//! Adds mirrors, insecure and blocked registries to a `registries.conf`.
//!
//! Only the most specific entry for an image counts. So the settings of a scope have to be repeated
//! in every entry inside it.

use std::collections::{HashMap, HashSet};

use super::{RegistriesConf, RegistryEntry, RegistryMirror};
use crate::container_runtime::mirrors::{MergedMirrors, PullBy};
use crate::container_runtime::scope::enclosing_scopes;

/// The settings to add.
#[derive(Debug, Default)]
pub(crate) struct RegistryEdits<'a> {
    /// Mirrors for pulls by digest.
    pub(crate) digest: &'a [MergedMirrors<'a>],
    /// Mirrors for pulls by tag.
    pub(crate) tag: &'a [MergedMirrors<'a>],
    /// Scopes without TLS verification.
    pub(crate) insecure: &'a [String],
    /// Scopes that are never contacted.
    pub(crate) blocked: &'a [String],
}

/// A scope inside a wildcard source would inherit its mirrors, but the host to use is ambiguous.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WildcardMirrorsError {
    /// The source.
    pub(crate) source: String,
    /// The scope inside it.
    pub(crate) inside: String,
}

/// Entries by scope; the first of several counts.
struct RegistryEntries<'a> {
    registries: &'a mut Vec<RegistryEntry>,
    by_scope: HashMap<String, usize>,
}

impl<'a> RegistryEntries<'a> {
    fn new(registries: &'a mut Vec<RegistryEntry>) -> Self {
        let mut by_scope = HashMap::new();
        for (at, registry) in registries.iter().enumerate() {
            by_scope.entry(registry.scope().to_owned()).or_insert(at);
        }
        Self { registries, by_scope }
    }

    /// The entry of a scope, created if missing.
    fn entry_for(&mut self, scope: &str) -> &mut RegistryEntry {
        let at = match self.by_scope.get(scope) {
            Some(at) => *at,
            None => {
                self.registries.push(RegistryEntry::for_scope(scope));
                self.by_scope.insert(scope.to_owned(), self.registries.len() - 1);
                self.registries.len() - 1
            }
        };
        &mut self.registries[at]
    }
}

/// Applies the edits to a file.
pub(crate) fn edit(
    conf: &mut RegistriesConf,
    edits: &RegistryEdits<'_>,
) -> Result<(), WildcardMirrorsError> {
    let mut entries = RegistryEntries::new(&mut conf.registries);
    for (sets, by) in [(edits.digest, PullBy::Digest), (edits.tag, PullBy::Tag)] {
        for set in sets {
            let registry = entries.entry_for(set.source);
            registry.blocked |= set.never_contact_source;
            registry.mirrors.extend(set.mirrors.iter().map(|mirror| RegistryMirror {
                location: (*mirror).to_owned(),
                insecure: false,
                pull_from_mirror: by.as_str().to_owned(),
            }));
        }
    }
    for scope in edits.blocked.iter().chain(edits.insecure) {
        entries.entry_for(scope);
    }
    let by_scope = entries.by_scope;
    mark_insecure_and_blocked(&mut conf.registries, edits);
    inherit_mirrors(&mut conf.registries, &by_scope, edits)
}

/// Marks every entry inside an insecure or blocked scope.
fn mark_insecure_and_blocked(registries: &mut [RegistryEntry], edits: &RegistryEdits<'_>) {
    let insecure: HashSet<&str> = edits.insecure.iter().map(String::as_str).collect();
    let blocked: HashSet<&str> = edits.blocked.iter().map(String::as_str).collect();
    if insecure.is_empty() && blocked.is_empty() {
        return;
    }
    let is_in = |around: &[String], places: &HashSet<&str>| {
        around.iter().any(|scope| places.contains(scope.as_str()))
    };
    for registry in registries {
        let around_it = enclosing_scopes(registry.scope());
        registry.insecure |= is_in(&around_it, &insecure);
        registry.blocked |= is_in(&around_it, &blocked);
        for mirror in &mut registry.mirrors {
            mirror.insecure |= is_in(&enclosing_scopes(&mirror.location), &insecure);
        }
    }
}

/// Gives entries without mirrors those of the first enclosing source: by digest before by tag, then
/// by name.
fn inherit_mirrors(
    registries: &mut [RegistryEntry],
    by_scope: &HashMap<String, usize>,
    edits: &RegistryEdits<'_>,
) -> Result<(), WildcardMirrorsError> {
    let mut ranks: HashMap<&str, usize> = HashMap::new();
    for (rank, set) in edits.digest.iter().chain(edits.tag).enumerate() {
        ranks.entry(set.source).or_insert(rank);
    }
    for at in 0..registries.len() {
        if !registries[at].mirrors.is_empty() {
            continue;
        }
        let scope = registries[at].scope().to_owned();
        let sources = enclosing_scopes(&scope).into_iter().filter(|outer| *outer != scope);
        let ranked = sources.filter_map(|outer| Some((*ranks.get(outer.as_str())?, outer)));
        let Some((_, source)) = ranked.min() else { continue };
        let rest = match scope.strip_prefix(&source) {
            Some(rest) if !source.starts_with("*.") => rest,
            _ => return Err(WildcardMirrorsError { source, inside: scope }),
        };
        let Some(from) = by_scope.get(&source) else { continue };
        let carried = |mirror: &RegistryMirror| RegistryMirror {
            location: format!("{}{rest}", mirror.location),
            ..mirror.clone()
        };
        registries[at].mirrors = registries[*from].mirrors.iter().map(carried).collect();
    }
    Ok(())
}
