//! Merges several ordered lists of mirrors into one order.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A graph of which mirror comes before which.
#[derive(Debug, Default)]
pub(super) struct PrecedenceGraph<'a> {
    before: BTreeMap<&'a str, BTreeSet<&'a str>>,
    after: BTreeMap<&'a str, BTreeSet<&'a str>>,
}

impl<'a> PrecedenceGraph<'a> {
    /// Puts the first before the second.
    pub(super) fn add(&mut self, first: &'a str, second: &'a str) {
        self.after.entry(first).or_default().insert(second);
        self.after.entry(second).or_default();
        self.before.entry(second).or_default().insert(first);
        self.before.entry(first).or_default();
    }

    /// All mirrors in topological order. Contradictions are resolved alphabetically.
    pub(super) fn topological_order(mut self) -> Vec<&'a str> {
        let names: Vec<&str> = self.after.keys().copied().collect();
        let mut free: VecDeque<&str> =
            names.iter().copied().filter(|name| self.before[name].is_empty()).collect();
        let mut rest = names.iter().copied();
        let mut used = BTreeSet::new();
        let mut sorted = Vec::with_capacity(names.len());
        // A cycle: all remaining mirrors wait for each other.
        while let Some(name) = free.pop_front().or_else(|| rest.find(|name| !used.contains(name))) {
            used.insert(name);
            sorted.push(name);
            for next in &self.after[name] {
                let Some(before) = self.before.get_mut(next) else { continue };
                let waited = before.remove(name);
                if waited && before.is_empty() && !used.contains(next) {
                    free.push_back(next);
                }
            }
        }
        sorted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted<'a>(lists: &[&[&'a str]]) -> Vec<&'a str> {
        let mut order = PrecedenceGraph::default();
        for list in lists {
            for pair in list.windows(2) {
                order.add(pair[0], pair[1]);
            }
        }
        order.topological_order()
    }

    #[test]
    fn list_order_is_kept_and_contradictions_are_resolved() {
        assert_eq!(sorted(&[&["b", "c", "s"], &["a", "b", "s"]]), ["a", "b", "c", "s"]);
        assert_eq!(sorted(&[&["a", "b"], &["b", "a"]]), ["a", "b"]);
        assert_eq!(sorted(&[&["z", "c", "b", "a"], &["a", "c"]]), ["z", "a", "c", "b"]);
        assert_eq!(sorted(&[&["a", "a"]]), ["a"]);
        assert_eq!(sorted(&[&["a", "z"], &["b", "y"]]), ["a", "b", "z", "y"]);
    }
}
