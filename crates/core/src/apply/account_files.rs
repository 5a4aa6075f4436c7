//! The lines of `/etc/passwd`, `/etc/group`, `/etc/shadow` and `/etc/gshadow`, as text.

use std::collections::BTreeSet;

/// Where `useradd` finds numbers for people.
const USER_IDS: std::ops::RangeInclusive<u32> = 1000..=59_999;
/// Where `useradd --system` finds numbers.
const SYSTEM_IDS: std::ops::RangeInclusive<u32> = 100..=999;

/// A line of `/etc/passwd`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PasswdLine {
    pub(super) name: String,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) gecos: String,
    pub(super) home: String,
    pub(super) shell: String,
}

impl PasswdLine {
    /// The line of a user.
    pub(super) fn find(text: &str, name: &str) -> Option<Self> {
        let fields: Vec<&str> = find_line(text, name)?.split(':').collect();
        let [name, _, uid, gid, gecos, home, shell] = fields.as_slice() else { return None };
        let (uid, gid) = (uid.parse().ok()?, gid.parse().ok()?);
        let [name, gecos, home, shell] = [name, gecos, home, shell].map(|it| (*it).to_owned());
        Some(Self { name, uid, gid, gecos, home, shell })
    }

    /// As it is written.
    pub(super) fn to_line(&self) -> String {
        let Self { name, uid, gid, gecos, home, shell } = self;
        format!("{name}:x:{uid}:{gid}:{gecos}:{home}:{shell}")
    }
}

/// The line that begins with a name.
pub(super) fn find_line<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find(|line| is_of(line, name))
}

/// The text with a line of this name instead of the present one, or at its end; without it if there is none.
pub(super) fn with_line(text: &str, name: &str, line: Option<&str>) -> String {
    let mut new = String::with_capacity(text.len() + line.map_or(0, str::len) + 1);
    let mut is_written = false;
    for present in text.lines() {
        let replaced =
            if is_of(present, name) { line.filter(|_| !is_written) } else { Some(present) };
        is_written |= is_of(present, name);
        if let Some(line) = replaced {
            new.push_str(line);
            new.push('\n');
        }
    }
    if let Some(line) = line.filter(|_| !is_written) {
        new.push_str(line);
        new.push('\n');
    }
    new
}

fn is_of(line: &str, name: &str) -> bool {
    line.strip_prefix(name).is_some_and(|rest| rest.starts_with(':'))
}

/// A field of the line of a name.
pub(super) fn field<'a>(text: &'a str, name: &str, index: usize) -> Option<&'a str> {
    find_line(text, name)?.split(':').nth(index)
}

/// The text with another field in the line of a name.
pub(super) fn with_field(text: &str, name: &str, index: usize, value: &str) -> String {
    let Some(line) = find_line(text, name) else { return text.to_owned() };
    let mut fields: Vec<&str> = line.split(':').collect();
    if let Some(field) = fields.get_mut(index) {
        *field = value;
    }
    with_line(text, name, Some(&fields.join(":")))
}

/// The members of a group in `/etc/group` or `/etc/gshadow`.
pub(super) fn members(text: &str, group: &str) -> Vec<String> {
    let list = field(text, group, 3).unwrap_or_default();
    list.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// The text with a member added to a group, or removed from it.
pub(super) fn with_member(text: &str, group: &str, user: &str, is_member: bool) -> String {
    let mut list = members(text, group);
    if list.iter().any(|name| name == user) == is_member {
        return text.to_owned();
    }
    list.retain(|name| name != user);
    if is_member {
        list.push(user.to_owned());
    }
    with_field(text, group, 3, &list.join(","))
}

/// A number that is free in a list of users or groups, and `preferred` if that is.
pub(super) fn free_id(texts: [&str; 2], preferred: Option<u32>, is_system: bool) -> Option<u32> {
    let id = |line: &str| line.split(':').nth(2)?.parse::<u32>().ok();
    let used: BTreeSet<u32> = texts.iter().flat_map(|text| text.lines()).filter_map(id).collect();
    if let Some(id) = preferred.filter(|id| !used.contains(id)) {
        return Some(id);
    }
    let is_free = |id: &u32| !used.contains(id);
    if is_system {
        return SYSTEM_IDS.rev().find(is_free);
    }
    // The number of a user who was deleted may still own files: the next higher one comes first.
    let last = used.iter().copied().filter(|id| USER_IDS.contains(id)).max();
    let next = last.map_or(*USER_IDS.start(), |last| last + 1);
    (next..=*USER_IDS.end()).find(is_free).or_else(|| USER_IDS.into_iter().find(is_free))
}

/// Whether `useradd` accepts a name.
pub(super) fn is_valid_name(name: &str) -> bool {
    let mut letters = name.chars();
    let starts = letters.next().is_some_and(|it| it.is_ascii_lowercase() || it == '_');
    let is_inner =
        |it: char| it.is_ascii_lowercase() || it.is_ascii_digit() || matches!(it, '_' | '-');
    starts && name.len() <= 32 && letters.all(is_inner)
}

/// Before the keys of a config in a file that others write too.
const BEGIN: &str = "# BEGIN machinist: keys of this machine's config; changes up to END are lost";
const END: &str = "# END machinist";

/// The text of a file of keys with these ones of a config instead of the earlier ones. Other lines stay.
pub(super) fn with_keys<'a>(text: &str, keys: impl Iterator<Item = &'a str>) -> String {
    let mut new = String::new();
    let mut is_ours = false;
    for line in text.lines() {
        is_ours |= line == BEGIN;
        if !is_ours {
            new.push_str(line);
            new.push('\n');
        }
        is_ours &= line != END;
    }
    let keys: Vec<&str> = keys
        .flat_map(str::lines)
        .map(str::trim)
        .filter(|line| !line.is_empty() && *line != BEGIN && *line != END)
        .collect();
    if !keys.is_empty() {
        new.push_str(&format!("{BEGIN}\n{}\n{END}\n", keys.join("\n")));
    }
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_found_replaced_added_and_removed() {
        let text = "root:x:0:0::/root:/bin/sh\na:x:1:2:A:/home/a:/bin/sh\n";
        let line = PasswdLine::find(text, "a").unwrap();
        assert_eq!((line.uid, line.gid, line.home.as_str()), (1, 2, "/home/a"));
        assert_eq!(line.to_line(), "a:x:1:2:A:/home/a:/bin/sh");
        assert_eq!(PasswdLine::find(text, "ro"), None);
        assert_eq!(with_line(text, "a", None), "root:x:0:0::/root:/bin/sh\n");
        assert_eq!(with_line("b:1", "a", Some("a:2")), "b:1\na:2\n");
        assert_eq!(with_field("a:1:2\nb:1", "a", 1, "x"), "a:x:2\nb:1\n");
    }

    #[test]
    fn members_come_and_go_alone() {
        let text = "sudo:x:27:x\nother:x:28:\n";
        let with = with_member(text, "sudo", "a", true);
        assert_eq!(with, "sudo:x:27:x,a\nother:x:28:\n");
        assert_eq!(with_member(&with, "sudo", "a", true), with);
        assert_eq!(with_member(&with, "sudo", "a", false), text);
        assert_eq!(with_member(text, "other", "a", false), text);
        assert_eq!(with_member(text, "none", "a", true), text);
    }

    #[test]
    fn numbers_are_chosen_as_useradd_does() {
        let text = "a:x:1000:\nb:x:1005:\nc:x:999:\nn:x:65534:\n";
        assert_eq!(free_id([text, ""], None, false), Some(1006));
        assert_eq!(free_id([text, ""], None, true), Some(998));
        assert_eq!(free_id([text, ""], Some(2000), false), Some(2000));
        assert_eq!(free_id([text, "x:x:2000:"], Some(2000), false), Some(2001));
        assert_eq!(free_id(["", ""], None, false), Some(1000));
        assert_eq!(free_id(["z:x:59999:", ""], None, false), Some(1000));
    }

    #[test]
    fn keys_of_others_stay_in_the_file() {
        let own = with_keys("ssh-rsa mine", ["k1", "k2\n"].into_iter());
        let expected = format!("ssh-rsa mine\n{BEGIN}\nk1\nk2\n{END}\n");
        assert_eq!(own, expected);
        assert_eq!(with_keys(&own, ["k1", "k2"].into_iter()), expected);
        assert_eq!(with_keys(&own, std::iter::empty()), "ssh-rsa mine\n");
        assert_eq!(with_keys("", std::iter::empty()), "");
        // A config cannot end its own part early.
        let tricky = format!("k1\n{END}\nk2");
        assert_eq!(with_keys(&with_keys("", [tricky.as_str()].into_iter()), [].into_iter()), "");
    }

    #[test]
    fn names_that_would_break_the_files_are_refused() {
        for (name, expected) in [
            ("alice", true),
            ("_x-1", true),
            ("", false),
            ("a:b", false),
            ("a\nb", false),
            ("1a", false),
            ("Ä", false),
        ] {
            assert_eq!(is_valid_name(name), expected, "{name}");
        }
    }
}
