//! Shell patterns as presets use them: `*`, `?` and `[…]`.

/// Whether a pattern matches a whole name.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let name: Vec<char> = name.chars().collect();
    let (mut at, mut in_name) = (0, 0);
    // Where to continue when a star has to match one more character.
    let mut retry: Option<(usize, usize)> = None;
    while in_name < name.len() {
        match match_one(&pattern, at, name[in_name]) {
            Some(GlobStep::Star) => {
                retry = Some((at + 1, in_name));
                at += 1;
            }
            Some(GlobStep::Letter(next)) => {
                at = next;
                in_name += 1;
            }
            None => {
                let Some((star, from)) = retry else { return false };
                retry = Some((star, from + 1));
                (at, in_name) = (star, from + 1);
            }
        }
    }
    pattern[at..].iter().all(|letter| *letter == '*')
}

enum GlobStep {
    Star,
    /// The character matches; the pattern continues here.
    Letter(usize),
}

fn match_one(pattern: &[char], at: usize, letter: char) -> Option<GlobStep> {
    match pattern.get(at)? {
        '*' => Some(GlobStep::Star),
        '?' => Some(GlobStep::Letter(at + 1)),
        '[' => match match_set(pattern, at, letter) {
            Some((true, next)) => Some(GlobStep::Letter(next)),
            Some((false, _)) => None,
            None => (letter == '[').then_some(GlobStep::Letter(at + 1)),
        },
        other => (*other == letter).then_some(GlobStep::Letter(at + 1)),
    }
}

/// Whether a character is in the set that begins here, and where the pattern continues; `None` if the
/// set does not end.
fn match_set(pattern: &[char], at: usize, letter: char) -> Option<(bool, usize)> {
    let is_not = matches!(pattern.get(at + 1), Some('!' | '^'));
    let first = at + 1 + usize::from(is_not);
    let end = first + 1 + pattern.get(first + 1..)?.iter().position(|c| *c == ']')?;
    let letters = &pattern[first..end];
    let mut found = false;
    let mut i = 0;
    while i < letters.len() {
        if i + 2 < letters.len() && letters[i + 1] == '-' {
            found |= (letters[i]..=letters[i + 2]).contains(&letter);
            i += 3;
        } else {
            found |= letters[i] == letter;
            i += 1;
        }
    }
    Some((found != is_not, end + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_a_shell() {
        for (pattern, name, expected) in [
            ("*", "a.service", true),
            ("a.service", "a.service", true),
            ("a.service", "b.service", false),
            ("a*.service", "abc.service", true),
            ("*b*c", "aabbc", true),
            ("a?.service", "ab.service", true),
            ("a?.service", "a.service", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[", "[", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
