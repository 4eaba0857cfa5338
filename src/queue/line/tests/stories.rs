//! One promise each, told as a story.

use super::super::super::settings::Rate;
use super::super::super::snapshot::Ranks;
use super::*;

const SECOND: u64 = 1000;

/// A line and the present.
struct Story {
    line: Line,
    now_ms: u64,
}

/// A story with room for `capacity`, after `change` to the settings.
fn story(capacity: u64, change: impl FnOnce(&mut Settings)) -> Story {
    let mut settings = Settings::new(capacity);
    change(&mut settings);
    assert_eq!(settings.check(), []);
    let line = Line::new(1, settings, None, Timestamp::from_millis(START_MS));
    Story { line, now_ms: START_MS }
}

impl Story {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.now_ms)
    }

    fn wait(&mut self, millis: u64) {
        self.now_ms += millis;
    }

    fn enter(&mut self, n: u64) -> Entered {
        self.line.enter(&[user(n)], self.now()).value[0]
    }

    /// Users `users` enter and have to wait.
    fn line_up(&mut self, users: std::ops::RangeInclusive<u64>) {
        for n in users {
            let entered = self.enter(n);
            assert!(matches!(entered, Entered::Waiting(_, Freshness::New)), "{n}: {entered:?}");
        }
    }

    /// Users `users` enter and go straight in.
    fn fill(&mut self, users: std::ops::RangeInclusive<u64>) {
        for n in users {
            let entered = self.enter(n);
            assert!(matches!(entered, Entered::Active { .. }), "{n}: {entered:?}");
        }
    }

    fn poll(&mut self, n: u64) -> Standing {
        self.line.standing(user(n), None, Purpose::Poll, self.now()).value
    }

    fn pass(&mut self, n: u64) -> Standing {
        self.line.standing(user(n), None, Purpose::Pass, self.now()).value
    }

    fn leave(&mut self, n: u64) -> Left {
        self.line.leave(user(n), None, self.now()).value
    }

    fn tick(&mut self) -> Admitted {
        self.line.admit(1000, AdmitBy::Tick, self.now()).value
    }

    fn active(&mut self) -> u64 {
        self.line.sync(Versions::default(), self.now()).active
    }

    fn set(&mut self, change: impl FnOnce(&mut Settings)) {
        let mut settings = self.line.settings.clone();
        change(&mut settings);
        let configured = self.line.configure(&settings, &Origin::Operator, self.now());
        assert_eq!(configured, Configured::Changed);
    }

    /// The rank a gateway would show.
    fn rank(&mut self, n: u64) -> Option<u64> {
        let synced = self.line.sync(Versions::default(), self.now());
        let seq = self.line.users[&user(n)].place.seq.0;
        Ranks::new(synced.head, synced.tail, &synced.gone.unwrap()).rank(seq)
    }

    /// The next epoch begins; one gateway reports that it heard `users` in the last one.
    fn next_epoch(&mut self, heard: &[u64]) -> Reaped {
        self.now_ms += EPOCH_MS - self.now_ms % EPOCH_MS;
        let epoch = self.now_ms / EPOCH_MS - 1;
        let mut bits = vec![0u8; 64];
        for n in heard {
            let seq = self.line.users[&user(*n)].place.seq.0;
            bits[usize::try_from(seq / 8).unwrap()] |= 0x80 >> (seq % 8);
        }
        let heartbeat = Heartbeat { epoch, gateway: 1, first: 0, bits };
        self.line.heartbeat(&heartbeat, self.now());
        self.line.reap(self.now())
    }

    fn check(&self) {
        check_invariants(&self.line).unwrap();
    }
}

fn seq_of(standing: Standing) -> u64 {
    match standing {
        Standing::Waiting(place) | Standing::Late(place) | Standing::Active { place, .. } => {
            place.seq.0
        }
        Standing::Gone(gone) => panic!("gone: {gone:?}"),
    }
}

fn is_active(standing: Standing) -> bool {
    matches!(standing, Standing::Active { .. })
}

// The fast track.

#[test]
fn while_there_is_room_and_nobody_waits_a_newcomer_goes_straight_in() {
    let mut story = story(2, |_| {});
    story.fill(1..=2);
    story.line_up(3..=3);
    assert_eq!(story.active(), 2);
}

#[test]
fn a_freed_slot_goes_to_the_line_and_not_to_a_newcomer() {
    let mut story = story(1, |_| {});
    story.fill(1..=1);
    story.line_up(2..=2);
    story.leave(1);
    story.wait(600);
    assert_eq!(story.active(), 0);
    story.line_up(3..=3);
    assert_eq!(story.tick().count, 1);
    assert!(is_active(story.poll(2)));
}

#[test]
fn a_waiter_in_the_late_lane_closes_the_fast_track() {
    let mut story = story(1, |settings| settings.claim_ttl = Duration::from_secs(1));
    story.fill(1..=1);
    story.wait(SECOND);
    assert!(matches!(story.poll(1), Standing::Late(_)));
    assert_eq!(story.active(), 0);
    story.line_up(2..=2);
}

#[test]
fn the_rate_holds_for_the_fast_track_too() {
    let mut story = story(1000, |settings| settings.rate = Rate::per_second(3.0).unwrap());
    story.fill(1..=3);
    story.line_up(4..=4);
}

#[test]
fn queue_all_has_no_fast_track() {
    let mut story = story(5, |settings| settings.mode = Mode::QueueAll);
    story.line_up(1..=1);
    assert_eq!(story.tick().count, 1);
}

// One place per user.

#[test]
fn entering_again_gives_the_same_place_and_the_first_entry_time() {
    let mut story = story(1, |_| {});
    story.fill(1..=1);
    let entered = story.now();
    story.line_up(2..=2);
    story.wait(5 * SECOND);
    let place = Place { seq: Seq(2), entered };
    assert_eq!(story.enter(2), Entered::Waiting(place, Freshness::Known));
    story.line.leave(user(1), None, story.now());
    story.wait(SECOND);
    story.tick();
    let Entered::Active { place: kept, freshness, .. } = story.enter(2) else { panic!() };
    assert_eq!((kept, freshness), (place, Freshness::Known));
    let Standing::Active { place: kept, .. } = story.pass(2) else { panic!() };
    assert_eq!(kept, place);
}

#[test]
fn parallel_enters_of_one_user_in_one_batch_make_one_place() {
    let mut story = story(0, |_| {});
    let answers = story.line.enter(&[user(1), user(1), user(2), user(1)], story.now()).value;
    let seqs: Vec<_> = answers
        .iter()
        .map(|entered| match entered {
            Entered::Waiting(place, freshness) => (place.seq.0, *freshness),
            other => panic!("{other:?}"),
        })
        .collect();
    let known = Freshness::Known;
    assert_eq!(seqs, [(1, Freshness::New), (1, known), (2, Freshness::New), (1, known)]);
}

#[test]
fn an_index_entry_whose_place_is_over_heals_into_a_new_place() {
    let mut story = story(1, |settings| {
        settings.active_ttl = Duration::from_secs(2);
        settings.claim_ttl = Duration::from_secs(1);
    });
    story.fill(1..=1);
    story.pass(1);
    story.wait(2 * SECOND);
    assert_eq!(story.poll(1), Standing::Gone(Gone::Expired));
    let Entered::Active { place, freshness, .. } = story.enter(1) else { panic!() };
    assert_eq!((place.seq, freshness), (Seq(2), Freshness::New));
    // The old number is nobody's now.
    let old = story.line.standing(user(1), Some(Seq(1)), Purpose::Pass, story.now()).value;
    assert_eq!(old, Standing::Gone(Gone::Unknown));
    story.check();
}

#[test]
fn a_token_with_another_number_neither_passes_nor_leaves() {
    let mut story = story(1, |_| {});
    story.fill(1..=1);
    let now = story.now();
    let mut other =
        |number, seq| story.line.standing(user(number), Some(Seq(seq)), Purpose::Pass, now).value;
    assert_eq!(other(2, 1), Standing::Gone(Gone::Unknown));
    assert_eq!(other(1, 2), Standing::Gone(Gone::Lost), "nobody was given it here");
    assert_eq!(story.line.leave(user(1), Some(Seq(2)), now).value, Left::Nothing);
    assert_eq!(story.line.leave(user(2), Some(Seq(1)), now).value, Left::Nothing);
    assert!(is_active(story.poll(1)));
}

// Being called, and not coming.

#[test]
fn a_poll_never_claims() {
    let mut story = story(1, |_| {});
    story.fill(1..=1);
    story.wait(44 * SECOND);
    assert!(matches!(story.poll(1), Standing::Active { claimed: false, .. }));
    assert!(matches!(story.enter(1), Entered::Active { claimed: false, .. }));
    story.wait(SECOND);
    assert!(!is_active(story.poll(1)));
}

#[test]
fn a_no_show_gives_the_slot_back_after_claim_ttl() {
    let mut story = story(1, |settings| settings.claim_ttl = Duration::from_secs(30));
    story.fill(1..=1);
    story.line_up(2..=2);
    story.wait(30 * SECOND - 1);
    assert_eq!(story.tick().count, 0);
    story.wait(1);
    assert_eq!(story.tick().count, 1);
    assert!(is_active(story.poll(2)));
}

#[test]
fn a_no_show_may_come_late_once_and_a_second_missed_turn_is_final() {
    let mut story = story(1, |settings| settings.claim_ttl = Duration::from_secs(10));
    story.fill(1..=1);
    story.line_up(2..=9);
    story.wait(10 * SECOND);
    let late = story.poll(1);
    assert!(matches!(late, Standing::Late(_)) && seq_of(late) == 1);
    assert!(matches!(story.enter(1), Entered::Late(_)));
    // Four of the line, then the fifth turn.
    for n in [2, 3, 4, 5, 1] {
        assert_eq!(story.tick().count, 1);
        assert!(is_active(story.poll(n)), "{n}");
        story.wait(10 * SECOND);
    }
    assert_eq!(story.poll(1), Standing::Gone(Gone::Missed));
    assert_eq!(story.pass(1), Standing::Gone(Gone::Missed));
    // Only entering again helps, at the end.
    let Entered::Waiting(place, Freshness::New) = story.enter(1) else { panic!() };
    assert_eq!(place.seq, Seq(10));
    story.check();
}

#[test]
fn whoever_comes_back_after_the_grace_has_to_enter_again() {
    let grace = Duration::from_secs(60);
    let mut story = story(1, |settings| settings.late_grace = grace);
    story.fill(1..=1);
    story.wait(60 * SECOND + 999);
    assert!(matches!(
        story.line.clone().standing(user(1), None, Purpose::Poll, story.now()).value,
        Standing::Late(_)
    ));
    story.wait(1);
    assert_eq!(story.poll(1), Standing::Gone(Gone::Missed));
}

#[test]
fn without_grace_there_is_no_late_lane() {
    let mut story = story(1, |settings| {
        settings.late_grace = Duration::ZERO;
        settings.claim_ttl = Duration::from_secs(1);
    });
    story.fill(1..=1);
    story.wait(SECOND);
    assert_eq!(story.poll(1), Standing::Gone(Gone::Missed));
}

#[test]
fn a_used_place_that_ran_out_never_comes_late() {
    let mut story = story(1, |settings| {
        settings.active_ttl = Duration::from_secs(5);
        settings.claim_ttl = Duration::from_secs(5);
    });
    story.fill(1..=1);
    story.pass(1);
    story.wait(5 * SECOND);
    assert_eq!(story.poll(1), Standing::Gone(Gone::Expired));
    assert_eq!(story.pass(1), Standing::Gone(Gone::Expired));
}

/// Ten missed their turn and came back, and a hundred wait: who comes first?
fn line_with_late_ones(rate: Rate) -> Story {
    let mut story = story(10, |settings| {
        settings.claim_ttl = Duration::from_secs(1);
        settings.rate = rate;
    });
    story.fill(1..=10);
    story.line_up(11..=110);
    story.wait(SECOND);
    for n in 1..=10 {
        assert!(matches!(story.poll(n), Standing::Late(_)));
    }
    story
}

#[test]
fn one_in_five_comes_from_the_late_lane_while_the_line_waits() {
    let mut story = line_with_late_ones(Rate::Unlimited);
    assert_eq!(story.tick(), Admitted { count: 10, late: 2, head: 19 });
    assert_eq!(story.tick().count, 0);
    story.wait(SECOND);
    assert_eq!(story.tick(), Admitted { count: 10, late: 2, head: 27 });
    story.check();
}

/// A line behind ten no-shows stood still: with one admission per tick each went to the late lane.
#[test]
fn the_late_share_holds_when_each_tick_admits_one() {
    let mut story = line_with_late_ones(Rate::Unlimited);
    let (mut late, mut all) = (0, 0);
    for _ in 0..10 {
        let admitted = story.line.admit(1, AdmitBy::Tick, story.now()).value;
        late += admitted.late;
        all += admitted.count;
    }
    assert_eq!((all, late), (10, 2));
}

#[test]
fn the_late_lane_gets_what_the_line_cannot_use() {
    let mut story = line_with_late_ones(Rate::Unlimited);
    for n in 11..=108 {
        story.leave(n);
    }
    assert_eq!(story.tick(), Admitted { count: 10, late: 8, head: 111 });
}

// Leaving.

#[test]
fn leaving_the_line_moves_everybody_behind_up_at_once() {
    let mut story = story(0, |_| {});
    story.line_up(1..=3);
    assert_eq!(story.rank(3), Some(3));
    assert_eq!(story.leave(2), Left::Gave);
    assert_eq!(story.rank(3), Some(2));
    assert_eq!(story.leave(2), Left::Nothing);
    assert_eq!(story.poll(2), Standing::Gone(Gone::Unknown));
    let Entered::Waiting(place, Freshness::New) = story.enter(2) else { panic!() };
    assert_eq!(place.seq, Seq(4));
    story.check();
}

#[test]
fn leaving_while_active_frees_the_slot_only_after_half_a_second() {
    let mut story = story(1, |_| {});
    story.fill(1..=1);
    story.line_up(2..=2);
    assert_eq!(story.leave(1), Left::Gave);
    assert_eq!(story.pass(1), Standing::Gone(Gone::Unknown));
    let revoked = story.line.sync(Versions::default(), story.now()).revoked;
    assert_eq!(revoked, Some([1].into()));
    story.wait(499);
    assert_eq!(story.active(), 1);
    assert_eq!(story.tick().count, 0);
    story.wait(1);
    assert_eq!(story.active(), 0);
    assert_eq!(story.tick().count, 1);
}

#[test]
fn leaving_never_keeps_a_slot_longer_than_it_had() {
    let mut story = story(1, |settings| settings.claim_ttl = Duration::from_secs(1));
    story.fill(1..=1);
    story.wait(900);
    story.leave(1);
    story.wait(100);
    assert_eq!(story.active(), 0);
}

#[test]
fn leaving_the_late_lane_gives_the_place_back() {
    let mut story = line_with_late_ones(Rate::Unlimited);
    assert_eq!(story.leave(1), Left::Gave);
    assert_eq!(story.line.sync(Versions::default(), story.now()).late.unwrap().len(), 9);
    story.check();
}

// Silence.

#[test]
fn a_user_who_stops_polling_is_passed_over_after_waiting_ttl() {
    let mut story = story(0, |settings| settings.waiting_ttl = Duration::from_secs(60));
    story.line_up(1..=3);
    story.wait(SECOND);
    assert_eq!(story.next_epoch(&[1, 2, 3]), Reaped::Incomplete);
    assert_eq!(story.next_epoch(&[1, 3]), Reaped::Absent(0));
    assert_eq!(story.rank(3), Some(3));
    assert_eq!(story.next_epoch(&[1, 3]), Reaped::Absent(1));
    assert_eq!(story.rank(3), Some(2));
    assert_eq!(story.line.reap(story.now()), Reaped::Already);
    story.check();
}

#[test]
fn an_absent_waiter_who_speaks_before_the_head_passes_has_the_same_place_again() {
    let mut story = story(0, |settings| settings.waiting_ttl = Duration::from_secs(60));
    story.line_up(1..=3);
    for _ in 0..3 {
        story.next_epoch(&[1, 3]);
    }
    assert_eq!(story.rank(3), Some(2));
    let version = story.line.versions.all;
    let again = story.poll(2);
    assert!(matches!(again, Standing::Waiting(_)) && seq_of(again) == 2);
    assert!(story.line.versions.all > version);
    assert_eq!((story.rank(2), story.rank(3)), (Some(2), Some(3)));
    story.set(|settings| settings.capacity = 2);
    assert_eq!(story.tick().count, 2);
    assert!(is_active(story.poll(2)) && !is_active(story.poll(3)));
    story.check();
}

#[test]
fn an_absent_waiter_does_not_stall_the_line_and_comes_late_once_it_has_passed() {
    let mut story = story(0, |settings| settings.waiting_ttl = Duration::from_secs(60));
    story.line_up(1..=2);
    for _ in 0..3 {
        story.next_epoch(&[2]);
    }
    story.set(|settings| settings.capacity = 1);
    assert_eq!(story.tick(), Admitted { count: 1, late: 0, head: 3 });
    assert!(is_active(story.poll(2)));
    assert!(matches!(story.poll(1), Standing::Late(_)));
    story.check();
}

#[test]
fn the_fast_track_passes_over_those_who_are_absent() {
    let mut story = story(0, |settings| settings.waiting_ttl = Duration::from_secs(60));
    story.line_up(1..=2);
    for _ in 0..3 {
        story.next_epoch(&[]);
    }
    story.set(|settings| settings.capacity = 1);
    story.fill(3..=3);
    assert!(matches!(story.poll(1), Standing::Late(_)));
    story.check();
}

#[test]
fn a_newcomer_is_not_judged_by_epochs_before_he_came() {
    let mut story = story(0, |settings| settings.waiting_ttl = Duration::from_secs(60));
    story.line_up(1..=1);
    story.next_epoch(&[1]);
    story.line_up(2..=2);
    // Silent, but not yet for two whole epochs.
    assert_eq!(story.next_epoch(&[1]), Reaped::Absent(0));
    assert_eq!(story.next_epoch(&[1]), Reaped::Absent(0));
    assert_eq!(story.next_epoch(&[1]), Reaped::Absent(1));
}

#[test]
fn nobody_is_judged_while_a_gateway_has_not_reported() {
    let mut story = story(0, |settings| settings.waiting_ttl = Duration::from_secs(60));
    story.line_up(1..=2);
    for _ in 0..2 {
        story.next_epoch(&[1, 2]);
    }
    let epoch = story.now_ms / EPOCH_MS;
    let second = Heartbeat { epoch, gateway: 2, first: 0, bits: vec![0xff] };
    story.line.heartbeat(&second, story.now());
    assert_eq!(story.next_epoch(&[]), Reaped::Absent(0));
    assert_eq!(story.next_epoch(&[]), Reaped::Incomplete, "gateway 2 is missing");
}

#[test]
fn heartbeats_from_the_future_or_from_long_ago_are_ignored() {
    let mut story = story(0, |settings| settings.waiting_ttl = Duration::from_secs(60));
    story.line_up(1..=1);
    let epoch = story.now_ms / EPOCH_MS;
    for wrong in [0, epoch - 10, epoch + 1, u64::MAX] {
        for first in [0, 3, u64::MAX - 7] {
            let bits = vec![0xff; 3];
            let heartbeat = Heartbeat { epoch: wrong, gateway: 1, first, bits };
            story.line.heartbeat(&heartbeat, story.now());
        }
    }
    assert_eq!(story.next_epoch(&[]), Reaped::Incomplete);
}

/// Signs of life piled up for as long as one epoch in three went unreported.
#[test]
fn signs_of_life_do_not_pile_up_while_no_judgement_is_possible() {
    let mut story = story(0, |settings| settings.waiting_ttl = Duration::from_secs(60));
    story.line_up(1..=1);
    for round in 0..300 {
        if round % 2 == 0 {
            assert_eq!(story.next_epoch(&[1]), Reaped::Incomplete);
        } else {
            story.wait(EPOCH_MS);
            assert_eq!(story.line.reap(story.now()), Reaped::Incomplete);
        }
        story.line_up(round + 2..=round + 2);
    }
    assert!(story.line.heartbeats.epochs() <= 5, "{}", story.line.heartbeats.epochs());
}

// Time.

#[test]
fn a_fixed_token_ends_active_ttl_after_the_first_use() {
    let mut story = story(1, |settings| settings.active_ttl = Duration::from_secs(60));
    story.fill(1..=1);
    story.wait(10 * SECOND);
    let until = story.now().plus(Duration::from_secs(60));
    for _ in 0..6 {
        let Standing::Active { until: end, claimed: true, .. } = story.pass(1) else { panic!() };
        assert_eq!(end, until);
        story.wait(9 * SECOND);
    }
    story.wait(6 * SECOND);
    assert_eq!(story.pass(1), Standing::Gone(Gone::Expired));
}

#[test]
fn a_sliding_token_is_prolonged_by_use_up_to_active_max() {
    let mut story = story(1, |settings| {
        settings.active_ttl = Duration::from_secs(60);
        settings.active_max = Duration::from_secs(100);
        settings.renew = Renew::Sliding;
    });
    story.fill(1..=1);
    let first_use = story.now();
    let mut ends = Vec::new();
    while let Standing::Active { until, .. } = story.pass(1) {
        ends.push(until.since(first_use).as_secs());
        story.wait(30 * SECOND);
    }
    assert_eq!(ends, [60, 90, 100, 100]);
    assert_eq!(story.now().since(first_use).as_secs(), 120);
}

#[test]
fn a_poll_does_not_prolong_a_sliding_token() {
    let mut story = story(1, |settings| settings.renew = Renew::Sliding);
    story.fill(1..=1);
    let before = story.pass(1);
    story.wait(60 * SECOND);
    assert_eq!(story.poll(1), before);
}

#[test]
fn a_clock_that_runs_backwards_stands_still() {
    let mut story = story(1, |settings| settings.rate = Rate::per_second(1.0).unwrap());
    story.fill(1..=1);
    story.line_up(2..=2);
    let seen = story.now();
    story.now_ms -= 3_600_000;
    story.line_up(3..=3);
    assert_eq!(story.line.users[&user(3)].place.entered, seen);
    assert!(is_active(story.pass(1)));
    assert_eq!(story.tick().count, 0, "no slot and no rate from going back");
    assert_eq!(story.line.sync(Versions::default(), story.now()).now, seen);
    story.now_ms += 3_600_000 + 601 * SECOND;
    assert_eq!(story.tick().count, 1);
    story.check();
}

#[test]
fn a_queue_that_is_not_open_yet_takes_nobody() {
    let opens_at = Timestamp::from_millis(START_MS + 10);
    let mut story = story(1, |settings| settings.opens_at = Some(opens_at));
    assert_eq!(story.enter(1), Entered::NotOpen { opens_at });
    story.wait(10);
    story.fill(1..=1);
}

#[test]
fn after_closes_at_nobody_enters_or_is_admitted_and_active_tokens_run_out() {
    let closes_at = Timestamp::from_millis(START_MS + 10 * SECOND);
    let mut story = story(1, |settings| settings.closes_at = Some(closes_at));
    story.fill(1..=1);
    story.pass(1);
    story.line_up(2..=2);
    story.wait(10 * SECOND);
    assert_eq!(story.enter(3), Entered::Closed);
    assert_eq!(story.enter(1), Entered::Closed);
    assert_eq!(story.poll(2), Standing::Gone(Gone::Closed));
    assert!(is_active(story.pass(1)));
    story.leave(1);
    story.wait(SECOND);
    assert_eq!(story.line.admit(1, AdmitBy::Operator, story.now()).value.count, 0);
}

// Settings at run time.

#[test]
fn a_paused_queue_lets_people_enter_and_only_an_operator_admit() {
    let mut story = story(5, |settings| settings.mode = Mode::Paused);
    story.line_up(1..=3);
    assert_eq!(story.tick().count, 0);
    let by_hand = story.line.admit(2, AdmitBy::Operator, story.now()).value;
    assert_eq!(by_hand.count, 2);
    story.set(|settings| settings.mode = Mode::Auto);
    assert_eq!(story.tick().count, 1);
}

#[test]
fn an_operator_is_bound_by_capacity_but_not_by_the_rate() {
    let mut story = story(3, |settings| {
        settings.mode = Mode::QueueAll;
        settings.rate = Rate::per_second(1.0).unwrap();
    });
    story.line_up(1..=5);
    let by_hand = story.line.admit(5, AdmitBy::Operator, story.now()).value;
    assert_eq!(by_hand.count, 3);
}

#[test]
fn pass_all_and_closed_freeze_the_line() {
    for mode in [Mode::PassAll, Mode::Closed] {
        let mut story = story(0, |_| {});
        story.line_up(1..=2);
        story.set(|settings| {
            settings.capacity = 5;
            settings.mode = mode;
        });
        assert_eq!(story.tick().count, 0);
        assert_eq!(story.line.admit(1, AdmitBy::Operator, story.now()).value.count, 0);
        story.set(|settings| settings.mode = Mode::Auto);
        assert_eq!((story.rank(1), story.rank(2)), (Some(1), Some(2)));
        assert_eq!(story.tick().count, 2);
    }
}

#[test]
fn lowering_the_capacity_throws_nobody_out_and_stops_admission_until_they_drain() {
    let mut story = story(3, |_| {});
    story.fill(1..=3);
    story.line_up(4..=5);
    story.set(|settings| settings.capacity = 1);
    assert!((1..=3).all(|n| is_active(story.pass(n))));
    story.leave(1);
    story.leave(2);
    story.wait(SECOND);
    assert_eq!((story.active(), story.tick().count), (1, 0));
    story.leave(3);
    story.wait(SECOND);
    assert_eq!(story.tick().count, 1);
}

#[test]
fn a_new_rate_counts_from_now_on() {
    let mut story = story(1000, |settings| {
        settings.mode = Mode::QueueAll;
        settings.rate = Rate::per_second(10.0).unwrap();
    });
    story.line_up(1..=200);
    assert_eq!(story.tick().count, 10);
    story.set(|settings| settings.rate = Rate::per_second(50.0).unwrap());
    assert_eq!(story.tick().count, 0, "a change of rate is no gift");
    story.wait(200);
    assert_eq!(story.tick().count, 10);
    story.set(|settings| settings.rate = Rate::per_second(0.5).unwrap());
    story.wait(1999);
    assert_eq!(story.tick().count, 0);
    story.wait(1);
    assert_eq!(story.tick().count, 1);
    story.set(|settings| settings.rate = Rate::Unlimited);
    assert_eq!(story.tick().count, 179);
}

#[test]
fn the_file_wins_only_when_its_text_changed() {
    let mut story = story(1, |_| {});
    let (now, mut settings) = (story.now(), Settings::new(2));
    let mut configure = |settings: &Settings, origin| story.line.configure(settings, &origin, now);
    assert_eq!(configure(&settings, Origin::File(9)), Configured::Changed);
    settings.capacity = 3;
    assert_eq!(configure(&settings, Origin::Operator), Configured::Changed);
    assert_eq!(configure(&Settings::new(2), Origin::File(9)), Configured::Kept);
    assert_eq!(story.line.settings.capacity, 3);
}

#[test]
fn a_full_line_refuses_newcomers_but_knows_those_it_has() {
    let mut story = story(0, |settings| settings.max_waiting = 2);
    story.line_up(1..=2);
    assert_eq!(story.enter(3), Entered::Full);
    assert!(matches!(story.enter(2), Entered::Waiting(_, Freshness::Known)));
    story.leave(1);
    story.line_up(3..=3);
}

#[test]
fn the_last_number_is_never_exceeded() {
    let mut story = story(5, |_| {});
    story.line.tail = Seq::MAX.0 - 1;
    story.line.head = Seq::MAX.0;
    story.line.base = story.line.head / 64 * 64;
    story.fill(1..=1);
    assert_eq!(story.enter(2), Entered::Full);
}

// Housekeeping.

#[test]
fn compacting_forgets_what_is_over_and_changes_no_place() {
    let mut story = story(3000, |settings| {
        settings.claim_ttl = Duration::from_secs(1);
        settings.active_ttl = Duration::from_secs(5);
        settings.late_grace = Duration::from_secs(30);
        settings.mode = Mode::QueueAll;
    });
    story.line_up(1..=4000);
    (0..3).for_each(|_| assert_eq!(story.tick().count, 1000));
    (1..=500).for_each(|n| assert!(is_active(story.pass(n))));
    story.leave(3500);
    story.wait(6 * SECOND);
    // 1 to 500 are over, 501 came late, 502 to 3000 may still come, 3001 to 4000 wait.
    assert!(matches!(story.poll(501), Standing::Late(_)));
    let before = (story.rank(3001), story.rank(4000));
    story.line.compact(100, story.now());
    assert_eq!(story.line.base, 2880);
    assert_eq!(story.line.users.len(), 3499);
    assert_eq!((story.rank(3001), story.rank(4000)), before);
    assert!(matches!(story.poll(1), Standing::Gone(_)));
    assert!(matches!(story.poll(502), Standing::Late(_)));
    story.check();
    story.wait(30 * SECOND);
    story.line.compact(100, story.now());
    assert_eq!(story.line.users.len(), 999 + 2);
    assert_eq!(seq_of(story.poll(502)), 502);
    assert!(matches!(story.poll(503), Standing::Gone(_)));
    story.check();
}
