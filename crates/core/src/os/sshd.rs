//! Where sshd reads the keys of users.

/// sshd's default.
const DEFAULT_FILE: &str = ".ssh/authorized_keys";

/// The first file in the output of `sshd -T`; `None` if sshd reads no files.
#[must_use]
pub fn from_effective(output: &str) -> Option<String> {
    first_file(output.lines().find_map(|line| keyword(line, "authorizedkeysfile")))
}

/// The first file in the settings of sshd, in the order in which it reads them; `None` if sshd reads no files. The
/// first value wins, and what follows `Match` is only for some users.
#[must_use]
pub fn from_settings(texts: &[String]) -> Option<String> {
    let all = texts
        .iter()
        .flat_map(|text| text.lines().take_while(|line| keyword(line, "match").is_none()));
    first_file(all.filter_map(|line| keyword(line, "authorizedkeysfile")).next())
}

/// The path of a user's file. Relative ones are beneath the home directory.
#[must_use]
pub fn expand(pattern: &str, user: &str, uid: u32, home: &str) -> String {
    let mut path = String::new();
    let mut letters = pattern.chars();
    while let Some(letter) = letters.next() {
        match (letter, letter == '%') {
            (_, true) => match letters.next() {
                Some('h') => path.push_str(home),
                Some('u') => path.push_str(user),
                Some('U') => path.push_str(&uid.to_string()),
                Some(other) => path.push(other),
                None => {}
            },
            (letter, false) => path.push(letter),
        }
    }
    if path.starts_with('/') { path } else { format!("{home}/{path}") }
}

fn first_file(value: Option<&str>) -> Option<String> {
    let Some(value) = value else { return Some(DEFAULT_FILE.to_owned()) };
    let first = value.split_whitespace().next()?.trim_matches('"');
    (first != "none" && !first.is_empty()).then(|| first.to_owned())
}

/// The value of a keyword, whose case does not matter.
fn keyword<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let line = line.trim();
    let (word, rest) = line.split_at_checked(name.len())?;
    let separated = rest.starts_with([' ', '\t', '=']);
    (word.eq_ignore_ascii_case(name) && separated)
        .then(|| rest.trim_start_matches([' ', '\t', '=']).trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_the_one_that_sshd_reads_first() {
        let texts =
            |list: &[&str]| -> Vec<String> { list.iter().map(|&it| it.to_owned()).collect() };
        for (found, expected) in [
            (
                from_effective(
                    "port 22\nauthorizedkeysfile .ssh/authorized_keys .ssh/authorized_keys2\n",
                ),
                Some(".ssh/authorized_keys"),
            ),
            (from_effective("authorizedkeysfile /etc/ssh/keys/%u\n"), Some("/etc/ssh/keys/%u")),
            (from_effective("authorizedkeysfile none\n"), None),
            (from_effective(""), Some(".ssh/authorized_keys")),
            (from_settings(&[]), Some(".ssh/authorized_keys")),
            (
                from_settings(&texts(&["# AuthorizedKeysFile no\nAuthorizedKeysFile\t\"a b\"\n"])),
                Some("a"),
            ),
            (
                from_settings(&texts(&[
                    "Match User x\nAuthorizedKeysFile /x\n",
                    "authorizedkeysfile=/y/%u\n",
                ])),
                Some("/y/%u"),
            ),
            (
                from_settings(&texts(&["AuthorizedKeysFile /first", "AuthorizedKeysFile /second"])),
                Some("/first"),
            ),
        ] {
            assert_eq!(found.as_deref(), expected);
        }
    }

    #[test]
    fn patterns_are_expanded_as_sshd_does() {
        for (pattern, expected) in [
            (".ssh/authorized_keys", "/home/a/.ssh/authorized_keys"),
            ("%h/.keys", "/home/a/.keys"),
            ("/etc/keys/%u", "/etc/keys/a"),
            ("/etc/keys/%U%%", "/etc/keys/1000%"),
        ] {
            assert_eq!(expand(pattern, "a", 1000, "/home/a"), expected);
        }
    }
}
