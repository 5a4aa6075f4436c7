//! Where the original of a path is kept, and the marker that there was none.
//!
//! The names are MCO's: the path with a suffix, below a directory of its own. A name that is too long
//! for the suffix, or a path that would become too long, is hashed instead; a record next to the hash has
//! the path, because a machine that leaves restores every path that was taken over.

use sha2::{Digest as _, Sha256};

use crate::api::names::path::{NO_ORIGINALS, ORIGINALS};
use crate::hex::hex;
use crate::ignition::path_limits::check_path_length;

/// Originals, markers and records of paths that are too long for MCO's names. No config may write there.
pub const LONG_ORIGINALS: &str = "/etc/machine-config-daemon/machinist-originals";
/// The suffix of an original.
pub(super) const ORIGINAL_SUFFIX: &str = ".mcdorig";
/// The suffix of a marker.
pub(super) const MARKER_SUFFIX: &str = ".mcdnoorig";
/// The suffix of the record that has the path.
pub(super) const RECORD_SUFFIX: &str = ".path";

/// Where the original of a path is kept.
#[must_use]
pub fn original_path(path: &str) -> String {
    fitting(format!("{ORIGINALS}{path}{ORIGINAL_SUFFIX}"), path, ORIGINAL_SUFFIX)
}

/// The marker that there was no original.
#[must_use]
pub fn no_original_marker(path: &str) -> String {
    fitting(format!("{NO_ORIGINALS}{path}{MARKER_SUFFIX}"), path, MARKER_SUFFIX)
}

/// The record that has the path, if a hash stands for it.
pub(super) fn path_record(path: &str) -> String {
    hashed(path, RECORD_SUFFIX)
}

/// Whether a hash stands for the path in a name.
pub(super) fn is_hashed(name: &str) -> bool {
    name.strip_prefix(LONG_ORIGINALS).is_some_and(|rest| rest.starts_with('/'))
}

fn fitting(name: String, path: &str, suffix: &str) -> String {
    if check_path_length(&name).is_ok() { name } else { hashed(path, suffix) }
}

fn hashed(path: &str, suffix: &str) -> String {
    format!("{LONG_ORIGINALS}/{}{suffix}", hex(&Sha256::digest(path)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_that_fit_are_those_of_mco() {
        let path = |length: usize| format!("/etc/{}", "n".repeat(length));
        for (length, original_fits, marker_fits) in [
            (1, true, true),
            (245, true, true),
            (246, true, false),
            (247, true, false),
            (248, false, false),
            (255, false, false),
        ] {
            let path = path(length);
            let (original, marker) = (original_path(&path), no_original_marker(&path));
            assert_eq!(original == format!("{ORIGINALS}{path}.mcdorig"), original_fits, "{length}");
            assert_eq!(marker == format!("{NO_ORIGINALS}{path}.mcdnoorig"), marker_fits);
            assert_eq!((is_hashed(&original), is_hashed(&marker)), (!original_fits, !marker_fits));
        }
    }

    proptest! {
        /// Every path that Linux accepts has an original, a marker and a record that Linux accepts.
        #[test]
        fn derived_names_never_exceed_a_limit(
            names in prop::collection::vec((1usize..=255, prop::char::range('a', 'ä')), 1..40),
        ) {
            let fill = |(length, letter): &(usize, char)| {
                letter.to_string().repeat((length / letter.len_utf8()).max(1))
            };
            let path: String = names.iter().map(|name| format!("/{}", fill(name))).collect();
            prop_assume!(check_path_length(&path).is_ok() && !path.contains("//"));
            for name in [original_path(&path), no_original_marker(&path), path_record(&path)] {
                prop_assert_eq!(check_path_length(&name), Ok(()));
            }
        }
    }
}
