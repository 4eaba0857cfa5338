//! Whether a queue has not opened yet, is open, or is closed, at a given moment.

use crate::clock::Timestamp;

use super::settings::{Mode, Settings};

/// Where a queue is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Before `opens_at`.
    NotOpen {
        /// When it opens.
        opens_at: Timestamp,
    },
    /// Entering is possible.
    Open,
    /// After `closes_at`, or closed by mode.
    Closed,
}

impl Settings {
    /// The phase at `now`. A closing time beats an opening time, and mode `closed` beats both.
    #[must_use]
    pub fn phase(&self, now: Timestamp) -> Phase {
        if self.mode == Mode::Closed || self.closes_at.is_some_and(|at| now >= at) {
            return Phase::Closed;
        }
        match self.opens_at {
            Some(opens_at) if now < opens_at => Phase::NotOpen { opens_at },
            _ => Phase::Open,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_opens_and_closes_on_the_millisecond() {
        let at = Timestamp::from_millis;
        let mut settings = Settings::new(1);
        settings.opens_at = Some(at(100));
        settings.closes_at = Some(at(200));
        assert_eq!(settings.phase(at(99)), Phase::NotOpen { opens_at: at(100) });
        assert_eq!(settings.phase(at(100)), Phase::Open);
        assert_eq!(settings.phase(at(199)), Phase::Open);
        assert_eq!(settings.phase(at(200)), Phase::Closed);
        settings.mode = Mode::Closed;
        assert_eq!(settings.phase(at(100)), Phase::Closed);
    }
}
