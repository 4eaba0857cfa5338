//! What must hold between any two commands, whatever they were.
//!
//! The tests look after every command; a store looks once at what it has read from a disk.

use std::collections::{BTreeSet, HashMap};

use super::Line;

/// A rule that a line does not keep: it was not made by commands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not so: {0}")]
pub struct Broken(&'static str);

impl Line {
    /// Looks at the whole line: about a tenth of a microsecond for each user.
    ///
    /// # Errors
    /// The first rule that does not hold.
    pub fn check(&self) -> Result<(), Broken> {
        let now = self.last_now;
        // One bit for each number that somebody holds would be less, but numbers may lie far apart.
        let holders: HashMap<u64, _, foldhash::fast::RandomState> =
            self.users.values().map(|entry| (entry.place.seq.0, entry)).collect();
        let in_line = self.base.is_multiple_of(64)
            && self.base <= self.head
            && self.head <= self.tail.saturating_add(1);
        if !in_line || self.tail > super::Seq::MAX.0 {
            return Err(Broken("base, head and tail are in order"));
        }
        let present = self.gone.zeros(self.head - self.base, self.tail + 1 - self.base);
        let waits = |seq: u64| seq >= self.head && !self.gone.get(seq - self.base);
        // Of a lost number the holder may not be known yet.
        let all_have_a_holder = || {
            holders.keys().filter(|seq| waits(**seq)).count() as u64 == present
                || (self.head..=self.tail)
                    .filter(|seq| waits(*seq))
                    .all(|seq| holders.contains_key(&seq) || self.recovery.is_lost(seq))
        };
        // Here for good: the range may be forgotten before its last holder is.
        let late = |seq: &u64| {
            let holder = holders.get(seq);
            *seq < self.head
                && (self.recovery.has_lost()
                    || holder.is_some_and(|entry| entry.was_late && entry.claimed.is_none()))
        };
        let active = |seq: &u64| {
            (*seq < self.head || self.gone.get(seq - self.base)) && !self.late.contains(seq)
        };
        let ends: BTreeSet<_> = self.active.iter().map(|(seq, until)| (*until, *seq)).collect();
        let rules = [
            (holders.keys().all(|seq| (1..=self.tail).contains(seq)), "numbers end at the tail"),
            (holders.len() == self.users.len(), "no two users hold one number"),
            (self.live == present, "live counts the present waiters"),
            (all_have_a_holder(), "every present waiter has a holder"),
            (self.late.iter().all(late), "late numbers were passed, and their holders wait"),
            (
                self.active.iter().filter(|(_, until)| **until > now).all(|(seq, _)| active(seq)),
                "nobody is active and waiting at once",
            ),
            (ends == self.ends, "the ends agree with the active set"),
        ];
        rules.into_iter().find(|(holds, _)| !holds).map_or(Ok(()), |(_, rule)| Err(Broken(rule)))
    }
}
