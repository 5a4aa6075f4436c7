//! The resources that the API server serves, by all their names.

use std::fmt;

/// A served resource.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ServedResource {
    /// The group; empty for the core.
    pub group: String,
    /// The version.
    pub version: String,
    /// The kind, such as `MachineConfigPool`.
    pub kind: String,
    /// The name in paths, such as `machineconfigpools`.
    pub plural: String,
    /// The name of one.
    pub singular: String,
    /// Short names, such as `mcp`.
    pub short_names: Vec<String>,
    /// Whether objects are in namespaces.
    pub namespaced: bool,
}

impl ServedResource {
    /// `group/version`, or the version alone for the core.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// The path of the list, or of an object.
    #[must_use]
    pub fn path(&self, namespace: Option<&str>, name: Option<&str>) -> String {
        let root = if self.group.is_empty() { "/api" } else { "/apis" };
        let mut path = format!("{root}/{}", self.api_version());
        if let Some(namespace) = namespace.filter(|_| self.namespaced) {
            path.push_str(&format!("/namespaces/{}", super::request::percent_encode(namespace)));
        }
        path.push('/');
        path.push_str(&self.plural);
        if let Some(name) = name {
            path.push('/');
            path.push_str(&super::request::percent_encode(name));
        }
        path
    }

    /// `kind.group` in lower case, as in the messages of `kubectl`.
    #[must_use]
    pub fn kind_and_group(&self) -> String {
        dotted(&self.kind.to_lowercase(), &self.group)
    }

    /// `kind.group/name`.
    #[must_use]
    pub fn object_name(&self, name: &str) -> String {
        format!("{}/{name}", self.kind_and_group())
    }

    fn matches_name(&self, word: &str) -> bool {
        self.all_names().any(|name| name == word)
    }

    /// All names, in lower case.
    fn all_names(&self) -> impl Iterator<Item = String> {
        let short = self.short_names.iter();
        [&self.plural, &self.singular, &self.kind]
            .into_iter()
            .chain(short)
            .map(|name| name.to_lowercase())
    }
}

fn dotted(name: &str, group: &str) -> String {
    if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") }
}

/// A name that no served resource has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownResource {
    /// The unknown name.
    pub name: String,
    /// Similar names.
    pub similar: Vec<String>,
}

impl fmt::Display for UnknownResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server doesn't have a resource type {:?}", self.name)?;
        if !self.similar.is_empty() {
            write!(f, "; did you mean {}?", self.similar.join(" or "))?;
        }
        Ok(())
    }
}

impl std::error::Error for UnknownResource {}

/// All served resources; preferred versions come first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServedResources(pub Vec<ServedResource>);

impl ServedResources {
    /// The resource with a name: plural, singular, kind or short name, alone or with `.group` or `.version.group`.
    ///
    /// # Errors
    /// No served resource has this name.
    pub fn by_name(&self, word: &str) -> Result<&ServedResource, UnknownResource> {
        let wanted = word.to_lowercase();
        let by_name = || self.0.iter().find(|resource| resource.matches_name(&wanted));
        let by_group = || {
            let (name, rest) = wanted.split_once('.')?;
            let mut called = self.0.iter().filter(|resource| resource.matches_name(name));
            called.find(|one| one.group == rest || dotted(&one.version, &one.group) == rest)
        };
        let unknown =
            || UnknownResource { name: word.to_owned(), similar: self.similar_names(&wanted) };
        by_name().or_else(by_group).ok_or_else(unknown)
    }

    /// The resource of a manifest.
    #[must_use]
    pub fn by_kind(&self, api_version: &str, kind: &str) -> Option<&ServedResource> {
        let fits = |one: &&ServedResource| one.kind == kind && one.api_version() == api_version;
        self.0.iter().find(fits)
    }

    fn similar_names(&self, word: &str) -> Vec<String> {
        let name = word.split('.').next().unwrap_or_default();
        let limit = if name.chars().count() > 4 { 2 } else { 1 };
        let mut near: Vec<(usize, String)> = self
            .0
            .iter()
            .flat_map(ServedResource::all_names)
            .map(|known| (edit_distance(name, &known), known))
            .filter(|(distance, _)| *distance <= limit)
            .collect();
        near.sort();
        near.dedup();
        near.into_iter().map(|(_, name)| name).take(3).collect()
    }
}

/// The Levenshtein distance.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let cost = usize::from(x != *y);
            let best = (corner + cost).min(row[j] + 1).min(row[j + 1] + 1);
            corner = row[j + 1];
            row[j + 1] = best;
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resources() -> ServedResources {
        let make =
            |group: &str, version: &str, kind: &str, plural: &str, short: &[&str]| ServedResource {
                group: group.to_owned(),
                version: version.to_owned(),
                kind: kind.to_owned(),
                plural: plural.to_owned(),
                singular: kind.to_lowercase(),
                short_names: short.iter().map(ToString::to_string).collect(),
                namespaced: plural == "secrets",
            };
        let group = "machineconfiguration.openshift.io";
        ServedResources(vec![
            make("", "v1", "Node", "nodes", &["no"]),
            make("", "v1", "Secret", "secrets", &[]),
            make("", "v1", "Event", "events", &["ev"]),
            make("events.k8s.io", "v1", "Event", "events", &["ev"]),
            make(group, "v1", "MachineConfigPool", "machineconfigpools", &["mcp"]),
            make(group, "v1alpha1", "MachineConfigNode", "machineconfignodes", &[]),
        ])
    }

    #[test]
    fn a_resource_is_found_by_all_its_names() {
        let all = resources();
        for (word, expected) in [
            ("node", "v1 Node"),
            ("no", "v1 Node"),
            ("mcp", "machineconfiguration.openshift.io/v1 MachineConfigPool"),
            ("MachineConfigPool", "machineconfiguration.openshift.io/v1 MachineConfigPool"),
            ("events", "v1 Event"),
            ("events.events.k8s.io", "events.k8s.io/v1 Event"),
            ("events.v1.events.k8s.io", "events.k8s.io/v1 Event"),
        ] {
            let found = all.by_name(word).unwrap();
            assert_eq!(format!("{} {}", found.api_version(), found.kind), expected, "{word}");
        }
        let unknown = all.by_name("machineconfigpol").unwrap_err();
        assert_eq!(unknown.similar, ["machineconfigpool", "machineconfigpools"]);
        assert!(unknown.to_string().starts_with("the server doesn't have a resource type \"mach"));
        assert_eq!(all.by_name("events.apps").unwrap_err().similar, ["events", "event"]);
        assert!(all.by_kind("v1", "Node").is_some() && all.by_kind("v2", "Node").is_none());
    }

    #[test]
    fn paths() {
        let all = resources();
        let path = |word, namespace, name| all.by_name(word).unwrap().path(namespace, name);
        assert_eq!(path("node", Some("x"), Some("a")), "/api/v1/nodes/a");
        assert_eq!(path("secret", Some("x"), None), "/api/v1/namespaces/x/secrets");
        assert_eq!(path("secret", None, None), "/api/v1/secrets");
        let pool = all.by_name("mcp").unwrap();
        assert_eq!(pool.object_name("a"), "machineconfigpool.machineconfiguration.openshift.io/a");
        assert!(pool.path(None, Some("a/b")).ends_with("/machineconfigpools/a%2Fb"));
    }

    #[test]
    fn distances() {
        for (a, b, expected) in [("", "", 0), ("a", "", 1), ("node", "nodes", 1), ("ab", "ba", 2)] {
            assert_eq!(edit_distance(a, b), expected);
            assert_eq!(edit_distance(b, a), expected);
        }
    }
}
