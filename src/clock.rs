//! Points in time, and where they come from.
//!
//! Everything that decides something takes a [`Timestamp`] as an argument; only the outermost
//! layers own a [`Clock`] and read it. That is what lets a whole sale be replayed in a unit test.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use time::OffsetDateTime;

/// A moment as Unix milliseconds. Always UTC; leap seconds are smeared as the system does it.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The Unix epoch, used for "never".
    pub const EPOCH: Self = Self(0);

    /// The moment `millis` milliseconds after the Unix epoch.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Whole seconds since the Unix epoch, rounded down.
    #[must_use]
    pub const fn as_secs(self) -> u64 {
        self.0 / 1000
    }

    /// This moment plus `span`, saturating at the end of time.
    #[must_use]
    pub fn plus(self, span: Duration) -> Self {
        Self(self.0.saturating_add(millis(span)))
    }

    /// This moment minus `span`, saturating at the epoch.
    #[must_use]
    pub fn minus(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(millis(span)))
    }

    /// How long after `earlier` this is; zero if it is not after it.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// RFC 3339 in UTC with milliseconds, as the queue API shows times. Moments beyond the year
    /// 9999, which the format cannot hold, are shown as its last second.
    #[must_use]
    pub fn to_rfc3339(self) -> String {
        self.rfc3339().as_str().to_owned()
    }

    /// As [`Timestamp::to_rfc3339`], without allocating: every poll and every pass shows one.
    #[must_use]
    pub fn rfc3339(self) -> Rfc3339 {
        let ms = self.0.min(LAST_MS);
        let at = i64::try_from(ms / 1000)
            .ok()
            .and_then(|secs| OffsetDateTime::from_unix_timestamp(secs).ok())
            .unwrap_or(OffsetDateTime::UNIX_EPOCH);
        let (year, month, day) = at.to_calendar_date();
        let (hour, minute, second) = at.to_hms();
        let mut text = *b"0000-00-00T00:00:00.000Z";
        put(&mut text[0..4], u64::from(year.unsigned_abs()));
        put(&mut text[5..7], u64::from(u8::from(month)));
        put(&mut text[8..10], u64::from(day));
        put(&mut text[11..13], u64::from(hour));
        put(&mut text[14..16], u64::from(minute));
        put(&mut text[17..19], u64::from(second));
        put(&mut text[20..23], ms % 1000);
        // The fraction ends with its last digit that is not zero, and goes with its dot.
        let mut end = 23;
        while text[end - 1] == b'0' && end > 20 {
            end -= 1;
        }
        if end == 20 {
            end = 19;
        }
        text[end] = b'Z';
        Rfc3339 { text, len: end + 1 }
    }
}

/// The last second of the year 9999, beyond which RFC 3339 has no form.
const LAST_MS: u64 = 253_402_300_799_000;

/// A moment as RFC 3339 text.
#[derive(Clone, Copy, Debug)]
pub struct Rfc3339 {
    text: [u8; 24],
    len: usize,
}

impl Rfc3339 {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.text[..self.len]).unwrap_or_default()
    }
}

fn put(digits: &mut [u8], mut number: u64) {
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + u8::try_from(number % 10).unwrap_or(0);
        number /= 10;
    }
}

/// Milliseconds of a span, saturating: configuration bounds keep real spans far below the limit.
fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.0)
    }
}

/// Where the present comes from.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The present.
    fn now(&self) -> Timestamp;
}

/// The machine's clock. A clock set before 1970 reads as the epoch.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let span = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(millis(span))
    }
}

/// A clock that moves only when told to, for tests and simulations.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// A clock standing at `at`.
    #[must_use]
    pub fn at(at: Timestamp) -> Self {
        Self(AtomicU64::new(at.0))
    }

    /// Moves the clock forward.
    pub fn advance(&self, span: Duration) {
        self.0.fetch_add(millis(span), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_in_utc_with_milliseconds() {
        assert_eq!(
            Timestamp::from_millis(1_764_540_000_250).to_rfc3339(),
            "2025-11-30T22:00:00.25Z"
        );
        assert_eq!(Timestamp::EPOCH.to_rfc3339(), "1970-01-01T00:00:00Z");
        assert!(Timestamp::from_millis(u64::MAX).to_rfc3339().starts_with("9999-"));
    }

    proptest::proptest! {
        #[test]
        fn the_text_is_that_of_the_well_known_format(ms in 0u64..LAST_MS) {
            for ms in [ms, ms / 10 * 10, ms / 1000 * 1000] {
                let nanos = i128::from(ms) * 1_000_000;
                let at = OffsetDateTime::from_unix_timestamp_nanos(nanos).unwrap();
                let format = time::format_description::well_known::Rfc3339;
                proptest::prop_assert_eq!(Timestamp(ms).to_rfc3339(), at.format(&format).unwrap());
            }
        }
    }

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Timestamp::from_millis(5).minus(Duration::from_secs(1)), Timestamp::EPOCH);
        let end = Timestamp::from_millis(u64::MAX);
        assert_eq!(end.plus(Duration::MAX), end);
        assert_eq!(Timestamp::EPOCH.since(end), Duration::ZERO);
    }
}
