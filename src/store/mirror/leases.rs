//! Active places this gateway has heard of from the store.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use foldhash::fast::RandomState;
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

/// The most revoked numbers that are remembered: all of the last seconds, and of the last minutes
/// as many as fit in a few megabytes.
const MAX_REVOKED: usize = 1 << 16;

#[derive(Debug, Default)]
struct Known {
    by_seq: HashMap<u64, Lease, RandomState>,
    /// Numbers that were revoked: they never become active again. The lowest is the oldest.
    revoked: BTreeSet<u64>,
}

/// The leases of one queue, by number.
#[derive(Debug, Default)]
pub(super) struct Leases {
    known: RwLock<Known>,
}

impl Leases {
    /// Takes in an answer of the store, unless its number was revoked while it was under way.
    pub(super) fn put(&self, lease: Lease) {
        let mut known = self.known.write();
        if !known.revoked.contains(&lease.place.seq.0) {
            known.by_seq.insert(lease.place.seq.0, lease);
        }
    }

    pub(super) fn remove(&self, seq: u64) {
        if self.known.read().by_seq.contains_key(&seq) {
            self.known.write().by_seq.remove(&seq);
        }
    }

    /// Whether `seq` has been seen admitted, even if that has ended.
    pub(super) fn knows(&self, seq: u64) -> bool {
        self.known.read().by_seq.contains_key(&seq)
    }

    /// The lease of `seq` if `owner` has it and it holds for `margin` longer than `now`.
    pub(super) fn get(
        &self,
        seq: u64,
        owner: UserTag,
        now: Timestamp,
        margin: Duration,
    ) -> Option<Lease> {
        let lease = self.known.read().by_seq.get(&seq).copied()?;
        (lease.owner == owner && lease.until > now.plus(margin)).then_some(lease)
    }

    /// All that hold at `now`.
    pub(super) fn all(&self, now: Timestamp) -> Vec<Lease> {
        self.known.read().by_seq.values().filter(|lease| lease.until > now).copied().collect()
    }

    /// Drops the given numbers for good.
    pub(super) fn revoke(&self, revoked: impl IntoIterator<Item = u64>) {
        let mut revoked = revoked.into_iter().peekable();
        if revoked.peek().is_none() {
            return;
        }
        let mut known = self.known.write();
        for seq in revoked {
            known.by_seq.remove(&seq);
            known.revoked.insert(seq);
            if known.revoked.len() > MAX_REVOKED {
                known.revoked.pop_first();
            }
        }
    }

    /// Whether `seq` is known to have been revoked.
    pub(super) fn is_revoked(&self, seq: u64) -> bool {
        self.known.read().revoked.contains(&seq)
    }

    /// Drops what has ended.
    pub(super) fn drop_ended(&self, now: Timestamp) {
        self.known.write().by_seq.retain(|_, lease| lease.until > now);
    }

    /// Forgets all leases: after too long without the store, revocations may have been missed.
    pub(super) fn clear(&self) {
        self.known.write().by_seq.clear();
    }

    /// Forgets everything: numbers start anew with an incarnation.
    pub(super) fn start_anew(&self) {
        *self.known.write() = Known::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::Seq;

    fn lease(seq: u64) -> Lease {
        let place = Place { seq: Seq(seq), entered: Timestamp::EPOCH };
        let until = Timestamp::from_millis(1000);
        Lease { owner: UserTag([1; 8]), place, until, claimed: true, asked: Timestamp::EPOCH }
    }

    fn holds(leases: &Leases, seq: u64) -> bool {
        leases.get(seq, UserTag([1; 8]), Timestamp::EPOCH, Duration::ZERO).is_some()
    }

    #[test]
    fn an_answer_that_was_under_way_during_a_revocation_brings_no_lease_back() {
        let leases = Leases::default();
        leases.put(lease(5));
        leases.revoke([5]);
        leases.put(lease(5));
        leases.put(lease(6));
        assert!(!holds(&leases, 5) && holds(&leases, 6));
        leases.clear();
        leases.put(lease(5));
        assert!(!holds(&leases, 5), "revoked is revoked");
    }

    #[test]
    fn revocations_do_not_pile_up() {
        let leases = Leases::default();
        leases.revoke(0..3 * MAX_REVOKED as u64);
        assert!(leases.is_revoked(3 * MAX_REVOKED as u64 - 1));
        assert_eq!(leases.known.read().revoked.len(), MAX_REVOKED);
    }
}
