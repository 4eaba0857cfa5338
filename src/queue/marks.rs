//! When the head passed a number: one mark a second, kept for the grace of the late lane.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::Timestamp;

/// Where the head stood at the end of each of the last seconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Marks {
    /// (second, head), both ascending.
    marks: VecDeque<(u64, u64)>,
    /// Numbers below this were passed before the oldest mark.
    forgotten: u64,
}

/// Whether someone passed in `second` still has grace at `now`. The whole second counts in favour
/// of the user.
fn in_grace(second: u64, now: Timestamp, grace: Duration) -> bool {
    !grace.is_zero() && now <= Timestamp::from_millis(second * 1000 + 999).plus(grace)
}

impl Marks {
    /// The head moved on to `head` at `now`.
    pub(crate) fn record(&mut self, head: u64, now: Timestamp, grace: Duration) {
        while let Some((second, old)) = self.marks.front().copied() {
            if in_grace(second, now, grace) {
                break;
            }
            self.forgotten = old;
            self.marks.pop_front();
        }
        match self.marks.back_mut() {
            Some((second, last)) if *second >= now.as_secs() => *last = head,
            _ => self.marks.push_back((now.as_secs(), head)),
        }
    }

    /// Whether `seq`, which the head has passed, was passed recently enough.
    pub(crate) fn passed_in_grace(&self, seq: u64, now: Timestamp, grace: Duration) -> bool {
        let at = self.marks.partition_point(|(_, head)| *head <= seq);
        seq >= self.forgotten
            && self.marks.get(at).is_some_and(|(second, _)| in_grace(*second, now, grace))
    }
}
