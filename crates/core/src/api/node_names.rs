//! Name patterns of a pool: which machines it takes by the names of their Nodes.
//!
//! Patterns narrow the `nodeSelector` of the pool; without one, they select alone. The hub reads the annotation in the
//! same way before it lets a machine have a name (`hub::auth::pool_names`; a test compares).

use std::fmt;

use super::MachineConfigPool;
use super::names::annotation::machinist::NODE_NAMES;

/// Longer texts are refused.
const MAX_BYTES: usize = 4096;
/// More patterns are refused.
const MAX_PATTERNS: usize = 64;

/// Patterns in which `*` stands for any text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeNamePatterns(Vec<String>);

/// Why patterns cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodeNamesError {
    /// There is none.
    #[error(
        "lists no name: write names such as worker-*, separated by commas, or remove the annotation"
    )]
    Empty,
    /// There are too many.
    #[error(
        "at most {MAX_PATTERNS} names in {MAX_BYTES} bytes are read: use patterns, or select by a label"
    )]
    TooLong,
    /// A letter is in no name of a Node.
    #[error(
        "{0:?} matches no name: names of Nodes have lower-case letters, digits, - and ., and * stands for any text"
    )]
    Letter(String),
}

impl NodeNamePatterns {
    /// The patterns of a pool; `None` without the annotation.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn of_pool(pool: &MachineConfigPool) -> Result<Option<Self>, NodeNamesError> {
        let annotations = pool.metadata.annotations.as_ref();
        annotations.and_then(|all| all.get(NODE_NAMES)).map(|text| Self::parse(text)).transpose()
    }

    /// Parses patterns that are separated by commas or white space.
    ///
    /// # Errors
    /// There are none or too many, or one of them can match no name.
    pub fn parse(text: &str) -> Result<Self, NodeNamesError> {
        if text.len() > MAX_BYTES {
            return Err(NodeNamesError::TooLong);
        }
        let separator = |letter: char| letter == ',' || letter.is_whitespace();
        let patterns: Vec<String> =
            text.split(separator).filter(|it| !it.is_empty()).map(str::to_owned).collect();
        let is_known =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.*".contains(&byte);
        match patterns.iter().find(|pattern| !pattern.bytes().all(is_known)) {
            _ if patterns.is_empty() => Err(NodeNamesError::Empty),
            _ if patterns.len() > MAX_PATTERNS => Err(NodeNamesError::TooLong),
            Some(wrong) => Err(NodeNamesError::Letter(wrong.chars().take(100).collect())),
            None => Ok(Self(patterns)),
        }
    }

    /// Whether one of the patterns matches a name.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        self.0.iter().any(|pattern| matches(pattern, name))
    }
}

impl fmt::Display for NodeNamePatterns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(", "))
    }
}

/// Takes the first place for each part, which finds a match if there is one. Takes linear time.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(start) else { return false };
    let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    for part in middle.split('*') {
        let Some((_, after)) = name.split_once(part) else { return false };
        name = after;
    }
    name.ends_with(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_whole_names() {
        for (text, name, expected) in [
            ("worker-*", "worker-1", true),
            ("worker-*", "worker-", true),
            ("worker-*", "worker", false),
            ("worker-*", "my-worker-1", false),
            ("n1, n2", "n2", true),
            ("n1\n n2", "n1", true),
            ("n1", "n11", false),
            ("*", "anything.example.com", true),
            ("*.example.com", "a.example.com", true),
            ("*.example.com", "a.example.com.org", false),
            ("a*b*c", "axbyc", true),
            ("a*b*c", "ac", false),
            ("a*b*b", "ab", false),
            ("a*a", "a", false),
            ("a**c", "abc", true),
        ] {
            let patterns = NodeNamePatterns::parse(text).unwrap();
            assert_eq!(patterns.matches(name), expected, "{text} {name}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        for (text, expected) in [
            (String::new(), NodeNamesError::Empty),
            (" ,\n".to_owned(), NodeNamesError::Empty),
            ("a,Worker-*".to_owned(), NodeNamesError::Letter("Worker-*".to_owned())),
            ("worker-[0-9]".to_owned(), NodeNamesError::Letter("worker-[0-9]".to_owned())),
            ("!a".to_owned(), NodeNamesError::Letter("!a".to_owned())),
            ("a ".repeat(65), NodeNamesError::TooLong),
            ("a".repeat(4097), NodeNamesError::TooLong),
        ] {
            assert_eq!(NodeNamePatterns::parse(&text), Err(expected), "{text:.20}");
        }
        assert!(NodeNamePatterns::parse(&"a ".repeat(64)).is_ok());
    }
}
