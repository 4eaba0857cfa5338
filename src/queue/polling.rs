//! When a waiter should ask again.
//!
//! Far from the front seldom, near it often, and never all in the same second. Pure: the caller
//! brings the randomness. Nothing here is enforced; a poll that comes early gets the same answer.

use std::time::Duration;

use super::estimate::Estimate;
use super::settings::{Mode, Settings};

/// The slowest pace of all, whatever the settings allow.
const SLOWEST: Duration = Duration::from_secs(20);

/// The fastest regular pace. A rank is at most a quarter of a second old anyway.
const FASTEST: Duration = Duration::from_secs(2);

/// What nobody is asked to undercut, except by a `claim_ttl` so short that half a second misses it.
const FLOOR: Duration = Duration::from_millis(500);

/// Polls spread over ±15 % of their pace, so that a crowd that came together does not stay so.
const SPREAD: f64 = 0.15;

/// Admissions a second that are assumed while nothing is known.
const ASSUMED_PER_SECOND: f64 = 5.0;

/// The longest any answer asks a client to wait, jitter included: the least of 20 s, 0.45 ×
/// `claim_ttl` (so that who is called is told, and misses one answer at most, before the claim
/// window ends) and `waiting_ttl` / 3 (so that two lost polls do not look like absence).
#[must_use]
pub fn ceiling(settings: &Settings) -> Duration {
    SLOWEST.min(settings.claim_ttl.mul_f64(0.45)).min(settings.waiting_ttl / 3)
}

/// How long the holder of `rank` should wait before asking again.
///
/// A tenth of the estimated wait, between 2 s and [`ceiling`], spread by ±15 %. Without an
/// estimate the position stands in for it, as if five users were admitted a second. A line that
/// stands still (mode `paused`) and an active token (rank 0) are asked about at the slowest pace.
///
/// - `rank`: 1-based; 0 means active.
/// - `jitter`: uniform in 0..1. Values outside are clamped, NaN counts as 0.
///
/// Never above [`ceiling`], and never below half a second unless the ceiling is.
#[must_use]
pub fn poll_after(
    rank: u64,
    estimate: Option<Estimate>,
    settings: &Settings,
    jitter: f64,
) -> Duration {
    #[expect(clippy::cast_precision_loss, reason = "a pace needs no exact rank")]
    let wait_secs = match estimate {
        Some(estimate) => estimate.p50.as_secs_f64(),
        None => rank as f64 / ASSUMED_PER_SECOND,
    };
    let pace = if rank == 0 || settings.mode == Mode::Paused {
        SLOWEST
    } else {
        Duration::try_from_secs_f64(wait_secs / 10.0).unwrap_or(SLOWEST)
    };
    spread(pace.max(FASTEST), ceiling(settings), jitter)
}

/// How long somebody who waits for a queue to open in `left` should wait before asking again: at
/// the slowest pace, and within two seconds after the opening, spread over them.
#[must_use]
pub fn until_opening(left: Duration, settings: &Settings, jitter: f64) -> Duration {
    let jitter = sound(jitter);
    let opening = left.saturating_add(FASTEST.mul_f64(jitter)).max(FLOOR);
    opening.min(spread(SLOWEST, ceiling(settings), jitter))
}

/// `pace` spread by the jitter. The ceiling is lowered by the spread first: clamping afterwards
/// would gather everybody beyond it on one value.
fn spread(pace: Duration, ceiling: Duration, jitter: f64) -> Duration {
    let pace = pace.min(ceiling.div_f64(1.0 + SPREAD));
    let factor = 1.0 - SPREAD + 2.0 * SPREAD * sound(jitter);
    pace.mul_f64(factor).max(FLOOR).min(ceiling)
}

fn sound(jitter: f64) -> f64 {
    if jitter.is_nan() { 0.0 } else { jitter.clamp(0.0, 1.0) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn estimate(secs: u64) -> Estimate {
        let p50 = Duration::from_secs(secs);
        Estimate { p50, p90: p50 * 2 }
    }

    #[test]
    fn the_pace_is_a_tenth_of_the_wait_between_two_and_twenty_seconds() {
        let settings = Settings::new(100);
        let pace = |secs| poll_after(9, Some(estimate(secs)), &settings, 0.5).as_secs_f64();
        assert!((pace(1) - 2.0).abs() < 0.01);
        assert!((pace(60) - 6.0).abs() < 0.01);
        assert!((pace(100_000) - 20.0 / 1.15).abs() < 0.01);
    }

    #[test]
    fn without_an_estimate_the_position_decides() {
        let settings = Settings::new(100);
        assert_eq!(poll_after(1, None, &settings, 0.5), Duration::from_secs(2));
        assert_eq!(poll_after(400, None, &settings, 0.5), Duration::from_secs(8));
        assert!(poll_after(u64::MAX, None, &settings, 0.999) <= Duration::from_secs(20));
    }

    #[test]
    fn who_is_active_or_in_a_paused_line_asks_at_the_slowest_pace() {
        let mut settings = Settings::new(100);
        let slowest = poll_after(u64::MAX, None, &settings, 0.0);
        assert_eq!(poll_after(0, None, &settings, 0.0), slowest);
        settings.mode = Mode::Paused;
        assert_eq!(poll_after(1, None, &settings, 0.0), slowest);
    }

    #[test]
    fn a_crowd_at_the_ceiling_stays_spread() {
        let settings = Settings::new(100);
        let at = |jitter| poll_after(1_000_000, None, &settings, jitter);
        assert!(at(0.99).checked_sub(at(0.01)).unwrap() > Duration::from_secs(4));
    }

    #[test]
    fn nobody_waits_long_beyond_the_opening() {
        let settings = Settings::new(100);
        let left = Duration::from_secs(3);
        assert!(until_opening(left, &settings, 0.0) >= left);
        assert!(until_opening(left, &settings, 0.999) < left + FASTEST);
        assert!(until_opening(Duration::MAX, &settings, 0.9) <= SLOWEST);
        assert_eq!(until_opening(Duration::ZERO, &settings, 0.0), FLOOR);
    }

    proptest! {
        #[test]
        fn no_answer_exceeds_the_ceiling_or_hurries_below_the_floor(
            rank in any::<u64>(),
            secs in proptest::option::of(0_u64..10_000_000),
            claim_ms in 1_000_u64..3_600_000,
            waiting_secs in 60_u64..86_400,
            jitter in any::<f64>(),
        ) {
            let mut settings = Settings::new(10);
            settings.claim_ttl = Duration::from_millis(claim_ms);
            settings.waiting_ttl = Duration::from_secs(waiting_secs);
            let after = poll_after(rank, secs.map(estimate), &settings, jitter);
            prop_assert!(after <= settings.claim_ttl.mul_f64(0.45));
            prop_assert!(after <= settings.waiting_ttl / 3);
            prop_assert!(after <= SLOWEST);
            prop_assert!(after >= FLOOR.min(ceiling(&settings)));
        }

        #[test]
        fn who_is_further_back_never_asks_more_often(
            near in 1_u64..1_000_000, far in 1_u64..1_000_000, jitter in 0.0..1.0_f64,
        ) {
            let settings = Settings::new(10);
            let (near, far) = (near.min(far), near.max(far));
            prop_assert!(
                poll_after(near, None, &settings, jitter)
                    <= poll_after(far, None, &settings, jitter)
            );
        }
    }
}
