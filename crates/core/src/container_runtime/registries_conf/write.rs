//! Writes `registries.conf` byte for byte like MCO.

use std::fmt::Write as _;

use super::{RegistriesConf, RegistryEntry};
use crate::container_runtime::toml_text::{key, list, quoted};

impl RegistriesConf {
    /// The text of the file.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail, here and below.
        if let Some(search) = &self.search {
            let _ = writeln!(text, "unqualified-search-registries = {}", list(search));
        }
        if let Some(helpers) = &self.credential_helpers {
            let _ = writeln!(text, "credential-helpers = {}", list(helpers));
        }
        let _ = writeln!(text, "short-name-mode = {}", quoted(&self.short_name_mode));
        let helper = quoted(&self.layer_store_helper);
        let _ = writeln!(text, "additional-layer-store-auth-helper = {helper}");
        for registry in &self.registries {
            write(&mut text, registry);
        }
        if !self.aliases.is_empty() {
            text.push_str("\n[aliases]\n");
            for (name, value) in &self.aliases {
                let _ = writeln!(text, "  {} = {}", key(name), quoted(value));
            }
        }
        text
    }
}

fn write(text: &mut String, registry: &RegistryEntry) {
    let _ = write!(text, "\n[[registry]]\n  prefix = {}\n", quoted(&registry.prefix));
    if !registry.location.is_empty() {
        let _ = writeln!(text, "  location = {}", quoted(&registry.location));
    }
    let flags = [
        ("insecure", registry.insecure),
        ("blocked", registry.blocked),
        ("mirror-by-digest-only", registry.mirror_by_digest_only),
    ];
    for (name, _) in flags.iter().filter(|(_, set)| *set) {
        let _ = writeln!(text, "  {name} = true");
    }
    if !registry.pull_from_mirror.is_empty() {
        let _ = writeln!(text, "  pull-from-mirror = {}", quoted(&registry.pull_from_mirror));
    }
    for mirror in &registry.mirrors {
        let location = quoted(&mirror.location);
        let _ = write!(text, "\n  [[registry.mirror]]\n    location = {location}\n");
        if mirror.insecure {
            text.push_str("    insecure = true\n");
        }
        if !mirror.pull_from_mirror.is_empty() {
            let _ = writeln!(text, "    pull-from-mirror = {}", quoted(&mirror.pull_from_mirror));
        }
    }
}
