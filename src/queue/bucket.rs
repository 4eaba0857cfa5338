//! The token bucket that paces admission, in whole numbers so that every store agrees.

use crate::clock::Timestamp;

use super::settings::{MICRO, Rate};

/// A bucket of admissions: one second of rate deep, at least one user.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Bucket {
    rate: Rate,
    micro: u64,
    at: Timestamp,
}

/// The depth of the bucket: one second of rate, but never less than one user.
const fn depth(micro_per_ms: u64) -> u64 {
    let second = micro_per_ms.saturating_mul(1000);
    if second > MICRO { second } else { MICRO }
}

impl Bucket {
    /// A full bucket.
    pub(crate) const fn full(rate: Rate, now: Timestamp) -> Self {
        let micro = match rate {
            Rate::Unlimited => 0,
            Rate::MicroPerMs(micro) => depth(micro),
        };
        Self { rate, micro, at: now }
    }

    /// Whole users that may be admitted at `now`.
    pub(crate) fn available(&self, now: Timestamp) -> u64 {
        match self.rate {
            Rate::Unlimited => u64::MAX,
            Rate::MicroPerMs(_) => self.refilled(now) / MICRO,
        }
    }

    /// Takes `users` out.
    pub(crate) fn take(&mut self, users: u64, now: Timestamp) {
        self.micro = self.refilled(now).saturating_sub(users.saturating_mul(MICRO));
        self.at = self.at.max(now);
    }

    /// Goes on at another rate. What was saved up is kept, up to the new depth; a bucket that was
    /// unlimited starts full.
    pub(crate) fn change(&mut self, rate: Rate, now: Timestamp) {
        if rate == self.rate {
            return;
        }
        let full = Self::full(rate, now);
        *self = match self.rate {
            Rate::Unlimited => full,
            Rate::MicroPerMs(_) => Self { micro: self.refilled(now).min(full.micro), ..full },
        };
    }

    fn refilled(&self, now: Timestamp) -> u64 {
        let Rate::MicroPerMs(rate) = self.rate else { return 0 };
        let elapsed = now.as_millis().saturating_sub(self.at.as_millis());
        self.micro.saturating_add(elapsed.saturating_mul(rate)).min(depth(rate))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Never more than one second's burst plus rate times time, however it is asked.
        #[test]
        fn never_gives_more_than_burst_plus_rate_times_time(
            per_second in 1u64..500,
            steps in prop::collection::vec((0u64..3000, 0u64..1000), 1..50),
        ) {
            #[expect(clippy::cast_precision_loss)]
            let rate = Rate::per_second(per_second as f64).unwrap();
            let mut bucket = Bucket::full(rate, Timestamp::EPOCH);
            let (mut now, mut given) = (0, 0);
            for (wait, want) in steps {
                now += wait;
                let at = Timestamp::from_millis(now);
                let got = want.min(bucket.available(at));
                bucket.take(got, at);
                given += got;
                prop_assert!(given * 1000 <= per_second * 1000 + per_second * now);
            }
        }
    }

    #[test]
    fn a_slow_rate_still_lets_one_in() {
        let bucket = Bucket::full(Rate::per_second(0.01).unwrap(), Timestamp::EPOCH);
        assert_eq!(bucket.available(Timestamp::EPOCH), 1);
    }

    #[test]
    fn what_is_saved_survives_a_change_of_rate_up_to_the_new_depth() {
        let now = Timestamp::from_millis(1000);
        let mut bucket = Bucket::full(Rate::per_second(100.0).unwrap(), Timestamp::EPOCH);
        bucket.change(Rate::per_second(10.0).unwrap(), now);
        assert_eq!(bucket.available(now), 10);
        bucket.change(Rate::per_second(100.0).unwrap(), now);
        assert_eq!(bucket.available(now), 10);
        bucket.change(Rate::Unlimited, now);
        assert_eq!(bucket.available(now), u64::MAX);
    }
}
