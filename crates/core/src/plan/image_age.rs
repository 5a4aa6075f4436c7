//! Compares the age of two OS images by their tags.

use std::cmp::Ordering;

/// How the second image compares with the first; `None` if that is unknown.
pub(super) fn compare(old: &str, new: &str) -> Option<Ordering> {
    let ((old_place, old_tag), (new_place, new_tag)) = (tag(old)?, tag(new)?);
    if old_place != new_place {
        return None;
    }
    let ((old_numbers, old_rest), (new_numbers, new_rest)) = (version(old_tag)?, version(new_tag)?);
    match new_numbers.cmp(&old_numbers) {
        // 4.16.0-rc.1 and 4.16.0: the order of suffixes depends on the project.
        Ordering::Equal if old_rest != new_rest => None,
        ordering => Some(ordering),
    }
}

/// The repository and the tag of an image; `None` if it is referenced by digest.
fn tag(image: &str) -> Option<(&str, &str)> {
    let image = image.rsplit_once("://").map_or(image, |(_, rest)| rest);
    let (place, tag) = image.rsplit_once(':')?;
    // A colon before a slash belongs to a port, not to a tag.
    (!tag.contains('/') && !image.contains('@')).then_some((place, tag))
}

/// The leading numbers of a version, and the rest.
fn version(tag: &str) -> Option<(Vec<u64>, &str)> {
    let digits = tag.strip_prefix('v').unwrap_or(tag);
    let end = digits.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(digits.len());
    let (numbers, rest) = digits.split_at(end);
    let numbers: Option<Vec<u64>> =
        numbers.trim_end_matches('.').split('.').map(|part| part.parse().ok()).collect();
    numbers.map(|numbers| (numbers, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_version_tags_of_the_same_repository_are_compared() {
        use Ordering::{Equal, Greater, Less};
        for (old, new, expected) in [
            ("r.example/os:4.16.1", "r.example/os:4.16.2", Some(Greater)),
            ("r.example/os:4.16.10", "r.example/os:4.16.9", Some(Less)),
            ("r.example/os:v2", "r.example/os:v1", Some(Less)),
            ("r.example/os:9.4.20240501", "r.example/os:9.4.20240312", Some(Less)),
            ("r.example/os:4.16", "r.example/os:4.16.1", Some(Greater)),
            ("r.example/os:4.16.0", "r.example/os:4.16.0", Some(Equal)),
            ("docker://r.example/os:2", "r.example/os:1", Some(Less)),
            ("r.example/os:4.16.0", "r.example/os:4.16.0-rc.1", None),
            ("r.example/os:4.16.0", "other.example/os:4.15.0", None),
            ("r.example/os:latest", "r.example/os:4.15.0", None),
            ("r.example/os@sha256:12", "r.example/os@sha256:11", None),
            ("r.example:5000/os", "r.example:5000/os", None),
            ("", "r.example/os:1", None),
        ] {
            assert_eq!(compare(old, new), expected, "{old} {new}");
        }
    }
}
