//! Estimates against simulated lines.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::super::command::{RecoveryState, Versions};
use super::*;

fn synced(at_ms: u64, admitted: u64, tail: u64, live: u64, active: u64) -> Synced {
    Synced {
        now: Timestamp::from_millis(at_ms),
        incarnation: 1,
        versions: Versions::default(),
        head: admitted + 1,
        tail,
        live,
        active,
        admitted,
        gone: None,
        late: None,
        settings: None,
        revoked: None,
        recovery: RecoveryState::default(),
    }
}

/// A full queue of capacity 100 with 10 000 waiters that admits `per_second` for `secs`.
fn steady(per_second: u64, secs: u64) -> (Estimator, Settings) {
    let settings = Settings::new(100);
    let mut estimator = Estimator::default();
    for second in 0..=secs {
        let admitted = 100 + second * per_second;
        estimator
            .observe(&synced(second * 1000, admitted, 10_100, 10_100 - admitted, 100), &settings);
    }
    (estimator, settings)
}

fn near(span: Duration, secs: f64) -> bool {
    (span.as_secs_f64() - secs).abs() <= 0.01 * secs
}

#[test]
fn nothing_is_said_before_ten_seconds_and_ten_admissions() {
    assert_eq!(Pace::default().estimate(1), None);
    assert_eq!(steady(5, 8).0.estimate(1), None);
    assert_eq!(steady(0, 300).0.estimate(1), None);
    assert!(steady(5, 12).0.estimate(1).is_some());
}

#[test]
fn a_steady_line_without_losses_waits_rank_over_rate() {
    let (estimator, _) = steady(5, 120);
    let estimate = estimator.estimate(3000).unwrap();
    assert!(near(estimate.p50, 600.0), "{estimate:?}");
    assert!(estimate.p90 > estimate.p50 && estimate.p90 < estimate.p50 * 2);
    assert_eq!(estimator.estimate(0), None);
}

#[test]
fn the_first_of_a_slow_line_may_wait_much_longer_than_usual() {
    let (estimator, _) = steady(1, 120);
    let estimate = estimator.estimate(1).unwrap();
    assert!(near(estimate.p50, 1.0));
    assert!(estimate.p90 > Duration::from_secs(2));
}

#[test]
fn people_who_give_up_ahead_shorten_the_wait() {
    let settings = Settings::new(100);
    let mut estimator = Estimator::default();
    let mut live = 20_000.0_f64;
    for second in 0..600_u32 {
        let admitted = 100 + u64::from(second) * 5;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small")]
        let waiting = live as u64;
        estimator
            .observe(&synced(u64::from(second) * 1000, admitted, 30_000, waiting, 100), &settings);
        live -= 5.0 + live / 1000.0;
    }
    let expected = (1.0_f64 + 5000.0 / 1000.0 / 5.0).ln() * 1000.0;
    let estimate = estimator.estimate(5000).unwrap();
    assert!((estimate.p50.as_secs_f64() - expected).abs() < 0.05 * expected, "{estimate:?}");
}

#[test]
fn the_first_fill_does_not_count_as_pace() {
    let settings = Settings::new(1000);
    let mut estimator = Estimator::default();
    estimator.observe(&synced(0, 0, 5000, 5000, 0), &settings);
    for second in 1..=4 {
        let active = (second * 300).min(1000);
        estimator.observe(&synced(second * 1000, active, 5000, 5000 - active, active), &settings);
    }
    for second in 5..=100 {
        let admitted = 1000 + (second - 4) * 2;
        estimator.observe(&synced(second * 1000, admitted, 5000, 5000 - admitted, 1000), &settings);
    }
    assert!(near(estimator.estimate(1200).unwrap().p50, 600.0));
}

#[test]
fn before_any_history_a_configured_rate_bounds_the_wait_of_those_who_fit() {
    let mut settings = Settings::new(1000);
    settings.rate = Rate::per_second(10.0).unwrap();
    let mut estimator = Estimator::default();
    estimator.observe(&synced(0, 0, 5000, 5000, 0), &settings);
    let estimate = estimator.estimate(500).unwrap();
    assert_eq!(estimate.p50, Duration::from_secs(50));
    assert_eq!(estimate.p90, Duration::from_secs(100));
    assert_eq!(estimator.estimate(1001), None, "who does not fit depends on those who leave");
}

#[test]
fn a_line_that_stands_still_has_no_estimate_and_finds_its_pace_again() {
    let (mut estimator, mut settings) = steady(5, 120);
    for second in 121..=200 {
        estimator.observe(&synced(second * 1000, 700, 10_100, 9400, 100), &settings);
    }
    assert_eq!(estimator.estimate(10), None, "nobody is admitted any more");
    let (mut estimator, _) = steady(5, 120);
    settings.mode = Mode::Paused;
    estimator.observe(&synced(120_500, 700, 10_100, 9400, 100), &settings);
    assert_eq!(estimator.estimate(10), None, "paused");
    settings.mode = Mode::Auto;
    estimator.observe(&synced(900_000, 700, 10_100, 9400, 100), &settings);
    assert!(near(estimator.estimate(500).unwrap().p50, 100.0), "the pause is not part of the pace");
}

#[test]
fn a_queue_without_a_line_does_not_measure_demand_as_pace() {
    let settings = Settings::new(100);
    let mut estimator = Estimator::default();
    for second in 0..300 {
        estimator.observe(&synced(second * 1000, 100 + second, 100 + second, 0, 95), &settings);
    }
    assert_eq!(estimator.estimate(1), None);
}

#[test]
fn a_jump_of_the_numbers_after_a_failover_is_not_taken_for_people_giving_up() {
    let (mut estimator, settings) = steady(5, 120);
    let before = estimator.estimate(5000).unwrap();
    for second in 121..=124 {
        let admitted = 100 + second * 5;
        estimator
            .observe(&synced(second * 1000, admitted, 210_100, 10_100 - admitted, 100), &settings);
    }
    assert!(near(estimator.estimate(5000).unwrap().p50, before.p50.as_secs_f64()));
}

#[test]
fn another_incarnation_or_counters_running_backwards_start_over() {
    let (mut estimator, settings) = steady(5, 120);
    let mut reset = synced(121_000, 1, 2, 1, 1);
    estimator.observe(&reset, &settings);
    assert_eq!(estimator.estimate(1), None);
    let (mut estimator, _) = steady(5, 120);
    reset = synced(121_000, 705, 10_100, 9395, 100);
    reset.incarnation = 2;
    estimator.observe(&reset, &settings);
    assert_eq!(estimator.estimate(1), None);
}

#[test]
fn memory_is_bounded_however_often_it_observes() {
    let settings = Settings::new(100);
    let mut estimator = Estimator::default();
    for tick in 0..20_000_u64 {
        estimator
            .observe(&synced(tick * 250, 100 + tick, 1_000_000, 999_900 - tick, 100), &settings);
    }
    assert!(estimator.samples.len() <= 302, "{}", estimator.samples.len());
    assert!(estimator.estimate(1).is_some());
}

/// Uniform numbers in 0..1 (splitmix64), so that the sale is the same each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        #[expect(clippy::cast_precision_loss, reason = "53 bits")]
        let unit = ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64;
        unit
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.roll()).ln()
    }
}

/// 20 000 people at a shop for 2 000 who stay two minutes on average; one in 2 400 gives up each
/// second. Predictions made along the way are compared with what happened to those served.
#[test]
fn predictions_during_a_simulated_sale_are_close_to_what_happens() {
    const WAITERS: usize = 20_000;
    const CAPACITY: usize = 2000;
    let mut dice = Dice(7);
    let gives_up: Vec<f64> = (0..WAITERS).map(|_| dice.exponential(2400.0)).collect();
    let settings = Settings::new(CAPACITY as u64);
    let mut estimator = Estimator::default();
    let (mut head, mut admitted) = (0, 0_u64);
    let mut served = vec![None; WAITERS];
    let mut leaves: BinaryHeap<Reverse<u64>> = BinaryHeap::new();
    let mut predictions = Vec::new();
    for second in 0..1500_u32 {
        let now = f64::from(second);
        while leaves.peek().is_some_and(|Reverse(at)| *at <= u64::from(second) * 1000) {
            leaves.pop();
        }
        while leaves.len() < CAPACITY && head < WAITERS {
            if gives_up[head] > now {
                served[head] = Some(now);
                admitted += 1;
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "ms")]
                let stay_ms = (dice.exponential(120.0) * 1000.0) as u64;
                leaves.push(Reverse(u64::from(second) * 1000 + stay_ms));
            }
            head += 1;
        }
        let live = gives_up[head..].iter().filter(|at| **at > now).count() as u64;
        estimator.observe(
            &synced(u64::from(second) * 1000, admitted, WAITERS as u64, live, leaves.len() as u64),
            &settings,
        );
        if second >= 120 && second % 30 == 0 {
            for user in (head..WAITERS).step_by(997).filter(|user| gives_up[*user] > now) {
                let ahead = gives_up[head..=user].iter().filter(|at| **at > now).count() as u64;
                if let Some(estimate) = estimator.estimate(ahead) {
                    predictions.push((user, now, estimate));
                }
            }
        }
    }
    let judged: Vec<(f64, bool)> = predictions
        .iter()
        .filter_map(|(user, now, estimate)| {
            let truth = (served[*user]? - now).max(5.0);
            let error = (estimate.p50.as_secs_f64() - truth).abs() / truth.max(30.0);
            Some((error, truth <= estimate.p90.as_secs_f64()))
        })
        .collect();
    #[expect(clippy::cast_precision_loss, reason = "a few hundred")]
    let count = judged.len() as f64;
    assert!(judged.len() > 100, "{count}");
    let mean = judged.iter().map(|(error, _)| error).sum::<f64>() / count;
    assert!(mean < 0.10, "mean error {mean}");
    #[expect(clippy::cast_precision_loss, reason = "a few hundred")]
    let inside = judged.iter().filter(|(_, inside)| *inside).count() as f64 / count;
    assert!(inside > 0.85, "inside the 90 % value: {inside}");
}
