//! `TYPE NAME…`, `TYPE/NAME…` and `A,B`: how people name objects.

use anyhow::Result;

use super::usage_error;

/// What was named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) enum ResourceArgs {
    /// Kinds, each with the same names; no name means all objects.
    Kinds(Vec<String>, Vec<String>),
    /// Objects, each with its kind.
    Objects(Vec<(String, String)>),
}

impl ResourceArgs {
    /// Reads the words of a command line.
    ///
    /// # Errors
    /// There are none, or the two forms are mixed.
    pub(in crate::cli) fn parse(words: &[String]) -> Result<Self> {
        let Some((kinds, names)) = words.split_first() else {
            return Err(usage_error("name a kind, such as: mcp"));
        };
        if words.iter().any(|word| word.contains('/')) {
            return words
                .iter()
                .map(|word| parse_type_and_name(word))
                .collect::<Result<_>>()
                .map(Self::Objects);
        }
        let kinds: Vec<String> =
            kinds.split(',').filter(|kind| !kind.is_empty()).map(str::to_owned).collect();
        if kinds.is_empty() {
            return Err(usage_error("name a kind, such as: mcp"));
        }
        for name in names {
            check_name(name)?;
        }
        Ok(Self::Kinds(kinds, names.to_vec()))
    }
}

fn parse_type_and_name(word: &str) -> Result<(String, String)> {
    match word.split_once('/') {
        Some((kind, name)) if !kind.is_empty() && !name.is_empty() => {
            check_name(name)?;
            Ok((kind.to_owned(), name.to_owned()))
        }
        _ => Err(usage_error(format!(
            "{word}: where one object is named as TYPE/NAME, all of them have to be"
        ))),
    }
}

/// Names that cannot be part of a path are no names of objects.
fn check_name(name: &str) -> Result<()> {
    let is_bad = matches!(name, "" | "." | "..") || name.contains(['/', '%']);
    if is_bad { Err(usage_error(format!("{name:?} is not the name of an object"))) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        let parse = |text: &str| {
            let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            ResourceArgs::parse(&words).ok()
        };
        let all = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
        let object = |kind: &str, name: &str| (kind.to_owned(), name.to_owned());
        for (text, expected) in [
            ("mcp", Some(ResourceArgs::Kinds(all(&["mcp"]), vec![]))),
            ("mcp,mc", Some(ResourceArgs::Kinds(all(&["mcp", "mc"]), vec![]))),
            ("mcp a b", Some(ResourceArgs::Kinds(all(&["mcp"]), all(&["a", "b"])))),
            (
                "mcp/a no/b",
                Some(ResourceArgs::Objects(vec![object("mcp", "a"), object("no", "b")])),
            ),
            ("mcp mcp/a", None),
            ("mcp/a/b", None),
            ("mcp/", None),
            ("mcp ..", None),
            (",", None),
            ("", None),
        ] {
            assert_eq!(parse(text), expected, "{text:?}");
        }
    }
}
