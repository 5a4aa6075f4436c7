//! The index of the machine's etcd member: the server noted it on the first boot, and it replaces `{{.etcd_index}}` in
//! every config that the machine applies or is compared with.

use std::borrow::Cow;

use super::fs_node::FsNode;
use super::tree::FsTree;
use crate::api::names::path::ETCD_INDEX;
use crate::ignition::etcd_index::substitute_index;
use crate::reconcile_check::ConfigChange;

/// A longer file is not the note.
const MAX_BYTES: u64 = 16;

/// The index, if the machine has one. A damaged note counts as none: the variable then stays as it is.
#[must_use]
pub fn member_index(tree: &dyn FsTree) -> Option<u16> {
    match tree.node(ETCD_INDEX) {
        Ok(FsNode::File { content, .. }) if content.size <= MAX_BYTES => {}
        _ => return None,
    }
    let bytes = tree.read(ETCD_INDEX).ok()?;
    std::str::from_utf8(&bytes).ok()?.trim_ascii().parse().ok()
}

/// The change of this machine: both configs with its index.
pub(super) fn for_machine<'a>(
    change: &'a ConfigChange,
    tree: &dyn FsTree,
) -> Cow<'a, ConfigChange> {
    let Some(index) = member_index(tree) else { return Cow::Borrowed(change) };
    let mut change = change.clone();
    substitute_index(&mut change.old, index);
    substitute_index(&mut change.new, index);
    Cow::Owned(change)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::InMemoryTree;

    #[test]
    fn only_a_number_is_an_index() {
        for (text, expected) in
            [("1\n", Some(1)), ("0", Some(0)), ("", None), ("x", None), ("1\n2", None)]
        {
            let mut tree = InMemoryTree::new();
            tree.add_file(ETCD_INDEX, text.as_bytes());
            assert_eq!(member_index(&tree), expected, "{text:?}");
        }
        assert_eq!(member_index(&InMemoryTree::new()), None);
        let mut tree = InMemoryTree::new();
        tree.add_link(ETCD_INDEX, "/etc/passwd");
        assert_eq!(member_index(&tree), None);
    }
}
