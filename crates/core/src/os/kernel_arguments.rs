//! Kernel arguments: how the kernel splits them, what changes from one config to another, and
//! whether a machine has those that it is to have.

use super::KernelArgumentsChange;

/// Splits a line into arguments as the kernel does: at white space, but not between quotes. There
/// are no escapes, and the quotes stay.
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

/// All arguments of a list whose entries may hold several.
#[must_use]
pub fn split_all(entries: &[String]) -> Vec<String> {
    entries.iter().flat_map(|entry| split(entry)).collect()
}

/// What has to change from one list to another: all of the old go, all of the new come, so that
/// their order is that of the list. Nothing where both lists say the same.
#[must_use]
pub fn change_between(old: &[String], new: &[String]) -> KernelArgumentsChange {
    let (delete, append) = (split_all(old), split_all(new));
    if delete == append {
        return KernelArgumentsChange::default();
    }
    KernelArgumentsChange { delete, append }
}

/// A full list of arguments after a change, for hosts that want all of them.
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

/// The wanted arguments that a command line does not have, in order. How often one is there does
/// not matter, nor where a boot loader has put its quotes.
#[must_use]
pub fn missing(wanted: &[String], command_line: &str) -> Vec<String> {
    let present: Vec<String> =
        split(command_line).iter().map(|word| without_quotes(word)).collect();
    split_all(wanted).into_iter().filter(|word| !present.contains(&without_quotes(word))).collect()
}

/// The arguments that a list has more often than another, each once.
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
    fn all_old_ones_go_and_all_new_ones_come() {
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
            // Cut into other entries it is the same.
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
    fn what_others_have_set_stays() {
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
        /// After a change the new arguments are there in their order, and those of others are too.
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
            // And back again.
            prop_assert_eq!(apply(&after, &change_between(&new, &old)), before);
        }
    }
}
