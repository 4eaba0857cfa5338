//! How long a rank will probably wait.
//!
//! People ahead of a waiter go away in two ways: μ a second are admitted, and each one gives up
//! with probability θ a second. From `dr/dt = −μ − θ·r` the wait of rank `r` is
//! `ln(1 + θ·r/μ) / θ`, or `r/μ` when nobody gives up. Both numbers are measured from what a
//! gateway sees in each copy of the store's state. Pure: time comes with the observations.
//!
//! What is measured, and what is not:
//! - μ counts only *busy* time: somebody waits and the queue may admit. Admissions of a queue
//!   without a line say what was asked for, not what it can do.
//! - The first fill is left out. An empty shop takes `capacity` users at once; after that it takes
//!   as many as leave.
//! - Every number handed out is admitted, waits, or is gone, so `gone = tail − admitted − live`
//!   and θ is the growth of `gone` per waiter and second. A late user is admitted twice, which
//!   makes θ a little too small; a jump of the numbers after a failover is recognised and left out.

use std::collections::VecDeque;
use std::time::Duration;

use crate::clock::Timestamp;

use super::command::Synced;
use super::schedule::Phase;
use super::settings::{Mode, Rate, Settings};

/// How long somebody will probably wait, from now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Estimate {
    /// Half of those in this place are served within it.
    pub p50: Duration,
    /// Nine out of ten are served within it. Never below `p50`.
    pub p90: Duration,
}

/// The spans over which admissions are averaged. A far rank uses a long one: its wait depends on
/// the pace of the next half hour, not on that of the last minute.
const WINDOWS_SECS: [u32; 6] = [60, 90, 150, 240, 400, 600];

/// Samples are at least this far apart: 300 of them cover the longest window.
const SPACING: Duration = Duration::from_secs(2);

/// Longer gaps between two observations (store away, nobody asking) are not judged.
const LONGEST_GAP: Duration = Duration::from_secs(60);

/// Fewer admissions than this, or a shorter time, say nothing.
const ENOUGH_ADMISSIONS: f64 = 10.0;
const ENOUGH_SECS: f64 = 10.0;

/// Time constant of the moving average behind θ: long against the 30 s in which absence is noticed.
const ABANDON_MEMORY_SECS: f64 = 200.0;

/// More numbers than this in one sample, most of them gone, are a failover and not people.
const JUMP: u64 = 50_000;

/// Standard normal quantile of 90 %.
const Z90: f64 = 1.28;

/// How much the pace itself drifts over the wait of a typical sale, added to the 90 % value.
const DRIFT: f64 = 0.12;

/// No estimate goes beyond a week: whoever is shown that needs no better number.
const LONGEST_SECS: f64 = 7.0 * 24.0 * 3600.0;

/// The measured pace of one queue: small, immutable and cheap to copy into a snapshot, so that a
/// poll costs a logarithm and no lock. The default knows nothing.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Pace {
    /// Admissions and busy seconds over each window, longest available.
    windows: [Window; WINDOWS_SECS.len()],
    /// Share of the waiters that gives up each second.
    theta: f64,
    /// The configured rate, an upper bound of the pace; used while nothing has been measured.
    limit_per_second: Option<f64>,
    /// The last rank this pace holds for. While the shop fills up for the first time nobody knows
    /// how fast places will come free again, so it ends with the free slots.
    reach: u64,
    /// False while the queue admits nobody: paused, not open, closed, or stalled.
    moving: bool,
}

#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Window {
    admitted: f64,
    secs: f64,
}

impl Window {
    fn per_second(self) -> Option<f64> {
        (self.admitted >= ENOUGH_ADMISSIONS && self.secs >= ENOUGH_SECS)
            .then(|| self.admitted / self.secs)
    }
}

impl Pace {
    /// How long `rank` (1-based) will probably wait; `None` while too little is known or nothing
    /// is admitted, and for rank 0.
    ///
    /// The 90 % value adds to the middle one a drift of 12 %, the error of a pace counted from `n`
    /// admissions (1.28/√n) and the scatter of the admissions still to come (1.28·√rank/μ).
    ///
    /// While the shop fills up for the first time only ranks that fit into the free slots get an
    /// estimate, and only where a rate is configured. Until it is measured the rate is taken at its
    /// word: `rank / rate` cannot be beaten, so the middle value is the optimistic end, and the
    /// 90 % value is twice that.
    #[must_use]
    pub fn estimate(&self, rank: u64) -> Option<Estimate> {
        if rank == 0 || rank > self.reach || !self.moving {
            return None;
        }
        #[expect(clippy::cast_precision_loss, reason = "an estimate needs no exact rank")]
        let rank = rank as f64;
        let Some((mu, admitted)) = self.mu(rank) else {
            let secs = rank / self.limit_per_second?;
            return Some(Estimate { p50: span(secs), p90: span(2.0 * secs) });
        };
        let p50 = wait(rank, mu, self.theta);
        let p90 = p50 * (1.0 + DRIFT + Z90 / admitted.sqrt()) + Z90 * rank.sqrt() / mu;
        Some(Estimate { p50: span(p50), p90: span(p90) })
    }

    /// Admissions a second over the window that suits `rank`, and how many it counted.
    fn mu(&self, rank: f64) -> Option<(f64, f64)> {
        let mut known = self.windows.iter().filter_map(|w| Some((w.per_second()?, *w)));
        let mut chosen = known.next()?;
        let horizon = wait(rank, chosen.0, self.theta) / 2.0;
        for wider in known {
            if chosen.1.secs >= horizon {
                break;
            }
            chosen = wider;
        }
        Some((chosen.0, chosen.1.admitted))
    }
}

fn wait(rank: f64, mu: f64, theta: f64) -> f64 {
    if theta * rank / mu < 1e-6 { rank / mu } else { (theta * rank / mu).ln_1p() / theta }
}

fn span(secs: f64) -> Duration {
    Duration::try_from_secs_f64(secs.min(LONGEST_SECS)).unwrap_or(Duration::MAX)
}

/// Measures the pace of one queue from what a gateway sees of it. Holds at most 301 samples,
/// about 5 KiB.
#[derive(Debug, Default)]
pub struct Estimator {
    last: Option<Seen>,
    /// Busy milliseconds and admissions within them, both counted from the last reset.
    busy_ms: u64,
    busy_admitted: u64,
    samples: VecDeque<Sample>,
    /// Busy time at the last admission, to notice a line that stands still.
    last_admission_ms: u64,
    /// Moving sums: how many gave up, and waiters times seconds.
    gave_up: f64,
    waited: f64,
    pace: Pace,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    at: Timestamp,
    incarnation: u32,
    admitted: u64,
    tail: u64,
    live: u64,
    capacity: u64,
    rate: Rate,
    open: bool,
    /// `admitted` when the first fill began; `None` once it is over.
    filling_from: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    busy_ms: u64,
    admitted: u64,
}

impl Estimator {
    /// Takes in one copy of the queue's state under the settings it was made with. Copies that
    /// come faster than one in two seconds are cheap and change nothing; a new incarnation,
    /// counters that run backwards, or another capacity or rate start over.
    pub fn observe(&mut self, synced: &Synced, settings: &Settings) {
        let mut seen = Seen {
            at: synced.now,
            incarnation: synced.incarnation,
            admitted: synced.admitted,
            tail: synced.tail,
            live: synced.live,
            capacity: settings.capacity,
            rate: settings.rate,
            open: settings.mode != Mode::Paused && settings.phase(synced.now) == Phase::Open,
            filling_from: Some(synced.admitted),
        };
        match self.last {
            Some(last) if seen.continues(&last) => {
                let step = seen.at.since(last.at);
                if step < SPACING && last.open == seen.open {
                    return;
                }
                seen.filling_from = last.filling_from;
                self.count(&last, &seen, step);
            }
            _ => *self = Self::default(),
        }
        if seen.filling_from.is_some_and(|from| seen.is_full(synced.active, from)) {
            seen.filling_from = None;
            self.forget_admissions();
        } else if seen.live == 0 && synced.active < seen.capacity / 2 {
            seen.filling_from = Some(seen.admitted);
        }
        self.last = Some(seen);
        self.pace = self.measure(&seen, synced.active);
    }

    /// The pace as measured by now.
    #[must_use]
    pub const fn pace(&self) -> Pace {
        self.pace
    }

    /// As [`Pace::estimate`].
    #[must_use]
    pub fn estimate(&self, rank: u64) -> Option<Estimate> {
        self.pace.estimate(rank)
    }

    fn count(&mut self, last: &Seen, seen: &Seen, step: Duration) {
        if step > LONGEST_GAP {
            return;
        }
        let admitted = seen.admitted - last.admitted;
        let arrived = seen.tail - last.tail;
        // Signed: waiters who come back make it shrink.
        let left = i128::from(arrived) - i128::from(admitted) + i128::from(last.live)
            - i128::from(seen.live);
        if !(arrived > JUMP && 2 * left > i128::from(arrived)) {
            let keep = (-step.as_secs_f64() / ABANDON_MEMORY_SECS).exp();
            #[expect(clippy::cast_precision_loss, reason = "a moving average")]
            let (left, live) = (left as f64, last.live as f64);
            self.gave_up = self.gave_up * keep + left;
            self.waited = self.waited * keep + live * step.as_secs_f64();
        }
        let rushing = seen.filling_from.is_some() && seen.rate == Rate::Unlimited;
        if last.open && last.live > 0 && seen.live > 0 && !rushing {
            self.busy_ms += u64::try_from(step.as_millis()).unwrap_or(0);
            self.busy_admitted += admitted;
            if admitted > 0 {
                self.last_admission_ms = self.busy_ms;
            }
            let oldest = u64::from(WINDOWS_SECS[WINDOWS_SECS.len() - 1]) * 1000;
            while self.samples.get(1).is_some_and(|next| next.busy_ms + oldest <= self.busy_ms) {
                self.samples.pop_front();
            }
            self.samples.push_back(Sample { busy_ms: self.busy_ms, admitted: self.busy_admitted });
        }
    }

    fn forget_admissions(&mut self) {
        self.samples.clear();
        self.busy_ms = 0;
        self.busy_admitted = 0;
        self.last_admission_ms = 0;
    }

    fn measure(&self, seen: &Seen, active: u64) -> Pace {
        let mut windows = [Window::default(); WINDOWS_SECS.len()];
        for (window, secs) in windows.iter_mut().zip(WINDOWS_SECS) {
            let from = self.busy_ms.saturating_sub(u64::from(secs) * 1000);
            let next = self.samples.partition_point(|sample| sample.busy_ms <= from);
            // Before the first sample lies the zero of both counters, unless it was dropped.
            let start = match next.checked_sub(1).and_then(|i| self.samples.get(i)) {
                Some(sample) => *sample,
                None => Sample { busy_ms: 0, admitted: 0 },
            };
            *window = Window {
                admitted: float(self.busy_admitted - start.admitted),
                secs: float(self.busy_ms - start.busy_ms) / 1000.0,
            };
        }
        let theta = if self.waited > 0.0 { (self.gave_up / self.waited).max(0.0) } else { 0.0 };
        let quiet = float(self.busy_ms - self.last_admission_ms) / 1000.0;
        let usual = windows[WINDOWS_SECS.len() - 1];
        let stalled = quiet >= 30.0 && usual.admitted * quiet >= 10.0 * usual.secs;
        Pace {
            windows,
            theta,
            limit_per_second: seen.filling_from.and(seen.rate.as_per_second()),
            reach: match seen.filling_from {
                Some(_) => seen.capacity.saturating_sub(active),
                None => u64::MAX,
            },
            moving: seen.open && seen.capacity > 0 && !stalled,
        }
    }
}

impl Seen {
    fn continues(&self, last: &Self) -> bool {
        self.incarnation == last.incarnation
            && self.at >= last.at
            && self.admitted >= last.admitted
            && self.tail >= last.tail
            && self.capacity == last.capacity
            && self.rate == last.rate
    }

    /// Nine tenths will do: a copy is taken at any moment between a leaving and the next tick.
    fn is_full(&self, active: u64, filling_from: u64) -> bool {
        active >= self.capacity - self.capacity / 10
            || self.admitted - filling_from >= self.capacity
    }
}

#[expect(clippy::cast_precision_loss, reason = "a pace needs no exact counts")]
const fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests;
