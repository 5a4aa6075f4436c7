//! The byte format of entries and events. All numbers are little endian.
//!
//! ```text
//! entry   created u64, revision u64, value
//! events  of one revision: (kind u8, key, has-previous u8, [created u64, revision u64, value])*
//! key     length u32, bytes        (and values inside events likewise)
//! ```
//!
//! An event is stored with the entry *before* it only: the entry after it is the one before the
//! next event of the same key, or the live one.

use std::sync::Arc;

use bytes::Bytes;

use super::types::{StoreEntry, StoreEvent, StoreEventKind};

/// Length of an encoded entry without its value.
pub(super) const ENTRY_HEADER_BYTES: usize = 16;

/// The largest value. Lengths are `u32`, and a value is in memory several times while it is
/// written.
pub(super) const MAX_VALUE_BYTES: usize = 64 << 20;

/// A stored event.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct EventRecord {
    pub(super) kind: StoreEventKind,
    pub(super) key: String,
    pub(super) previous: Option<StoreEntry>,
}

pub(super) fn encode_entry(out: &mut [u8], entry: &StoreEntry) {
    let (head, value) = out.split_at_mut(ENTRY_HEADER_BYTES);
    head[..8].copy_from_slice(&entry.created.to_le_bytes());
    head[8..].copy_from_slice(&entry.revision.to_le_bytes());
    value.copy_from_slice(&entry.value);
}

pub(super) fn decode_entry(key: &str, row: &[u8]) -> Option<StoreEntry> {
    let mut row = ByteReader(row);
    let (created, revision) = (row.read_u64()?, row.read_u64()?);
    Some(StoreEntry { key: key.into(), value: Bytes::copy_from_slice(row.0), created, revision })
}

pub(super) fn encode_event(out: &mut Vec<u8>, event: &StoreEvent) {
    out.push(match event.kind {
        StoreEventKind::Put => 0,
        StoreEventKind::Delete => 1,
    });
    encode_bytes(out, event.entry.key.as_bytes());
    out.push(u8::from(event.previous.is_some()));
    if let Some(previous) = &event.previous {
        out.extend_from_slice(&previous.created.to_le_bytes());
        out.extend_from_slice(&previous.revision.to_le_bytes());
        encode_bytes(out, &previous.value);
    }
}

/// Decodes all events of a row, oldest first.
pub(super) fn decode_events(row: &[u8]) -> Option<Vec<EventRecord>> {
    let mut row = ByteReader(row);
    let mut records = Vec::new();
    while !row.0.is_empty() {
        records.push(decode_event(&mut row)?);
    }
    Some(records)
}

fn decode_event(row: &mut ByteReader<'_>) -> Option<EventRecord> {
    let kind = match row.read_u8()? {
        0 => StoreEventKind::Put,
        1 => StoreEventKind::Delete,
        _ => return None,
    };
    let key = row.read_str()?;
    let previous = match row.read_u8()? {
        0 => None,
        1 => {
            let (created, revision) = (row.read_u64()?, row.read_u64()?);
            let value = Bytes::copy_from_slice(row.read_bytes()?);
            Some(StoreEntry { key: Arc::from(key), value, created, revision })
        }
        _ => return None,
    };
    Some(EventRecord { kind, key: key.to_owned(), previous })
}

pub(super) fn encode_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    // `Store::commit` has checked the length.
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// Reads values from the front of a buffer.
pub(super) struct ByteReader<'a>(pub(super) &'a [u8]);

impl<'a> ByteReader<'a> {
    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn read_u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    pub(super) fn read_u32(&mut self) -> Option<u32> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*bytes))
    }

    pub(super) fn read_u64(&mut self) -> Option<u64> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*bytes))
    }

    pub(super) fn read_bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.read_u32()?;
        self.take(usize::try_from(length).ok()?)
    }

    pub(super) fn read_str(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.read_bytes()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry() -> impl Strategy<Value = StoreEntry> {
        ("[a-z/é]{0,9}", proptest::collection::vec(any::<u8>(), 0..40), any::<u64>(), any::<u64>())
            .prop_map(|(key, value, created, revision)| StoreEntry {
                key: key.into(),
                value: value.into(),
                created,
                revision,
            })
    }

    proptest! {
        #[test]
        fn entries_round_trip(entry in entry()) {
            let mut row = vec![0; ENTRY_HEADER_BYTES + entry.value.len()];
            encode_entry(&mut row, &entry);
            prop_assert_eq!(decode_entry(&entry.key, &row), Some(entry));
        }

        #[test]
        fn events_round_trip(entries in proptest::collection::vec((entry(), any::<bool>()), 0..5)) {
            let mut row = Vec::new();
            let mut expected = Vec::new();
            for (entry, delete) in entries {
                let kind = if delete { StoreEventKind::Delete } else { StoreEventKind::Put };
                let previous = (entry.created % 2 == 0).then(|| entry.clone());
                let key = entry.key.to_string();
                encode_event(&mut row, &StoreEvent { revision: 7, kind, entry, previous: previous.clone() });
                expected.push(EventRecord { kind, key, previous });
            }
            prop_assert_eq!(decode_events(&row), Some(expected));
        }

        #[test]
        fn decoding_never_panics(row in proptest::collection::vec(0u8..4, 0..60)) {
            let _ = decode_events(&row);
            let _ = decode_entry("", &row);
        }
    }
}
