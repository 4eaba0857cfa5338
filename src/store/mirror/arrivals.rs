//! Who came to enter while the store was away, in the order in which they came.
//!
//! They are told to try again, and keep their order: when the store is back they are entered
//! before anybody who comes then. Who has not been heard for `waiting_ttl` is left out. Each
//! gateway knows its own; between gateways the first to reach the store comes first.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::clock::Timestamp;
use crate::queue::UserTag;

/// The most that are kept: a few megabytes. Whoever comes then is entered when they try again.
const MAX_ARRIVALS: usize = 100_000;

#[derive(Debug, Default)]
struct Kept {
    order: VecDeque<UserTag>,
    heard: HashMap<UserTag, Timestamp>,
}

/// The arrivals at one queue.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    kept: Mutex<Kept>,
    count: AtomicUsize,
}

impl Arrivals {
    /// `user` came, or came again.
    pub(super) fn note(&self, user: UserTag, now: Timestamp) {
        let mut kept = self.kept.lock();
        if kept.heard.len() < MAX_ARRIVALS || kept.heard.contains_key(&user) {
            if kept.heard.insert(user, now).is_none() {
                kept.order.push_back(user);
            }
            self.count.store(kept.order.len(), Ordering::Release);
        }
    }

    /// How many there are. Costs no lock.
    pub(super) fn len(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// The first `most` who were heard since `since`; those before them who were not are dropped.
    pub(super) fn first(&self, most: usize, since: Timestamp) -> Vec<UserTag> {
        let mut kept = self.kept.lock();
        let Kept { order, heard } = &mut *kept;
        order.retain(|user| {
            let here = heard.get(user).is_some_and(|at| *at >= since);
            if !here {
                heard.remove(user);
            }
            here
        });
        self.count.store(order.len(), Ordering::Release);
        order.iter().take(most).copied().collect()
    }

    /// These have entered, or do not want to any more.
    pub(super) fn remove(&self, users: &[UserTag]) {
        let mut kept = self.kept.lock();
        let Kept { order, heard } = &mut *kept;
        for user in users {
            heard.remove(user);
        }
        order.retain(|user| heard.contains_key(user));
        self.count.store(order.len(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(number: u8) -> UserTag {
        UserTag([number; 8])
    }

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn coming_again_keeps_the_order() {
        let arrivals = Arrivals::default();
        for (number, now) in [(1, 0), (2, 10), (1, 20), (3, 30)] {
            arrivals.note(user(number), at(now));
        }
        assert_eq!(arrivals.len(), 3);
        assert_eq!(arrivals.first(2, at(0)), [user(1), user(2)]);
        arrivals.remove(&[user(1), user(2)]);
        assert_eq!(arrivals.first(2, at(0)), [user(3)]);
    }

    #[test]
    fn who_fell_silent_is_left_out() {
        let arrivals = Arrivals::default();
        for (number, now) in [(1, 0), (2, 10), (1, 200)] {
            arrivals.note(user(number), at(now));
        }
        assert_eq!(arrivals.first(9, at(100)), [user(1)]);
        assert_eq!(arrivals.len(), 1);
    }

    #[test]
    fn no_more_are_kept_than_fit() {
        let arrivals = Arrivals::default();
        for number in 0..=MAX_ARRIVALS as u64 {
            arrivals.note(UserTag(number.to_be_bytes()), at(0));
        }
        assert_eq!(arrivals.len(), MAX_ARRIVALS);
    }
}
