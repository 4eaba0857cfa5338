//! When the head passed a number: one mark a second, kept for the grace of the late lane.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::Timestamp;

/// Where the head stood at the end of each of the last seconds.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
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
    /// Marks taken elsewhere: (second, head), both ascending; what is not in order is left out.
    /// Numbers below `forgotten` were passed before the first.
    pub(crate) fn of(passed: &[(u64, u64)], forgotten: u64) -> Self {
        let mut marks = Self { marks: VecDeque::new(), forgotten };
        for (second, head) in passed.iter().copied() {
            if marks.marks.back().is_none_or(|(last, at)| *last < second && *at <= head) {
                marks.marks.push_back((second, head));
            }
        }
        marks
    }

    /// Nobody whom the head has passed up to now has any grace.
    pub(crate) fn forget(&mut self, head: u64) {
        self.marks.clear();
        self.forgotten = self.forgotten.max(head);
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(10);

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn each_number_has_its_own_grace_from_the_second_it_was_passed() {
        let mut marks = Marks::default();
        marks.record(3, at(1_000), GRACE);
        marks.record(5, at(1_500), GRACE);
        marks.record(9, at(4_000), GRACE);
        for (seq, last) in [(1, 11_999), (4, 11_999), (5, 14_999), (8, 14_999)] {
            assert!(marks.passed_in_grace(seq, at(last), GRACE), "{seq}");
            assert!(!marks.passed_in_grace(seq, at(last + 1), GRACE), "{seq}");
        }
    }

    #[test]
    fn numbers_that_were_not_passed_or_passed_long_ago_have_no_grace() {
        let mut marks = Marks::default();
        assert!(!marks.passed_in_grace(1, at(0), GRACE));
        marks.record(3, at(1_000), GRACE);
        marks.record(5, at(20_000), GRACE);
        assert!(!marks.passed_in_grace(2, at(20_000), GRACE), "its mark is gone");
        assert!(marks.passed_in_grace(3, at(20_000), GRACE));
        assert!(!marks.passed_in_grace(5, at(20_000), GRACE));
    }

    #[test]
    fn no_more_marks_are_kept_than_the_grace_has_seconds() {
        let mut marks = Marks::default();
        for step in 0..10_000 {
            marks.record(step, at(step * 100), GRACE);
        }
        assert!(marks.marks.len() <= 12, "{}", marks.marks.len());
    }

    #[test]
    fn without_grace_nobody_is_in_it() {
        let mut marks = Marks::default();
        marks.record(3, at(1_000), Duration::ZERO);
        assert!(!marks.passed_in_grace(2, at(1_000), Duration::ZERO));
    }
}
