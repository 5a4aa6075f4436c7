//! The data file: the live entries and the history, in one redb database.
//!
//! | table | key | value |
//! |---|---|---|
//! | `entries` | key | see [`codec`] |
//! | `history` | revision, part | the events of that revision, in parts of bounded size |
//! | `meta` | `format`, `revision`, `floor` | number |
//!
//! Reads are served from memory; the file is read only when it is opened. Each batch is written
//! with one fsync. At the next start redb's checksums show whether the last batch is complete.
//!
//! After a failed write, for example on a full disk, the file is opened and checked again. After a
//! failed sync the file is never trusted again, because the page cache may hold data that the disk
//! does not: a new file is written from memory and replaces it. The same happens if the failed
//! batch is in the file.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::fmt;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::{Builder, Database, DatabaseError, Durability, ReadableDatabase, ReadableTable};
use redb::{TableDefinition, WriteTransaction};

use super::codec::{self, EventRecord};
use super::data_dir::{DATA_FILE, DataDir, FORMAT_VERSION, NEW_DATA_FILE};
use super::data_file::{DataFile, FileControl};
use super::error::StoreError;
use super::history::History;
use super::reserve::DiskReserve;
use super::state::{StoreState, WriteBatch};
use super::types::{StoreEntry, StoreEvent, StoreEventKind, StoreOptions};

const ENTRIES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("entries");
const HISTORY: TableDefinition<'_, (u64, u32), &[u8]> = TableDefinition::new("history");
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");

/// redb's cache. Only inner pages matter, since reads are served from memory.
const CACHE_BYTES: usize = 32 << 20;

/// Maximum size of a history row. Larger rows would need larger contiguous free space.
const ROW_BYTES: usize = 16 << 10;

/// An open data directory.
pub(super) struct DiskStorage {
    dir: DataDir,
    path: PathBuf,
    file_control: FileControl,
    database: Option<Database>,
    reserve: DiskReserve,
}

/// The contents of a data file.
pub(super) struct DataFileContents<E, H> {
    pub(super) revision: u64,
    pub(super) floor: u64,
    pub(super) entries: E,
    pub(super) history: H,
}

impl DiskStorage {
    /// The path of the data file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The space for deletes and restarts.
    pub(super) fn reserve(&self) -> &DiskReserve {
        &self.reserve
    }

    /// Opens or creates a data directory and loads its contents.
    pub(super) fn open(
        dir: &Path,
        options: StoreOptions,
        control: FileControl,
    ) -> Result<(Self, StoreState), StoreError> {
        let reserve = DiskReserve::new(dir, options.reserve_bytes, control.clone());
        match Self::open_once(dir, options, control.clone()) {
            // A start writes a few markers and repairs the file; on a full disk, with the reserve.
            Err(error) if error.is_disk_full() && reserve.release() => {
                tracing::warn!(%error, "disk is full; started with the reserved space");
                let opened = Self::open_once(dir, options, control);
                reserve.hold();
                opened
            }
            opened => opened,
        }
    }

    fn open_once(
        path: &Path,
        options: StoreOptions,
        control: FileControl,
    ) -> Result<(Self, StoreState), StoreError> {
        let reserve = DiskReserve::new(path, options.reserve_bytes, control.clone());
        let dir = DataDir::lock(path, control.clone())?;
        let path = dir.file(DATA_FILE);
        let (database, state) = if dir.has_data()? {
            let database = open_existing(&path, &control)?;
            let state = load(&path, &database, options)?;
            dir.check_revision(state.revision)?;
            dir.discard_new_data()?;
            (database, state)
        } else {
            let state = StoreState::empty(options);
            (build_data_file(&dir, &control, DataFileContents::from_state(&state))?, state)
        };
        dir.write_format()?;
        dir.write_revision(state.revision)?;
        tracing::info!(
            path = %path.display(),
            revision = state.revision,
            entries = state.entries.len(),
            "store opened"
        );
        Ok((Self { dir, path, file_control: control, database: Some(database), reserve }, state))
    }

    /// The space that the data file has on the disk and does not use: what was deleted.
    pub(super) fn reusable_bytes(&self) -> u64 {
        let used = || -> Option<u64> {
            let transaction = self.database.as_ref()?.begin_write().ok()?;
            let stats = transaction.stats().ok()?;
            Some(stats.allocated_pages().saturating_mul(stats.page_size() as u64))
        };
        // Pages that were never written are holes in the file, and take no space yet.
        let file =
            std::fs::metadata(&self.path).map_or(0, |file| file.blocks().saturating_mul(512));
        used().map_or(0, |used| file.saturating_sub(used))
    }

    /// Makes a batch durable and deletes the history up to `floor`.
    pub(super) fn write(&self, batch: &WriteBatch, floor: u64) -> Result<(), StoreError> {
        let Some(database) = &self.database else { return Err(StoreError::Closed) };
        write_batch(database, batch, floor)
            .map_err(|source| self.write_error(Arc::new(source) as Arc<_>))
    }

    /// Makes the data file usable after an error, with exactly the contents of memory.
    pub(super) fn recover(&mut self, state: &StoreState) -> Result<(), StoreError> {
        self.database = None;
        self.database = match self.reopen(state) {
            Some(database) => Some(database),
            None => {
                let database = build_data_file(
                    &self.dir,
                    &self.file_control,
                    DataFileContents::from_state(state),
                );
                let database =
                    database.map_err(|source| self.write_error(Arc::new(source) as Arc<_>))?;
                self.file_control.clear_sync_failure();
                Some(database)
            }
        };
        Ok(())
    }

    /// Opens the existing data file if it can be trusted and has the revision of the memory.
    fn reopen(&self, state: &StoreState) -> Option<Database> {
        if self.file_control.sync_failed() {
            return None;
        }
        let database = open_existing(&self.path, &self.file_control).ok()?;
        let transaction = database.begin_read().ok()?;
        let revision = transaction.open_table(META).ok()?.get("revision").ok()??.value();
        drop(transaction);
        (revision == state.revision).then_some(database)
    }

    /// Closes the data file. All batches are durable already.
    pub(super) fn close(mut self, revision: u64) {
        self.file_control.seal();
        self.database = None;
        if let Err(error) = self.dir.write_revision(revision) {
            tracing::warn!(%error, "cannot record the revision of the closed store");
        }
    }

    fn write_error(&self, source: Arc<dyn std::error::Error + Send + Sync>) -> StoreError {
        StoreError::Write { path: self.path.clone(), source }
    }
}

impl fmt::Debug for DiskStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl<'a> DataFileContents<(), ()> {
    fn from_state(
        state: &'a StoreState,
    ) -> DataFileContents<
        impl Iterator<Item = Result<&'a StoreEntry, StoreError>>,
        impl Iterator<Item = &'a Arc<StoreEvent>>,
    > {
        DataFileContents {
            revision: state.revision,
            floor: state.history.floor(),
            entries: state.entries.values().map(Ok),
            history: state.history.events_after(0),
        }
    }
}

/// Writes a new data file and replaces the old one.
///
/// An entry that cannot be read ends it before the old file is replaced.
pub(super) fn build_data_file<'a>(
    dir: &DataDir,
    control: &FileControl,
    contents: DataFileContents<
        impl Iterator<Item = Result<impl Borrow<StoreEntry>, StoreError>>,
        impl Iterator<Item = &'a Arc<StoreEvent>>,
    >,
) -> Result<Database, StoreError> {
    let path = dir.file(NEW_DATA_FILE);
    dir.discard_new_data()?;
    let database = DataFile::open(&path, control.clone())
        .and_then(|file| Builder::new().set_cache_size(CACHE_BYTES).create_with_backend(file))
        .map_err(StoreError::database("create", &path))?;
    write_all(&database, &path, contents)?;
    dir.activate_new_data()?;
    Ok(database)
}

/// Opens the data file and verifies it.
fn open_existing(path: &Path, control: &FileControl) -> Result<Database, StoreError> {
    let length = std::fs::metadata(path).map_err(StoreError::io("read", path))?.len();
    if length == 0 {
        return Err(StoreError::corrupt(path, "it is empty")); // redb would initialize it
    }
    DataFile::open(path, control.clone())
        .and_then(|file| Builder::new().set_cache_size(CACHE_BYTES).create_with_backend(file))
        .map_err(open_error(path))
}

pub(super) fn open_error(path: &Path) -> impl FnOnce(DatabaseError) -> StoreError {
    let path = path.to_owned();
    move |error| match error {
        DatabaseError::Storage(redb::StorageError::Io(error)) => match error.kind() {
            std::io::ErrorKind::InvalidData | std::io::ErrorKind::UnexpectedEof => {
                StoreError::corrupt(&path, error.to_string())
            }
            _ => StoreError::io("open", &path)(error),
        },
        DatabaseError::RepairAborted => StoreError::corrupt(&path, error.to_string()),
        error => StoreError::database("open", &path)(error),
    }
}

fn write_batch(database: &Database, batch: &WriteBatch, floor: u64) -> Result<(), redb::Error> {
    let mut transaction = database.begin_write()?;
    transaction.set_durability(Durability::Immediate)?;
    {
        let mut entries = transaction.open_table(ENTRIES)?;
        for (key, entry) in &batch.changed {
            match entry {
                Some(entry) => {
                    let size = codec::ENTRY_HEADER_BYTES + entry.value.len();
                    let mut row = entries.insert_reserve(&**key, size)?;
                    codec::encode_entry(row.as_mut(), entry);
                }
                None => drop(entries.remove(&**key)?),
            }
        }
        let mut past = transaction.open_table(HISTORY)?;
        while past.first()?.is_some_and(|(key, _)| key.value().0 <= floor) {
            past.pop_first()?;
        }
    }
    write_events(&transaction, batch.events.iter(), floor)?;
    write_meta(&transaction, batch.revision, floor)?;
    transaction.commit()?;
    Ok(())
}

fn write_all<'a>(
    database: &Database,
    path: &Path,
    contents: DataFileContents<
        impl Iterator<Item = Result<impl Borrow<StoreEntry>, StoreError>>,
        impl Iterator<Item = &'a Arc<StoreEvent>>,
    >,
) -> Result<(), StoreError> {
    fn failed<E: Into<redb::Error>>(path: &Path) -> impl FnOnce(E) -> StoreError {
        StoreError::database("write", path)
    }
    let mut transaction = database.begin_write().map_err(failed(path))?;
    transaction.set_durability(Durability::Immediate).map_err(failed(path))?;
    {
        let mut entries = transaction.open_table(ENTRIES).map_err(failed(path))?;
        for entry in contents.entries {
            let entry = entry?;
            let entry: &StoreEntry = entry.borrow();
            let size = codec::ENTRY_HEADER_BYTES + entry.value.len();
            let mut row = entries.insert_reserve(&*entry.key, size).map_err(failed(path))?;
            codec::encode_entry(row.as_mut(), entry);
        }
    }
    write_events(&transaction, contents.history, contents.floor).map_err(failed(path))?;
    write_meta(&transaction, contents.revision, contents.floor).map_err(failed(path))?;
    transaction.commit().map_err(failed(path))
}

/// Stores the events after `floor`, in at least one row per revision.
fn write_events<'a>(
    transaction: &WriteTransaction,
    events: impl Iterator<Item = &'a Arc<StoreEvent>>,
    floor: u64,
) -> Result<(), redb::Error> {
    let mut past = transaction.open_table(HISTORY)?;
    let mut events = events.filter(|event| event.revision > floor).peekable();
    let (mut row, mut part) = (Vec::new(), 0);
    while let Some(event) = events.next() {
        codec::encode_event(&mut row, event);
        let last = events.peek().is_none_or(|next| next.revision != event.revision);
        if last || row.len() >= ROW_BYTES {
            past.insert((event.revision, part), row.as_slice())?;
            row.clear();
            part = if last { 0 } else { part + 1 };
        }
    }
    Ok(())
}

fn write_meta(
    transaction: &WriteTransaction,
    revision: u64,
    floor: u64,
) -> Result<(), redb::Error> {
    let mut meta = transaction.open_table(META)?;
    meta.insert("format", u64::from(FORMAT_VERSION))?;
    meta.insert("revision", revision)?;
    meta.insert("floor", floor)?;
    Ok(())
}

pub(super) fn load(
    path: &Path,
    database: &Database,
    options: StoreOptions,
) -> Result<StoreState, StoreError> {
    let loaded = read_all(database).map_err(StoreError::database("read", path))?;
    let bad = |what: &str| StoreError::corrupt(path, what);
    let number = |name: &str| {
        loaded.meta.get(name).copied().ok_or_else(|| bad("its revision or format is missing"))
    };
    let format = number("format")?;
    if format != u64::from(FORMAT_VERSION) {
        let (path, found) = (path.to_owned(), format.to_string());
        return Err(StoreError::Format { path, found, known: FORMAT_VERSION });
    }
    let mut state = StoreState::empty(options);
    state.revision = number("revision")?;
    state.history = History::new(number("floor")?, options);
    state.entries = loaded.entries.ok_or_else(|| bad("an entry cannot be read"))?;
    if state.history.floor() > state.revision
        || state.entries.values().any(|entry| entry.revision > state.revision)
    {
        return Err(bad("an entry is newer than the revision"));
    }
    let rows = loaded.history.ok_or_else(|| bad("an event cannot be read"))?;
    let events =
        rebuild_events(&state, rows).ok_or_else(|| bad("history and entries do not agree"))?;
    for event in events.into_iter().rev() {
        state.history.push(event);
    }
    let floor = state.history.floor_with([].iter());
    state.history.compact(floor);
    Ok(state)
}

/// The rows of a data file; `None` if one of them is malformed.
struct LoadedRows {
    meta: HashMap<String, u64>,
    entries: Option<std::collections::BTreeMap<Arc<str>, StoreEntry>>,
    history: Option<Vec<(u64, Vec<EventRecord>)>>,
}

fn read_all(database: &Database) -> Result<LoadedRows, redb::Error> {
    let transaction = database.begin_read()?;
    let mut meta = HashMap::new();
    for row in transaction.open_table(META)?.iter()? {
        let (name, number) = row?;
        meta.insert(name.value().to_owned(), number.value());
    }
    let mut entries = Vec::new();
    for row in transaction.open_table(ENTRIES)?.iter()? {
        let (key, row) = row?;
        let entry = codec::decode_entry(key.value(), row.value());
        entries.push(entry.map(|entry| (Arc::clone(&entry.key), entry)));
    }
    let mut history = Vec::new();
    for row in transaction.open_table(HISTORY)?.iter()? {
        let (key, row) = row?;
        history.push(codec::decode_events(row.value()).map(|events| (key.value().0, events)));
    }
    Ok(LoadedRows {
        meta,
        entries: entries.into_iter().collect(),
        history: history.into_iter().collect(),
    })
}

/// Rebuilds the events, newest first, by going back from the live entries. `None` if events and
/// entries disagree.
fn rebuild_events(
    state: &StoreState,
    rows: Vec<(u64, Vec<EventRecord>)>,
) -> Option<Vec<Arc<StoreEvent>>> {
    let mut now: HashMap<String, Option<StoreEntry>> = HashMap::new();
    let mut events = Vec::new();
    for (revision, records) in rows.into_iter().rev() {
        if revision > state.revision || revision <= state.history.floor() {
            return None;
        }
        for EventRecord { kind, key, mut previous } in records.into_iter().rev() {
            let live = state.entries.get(key.as_str());
            let after = now.get(&key).cloned().unwrap_or_else(|| live.cloned());
            if let (Some(previous), Some(after)) = (&mut previous, &after) {
                previous.key = Arc::clone(&after.key);
            }
            let entry = match kind {
                StoreEventKind::Put => after.filter(|after| after.revision == revision)?,
                StoreEventKind::Delete if after.is_none() => {
                    StoreEntry { revision, ..previous.clone()? }
                }
                StoreEventKind::Delete => return None,
            };
            now.insert(key, previous.clone());
            events.push(Arc::new(StoreEvent { revision, kind, entry, previous }));
        }
    }
    Some(events)
}
