//! Telling a command that changed a line from one that did not, without knowing the rules.
//!
//! A store that writes commands down compares a footprint before and after. It says *whether*, not
//! what; which footprint a command leaves is for the store's tests to prove.

use crate::clock::Timestamp;

use super::super::UserTag;
use super::{Entry, Line};

/// What differs after users entered or were admitted, after new settings, and after a compaction
/// or a fence. Cheap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Footprint {
    version: u64,
    users: usize,
    base: u64,
    recovery: (Timestamp, [usize; 3]),
}

/// What also differs after a command about one user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trace {
    line: Footprint,
    entry: Option<Entry>,
    until: Option<Timestamp>,
}

/// What also differs after signs of life were heard or judged. Costs a look at every bit that is
/// kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hearing {
    line: Footprint,
    judged_epoch: u64,
    heartbeats: [u64; 5],
}

impl Line {
    /// The footprint of commands about many users, or none.
    #[must_use]
    pub fn footprint(&self) -> Footprint {
        Footprint {
            version: self.versions.all,
            users: self.users.len(),
            base: self.base,
            recovery: self.recovery.measure(),
        }
    }

    /// The footprint of commands about `user` at `now`.
    #[must_use]
    pub fn trace(&self, user: UserTag, now: Timestamp) -> Trace {
        let entry = self.users.get(&user).copied();
        let until = entry.and_then(|entry| self.active.get(&entry.place.seq.0)).copied();
        // One that is over may be dropped at any look at the line.
        let until = until.filter(|until| *until > self.last_now.max(now));
        Trace { line: self.footprint(), entry, until }
    }

    /// The footprint of heartbeats and judgements.
    #[must_use]
    pub fn hearing(&self) -> Hearing {
        Hearing {
            line: self.footprint(),
            judged_epoch: self.judged_epoch,
            heartbeats: self.heartbeats.measure(),
        }
    }

    /// The latest moment the queue has seen; it takes no earlier one any more.
    #[must_use]
    pub const fn last_now(&self) -> Timestamp {
        self.last_now
    }

    /// The queue has seen `now`. Nothing else changes.
    pub fn observe(&mut self, now: Timestamp) {
        self.advance(now);
    }
}
