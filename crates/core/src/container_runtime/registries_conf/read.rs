//! Parses `registries.conf`.

use toml_edit::{Document, Item, TableLike};

use super::{RegistriesConf, RegistryEntry, RegistryMirror};

/// The text is not a `registries.conf`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistriesConfError {
    /// It is not TOML.
    #[error("it is no TOML: {0}")]
    InvalidToml(String),
    /// A field has the wrong type.
    #[error("{field} has to be {expected}")]
    WrongType {
        /// The field.
        field: String,
        /// The expected type.
        expected: &'static str,
    },
}

type ReadResult<T> = std::result::Result<T, RegistriesConfError>;

impl RegistriesConf {
    /// Parses a file. Unknown fields are ignored.
    ///
    /// # Errors
    /// It is not TOML, or a field has the wrong type.
    pub fn parse(text: &str) -> ReadResult<Self> {
        let document = Document::parse(text)
            .map_err(|error| RegistriesConfError::InvalidToml(error.message().to_owned()))?;
        let table = TomlTable { table: document.as_table(), path: String::new() };
        let mut registries = Vec::new();
        for table in table.tables("registry")? {
            registries.push(registry(&table)?);
        }
        let mut aliases = Vec::new();
        if let Some(table) = table.table.get("aliases").and_then(Item::as_table_like) {
            let table = TomlTable { table, path: "aliases.".to_owned() };
            for (name, _) in table.table.iter() {
                aliases.push((name.to_owned(), table.text(name)?));
            }
        }
        aliases.sort();
        Ok(Self {
            search: table.texts("unqualified-search-registries")?,
            credential_helpers: table.texts("credential-helpers")?,
            short_name_mode: table.text("short-name-mode")?,
            layer_store_helper: table.text("additional-layer-store-auth-helper")?,
            registries,
            aliases,
        })
    }
}

fn registry(table: &TomlTable<'_>) -> ReadResult<RegistryEntry> {
    let mut mirrors = Vec::new();
    for mirror in table.tables("mirror")? {
        mirrors.push(RegistryMirror {
            location: mirror.text("location")?,
            insecure: mirror.flag("insecure")?,
            pull_from_mirror: mirror.text("pull-from-mirror")?,
        });
    }
    Ok(RegistryEntry {
        prefix: table.text("prefix")?,
        location: table.text("location")?,
        insecure: table.flag("insecure")?,
        pull_from_mirror: table.text("pull-from-mirror")?,
        blocked: table.flag("blocked")?,
        mirror_by_digest_only: table.flag("mirror-by-digest-only")?,
        mirrors,
    })
}

/// A table and its path.
struct TomlTable<'a> {
    table: &'a dyn TableLike,
    path: String,
}

impl<'a> TomlTable<'a> {
    fn type_error(&self, name: &str, expected: &'static str) -> RegistriesConfError {
        RegistriesConfError::WrongType { field: format!("{}{name}", self.path), expected }
    }

    fn text(&self, name: &str) -> ReadResult<String> {
        let Some(item) = self.table.get(name) else { return Ok(String::new()) };
        item.as_str().map(str::to_owned).ok_or_else(|| self.type_error(name, "a text"))
    }

    fn flag(&self, name: &str) -> ReadResult<bool> {
        let Some(item) = self.table.get(name) else { return Ok(false) };
        item.as_bool().ok_or_else(|| self.type_error(name, "true or false"))
    }

    fn texts(&self, name: &str) -> ReadResult<Option<Vec<String>>> {
        let Some(item) = self.table.get(name) else { return Ok(None) };
        let wrong = || self.type_error(name, "a list of texts");
        let array = item.as_array().ok_or_else(wrong)?;
        let texts = array.iter().map(|value| value.as_str().map(str::to_owned).ok_or_else(wrong));
        texts.collect::<ReadResult<_>>().map(Some)
    }

    /// The tables of an array, in either notation.
    fn tables(&self, name: &str) -> ReadResult<Vec<TomlTable<'a>>> {
        let Some(item) = self.table.get(name) else { return Ok(Vec::new()) };
        let wrong = || self.type_error(name, "a list of tables");
        let place = |at: usize| format!("{}{name}[{at}].", self.path);
        if let Some(tables) = item.as_array_of_tables() {
            let table = |(at, table)| TomlTable { table, path: place(at) };
            return Ok(tables
                .iter()
                .map(|table| table as &dyn TableLike)
                .enumerate()
                .map(table)
                .collect());
        }
        let array = item.as_array().ok_or_else(wrong)?;
        let table = |(at, value): (usize, &'a toml_edit::Value)| {
            let table = value.as_inline_table().ok_or_else(wrong)?;
            Ok(TomlTable { table, path: place(at) })
        };
        array.iter().enumerate().map(table).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn texts() -> impl Strategy<Value = String> {
        prop_oneof!["[a-z.:/*]{0,12}", any::<String>()]
    }

    prop_compose! {
        fn mirrors()(location in texts(), insecure: bool, pull_from_mirror in texts()) -> RegistryMirror {
            RegistryMirror { location, insecure, pull_from_mirror }
        }
    }

    prop_compose! {
        fn registries()(
            prefix in texts(), location in texts(), pull_from_mirror in texts(), insecure: bool,
            blocked: bool, mirror_by_digest_only: bool, mirrors in prop::collection::vec(mirrors(), 0..3),
        ) -> RegistryEntry {
            RegistryEntry { prefix, location, insecure, pull_from_mirror, blocked, mirror_by_digest_only, mirrors }
        }
    }

    proptest! {
        #[test]
        fn written_files_are_parsed_back(
            search in prop::option::of(prop::collection::vec(texts(), 0..3)),
            credential_helpers in prop::option::of(prop::collection::vec(texts(), 0..3)),
            short_name_mode in texts(), layer_store_helper in texts(),
            registries in prop::collection::vec(registries(), 0..4),
            aliases in prop::collection::btree_map(texts(), texts(), 0..3),
        ) {
            let aliases = aliases.into_iter().collect();
            let conf = RegistriesConf {
                search, credential_helpers, short_name_mode, layer_store_helper, registries, aliases,
            };
            prop_assert_eq!(RegistriesConf::parse(&conf.text()), Ok(conf));
        }

        #[test]
        fn no_text_is_too_strange(text: String) {
            let _ = RegistriesConf::parse(&text);
        }
    }

    #[test]
    fn a_wrong_type_is_an_error_with_the_field() {
        let problem = RegistriesConf::parse("[[registry]]\nlocation = 1\n").unwrap_err();
        assert_eq!(problem.to_string(), "registry[0].location has to be a text");
        let inline =
            RegistriesConf::parse("registry = [{location = 'a', mirror = [{location = 'b'}]}]");
        assert_eq!(inline.unwrap().registries[0].mirrors[0].location, "b");
    }
}
