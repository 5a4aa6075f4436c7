//! `TYPE NAME…`, `TYPE/NAME…` and `A,B`: how kinds and objects are named on the command line.

use anyhow::Result;

use super::usage_error;

/// Kinds or objects on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) enum ResourceArgs {
    /// Kinds, each with the same names; no name means all objects.
    Kinds(Vec<String>, Vec<String>),
    /// Objects, each with its kind.
    Objects(Vec<(String, String)>),
}

impl ResourceArgs {
    /// Parses the arguments of a command.
    ///
    /// # Errors
    /// There are no arguments, or the two forms are mixed.
    pub(in crate::cli) fn parse(resource_args: &[String]) -> Result<Self> {
        let Some((kinds, names)) = resource_args.split_first() else {
            return Err(usage_error("name a kind, such as: mcp"));
        };
        if resource_args.iter().any(|word| word.contains('/')) {
            return resource_args
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
        _ => Err(usage_error(format!("{word}: either write all objects as TYPE/NAME, or none"))),
    }
}

/// Rejects names that would change the path of a request.
fn check_name(name: &str) -> Result<()> {
    let is_bad = matches!(name, "" | "." | "..") || name.contains(['/', '%']);
    if is_bad { Err(usage_error(format!("{name:?} is not a valid object name"))) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_forms_are_parsed() {
        let parse = |text: &str| {
            let resource_args: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
            ResourceArgs::parse(&resource_args).ok()
        };
        let all = |resource_args: &[&str]| {
            resource_args.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
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
