//! The memory that request bodies may use while they are read, decoded and handled.
//!
//! Administrators and controllers have a budget of their own: whatever machines, tokens and viewers send, it is left.
//! The others share one, and each identity has a part of it, so that one of them cannot use it up by sending slowly. A
//! little is reserved for each: however many send slowly, an ordinary write of another one has its memory.
//! Called by [`super::BodyReader`].

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::media_type;
use crate::auth::UserInfo;
use crate::status::ApiError;

/// The budgets, in KiB. The first one holds the worst body there can be.
const PRIVILEGED_KIB: usize = 384 << 10;
const OTHERS_KIB: usize = 128 << 10;
/// The part of one machine, token or viewer. A Node of the largest size takes about half of it.
const SHARE_KIB: usize = 16 << 10;
/// What each of them has for itself: enough for a Node with a long status.
const RESERVED_KIB: usize = 512;
/// Shares that nobody holds are forgotten when there are more than this.
const MAX_SHARES: usize = 10_000;

/// The memory of an object with one field: a node of the map that holds its fields.
const OBJECT_BYTES: usize = 700;
/// The memory of a value, with spare space of the list it is in.
const VALUE_BYTES: usize = 64;
/// The memory of a decoded protobuf message for each of its bytes. Only built-in kinds come this way.
const PROTOBUF_FACTOR: usize = 16;

/// The budgets of a hub.
#[derive(Debug)]
pub(super) struct BodyBudget {
    privileged: Arc<Semaphore>,
    others: Arc<Semaphore>,
    shares: Mutex<HashMap<String, Weak<IdentityShare>>>,
}

/// The part of one identity.
#[derive(Debug)]
struct IdentityShare {
    all: Arc<Semaphore>,
    /// What comes first, and is not taken from the others.
    reserved: Arc<Semaphore>,
}

impl Default for BodyBudget {
    fn default() -> Self {
        Self {
            privileged: Arc::new(Semaphore::new(PRIVILEGED_KIB)),
            others: Arc::new(Semaphore::new(OTHERS_KIB)),
            shares: Mutex::default(),
        }
    }
}

impl BodyBudget {
    /// Begins a reservation for a body of a user.
    pub(super) fn open(&self, user: &UserInfo) -> BodyReservation {
        if user.is_privileged() {
            return BodyReservation::new(None, Arc::clone(&self.privileged), PRIVILEGED_KIB);
        }
        let share = self.share(&user.user);
        BodyReservation::new(Some(share), Arc::clone(&self.others), SHARE_KIB)
    }

    fn share(&self, user: &str) -> Arc<IdentityShare> {
        let mut shares = self.shares.lock();
        if let Some(share) = shares.get(user).and_then(Weak::upgrade) {
            return share;
        }
        if shares.len() >= MAX_SHARES {
            shares.retain(|_, share| share.strong_count() > 0);
        }
        let share = Arc::new(IdentityShare {
            all: Arc::new(Semaphore::new(SHARE_KIB)),
            reserved: Arc::new(Semaphore::new(RESERVED_KIB)),
        });
        shares.insert(user.to_owned(), Arc::downgrade(&share));
        share
    }
}

/// The memory that one body holds. Dropping it gives it back.
#[derive(Debug)]
pub(super) struct BodyReservation {
    share: Option<Arc<IdentityShare>>,
    common: Arc<Semaphore>,
    permits: Vec<OwnedSemaphorePermit>,
    held_kib: usize,
    max_kib: usize,
}

impl BodyReservation {
    fn new(share: Option<Arc<IdentityShare>>, common: Arc<Semaphore>, max_kib: usize) -> Self {
        Self { share, common, permits: Vec::new(), held_kib: 0, max_kib }
    }

    /// Grows to a number of bytes.
    ///
    /// # Errors
    /// 413: the user could never reserve as much. 429: others hold too much at the moment.
    pub(super) fn grow_to(&mut self, bytes: usize) -> Result<(), ApiError> {
        let wanted = bytes.div_ceil(1024);
        if wanted > self.max_kib {
            return Err(ApiError::too_complex(self.max_kib >> 10));
        }
        let Some(missing) = wanted.checked_sub(self.held_kib).filter(|missing| *missing > 0) else {
            return Ok(());
        };
        let mut common = missing;
        if let Some(share) = self.share.clone() {
            self.take(&share.all, missing)?;
            let reserved = share.reserved.available_permits().min(missing);
            if self.take(&share.reserved, reserved).is_ok() {
                common -= reserved;
            }
        }
        self.take(&Arc::clone(&self.common), common)?;
        self.held_kib = wanted;
        Ok(())
    }

    fn take(&mut self, source: &Arc<Semaphore>, kib: usize) -> Result<(), ApiError> {
        if kib == 0 {
            return Ok(());
        }
        let permits = u32::try_from(kib).unwrap_or(u32::MAX);
        let taken = Arc::clone(source).try_acquire_many_owned(permits);
        self.permits.push(taken.map_err(|_| ApiError::too_many_requests(1))?);
        Ok(())
    }

    /// Gives everything back: the body is discarded.
    pub(super) fn clear(&mut self) {
        self.permits.clear();
        self.held_kib = 0;
    }
}

/// An upper estimate of the memory of a body together with what it decodes to. A small text can have very many objects.
pub(super) fn decoded_bytes(content_type: Option<&str>, body: &[u8]) -> usize {
    let count = |wanted: &[u8]| body.iter().filter(|byte| wanted.contains(byte)).count();
    let decoded = match media_type(content_type) {
        "application/vnd.kubernetes.protobuf" => return body.len().saturating_mul(PROTOBUF_FACTOR),
        // Any field can begin an object.
        "application/yaml" | "application/apply-patch+yaml" => {
            count(b"{:") * OBJECT_BYTES + count(b"\n,[-") * VALUE_BYTES
        }
        _ => count(b"{") * OBJECT_BYTES + count(b",:[") * VALUE_BYTES,
    };
    // The text, and the strings in it.
    body.len() * 2 + decoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_identity_leaves_memory_for_the_others() {
        let budget = BodyBudget::default();
        let mut held = Vec::new();
        let machine = UserInfo::node("a");
        let refused = loop {
            let mut reservation = budget.open(&machine);
            match reservation.grow_to(3 << 20) {
                Ok(()) => held.push(reservation),
                Err(error) => break error,
            }
        };
        assert_eq!((refused.code, held.len()), (429, 5));
        assert!(budget.open(&UserInfo::node("b")).grow_to(3 << 20).is_ok());
        assert!(budget.open(&UserInfo::admin()).grow_to(300 << 20).is_ok());
        held.clear();
        assert!(budget.open(&machine).grow_to(3 << 20).is_ok());
    }

    #[test]
    fn all_others_together_leave_memory_for_administrators() {
        let budget = BodyBudget::default();
        let mut held = Vec::new();
        for n in 0..100 {
            let mut reservation = budget.open(&UserInfo::node(&format!("m{n}")));
            if reservation.grow_to(SHARE_KIB << 10).is_ok() {
                held.push(reservation);
            }
        }
        assert_eq!(held.len(), OTHERS_KIB / (SHARE_KIB - RESERVED_KIB));
        assert!(budget.open(&UserInfo::admin()).grow_to(300 << 20).is_ok());
        // An honest machine still writes what machines write.
        let honest = UserInfo::node("honest");
        assert!(budget.open(&honest).grow_to(RESERVED_KIB << 10).is_ok());
        let mut small: Vec<_> = (0..50).map(|_| budget.open(&honest)).collect();
        assert!(small.iter_mut().all(|body| body.grow_to(10 << 10).is_ok()));
        assert!(budget.open(&honest).grow_to(15 << 20).is_err(), "more than it has for itself");
    }

    #[test]
    fn a_reservation_grows_by_what_is_missing() {
        let budget = BodyBudget::default();
        let mut reservation = budget.open(&UserInfo::node("a"));
        for bytes in 1..5000 {
            assert!(reservation.grow_to(bytes).is_ok(), "single bytes do not cost a unit each");
        }
        assert_eq!(reservation.held_kib, 5);
        assert_eq!(reservation.grow_to(17 << 20).unwrap_err().code, 413);
    }

    #[test]
    fn many_small_objects_are_expensive() {
        let body = format!("[{}]", vec!["{\"\":0}"; 10_000].join(","));
        assert!(decoded_bytes(None, body.as_bytes()) > 7_000_000);
        assert!(decoded_bytes(Some("application/yaml"), body.as_bytes()) > 7_000_000);
        let text = format!("{{\"data\": \"{}\"}}", "x".repeat(1 << 20));
        assert!(decoded_bytes(None, text.as_bytes()) < 3 << 20);
    }
}
