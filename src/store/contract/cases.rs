//! The promises, one case each. Every command in them is compared with the line as well.

use std::time::Duration;

use crate::queue::command::{
    AdmitBy, Admitted, Configured, Entered, Freshness, Gone, Heartbeat, Left, Origin, Purpose,
    Reaped, Standing, Versions,
};
use crate::queue::settings::{Mode, Rate, Renew, Settings};
use crate::queue::{Place, QueueName, Seq};
use crate::store::{SharedSecret, StoreError};

use super::{Fixture, Hand, Pair, is_newly_active, is_waiting, seq_of, user};

const SECOND: Duration = Duration::from_secs(1);

/// A capacity and nothing that paces or lets past the line.
fn queue_all(capacity: u64) -> Settings {
    let mut settings = Settings::new(capacity);
    settings.mode = Mode::QueueAll;
    settings
}

fn place_of(standing: Standing) -> Option<Place> {
    match standing {
        Standing::Waiting(place) | Standing::Late(place) | Standing::Active { place, .. } => {
            Some(place)
        }
        Standing::Gone(_) => None,
    }
}

/// However often, in one call or in several, waiting or active.
pub async fn a_user_has_one_live_token_however_often_they_enter(on: &impl Fixture) {
    let mut pair = Pair::new(on, queue_all(1)).await;
    let first = pair.enter_all([1, 1, 2, 1]).await;
    assert_eq!(first.iter().map(|e| seq_of(*e)).collect::<Vec<_>>(), [1, 1, 2, 1]);
    pair.seconds(3);
    let Entered::Waiting(place, Freshness::Known) = pair.enter(1).await else { panic!() };
    assert_eq!(place, Place { seq: Seq(1), entered: pair.now().minus(3 * SECOND) });
    assert_eq!(pair.admit(10).await.count, 1);
    for _ in 0..2 {
        let entered = pair.enter(1).await;
        assert!(matches!(entered, Entered::Active { freshness: Freshness::Known, .. }));
        assert_eq!(seq_of(entered), 1);
        pair.use_(1).await;
    }
    assert_eq!(pair.synced().await.tail, 2);
}

/// First come, first served.
pub async fn users_are_admitted_in_the_order_they_entered(on: &impl Fixture) {
    let mut pair = Pair::new(on, queue_all(1000)).await;
    pair.enter_all(0..200).await;
    for gone in (0..200).filter(|n| n % 3 == 0 || (64..130).contains(n)) {
        pair.leave(gone, None).await;
    }
    let staying: Vec<u64> = (0..200).filter(|n| n % 3 != 0 && !(64..130).contains(n)).collect();
    for (admitted, next) in staying.iter().enumerate() {
        assert!(matches!(pair.poll(*next).await, Standing::Waiting(_)), "{admitted}");
        assert_eq!(pair.admit(1).await.count, 1);
        assert!(matches!(pair.poll(*next).await, Standing::Active { .. }), "{admitted}");
    }
    assert_eq!(pair.admit(10).await.count, 0);
}

/// Neither room nor rate is enough while somebody waits.
pub async fn only_when_nobody_waits_does_a_newcomer_go_straight_in(on: &impl Fixture) {
    let mut pair = Pair::new(on, Settings::new(2)).await;
    assert!(is_newly_active(pair.enter(1).await));
    assert!(is_newly_active(pair.enter(2).await));
    assert!(is_waiting(pair.enter(3).await));
    pair.leave(1, None).await;
    pair.seconds(1);
    // There is room now, but 3 was here before.
    assert!(is_waiting(pair.enter(4).await));
    pair.leave(3, None).await;
    pair.leave(4, None).await;
    assert!(is_newly_active(pair.enter(5).await));
    let synced = pair.synced().await;
    assert_eq!((synced.head, synced.tail, synced.live), (6, 5, 0));
}

/// Somebody in the late lane goes before a newcomer.
pub async fn the_late_lane_counts_as_waiting_for_the_fast_track(on: &impl Fixture) {
    let mut pair = Pair::new(on, Settings::new(1)).await;
    pair.enter(1).await;
    pair.seconds(46);
    assert!(matches!(pair.poll(1).await, Standing::Late(_)));
    assert!(is_waiting(pair.enter(2).await));
    pair.leave(2, None).await;
    assert!(is_waiting(pair.enter(3).await));
    assert_eq!(pair.admit(10).await.count, 1);
}

/// Called counts as much as claimed.
pub async fn capacity_is_never_exceeded(on: &impl Fixture) {
    let mut pair = Pair::new(on, Settings::new(7)).await;
    pair.enter_all(0..40).await;
    for round in 0..60 {
        pair.seconds(7);
        pair.admit(1000).await;
        pair.use_(round % 40).await;
        pair.enter_all([40 + round, round]).await;
        assert!(pair.synced().await.active <= 7);
    }
    let mut settings = Settings::new(3);
    settings.mode = Mode::QueueAll;
    pair.change(&settings).await;
    assert_eq!(pair.admit(1000).await.count, 0);
}

/// A burst of one second, then the rate; fast track and ticks share it, an operator does not.
pub async fn admission_keeps_to_the_rate(on: &impl Fixture) {
    let mut settings = Settings::new(1000);
    settings.rate = Rate::per_second(4.0).unwrap();
    let mut pair = Pair::new(on, settings).await;
    let entered = pair.enter_all(0..20).await;
    assert_eq!(entered.iter().filter(|e| is_newly_active(**e)).count(), 4);
    assert_eq!(pair.admit(1000).await.count, 0);
    pair.pass(Duration::from_millis(249));
    assert_eq!(pair.admit(1000).await.count, 0);
    pair.pass(Duration::from_millis(1));
    assert_eq!(pair.admit(1000).await.count, 1);
    assert_eq!(pair.admit_by(2, AdmitBy::Operator).await.count, 2);
    pair.seconds(3600);
    assert_eq!(pair.admit(1000).await.count, 4);
}

/// Called, silent, back in time: near the front again, but not a third time.
pub async fn a_missed_turn_leads_to_the_late_lane_once(on: &impl Fixture) {
    let mut pair = Pair::new(on, queue_all(1)).await;
    pair.enter(1).await;
    pair.admit(1).await;
    pair.seconds(45);
    let Standing::Late(place) = pair.poll(1).await else { panic!() };
    assert_eq!(place.seq, Seq(1));
    assert_eq!(pair.enter(1).await, Entered::Late(place));
    assert_eq!(pair.synced().await.late.unwrap().len(), 1);
    assert_eq!(pair.admit(1).await.late, 1);
    assert!(matches!(pair.poll(1).await, Standing::Active { claimed: false, .. }));
    pair.seconds(45);
    assert_eq!(pair.poll(1).await, Standing::Gone(Gone::Missed));
    // Entering appends.
    pair.enter(2).await;
    assert_eq!(seq_of(pair.enter(1).await), 3);
}

/// To the second in which the head passed, in favour of the user.
pub async fn the_late_lane_is_open_for_late_grace_only(on: &impl Fixture) {
    let mut settings = queue_all(2);
    settings.late_grace = 60 * SECOND;
    settings.claim_ttl = 10 * SECOND;
    let mut pair = Pair::new(on, settings).await;
    pair.enter_all([1, 2, 3, 4]).await;
    pair.admit(2).await;
    pair.pass(Duration::from_millis(60_999));
    assert!(matches!(pair.poll(1).await, Standing::Late(_)));
    pair.pass(Duration::from_millis(1));
    assert_eq!(pair.poll(2).await, Standing::Gone(Gone::Missed));
    // Passed over while absent counts from the passing, too.
    pair.admit(1).await;
    pair.admit(3).await;
    pair.seconds(100);
    assert_eq!(pair.poll(3).await, Standing::Gone(Gone::Missed));
    let mut settings = queue_all(2);
    settings.late_grace = Duration::ZERO;
    pair.change(&settings).await;
    pair.enter(5).await;
    pair.admit(10).await;
    pair.seconds(46);
    assert_eq!(pair.poll(5).await, Standing::Gone(Gone::Missed));
}

/// Every fifth admission is the late lane's, however few a call admits.
pub async fn both_lanes_move_while_both_have_waiters(on: &impl Fixture) {
    let mut pair = Pair::new(on, queue_all(10)).await;
    pair.enter_all(0..100).await;
    pair.admit(10).await;
    pair.seconds(46);
    for late in 0..10 {
        assert!(matches!(pair.poll(late).await, Standing::Late(_)));
    }
    let Admitted { count, late, .. } = pair.admit(10).await;
    assert_eq!((count, late), (10, 2));
    assert!(matches!(pair.poll(1).await, Standing::Active { .. }));
    assert!(matches!(pair.poll(2).await, Standing::Late(_)));
    pair.seconds(46);
    let mut late = 0;
    for _ in 0..10 {
        late += pair.admit(1).await.late;
    }
    assert_eq!(late, 2);
}

/// The time other gateways need to hear of it.
pub async fn a_freed_slot_counts_for_half_a_second_more(on: &impl Fixture) {
    let mut pair = Pair::new(on, Settings::new(1)).await;
    pair.enter_all([1, 2]).await;
    pair.use_(1).await;
    assert_eq!(pair.leave(1, None).await, Left::Gave);
    assert_eq!(pair.synced().await.revoked.unwrap().into_iter().collect::<Vec<_>>(), [1]);
    pair.pass(Duration::from_millis(499));
    assert_eq!(pair.admit(1).await.count, 0);
    pair.pass(Duration::from_millis(1));
    assert_eq!(pair.admit(1).await.count, 1);
    pair.pass(Duration::from_millis(9499));
    assert_eq!(pair.synced().await.revoked.unwrap().len(), 1);
    pair.pass(Duration::from_millis(1));
    assert_eq!(pair.synced().await.revoked.unwrap().len(), 0);
    // Never longer than it would have been held anyway.
    pair.pass(Duration::from_millis(35_300));
    assert_eq!(pair.leave(2, None).await, Left::Gave);
    pair.enter(3).await;
    pair.pass(Duration::from_millis(199));
    assert_eq!(pair.admit(1).await.count, 0);
    pair.pass(Duration::from_millis(1));
    assert_eq!(pair.admit(1).await.count, 1);
}

/// From the line, the late lane and the active set; and only of the named place.
pub async fn leaving_is_final(on: &impl Fixture) {
    let mut pair = Pair::new(on, queue_all(1)).await;
    pair.enter_all([1, 2, 3]).await;
    assert_eq!(pair.leave(2, Some(1)).await, Left::Nothing);
    assert_eq!(pair.leave(2, Some(2)).await, Left::Gave);
    assert_eq!(pair.leave(2, Some(2)).await, Left::Nothing);
    assert_eq!(pair.standing(2, Some(2), Purpose::Poll).await, Standing::Gone(Gone::Unknown));
    pair.admit(1).await;
    pair.seconds(45);
    pair.poll(1).await;
    assert_eq!(pair.leave(1, None).await, Left::Gave);
    assert_eq!(pair.poll(1).await, Standing::Gone(Gone::Unknown));
    assert_eq!(pair.admit(1).await, Admitted { count: 1, late: 0, head: 4 });
    pair.use_(3).await;
    assert_eq!(pair.leave(3, None).await, Left::Gave);
    assert_eq!(pair.use_(3).await, Standing::Gone(Gone::Unknown));
    assert_eq!(seq_of(pair.enter(3).await), 4);
    // The token of the place that was left is not the new place's.
    assert_eq!(pair.standing(3, Some(3), Purpose::Pass).await, Standing::Gone(Gone::Unknown));
}

/// Polls change nothing; use prolongs up to `active_max`.
pub async fn only_a_pass_claims_and_only_sliding_prolongs(on: &impl Fixture) {
    let mut settings = Settings::new(5);
    settings.active_ttl = 100 * SECOND;
    settings.active_max = 150 * SECOND;
    let mut pair = Pair::new(on, settings.clone()).await;
    let start = pair.now();
    pair.enter(1).await;
    pair.seconds(5);
    let until = |standing| match standing {
        Standing::Active { until, claimed, .. } => (until.since(start).as_secs(), claimed),
        other => panic!("{other:?}"),
    };
    assert_eq!(until(pair.poll(1).await), (45, false));
    assert_eq!(until(pair.use_(1).await), (105, true));
    pair.seconds(5);
    assert_eq!(until(pair.use_(1).await), (105, true));
    settings.renew = Renew::Sliding;
    pair.change(&settings).await;
    assert_eq!(until(pair.poll(1).await), (105, true));
    assert_eq!(until(pair.use_(1).await), (110, true));
    pair.seconds(80);
    assert_eq!(until(pair.use_(1).await), (155, true));
    pair.seconds(65);
    assert_eq!(pair.use_(1).await, Standing::Gone(Gone::Expired));
    assert_eq!(pair.leave(1, None).await, Left::Nothing);
}

/// Who enters, who is admitted.
pub async fn each_mode_does_what_it_says(on: &impl Fixture) {
    let modes = [
        // mode, newcomer goes in, enters at all, tick, operator
        (Mode::Auto, false, true, 1, 1),
        (Mode::QueueAll, false, true, 1, 1),
        (Mode::Paused, false, true, 0, 1),
        (Mode::PassAll, false, true, 0, 0),
        (Mode::Closed, false, false, 0, 0),
    ];
    let mut pair = Pair::new(on, queue_all(100)).await;
    pair.enter_all(0..50).await;
    for (number, (mode, straight, enters, tick, operator)) in (50..).zip(modes) {
        let mut settings = Settings::new(100);
        settings.mode = mode;
        pair.change(&settings).await;
        let entered = pair.enter(number).await;
        assert_eq!(is_newly_active(entered), straight, "{mode:?}");
        assert_eq!(is_waiting(entered), enters, "{mode:?}");
        assert_eq!(pair.admit(1).await.count, tick, "{mode:?}");
        assert_eq!(pair.admit_by(1, AdmitBy::Operator).await.count, operator, "{mode:?}");
    }
    for mode in [Mode::QueueAll, Mode::Paused, Mode::PassAll] {
        let mut settings = Settings::new(100);
        settings.mode = mode;
        let mut pair = Pair::named(on, settings, mode.as_str()).await;
        assert!(is_waiting(pair.enter(1).await), "{mode:?} has no fast track");
    }
}

/// On the millisecond, by the store's clock.
pub async fn a_queue_opens_and_closes_by_the_clock(on: &impl Fixture) {
    let mut settings = Settings::new(1);
    let start = Hand::new();
    let start = crate::clock::Clock::now(&*start);
    let (opens_at, closes_at) = (start.plus(10 * SECOND), start.plus(20 * SECOND));
    (settings.opens_at, settings.closes_at) = (Some(opens_at), Some(closes_at));
    let mut pair = Pair::new(on, settings).await;
    pair.pass(Duration::from_millis(9999));
    assert_eq!(pair.enter(1).await, Entered::NotOpen { opens_at });
    pair.pass(Duration::from_millis(1));
    assert!(is_newly_active(pair.enter(1).await));
    assert!(is_waiting(pair.enter(2).await));
    pair.pass(Duration::from_millis(9999));
    assert!(is_waiting(pair.enter(3).await));
    pair.pass(Duration::from_millis(1));
    assert_eq!(pair.enter(4).await, Entered::Closed);
    assert_eq!(pair.enter(2).await, Entered::Closed);
    assert_eq!(pair.poll(2).await, Standing::Gone(Gone::Closed));
    assert_eq!(pair.admit(10).await.count, 0);
}

/// Nobody loses a running session; reopened, the line is as it was.
pub async fn a_closed_queue_lets_active_tokens_run_out_and_reopens(on: &impl Fixture) {
    let mut settings = Settings::new(1);
    let mut pair = Pair::new(on, settings.clone()).await;
    pair.enter_all([1, 2, 3]).await;
    settings.mode = Mode::Closed;
    pair.change(&settings).await;
    for _ in 0..3 {
        assert_eq!(pair.admit(10).await.count, 0);
        assert!(matches!(pair.use_(1).await, Standing::Active { .. }));
        assert_eq!(pair.poll(2).await, Standing::Gone(Gone::Closed));
        pair.seconds(1);
    }
    assert_eq!(pair.leave(2, None).await, Left::Gave);
    settings.mode = Mode::Auto;
    pair.change(&settings).await;
    assert!(matches!(pair.poll(3).await, Standing::Waiting(_)));
    pair.seconds(600);
    assert_eq!(pair.admit(10).await.count, 1);
    assert!(matches!(pair.use_(3).await, Standing::Active { .. }));
}

/// Silence moves everybody else up; a word brings the old place back.
pub async fn the_silent_are_passed_over_and_come_back_to_the_same_place(on: &impl Fixture) {
    let mut settings = queue_all(1);
    settings.waiting_ttl = 60 * SECOND;
    let mut pair = Pair::new(on, settings).await;
    pair.enter_all(1..=100).await;
    pair.seconds(30);
    let heard: Vec<u64> = (1..=100).filter(|seq| seq % 10 == 0).collect();
    for _ in 0..2 {
        pair.live_an_epoch(&[7], &heard).await;
    }
    assert_eq!(pair.reap().await, Reaped::Absent(90));
    assert_eq!(pair.reap().await, Reaped::Already);
    assert_eq!(pair.synced().await.live, 10);
    let Standing::Waiting(place) = pair.poll(15).await else { panic!() };
    assert_eq!(place.seq, Seq(15));
    assert_eq!(pair.synced().await.live, 11);
    // Heard again in both epochs, the others in none: one more round takes only the silent.
    for _ in 0..2 {
        pair.live_an_epoch(&[7], &[15, 10, 20]).await;
    }
    assert_eq!(pair.reap().await, Reaped::Absent(8));
    assert_eq!(pair.admit(1).await.head, 11);
    pair.leave(10, None).await;
    pair.seconds(46);
    assert_eq!(pair.admit(1).await.head, 16);
    // 12 was passed over while absent: the late lane, if back in time.
    assert!(matches!(pair.enter(12).await, Entered::Late(_)));
}

/// A gateway that did not report may have heard them.
pub async fn nobody_is_judged_on_incomplete_signs_of_life(on: &impl Fixture) {
    let mut settings = queue_all(1);
    settings.waiting_ttl = 60 * SECOND;
    let mut pair = Pair::new(on, settings).await;
    pair.enter_all(1..=20).await;
    pair.seconds(30);
    assert_eq!(pair.reap().await, Reaped::Incomplete);
    pair.live_an_epoch(&[1, 2], &[1, 2]).await;
    assert_eq!(pair.reap().await, Reaped::Incomplete);
    pair.live_an_epoch(&[1], &[1, 2]).await;
    assert_eq!(pair.reap().await, Reaped::Incomplete);
    // The missing upload arrives.
    pair.heartbeat(pair.epoch() - 1, 2, 0, vec![0x1f]).await;
    assert_eq!(pair.reap().await, Reaped::Absent(20 - 7));
    // What a gateway heard last is lost when it vanishes: nobody is judged while that could count.
    for _ in 0..2 {
        pair.live_an_epoch(&[1], &[1, 2]).await;
        assert_eq!(pair.reap().await, Reaped::Incomplete);
    }
    pair.live_an_epoch(&[1], &[1, 2]).await;
    assert_eq!(pair.reap().await, Reaped::Absent(5));
}

/// Silence is judged over whole epochs only.
pub async fn who_entered_during_the_judged_epochs_is_spared(on: &impl Fixture) {
    let mut settings = queue_all(1);
    settings.waiting_ttl = 60 * SECOND;
    let mut pair = Pair::new(on, settings).await;
    pair.enter_all(1..=9).await;
    pair.seconds(30);
    pair.enter_all(10..=12).await;
    pair.live_an_epoch(&[1], &[]).await;
    pair.enter_all(13..=40).await;
    pair.live_an_epoch(&[1], &[]).await;
    assert_eq!(pair.reap().await, Reaped::Absent(9));
    pair.live_an_epoch(&[1], &[11]).await;
    assert_eq!(pair.reap().await, Reaped::Absent(2));
}

/// Epochs that were forgotten under the old time are no evidence under the new one.
pub async fn a_longer_waiting_ttl_waits_until_it_can_look_back_that_far(on: &impl Fixture) {
    let mut settings = queue_all(1);
    settings.waiting_ttl = 60 * SECOND;
    let mut pair = Pair::new(on, settings.clone()).await;
    pair.enter_all(1..=9).await;
    let everybody: Vec<u64> = (1..=9).collect();
    for _ in 0..8 {
        pair.live_an_epoch(&[1], &everybody).await;
        pair.reap().await;
    }
    settings.waiting_ttl = 180 * SECOND;
    pair.change(&settings).await;
    for _ in 0..2 {
        pair.live_an_epoch(&[1], &[]).await;
        // An upload that comes late cannot complete what is forgotten.
        pair.heartbeat(pair.epoch() - 6, 1, 0, vec![]).await;
        assert_eq!(pair.reap().await, Reaped::Incomplete);
    }
    for _ in 0..3 {
        pair.live_an_epoch(&[1], &[]).await;
        assert_eq!(pair.reap().await, Reaped::Absent(0));
    }
    pair.live_an_epoch(&[1], &[]).await;
    assert_eq!(pair.reap().await, Reaped::Absent(9));
}

/// Of the future, of long ago, beside the byte, beyond the line.
pub async fn malformed_and_foreign_heartbeats_change_nothing(on: &impl Fixture) {
    let mut settings = queue_all(1);
    settings.waiting_ttl = 60 * SECOND;
    let mut pair = Pair::new(on, settings).await;
    pair.enter_all(1..=9).await;
    pair.seconds(300);
    let epoch = pair.epoch();
    for odd in [epoch + 1, epoch - 9, 0, u64::MAX] {
        pair.heartbeat(odd, 1, 0, vec![0xff; 2]).await;
    }
    for first in [4, 1 << 40, u64::MAX, u64::MAX - 7] {
        pair.heartbeat(epoch, u64::MAX, first, vec![0xff; 20]).await;
    }
    pair.heartbeat(epoch, 1, 8, vec![0xff; 2000]).await;
    pair.heartbeat(epoch - 1, 1, 0, vec![]).await;
    pair.heartbeat(epoch - 1, u64::MAX, 0, vec![]).await;
    pair.seconds(30);
    assert_eq!(pair.reap().await, Reaped::Absent(7));
    assert_eq!(pair.synced().await.live, 2);
}

/// Files load again at each start; what an operator set stays until the text changes.
pub async fn unchanged_file_text_never_overrides_an_operator(on: &impl Fixture) {
    let mut pair = Pair::new(on, Settings::new(1)).await;
    let (operator, file) = (Settings::new(5), Settings::new(9));
    assert_eq!(pair.configure(&operator, Origin::Operator).await, Configured::Changed);
    assert_eq!(pair.configure(&file, Origin::File(1)).await, Configured::Kept);
    assert_eq!(pair.synced().await.settings, Some(operator));
    assert_eq!(pair.configure(&file, Origin::File(u64::MAX)).await, Configured::Changed);
    assert_eq!(pair.configure(&Settings::new(3), Origin::File(u64::MAX)).await, Configured::Kept);
    assert_eq!(pair.synced().await.settings, Some(file));
}

/// Late ones count, those who are there already are not refused.
pub async fn no_more_than_max_waiting_wait(on: &impl Fixture) {
    let mut settings = queue_all(2);
    settings.max_waiting = 3;
    let mut pair = Pair::new(on, settings).await;
    let entered = pair.enter_all([1, 2, 3, 4, 2, 5]).await;
    assert_eq!(entered[3], Entered::Full);
    assert!(is_waiting(entered[4]));
    assert_eq!(entered[5], Entered::Full);
    pair.admit(1).await;
    assert!(is_waiting(pair.enter(4).await));
    pair.seconds(45);
    pair.poll(1).await;
    assert_eq!(pair.enter(5).await, Entered::Full);
}

/// Whatever part of the bitmap is kept.
pub async fn compacting_changes_no_answer(on: &impl Fixture) {
    let mut settings = queue_all(100);
    settings.waiting_ttl = 60 * SECOND;
    let mut pair = Pair::new(on, settings).await;
    for round in 0..6 {
        pair.enter_all((0..200).map(|n| round * 200 + n)).await;
        for n in (0..200).filter(|n| n % 7 == 0) {
            pair.leave(round * 200 + n, None).await;
        }
        pair.compact([0, 64, 1000][usize::try_from(round % 3).unwrap()]).await;
        pair.live_an_epoch(&[1], &[round * 190 + 1, round * 200 + 3]).await;
        pair.reap().await;
        pair.admit(100).await;
        pair.compact(0).await;
        pair.live_an_epoch(&[1], &[round * 200 + 1, round * 200 + 5]).await;
        pair.reap().await;
        pair.synced().await;
        for n in 0..20 {
            pair.poll(round * 200 + n * 10).await;
        }
    }
}

/// The index forgets who is over, never who waits, is active or may come back late.
pub async fn sweeping_the_index_changes_no_answer_about_a_living_place(on: &impl Fixture) {
    let mut settings = Settings::new(3000);
    settings.late_grace = 100 * SECOND;
    settings.claim_ttl = 10 * SECOND;
    settings.active_ttl = 10 * SECOND;
    let mut pair = Pair::new(on, settings.clone()).await;
    pair.enter_all(0..1000).await;
    pair.enter_all(1000..2000).await;
    for number in 0..50 {
        pair.use_(number).await;
    }
    pair.seconds(70);
    pair.enter_all(2000..2100).await;
    pair.seconds(40);
    for number in [2000, 2001] {
        assert!(matches!(pair.poll(number).await, Standing::Late(_)));
    }
    pair.enter_all(2100..2150).await;
    pair.admit(10).await;
    for _ in 0..5 {
        pair.compact(0).await;
    }
    for over in [0, 49, 50, 1999] {
        assert!(matches!(pair.store.standing(&pair.queue, user(over), None, Purpose::Pass).await,
            Ok(answer) if matches!(answer.value, Standing::Gone(_))));
    }
    for living in 2000..2150 {
        assert!(place_of(pair.poll(living).await).is_some(), "{living}");
    }
    pair.synced().await;
}

/// However many are asked for: a call stays short.
pub async fn one_call_admits_a_thousand_at_most(on: &impl Fixture) {
    let mut pair = Pair::new(on, queue_all(5000)).await;
    for thousand in 0..2 {
        pair.enter_all((0..1000).map(|n| thousand * 1000 + n)).await;
    }
    pair.enter(5000).await;
    assert_eq!(pair.admit(u64::MAX).await.count, 1000);
    assert_eq!(pair.admit_by(u64::MAX, AdmitBy::Operator).await.count, 1000);
    assert_eq!(pair.admit(u64::MAX).await.count, 1);
    assert_eq!(pair.synced().await.active, 2001);
}

/// No lease ends early and no bucket fills because a clock was set back.
pub async fn time_that_runs_backwards_stands_still(on: &impl Fixture) {
    let mut settings = Settings::new(100);
    settings.rate = Rate::per_second(1.0).unwrap();
    let mut pair = Pair::new(on, settings).await;
    pair.enter_all([1, 2, 3]).await;
    pair.seconds(10);
    pair.admit(1).await;
    let then = pair.now();
    pair.clock.set(then.minus(8 * SECOND));
    assert_eq!(pair.admit(10).await.count, 0);
    assert_eq!(pair.synced().await.now, then);
    pair.enter(4).await;
    pair.clock.set(then.plus(SECOND));
    assert_eq!(pair.admit(10).await.count, 1);
}

/// Each of them says so, and none creates it.
pub async fn an_unknown_queue_is_unknown_to_every_command(on: &impl Fixture) {
    let store = on.store(Hand::new());
    let queue = QueueName::new("nowhere").unwrap();
    let heartbeat = Heartbeat { epoch: 1, gateway: 1, first: 0, bits: vec![1] };
    for _ in 0..2 {
        let errors = [
            store.enter(&queue, &[user(1)]).await.err(),
            store.standing(&queue, user(1), None, Purpose::Pass).await.err(),
            store.leave(&queue, user(1), None).await.err(),
            store.admit(&queue, 1, AdmitBy::Tick).await.err(),
            store.heartbeat(&queue, &heartbeat).await.err(),
            store.reap(&queue).await.err(),
            store.sync(&queue, Versions::default()).await.err(),
            store.compact(&queue, 0).await.err(),
        ];
        for (command, error) in errors.into_iter().enumerate() {
            assert!(
                matches!(&error, Some(StoreError::UnknownQueue(name)) if *name == queue),
                "command {command}: {error:?}"
            );
        }
    }
}

/// Whoever comes second gets what the first one stored.
pub async fn two_proposals_of_a_secret_end_in_one(on: &impl Fixture) {
    let store = on.store(Hand::new());
    let (a, b) = ([b'a'; 32], [0; 32]);
    assert_eq!(store.secret(SharedSecret::UserSalt, a).await.unwrap(), a);
    assert_eq!(store.secret(SharedSecret::UserSalt, b).await.unwrap(), a);
    assert_eq!(store.secret(SharedSecret::TokenKey, b).await.unwrap(), b);
    assert_eq!(store.secret(SharedSecret::TokenKey, a).await.unwrap(), b);
}

/// One user may wait in two queues of one store.
pub async fn queues_do_not_touch_each_other(on: &impl Fixture) {
    let mut pair = Pair::new(on, queue_all(1)).await;
    let other = QueueName::new("contract-2").unwrap();
    pair.store.configure(&other, &Settings::new(1), Origin::Operator).await.unwrap();
    pair.enter_all([1, 2]).await;
    for number in [1, 2] {
        let entered = pair.store.enter(&other, &[user(number)]).await.unwrap();
        assert_eq!(seq_of(entered.value[0]), number);
    }
    pair.store.leave(&other, user(2), None).await.unwrap();
    assert!(matches!(pair.poll(2).await, Standing::Waiting(_)));
    pair.synced().await;
}
