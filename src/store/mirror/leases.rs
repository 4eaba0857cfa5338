//! Active places this gateway has heard of from the store.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::RwLock;

use crate::clock::Timestamp;
use crate::queue::{Place, UserTag};

/// One active place as the store answered it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lease {
    pub(super) owner: UserTag,
    pub(super) place: Place,
    /// By the store's clock.
    pub(super) until: Timestamp,
    pub(super) claimed: bool,
    /// When the store last answered about it, by the store's clock.
    pub(super) asked: Timestamp,
}

/// The leases of one queue, by number.
#[derive(Debug, Default)]
pub(super) struct Leases {
    by_seq: RwLock<HashMap<u64, Lease>>,
}

impl Leases {
    pub(super) fn put(&self, lease: Lease) {
        self.by_seq.write().insert(lease.place.seq.0, lease);
    }

    pub(super) fn remove(&self, seq: u64) {
        if self.by_seq.read().contains_key(&seq) {
            self.by_seq.write().remove(&seq);
        }
    }

    /// Whether `seq` has been seen admitted, even if that has ended.
    pub(super) fn knows(&self, seq: u64) -> bool {
        self.by_seq.read().contains_key(&seq)
    }

    /// The lease of `seq` if `owner` has it and it holds for `margin` longer than `now`.
    pub(super) fn get(
        &self,
        seq: u64,
        owner: UserTag,
        now: Timestamp,
        margin: Duration,
    ) -> Option<Lease> {
        let lease = self.by_seq.read().get(&seq).copied()?;
        (lease.owner == owner && lease.until > now.plus(margin)).then_some(lease)
    }

    /// Drops the given numbers.
    pub(super) fn revoke(&self, revoked: impl IntoIterator<Item = u64>) {
        for seq in revoked {
            self.remove(seq);
        }
    }

    /// Drops what has ended.
    pub(super) fn drop_ended(&self, now: Timestamp) {
        self.by_seq.write().retain(|_, lease| lease.until > now);
    }

    /// Forgets everything: after too long without the store, revocations may have been missed.
    pub(super) fn clear(&self) {
        self.by_seq.write().clear();
    }
}
