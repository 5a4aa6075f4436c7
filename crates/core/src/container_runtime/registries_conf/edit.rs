//! Mirrors, insecure and blocked places, written into a `registries.conf`.
//!
//! Only the most precise entry about an image counts, so what is said about a place has to be said
//! again in every entry that is inside it.

use std::collections::{HashMap, HashSet};

use super::{Mirror, RegistriesConf, Registry};
use crate::runtime::mirrors::{Merged, PullBy};
use crate::runtime::scope::around;

/// What is to be written.
#[derive(Debug, Default)]
pub(crate) struct Edits<'a> {
    /// Mirrors for pulls by digest.
    pub(crate) digest: &'a [Merged<'a>],
    /// Mirrors for pulls by tag.
    pub(crate) tag: &'a [Merged<'a>],
    /// Places that need no certificate.
    pub(crate) insecure: &'a [String],
    /// Places that are never asked.
    pub(crate) blocked: &'a [String],
}

/// A place inside a wildcard source would have to take over its mirrors, and cannot: which of their
/// hosts would it be?
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct WildcardMirrors {
    /// The source.
    pub(crate) source: String,
    /// The place inside it.
    pub(crate) inside: String,
}

/// Entries by what they are about; the first of several counts.
struct Entries<'a> {
    registries: &'a mut Vec<Registry>,
    by_scope: HashMap<String, usize>,
}

impl<'a> Entries<'a> {
    fn new(registries: &'a mut Vec<Registry>) -> Self {
        let mut by_scope = HashMap::new();
        for (at, registry) in registries.iter().enumerate() {
            by_scope.entry(registry.scope().to_owned()).or_insert(at);
        }
        Self { registries, by_scope }
    }

    /// The entry about a scope, made if there is none.
    fn about(&mut self, scope: &str) -> &mut Registry {
        let at = match self.by_scope.get(scope) {
            Some(at) => *at,
            None => {
                self.registries.push(Registry::about(scope));
                self.by_scope.insert(scope.to_owned(), self.registries.len() - 1);
                self.registries.len() - 1
            }
        };
        &mut self.registries[at]
    }
}

/// Writes the edits into a file.
pub(crate) fn edit(conf: &mut RegistriesConf, edits: &Edits<'_>) -> Result<(), WildcardMirrors> {
    let mut entries = Entries::new(&mut conf.registries);
    for (sets, by) in [(edits.digest, PullBy::Digest), (edits.tag, PullBy::Tag)] {
        for set in sets {
            let registry = entries.about(set.source);
            registry.blocked |= set.never_contact_source;
            registry.mirrors.extend(set.mirrors.iter().map(|mirror| Mirror {
                location: (*mirror).to_owned(),
                insecure: false,
                pull_from_mirror: by.word().to_owned(),
            }));
        }
    }
    for scope in edits.blocked.iter().chain(edits.insecure) {
        entries.about(scope);
    }
    let by_scope = entries.by_scope;
    mark(&mut conf.registries, edits);
    inherit(&mut conf.registries, &by_scope, edits)
}

/// Marks everything that is inside an insecure or a blocked place.
fn mark(registries: &mut [Registry], edits: &Edits<'_>) {
    let insecure: HashSet<&str> = edits.insecure.iter().map(String::as_str).collect();
    let blocked: HashSet<&str> = edits.blocked.iter().map(String::as_str).collect();
    if insecure.is_empty() && blocked.is_empty() {
        return;
    }
    let is_in = |around: &[String], places: &HashSet<&str>| {
        around.iter().any(|scope| places.contains(scope.as_str()))
    };
    for registry in registries {
        let around_it = around(registry.scope());
        registry.insecure |= is_in(&around_it, &insecure);
        registry.blocked |= is_in(&around_it, &blocked);
        for mirror in &mut registry.mirrors {
            mirror.insecure |= is_in(&around(&mirror.location), &insecure);
        }
    }
}

/// Gives entries without mirrors those of the first source that they are inside: by digest before
/// by tag, and by name.
fn inherit(
    registries: &mut [Registry],
    by_scope: &HashMap<String, usize>,
    edits: &Edits<'_>,
) -> Result<(), WildcardMirrors> {
    let mut ranks: HashMap<&str, usize> = HashMap::new();
    for (rank, set) in edits.digest.iter().chain(edits.tag).enumerate() {
        ranks.entry(set.source).or_insert(rank);
    }
    for at in 0..registries.len() {
        if !registries[at].mirrors.is_empty() {
            continue;
        }
        let scope = registries[at].scope().to_owned();
        let sources = around(&scope).into_iter().filter(|outer| *outer != scope);
        let ranked = sources.filter_map(|outer| Some((*ranks.get(outer.as_str())?, outer)));
        let Some((_, source)) = ranked.min() else { continue };
        let rest = match scope.strip_prefix(&source) {
            Some(rest) if !source.starts_with("*.") => rest,
            _ => return Err(WildcardMirrors { source, inside: scope }),
        };
        let Some(from) = by_scope.get(&source) else { continue };
        let carried = |mirror: &Mirror| Mirror {
            location: format!("{}{rest}", mirror.location),
            ..mirror.clone()
        };
        registries[at].mirrors = registries[*from].mirrors.iter().map(carried).collect();
    }
    Ok(())
}
