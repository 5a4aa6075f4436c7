//! Connections of which nobody knows yet whose they are.
//!
//! There is room for a fixed number of them. When one more comes, the oldest goes: so whoever opens
//! thousands of connections and says nothing keeps nobody out. A connection stops being a guest when
//! a certificate or a token has said who it is.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// The guests of a server.
#[derive(Debug)]
pub(super) struct Guests {
    room: usize,
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    next: u64,
    /// By the order in which they came.
    present: BTreeMap<u64, CancellationToken>,
}

/// A guest; it leaves the book when it is dropped or known.
#[derive(Debug)]
pub(super) struct Guest {
    guests: Arc<Guests>,
    number: u64,
    out: CancellationToken,
}

impl Guests {
    pub(super) fn new(room: usize) -> Arc<Self> {
        Arc::new(Self { room: room.max(1), book: Mutex::default() })
    }

    /// Lets one in. Where there is no room the oldest has to go.
    pub(super) fn enter(self: &Arc<Self>) -> Guest {
        let out = CancellationToken::new();
        let mut book = self.book.lock();
        let oldest = if book.present.len() >= self.room { book.present.pop_first() } else { None };
        let number = book.next;
        book.next += 1;
        book.present.insert(number, out.clone());
        drop(book);
        if let Some((_, oldest)) = oldest {
            oldest.cancel();
        }
        Guest { guests: Arc::clone(self), number, out }
    }

    /// Makes the oldest go; says whether there was one.
    pub(super) fn show_one_out(&self) -> bool {
        let oldest = self.book.lock().present.pop_first();
        oldest.inspect(|(_, oldest)| oldest.cancel()).is_some()
    }
}

impl Guest {
    /// Somebody known from now on: it stays as long as it likes.
    pub(super) fn is_known(&self) {
        self.guests.book.lock().present.remove(&self.number);
    }

    /// Waits until it has to go.
    pub(super) async fn shown_out(&self) {
        self.out.cancelled().await;
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.is_known();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn present(guests: &[&Guest]) -> Vec<bool> {
        guests.iter().map(|guest| !guest.out.is_cancelled()).collect()
    }

    #[test]
    fn the_oldest_makes_room() {
        let guests = Guests::new(2);
        let (a, b) = (guests.enter(), guests.enter());
        let c = guests.enter();
        assert_eq!(present(&[&a, &b, &c]), [false, true, true]);
        assert!(guests.show_one_out());
        assert_eq!(present(&[&a, &b, &c]), [false, false, true]);
    }

    #[test]
    fn who_is_known_or_gone_needs_no_room() {
        let guests = Guests::new(2);
        let (a, b) = (guests.enter(), guests.enter());
        a.is_known();
        drop(b);
        let (c, d) = (guests.enter(), guests.enter());
        assert_eq!(present(&[&a, &c, &d]), [true, true, true]);
        drop((c, d));
        assert!(!guests.show_one_out());
        assert_eq!(present(&[&a]), [true]);
    }
}
