//! File type and permissions as Go formats them: `-rw-r--r--/420/0644`.

use crate::apply::FsNode;

/// Go's bits for what Unix keeps in the type and in the upper permissions.
const DIRECTORY: u32 = 1 << 31;
const LINK: u32 = 1 << 27;
const SPECIAL_BITS: [(u32, u32); 3] = [(0o4000, 1 << 23), (0o2000, 1 << 22), (0o1000, 1 << 20)];
/// The letters of the upper bits, from the highest.
const LETTERS: &str = "dalTLDpSugct?";

/// Type and permissions of what is at a path, in Go's three notations.
pub(super) fn text(node: &FsNode) -> String {
    let bits = match node {
        FsNode::File { meta, .. } => permissions(meta.mode),
        FsNode::Directory { meta } => DIRECTORY | permissions(meta.mode),
        FsNode::Link { .. } => LINK | 0o777,
        FsNode::Absent | FsNode::Special => return node.kind().to_owned(),
    };
    let mut letters: String = LETTERS
        .chars()
        .zip((0..32).rev())
        .filter(|(_, bit)| bits & (1 << bit) != 0)
        .map(|(letter, _)| letter)
        .collect();
    if letters.is_empty() {
        letters.push('-');
    }
    for (letter, bit) in "rwxrwxrwx".chars().zip((0..9).rev()) {
        letters.push(if bits & (1 << bit) != 0 { letter } else { '-' });
    }
    let zero = if bits == 0 { "" } else { "0" };
    format!("{letters}/{bits}/{zero}{bits:o}")
}

fn permissions(mode: u32) -> u32 {
    let special = SPECIAL_BITS.iter().filter(|(unix, _)| mode & unix != 0);
    special.fold(mode & 0o777, |bits, (_, go)| bits | go)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::{FileContent, FileMeta, FileOwner};

    #[test]
    fn modes_read_as_in_go() {
        let owner = FileOwner::default();
        let file = |mode| FsNode::File {
            meta: FileMeta { mode, owner },
            content: FileContent::new(vec![]),
        };
        let link = FsNode::Link { target: "x".to_owned(), owner };
        for (node, expected) in [
            (file(0o644), "-rw-r--r--/420/0644"),
            (file(0o400), "-r--------/256/0400"),
            (file(0), "----------/0/0"),
            (file(0o4755), "urwxr-xr-x/8389101/040000755"),
            (link, "Lrwxrwxrwx/134218239/01000000777"),
            (
                FsNode::Directory { meta: FileMeta { mode: 0o755, owner } },
                "drwxr-xr-x/2147484141/020000000755",
            ),
        ] {
            assert_eq!(text(&node), expected);
        }
    }
}
