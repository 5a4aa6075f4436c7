//! Reads source code: quoted text, and the comments of constants.

/// A constant with text in it.
pub(crate) struct Constant {
    pub(crate) name: String,
    /// The comment line or the module above it.
    pub(crate) section: String,
    pub(crate) value: String,
    /// The comment above it, as one line.
    pub(crate) comment: String,
}

/// Every `pub const NAME: &str = "…"` of a file.
pub(crate) fn constants(text: &str) -> Vec<Constant> {
    let (mut found, mut comment, mut section) = (Vec::new(), String::new(), String::new());
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let line = line.trim();
        if let Some(words) = line.strip_prefix("///") {
            comment = format!("{comment} {}", words.trim()).trim().to_owned();
            continue;
        }
        if let Some(words) = line.strip_prefix("// ") {
            words.trim_end_matches('.').clone_into(&mut section);
        } else if line.starts_with("pub mod ") {
            comment.trim_end_matches('.').clone_into(&mut section);
        } else if let Some(name) = line.strip_prefix("pub const ") {
            let name = name.split(':').next().unwrap_or_default().to_owned();
            let more = if line.ends_with('=') { lines.next().unwrap_or_default() } else { "" };
            let value = format!("{line}{more}");
            if let Some(value) = value.split('"').nth(1).filter(|_| value.contains("&str")) {
                let (section, value) = (section.clone(), value.to_owned());
                found.push(Constant { name, section, value, comment: comment.clone() });
            }
        }
        comment.clear();
    }
    found
}

/// The first quoted text after each occurrence of a word.
pub(crate) fn quoted_after<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(word).skip(1).filter_map(|rest| {
        let (before, rest) = rest.split_once('"')?;
        // Anything but white space in between belongs to another argument.
        before.trim().is_empty().then(|| rest.split('"').next())?
    })
}

/// The code before the tests of a file.
pub(crate) fn production(text: &str) -> &str {
    text.split("#[cfg(test)]").next().unwrap_or(text)
}

#[test]
fn constants_are_found_with_their_comments() {
    let text = "/// A,\n/// b.\npub const A: &str =\n    \"x\";\n/// Inside.\npub mod in_it {\n    /// C.\n    pub const C: &str = \"y\";\n    pub const N: usize = 1;\n}\n";
    let found = constants(text);
    assert_eq!(found.len(), 2);
    assert_eq!((found[0].value.as_str(), found[0].comment.as_str()), ("x", "A, b."));
    assert_eq!((found[1].section.as_str(), found[1].value.as_str()), ("Inside", "y"));
}
