//! Kernel arguments: how the kernel splits them, what changes from one config to another, and whether a
//! machine has the desired ones.

use super::KernelArgumentsChange;

/// Splits a line as the kernel does: at white space, but not between quotes. There are no escapes, and
/// quotes are kept.
#[must_use]
pub fn split(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut is_quoted = false;
    for letter in line.chars() {
        if letter == '"' {
            is_quoted = !is_quoted;
        }
        if letter.is_ascii_whitespace() && !is_quoted {
            words.extend(Some(std::mem::take(&mut word)).filter(|word| !word.is_empty()));
        } else {
            word.push(letter);
        }
    }
    words.extend(Some(word).filter(|word| !word.is_empty()));
    words
}

/// All arguments of a list whose entries may contain several.
#[must_use]
pub fn split_all(entries: &[String]) -> Vec<String> {
    entries.iter().flat_map(|entry| split(entry)).collect()
}

/// The change from one list to another: all old arguments are deleted and all new ones appended, so that
/// their order is that of the list. Empty if both lists are equal.
#[must_use]
pub fn change_between(old: &[String], new: &[String]) -> KernelArgumentsChange {
    let (delete, append) = (split_all(old), split_all(new));
    if delete == append {
        return KernelArgumentsChange::default();
    }
    KernelArgumentsChange { delete, append }
}

/// The full list of arguments after a change, for hosts that need all of them.
#[must_use]
pub fn apply(present: &[String], change: &KernelArgumentsChange) -> Vec<String> {
    let mut list = present.to_vec();
    for gone in &change.delete {
        if let Some(at) =
            list.iter().position(|argument| without_quotes(argument) == without_quotes(gone))
        {
            list.remove(at);
        }
    }
    list.extend(change.append.iter().cloned());
    list
}

/// The desired arguments that a command line does not have, in order. Repetitions and the position of
/// quotes do not matter.
#[must_use]
pub fn missing(wanted: &[String], command_line: &str) -> Vec<String> {
    let present: Vec<String> =
        split(command_line).iter().map(|word| without_quotes(word)).collect();
    split_all(wanted).into_iter().filter(|word| !present.contains(&without_quotes(word))).collect()
}

/// The arguments that one list has more often than another, each once.
#[must_use]
pub fn surplus(arguments: &[String], have: &[String], most: &[String]) -> Vec<String> {
    let count = |list: &[String], word: &str| {
        list.iter().filter(|one| without_quotes(one) == without_quotes(word)).count()
    };
    let mut found: Vec<String> = Vec::new();
    for word in arguments {
        if count(have, word) > count(most, word) && !found.contains(word) {
            found.push(word.clone());
        }
    }
    found
}

/// An argument without its quotes: `a="b c"` and `"a=b c"` mean the same.
fn without_quotes(argument: &str) -> String {
    argument.replace('"', "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn list(words: &[&str]) -> Vec<String> {
        words.iter().map(|&word| word.to_owned()).collect()
    }

    #[test]
    fn lines_are_split_as_the_kernel_does() {
        for (line, expected) in [
            ("", &[][..]),
            ("  a  b\tc\nd ", &["a", "b", "c", "d"]),
            (r#"bar="hello world" x"#, &[r#"bar="hello world""#, "x"]),
            (r#""bar=hello  world" x"#, &[r#""bar=hello  world""#, "x"]),
            (r#"a="b\" c" d"#, &[r#"a="b\""#, r#"c" d"#]),
            ("a=\"never closed b", &["a=\"never closed b"]),
        ] {
            assert_eq!(split(line), list(expected), "{line}");
        }
    }

    #[test]
    fn all_old_arguments_are_deleted_and_all_new_ones_appended() {
        let pages = ["hugepagesz=1G hugepages=4", "hugepagesz=2M hugepages=4"];
        let more = ["hugepagesz=1G hugepages=4", "hugepagesz=2M hugepages=6"];
        for (old, new, delete, append) in [
            (&[][..], &["hello=world"][..], &[][..], &["hello=world"][..]),
            (
                &["foo", "bar=1 hello=world", "baz"],
                &["foo", "bar=1", "hello=world"],
                &["foo", "bar=1", "hello=world", "baz"],
                &["foo", "bar=1", "hello=world"],
            ),
            (
                &pages,
                &more,
                &["hugepagesz=1G", "hugepages=4", "hugepagesz=2M", "hugepages=4"],
                &["hugepagesz=1G", "hugepages=4", "hugepagesz=2M", "hugepages=6"],
            ),
            // The same arguments in other entries.
            (&["a b"], &["a", "b"], &[], &[]),
            (&["a", "b"], &["b", "a"], &["a", "b"], &["b", "a"]),
        ] {
            let change = change_between(&list(old), &list(new));
            assert_eq!(
                change,
                KernelArgumentsChange { delete: list(delete), append: list(append) }
            );
        }
    }

    #[test]
    fn arguments_of_others_are_kept() {
        let present = list(&["root=/dev/sda", "a", "console=tty0", "a", "b"]);
        let change = change_between(&list(&["a", "b", "gone"]), &list(&["b", "c"]));
        let expected = list(&["root=/dev/sda", "console=tty0", "a", "b", "c"]);
        assert_eq!(apply(&present, &change), expected);
    }

    #[test]
    fn a_value_with_spaces_is_found() {
        let line = "BOOT_IMAGE=/x root=/dev/sda \"bar=hello world\" a=1 a=2\n";
        let wanted = list(&["bar=\"hello world\"", "a=2 a=1", "b", "hello", "a=1"]);
        assert_eq!(missing(&wanted, line), list(&["b", "hello"]));
    }

    proptest! {
        /// After a change the new arguments are there in their order, and so are those of others.
        #[test]
        fn a_change_leads_to_the_new_list(
            others in prop::collection::vec("[m-p]=[0-9]", 0..4),
            old in prop::collection::vec("[a-d]( [a-d])?", 0..5),
            new in prop::collection::vec("[a-d]( [a-d])?", 0..5),
        ) {
            let before = [others.clone(), split_all(&old)].concat();
            let after = apply(&before, &change_between(&old, &new));
            prop_assert_eq!(&after, &[others, split_all(&new)].concat());
            prop_assert!(missing(&new, &after.join(" ")).is_empty());
            // The reverse change restores the list.
            prop_assert_eq!(apply(&after, &change_between(&new, &old)), before);
        }
    }
}
