//! An order for writes that conflict: changes that fit any version of an object are made one after the other once many
//! clients write it.
//!
//! The first attempt of a write does not wait. One that lost against another waits for the lock of the object, reads the
//! object again and makes its change to what is there, so it loses to nobody else who waits. Used by the router's patch
//! and apply handlers.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Instant;

use tokio::sync::{Mutex, MutexGuard};

/// Objects that share a number share a lock, which costs time but nothing else.
const STRIPES: usize = 256;

/// The locks of all objects.
#[derive(Debug)]
pub(crate) struct WriteOrder {
    stripes: Vec<Mutex<()>>,
    hasher: RandomState,
}

impl Default for WriteOrder {
    fn default() -> Self {
        let stripes = std::iter::repeat_with(Mutex::default).take(STRIPES).collect();
        Self { stripes, hasher: RandomState::new() }
    }
}

impl WriteOrder {
    fn stripe(&self, key: &str) -> &Mutex<()> {
        #[expect(clippy::cast_possible_truncation, reason = "any bits of the hash do")]
        let hash = self.hasher.hash_one(key) as usize;
        &self.stripes[hash % STRIPES]
    }

    /// Whether somebody has the lock of an object.
    pub(crate) fn is_taken(&self, key: &str) -> bool {
        self.stripe(key).try_lock().is_err()
    }

    /// Waits for the lock of an object; `None` after the deadline. It is released when the guard is dropped.
    pub(crate) async fn wait(&self, key: &str, deadline: Instant) -> Option<MutexGuard<'_, ()>> {
        tokio::time::timeout_at(deadline.into(), self.stripe(key).lock()).await.ok()
    }
}
