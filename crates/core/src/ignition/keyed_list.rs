//! The two kinds of lists in an Ignition config: those whose entries have a key, and those that
//! merging only appends to. Both remember whether they were set at all, because `[]` and an absent
//! list differ in Go when two configs are compared.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::{Deref, DerefMut};

use serde::{Serialize, Serializer};
use serde_json::Value;

use super::config_part::{ConfigDecoder, ConfigPart};
use super::report::{ConfigPath, IgnitionReport};

/// An entry of a [`Keyed`] list.
pub trait KeyedItem: ConfigPart {
    /// The key of the entry: entries of two configs with the same key are merged into one.
    fn key(&self) -> Cow<'_, str>;

    /// Whether the entry removes an earlier one with the same key instead of being merged with it.
    fn removes(&self) -> bool {
        false
    }
}

impl KeyedItem for String {
    fn key(&self) -> Cow<'_, str> {
        Cow::Borrowed(self)
    }
}

macro_rules! list {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name<T>(Option<Vec<T>>);

        impl<T> Default for $name<T> {
            fn default() -> Self {
                Self(None)
            }
        }

        impl<T> $name<T> {
            /// Whether the list is set, even if it is empty.
            #[must_use]
            pub fn is_mentioned(&self) -> bool {
                self.0.is_some()
            }

            /// The entries.
            #[must_use]
            pub fn into_vec(self) -> Vec<T> {
                self.0.unwrap_or_default()
            }

            /// Adds an entry.
            pub fn push(&mut self, item: T) {
                self.0.get_or_insert_default().push(item);
            }
        }

        impl<T> From<Vec<T>> for $name<T> {
            /// As Go's `append` to nil: without entries the list stays unset.
            fn from(items: Vec<T>) -> Self {
                Self((!items.is_empty()).then_some(items))
            }
        }

        impl<T> Deref for $name<T> {
            type Target = [T];

            fn deref(&self) -> &[T] {
                self.0.as_deref().unwrap_or_default()
            }
        }

        impl<T> DerefMut for $name<T> {
            fn deref_mut(&mut self) -> &mut [T] {
                self.0.as_deref_mut().unwrap_or_default()
            }
        }

        impl<'a, T> IntoIterator for &'a $name<T> {
            type Item = &'a T;
            type IntoIter = std::slice::Iter<'a, T>;

            fn into_iter(self) -> Self::IntoIter {
                self.iter()
            }
        }

        impl<T: Serialize> Serialize for $name<T> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_seq(self.iter())
            }
        }
    };
}

list! {
    /// A list whose entries have a key: entries with the same key are merged.
    Keyed
}

list! {
    /// A list that merging only appends to.
    Appended
}

fn decode_list<T: ConfigPart>(list: &mut Option<Vec<T>>, value: &Value, cx: &mut ConfigDecoder) {
    match value {
        Value::Null => *list = None,
        Value::Array(values) => {
            let mut items = Vec::with_capacity(values.len());
            for (index, value) in values.iter().enumerate() {
                cx.path.push_index(index);
                let mut item = T::default();
                item.decode(value, cx);
                items.push(item);
                cx.path.pop();
            }
            *list = Some(items);
        }
        other => cx.expected_list(other),
    }
}

fn duplicates_below<T: ConfigPart>(
    items: &[T],
    path: &mut ConfigPath,
    report: &mut IgnitionReport,
) {
    for (index, item) in items.iter().enumerate() {
        path.push_index(index);
        item.find_duplicates(path, report);
        path.pop();
    }
}

impl<T: ConfigPart> ConfigPart for Appended<T> {
    fn decode(&mut self, value: &Value, cx: &mut ConfigDecoder) {
        decode_list(&mut self.0, value, cx);
    }

    fn is_zero(&self) -> bool {
        self.is_empty()
    }

    fn merge_all(parts: Vec<Self>) -> Self {
        parts.into_iter().flat_map(Self::into_vec).collect::<Vec<_>>().into()
    }

    fn find_duplicates(&self, path: &mut ConfigPath, report: &mut IgnitionReport) {
        duplicates_below(self, path, report);
    }
}

impl<T: KeyedItem> ConfigPart for Keyed<T> {
    fn decode(&mut self, value: &Value, cx: &mut ConfigDecoder) {
        decode_list(&mut self.0, value, cx);
    }

    fn is_zero(&self) -> bool {
        self.is_empty()
    }

    fn merge_all(parts: Vec<Self>) -> Self {
        let groups = group(parts.iter().map(|part| part.iter().map(|item| (0, item))));
        merge_groups(&groups, 0, parts).into()
    }

    fn find_duplicates(&self, path: &mut ConfigPath, report: &mut IgnitionReport) {
        SeenKeys::default().check(self, path, report);
        duplicates_below(self, path, report);
    }
}

/// The keys found so far in a list, or in several lists that share their keys.
#[derive(Debug, Default)]
pub(crate) struct SeenKeys(HashSet<String>);

impl SeenKeys {
    /// Reports the entries whose key was found before, and records all keys.
    pub(crate) fn check<T: KeyedItem>(
        &mut self,
        items: &[T],
        path: &mut ConfigPath,
        report: &mut IgnitionReport,
    ) {
        for (index, item) in items.iter().enumerate() {
            if !self.0.insert(item.key().into_owned()) {
                Self::report(index, path, report);
            }
        }
    }

    /// Reports the entries of another list whose key was found in the lists before, and records all
    /// keys. Duplicates within this list are reported by the list itself.
    pub(crate) fn check_others<T: KeyedItem>(
        &mut self,
        items: &[T],
        path: &mut ConfigPath,
        report: &mut IgnitionReport,
    ) {
        for (index, item) in items.iter().enumerate() {
            if self.0.contains(item.key().as_ref()) {
                Self::report(index, path, report);
            }
        }
        self.0.extend(items.iter().map(|item| item.key().into_owned()));
    }

    fn report(index: usize, path: &mut ConfigPath, report: &mut IgnitionReport) {
        path.push_index(index);
        report.error(path, "duplicate entry defined");
        path.pop();
    }
}

/// The entries of several configs that are merged into one entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergeGroup {
    /// The index of the list among those that share their keys; 0 for a list on its own.
    pub list: usize,
    /// The key.
    pub key: String,
    /// (index of the config, index of the entry in its list), in merge order.
    pub members: Vec<(usize, usize)>,
}

/// Groups the entries of several configs by key, in the order of the merged list. If a later config
/// has an entry in another one of the lists that share their keys, the entry is dropped from the
/// first list and appended to the other.
pub(crate) fn group<'a, T: KeyedItem + 'a, L: Iterator<Item = (usize, &'a T)>>(
    configs: impl Iterator<Item = L>,
) -> Vec<MergeGroup> {
    let entries = configs.map(|list| list.map(|(list, item)| (list, item.key(), item.removes())));
    group_keys(entries)
}

pub(crate) fn group_keys<'a, L: Iterator<Item = (usize, Cow<'a, str>, bool)>>(
    configs: impl Iterator<Item = L>,
) -> Vec<MergeGroup> {
    let mut groups: Vec<Option<MergeGroup>> = Vec::new();
    let mut live: HashMap<Cow<'a, str>, usize> = HashMap::new();
    for (config, entries) in configs.enumerate() {
        let mut index_in_list: HashMap<usize, usize> = HashMap::new();
        for (list, key, removes) in entries {
            let index = index_in_list.entry(list).or_default();
            let member = (config, *index);
            *index += 1;
            let found = live.get(&key).copied();
            match found.and_then(|at| groups[at].as_mut()) {
                Some(group) if removes && group.list == list => {
                    live.remove(&key);
                    if let Some(at) = found {
                        groups[at] = None;
                    }
                }
                Some(group) if group.list == list => group.members.push(member),
                _ => {
                    if let Some(at) = found {
                        groups[at] = None;
                    }
                    let group =
                        MergeGroup { list, key: key.clone().into_owned(), members: vec![member] };
                    live.insert(key, groups.len());
                    groups.push(Some(group));
                }
            }
        }
    }
    groups.into_iter().flatten().collect()
}

/// Builds one merged list from its groups.
pub(crate) fn merge_groups<T: KeyedItem>(
    groups: &[MergeGroup],
    list: usize,
    configs: Vec<Keyed<T>>,
) -> Vec<T> {
    let mut items: Vec<Vec<Option<T>>> = configs
        .into_iter()
        .map(|config| config.into_vec().into_iter().map(Some).collect())
        .collect();
    groups
        .iter()
        .filter(|group| group.list == list)
        .map(|group| {
            let members = &group.members;
            T::merge_all(members.iter().filter_map(|&(c, i)| items[c][i].take()).collect())
        })
        .collect()
}
