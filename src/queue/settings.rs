//! What an operator can set about one queue, checked.
//!
//! The type is serialised as JSON into the store, so that every gateway on it follows run-time
//! changes. Spans are milliseconds there.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;

/// How fast users may be admitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Rate {
    /// Only capacity limits admission.
    Unlimited,
    /// Millionths of a user per millisecond, 1 to 10⁹ (0.001 to 1 000 000 users a second). Whole
    /// numbers keep the token bucket identical on every store.
    MicroPerMs(u64),
}

/// One user, in the token bucket's unit.
pub const MICRO: u64 = 1_000_000;

impl Rate {
    /// The rate nearest to `users` a second; `None` outside 0.001 to 1 000 000.
    #[must_use]
    pub fn per_second(users: f64) -> Option<Self> {
        let inside = (0.001..=1_000_000.0).contains(&users);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "range checked"
        )]
        inside.then(|| Self::MicroPerMs((users * 1000.0).round() as u64))
    }

    /// Users a second, or `None` without a limit.
    #[must_use]
    pub fn as_per_second(self) -> Option<f64> {
        match self {
            Self::Unlimited => None,
            #[expect(clippy::cast_precision_loss, reason = "at most 10^9")]
            Self::MicroPerMs(micro) => Some(micro as f64 / 1000.0),
        }
    }

    /// The stricter of two limits.
    #[must_use]
    pub fn stricter(self, other: Self) -> Self {
        match (self, other) {
            (Self::Unlimited, limit) | (limit, Self::Unlimited) => limit,
            (Self::MicroPerMs(a), Self::MicroPerMs(b)) => Self::MicroPerMs(a.min(b)),
        }
    }
}

/// Whether use prolongs an active token.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Renew {
    /// It ends `active_ttl` after the first use.
    #[default]
    Fixed,
    /// Each use moves the end to `active_ttl` from then, up to `active_max` after the first use.
    Sliding,
}

/// What the queue does as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Fast track when nobody waits and there is room; a line otherwise.
    #[default]
    Auto,
    /// Everybody queues: no fast track.
    QueueAll,
    /// The gate is open and the line stands still.
    PassAll,
    /// Nobody enters and nobody is admitted; active tokens run out.
    Closed,
    /// Entering goes on, admission stops.
    Paused,
}

impl Mode {
    /// The name used in `gateway.toml`, in the store and in the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::QueueAll => "queue_all",
            Self::PassAll => "pass_all",
            Self::Closed => "closed",
            Self::Paused => "paused",
        }
    }
}

/// What entering twice answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnDuplicate {
    /// The same token again.
    #[default]
    Same,
    /// An error.
    Reject,
}

/// What the gate does while the store does not answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnStoreFailure {
    /// Tokens known or provably active pass; everybody else waits.
    #[default]
    Hold,
    /// Everybody passes.
    Open,
    /// Nobody passes.
    Closed,
}

/// The settings of one queue. Build with [`Settings::new`] and change fields, then
/// [`Settings::check`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Settings {
    /// The most tokens active at once, 0 to 10 000 000. 0 admits nobody.
    pub capacity: u64,
    /// How fast users are admitted.
    pub rate: Rate,
    /// How long an active token lasts from its first use.
    #[serde(with = "as_millis")]
    pub active_ttl: Duration,
    /// The most that sliding renewal can reach, from the first use.
    #[serde(with = "as_millis")]
    pub active_max: Duration,
    /// Whether use prolongs it.
    pub renew: Renew,
    /// How long an admitted user has for the first use.
    #[serde(with = "as_millis")]
    pub claim_ttl: Duration,
    /// How long a waiting user may be silent before being passed over in ranks.
    #[serde(with = "as_millis")]
    pub waiting_ttl: Duration,
    /// How long after a missed turn a user may still come back near the front.
    #[serde(with = "as_millis")]
    pub late_grace: Duration,
    /// The most users waiting at once. With those who entered and fell silent, at most four times
    /// as many numbers are remembered before the head.
    pub max_waiting: u64,
    /// Before this moment nobody enters.
    pub opens_at: Option<Timestamp>,
    /// From this moment on nobody enters or is admitted.
    pub closes_at: Option<Timestamp>,
    /// What the queue does as a whole.
    pub mode: Mode,
    /// What entering twice answers.
    pub on_duplicate: OnDuplicate,
    /// What the gate does while the store does not answer.
    pub on_store_failure: OnStoreFailure,
}

/// Why settings do not hold together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SettingsError {
    /// `capacity` above [`Settings::MAX_CAPACITY`].
    #[error("capacity must be at most 10000000")]
    Capacity,
    /// `active_ttl` outside one second to 24 hours.
    #[error("active_ttl must be between 1s and 24h")]
    ActiveTtl,
    /// `active_max` below `active_ttl` or above 24 hours.
    #[error("active_max must be between active_ttl and 24h")]
    ActiveMax,
    /// `claim_ttl` under a second.
    #[error("claim_ttl must be at least 1s")]
    ClaimTtl,
    /// `claim_ttl` above `active_ttl`.
    #[error("claim_ttl must not exceed active_ttl")]
    ClaimBeyondActive,
    /// `waiting_ttl` outside one minute to one hour: a background tab speaks once a minute.
    #[error("waiting_ttl must be between 60s and 1h: a background tab speaks once a minute")]
    WaitingTtl,
    /// `late_grace` above an hour.
    #[error("late_grace must be at most 1h")]
    LateGrace,
    /// `max_waiting` outside 1 to 100 000 000.
    #[error("max_waiting must be between 1 and 100000000")]
    MaxWaiting,
    /// `closes_at` not after `opens_at`.
    #[error("closes_at must be after opens_at")]
    Window,
}

const HOUR: Duration = Duration::from_secs(3600);
const DAY: Duration = Duration::from_secs(24 * 3600);

impl Settings {
    /// The greatest capacity.
    pub const MAX_CAPACITY: u64 = 10_000_000;

    /// The defaults around a capacity: no rate limit, active for 10 minutes, 45 s to come when
    /// called (two polls at the slowest pace and 5 s), passed over after 3 silent minutes, 5
    /// minutes of grace after a missed turn, a million waiting.
    #[must_use]
    pub const fn new(capacity: u64) -> Self {
        Self {
            capacity,
            rate: Rate::Unlimited,
            active_ttl: Duration::from_secs(600),
            active_max: Duration::from_secs(3600),
            renew: Renew::Fixed,
            claim_ttl: Duration::from_secs(45),
            waiting_ttl: Duration::from_secs(180),
            late_grace: Duration::from_secs(300),
            max_waiting: 1_000_000,
            opens_at: None,
            closes_at: None,
            mode: Mode::Auto,
            on_duplicate: OnDuplicate::Same,
            on_store_failure: OnStoreFailure::Hold,
        }
    }

    /// Everything wrong with these settings; empty when they hold.
    #[must_use]
    pub fn check(&self) -> Vec<SettingsError> {
        let second = Duration::from_secs(1);
        let rules = [
            (self.capacity > Self::MAX_CAPACITY, SettingsError::Capacity),
            (self.active_ttl < second || self.active_ttl > DAY, SettingsError::ActiveTtl),
            (self.active_max < self.active_ttl || self.active_max > DAY, SettingsError::ActiveMax),
            (self.claim_ttl < second, SettingsError::ClaimTtl),
            (self.claim_ttl > self.active_ttl, SettingsError::ClaimBeyondActive),
            (
                self.waiting_ttl < Duration::from_secs(60) || self.waiting_ttl > HOUR,
                SettingsError::WaitingTtl,
            ),
            (self.late_grace > HOUR, SettingsError::LateGrace),
            (!(1..=100_000_000).contains(&self.max_waiting), SettingsError::MaxWaiting),
            (
                matches!((self.opens_at, self.closes_at), (Some(open), Some(close)) if close <= open),
                SettingsError::Window,
            ),
        ];
        rules.into_iter().filter_map(|(wrong, error)| wrong.then_some(error)).collect()
    }

    /// Epochs without a sign of life after which a waiter counts as absent.
    #[must_use]
    pub fn silent_epochs(&self) -> u64 {
        let epoch = EPOCH_MS;
        u64::try_from(self.waiting_ttl.as_millis()).unwrap_or(u64::MAX).div_ceil(epoch)
    }
}

/// The length of a heartbeat epoch in milliseconds: one and a half times the slowest poll.
pub const EPOCH_MS: u64 = 30_000;

/// Spans as whole milliseconds.
mod as_millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(span: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_millis)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_hold_together() {
        assert!(Settings::new(100).check().is_empty());
    }

    #[test]
    fn all_mistakes_are_reported_at_once() {
        let mut settings = Settings::new(100);
        settings.claim_ttl = Duration::from_secs(700);
        settings.waiting_ttl = Duration::from_secs(59);
        settings.closes_at = Some(Timestamp::from_millis(1));
        settings.opens_at = Some(Timestamp::from_millis(1));
        let expected =
            [SettingsError::ClaimBeyondActive, SettingsError::WaitingTtl, SettingsError::Window];
        assert_eq!(settings.check(), expected);
    }

    #[test]
    fn settings_survive_the_store() {
        let mut settings = Settings::new(3);
        settings.rate = Rate::per_second(0.5).unwrap();
        settings.opens_at = Some(Timestamp::from_millis(12));
        let text = serde_json::to_string(&settings).unwrap();
        assert_eq!(serde_json::from_str::<Settings>(&text).unwrap(), settings);
    }

    #[test]
    fn of_two_rates_the_stricter_counts() {
        let slow = Rate::per_second(2.0).unwrap();
        assert_eq!(slow.stricter(Rate::per_second(3.0).unwrap()), slow);
        assert_eq!(Rate::Unlimited.stricter(slow), slow);
        assert_eq!(slow.as_per_second(), Some(2.0));
        assert_eq!(Rate::per_second(0.0), None);
    }
}
