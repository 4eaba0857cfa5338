//! What every store promises, as code that any adapter runs.
//!
//! [`Pair`] gives each command to the adapter and to [`Line`] at the same moment of a hand-driven
//! clock and fails at the first answer that differs, with everything that led there. On top of it
//! stand named cases, and a generator of random commands that repeats itself from its seed. It
//! knows no adapter: `tests/contract` brings them, one line each, with
//! [`store_contract!`](crate::store_contract).

#![allow(
    clippy::panic,
    clippy::unwrap_used,
    reason = "this is test code that several crates share"
)]

mod cases;
mod random;
mod recovery;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::clock::{Clock, Timestamp};
use crate::queue::command::{
    AdmitBy, Admitted, Configured, Entered, Evidence, Freshness, Heartbeat, HeldLease, Left,
    Origin, Purpose, Reaped, Rebuilt, Recollection, Server, Sighting, Standing, Synced, Versioned,
    Versions,
};
use crate::queue::line::{GAP, Line};
use crate::queue::settings::{EPOCH_MS, Settings};
use crate::queue::snapshot::Ranks;
use crate::queue::{QueueName, Seq, UserTag};

use super::{SharedStore, StoreError};

pub use cases::*;
pub use random::random_commands_get_the_answers_of_the_line;
pub use recovery::*;

/// Where stores under test come from. One fixture serves one case.
pub trait Fixture {
    /// A store with empty queues that goes by `clock`.
    fn store(&self, clock: Arc<dyn Clock>) -> SharedStore;

    /// How many random sequences are worth running on it.
    fn sequences(&self) -> u64;
}

/// A clock that stands until it is moved, in either direction.
#[derive(Debug)]
pub struct Hand(AtomicU64);

impl Hand {
    fn new() -> Arc<Self> {
        // The beginning of a heartbeat epoch.
        Arc::new(Self(AtomicU64::new(1_800_000_000_000)))
    }

    fn set(&self, at: Timestamp) {
        self.0.store(at.as_millis(), Ordering::SeqCst);
    }
}

impl Clock for Hand {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::SeqCst))
    }
}

/// The user numbered `number`.
#[must_use]
pub const fn user(number: u64) -> UserTag {
    // Every byte value occurs: tags are not text.
    UserTag(number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes())
}

/// A store under test and the line it must agree with.
#[derive(Debug)]
pub struct Pair {
    store: SharedStore,
    line: Line,
    queue: QueueName,
    clock: Arc<Hand>,
    known: Versions,
    /// The last number each user got.
    seqs: HashMap<u64, u64>,
    log: Vec<String>,
}

impl Pair {
    /// A new queue on both, and a first look at it.
    async fn new(on: &impl Fixture, settings: Settings) -> Self {
        Self::named(on, settings, "contract").await
    }

    async fn named(on: &impl Fixture, settings: Settings, name: &str) -> Self {
        assert_eq!(settings.check(), [], "{settings:?}");
        let clock = Hand::new();
        let store = on.store(Arc::clone(&clock) as Arc<dyn Clock>);
        let queue = QueueName::new(name).unwrap();
        let created = store.configure(&queue, &settings, Origin::File(1)).await.unwrap();
        assert_eq!(created, Configured::Created);
        let incarnation = store.sync(&queue, Versions::default()).await.unwrap().incarnation;
        let line = Line::new(incarnation, settings.clone(), Some(1), clock.now());
        let (known, log) = (Versions::default(), vec![format!("{settings:?}")]);
        let mut pair = Self { store, line, queue, clock, known, seqs: HashMap::new(), log };
        pair.synced().await;
        pair
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn epoch(&self) -> u64 {
        self.now().as_millis() / EPOCH_MS
    }

    /// Lets time pass.
    fn pass(&mut self, span: Duration) {
        self.log.push(format!("pass {span:?}"));
        self.clock.set(self.now().plus(span));
    }

    fn seconds(&mut self, seconds: u64) {
        self.pass(Duration::from_secs(seconds));
    }

    /// Notes a command, and fails unless both gave the same answer.
    fn same<T: PartialEq + fmt::Debug>(
        &mut self,
        command: &str,
        got: Result<T, StoreError>,
        expected: &T,
    ) -> T {
        self.log.push(format!("{:?} {command}", self.now()));
        match got {
            Ok(got) if got == *expected => got,
            got => panic!(
                "the store answered {got:?}\n       the line {expected:?}\nafter:\n  {}",
                self.log.join("\n  ")
            ),
        }
    }

    fn valued<T: PartialEq + fmt::Debug>(
        &mut self,
        command: &str,
        got: Result<Versioned<T>, StoreError>,
        expected: &Versioned<T>,
    ) -> T {
        self.same(command, got, expected).value
    }

    async fn enter_all(&mut self, users: impl IntoIterator<Item = u64>) -> Vec<Entered> {
        let users: Vec<u64> = users.into_iter().collect();
        let tags: Vec<UserTag> = users.iter().copied().map(user).collect();
        let got = self.store.enter(&self.queue, &tags).await;
        let expected = self.line.enter(&tags, self.now());
        let entered = self.valued(&format!("enter {users:?}"), got, &expected);
        for (user, entered) in users.iter().zip(&entered) {
            if let Entered::Waiting(place, _) | Entered::Active { place, .. } = entered {
                self.seqs.insert(*user, place.seq.0);
            }
        }
        entered
    }

    async fn enter(&mut self, number: u64) -> Entered {
        self.enter_all([number]).await[0]
    }

    async fn standing(&mut self, number: u64, seq: Option<u64>, purpose: Purpose) -> Standing {
        let (tag, seq) = (user(number), seq.map(Seq));
        let got = self.store.standing(&self.queue, tag, seq, purpose).await;
        let expected = self.line.standing(tag, seq, purpose, self.now());
        self.valued(&format!("standing {number} {seq:?} {purpose:?}"), got, &expected)
    }

    async fn poll(&mut self, number: u64) -> Standing {
        self.standing(number, None, Purpose::Poll).await
    }

    async fn use_(&mut self, number: u64) -> Standing {
        self.standing(number, None, Purpose::Pass).await
    }

    async fn leave(&mut self, number: u64, seq: Option<u64>) -> Left {
        let (tag, seq) = (user(number), seq.map(Seq));
        let got = self.store.leave(&self.queue, tag, seq).await;
        let expected = self.line.leave(tag, seq, self.now());
        self.valued(&format!("leave {number} {seq:?}"), got, &expected)
    }

    async fn admit_by(&mut self, max: u64, by: AdmitBy) -> Admitted {
        let got = self.store.admit(&self.queue, max, by).await;
        let expected = self.line.admit(max, by, self.now());
        self.valued(&format!("admit {max} {by:?}"), got, &expected)
    }

    async fn admit(&mut self, max: u64) -> Admitted {
        self.admit_by(max, AdmitBy::Tick).await
    }

    async fn configure(&mut self, settings: &Settings, origin: Origin) -> Configured {
        let command = format!("configure {settings:?} {origin:?}");
        let expected = self.line.configure(settings, &origin, self.now());
        let got = self.store.configure(&self.queue, settings, origin).await;
        self.same(&command, got, &expected)
    }

    async fn change(&mut self, settings: &Settings) {
        assert_eq!(self.configure(settings, Origin::Operator).await, Configured::Changed);
    }

    /// What `gateway` heard in `epoch`: the numbers in `heard`.
    async fn heartbeat(&mut self, epoch: u64, gateway: u64, first: u64, bits: Vec<u8>) {
        let heartbeat = Heartbeat { epoch, gateway, first, bits };
        let got = self.store.heartbeat(&self.queue, &heartbeat).await;
        self.line.heartbeat(&heartbeat, self.now());
        self.same(&format!("{heartbeat:?}"), got, &());
    }

    /// One epoch goes by in which `gateways` heard from the numbers in `heard`.
    async fn live_an_epoch(&mut self, gateways: &[u64], heard: &[u64]) {
        let epoch = self.epoch();
        self.pass(Duration::from_millis(EPOCH_MS));
        let (first, bits) = bits_of(heard);
        for gateway in gateways {
            self.heartbeat(epoch, *gateway, first, bits.clone()).await;
        }
    }

    async fn reap(&mut self) -> Reaped {
        let got = self.store.reap(&self.queue).await;
        let expected = self.line.reap(self.now());
        self.same("reap", got, &expected)
    }

    async fn compact(&mut self, keep: u64) {
        let got = self.store.compact(&self.queue, keep).await;
        self.line.compact(keep, self.now());
        self.same(&format!("compact {keep}"), got, &());
    }

    /// A fence on the server that has the queue already.
    async fn fence(&mut self, seen: Sighting) {
        let got = self.store.fence(&self.queue, &seen).await;
        let expected = self.line.fence(&seen, Server::Same, GAP, self.now());
        self.valued(&format!("fence {seen:?}"), got, &expected);
    }

    async fn revive(&mut self, number: u64, evidence: Evidence) -> Standing {
        let got = self.store.revive(&self.queue, user(number), &evidence).await;
        let expected = self.line.revive(user(number), &evidence, self.now());
        self.valued(&format!("revive {number} {evidence:?}"), got, &expected)
    }

    async fn restore(&mut self, leases: &[HeldLease]) -> u64 {
        let got = self.store.restore(&self.queue, leases).await;
        let expected = self.line.restore(leases, self.now());
        self.valued(&format!("restore {leases:?}"), got, &expected)
    }

    async fn rebuild(&mut self, settings: &Settings, from: &Recollection) -> Rebuilt {
        let got = self.store.rebuild(&self.queue, settings, Origin::File(1), from).await;
        let expected = self.line.compare(from, self.now());
        if expected == Rebuilt::Done {
            let last = self.line.last_incarnation();
            self.line = Line::rebuilt((settings.clone(), Some(1)), from, last, GAP, self.now());
            self.known = Versions::default();
        }
        self.same(&format!("rebuild {from:?}"), got, &expected)
    }

    /// What changed since the last look, and the whole picture.
    async fn synced(&mut self) -> Synced {
        let known = std::mem::take(&mut self.known);
        let got = self.store.sync(&self.queue, known).await;
        let expected = self.line.sync(known, self.now());
        self.known = self.same(&format!("sync {known:?}"), got, &expected).versions;
        let got = self.store.sync(&self.queue, Versions::default()).await;
        let expected = self.line.sync(Versions::default(), self.now());
        let synced = self.same("sync", got, &expected);
        let ranks = ranks(&synced);
        let line = present(&synced);
        assert_eq!(line.len() as u64, synced.live, "{}", self.log.join("\n  "));
        let ours: Vec<_> = line.iter().map(|seq| ranks.rank(*seq)).collect();
        let counted: Vec<_> = (1..=synced.live).map(Some).collect();
        assert_eq!(ours, counted, "{}", self.log.join("\n  "));
        synced
    }
}

/// The numbers that wait.
fn present(synced: &Synced) -> Vec<u64> {
    let gone = synced.gone.as_deref().unwrap_or_default();
    let first = synced.head - synced.head % 8;
    let bytes = (first..).step_by(8).zip(gone).filter(|(_, byte)| **byte != 0xff);
    bytes
        .flat_map(|(at, byte)| (at..at + 8).filter(move |seq| byte << (seq - at) & 0x80 == 0))
        .filter(|seq| (synced.head..=synced.tail).contains(seq))
        .collect()
}

fn ranks(synced: &Synced) -> Ranks {
    Ranks::new(synced.head, synced.tail, synced.gone.as_deref().unwrap_or_default())
}

/// Heartbeat bits for these numbers: where they begin, and the bytes.
fn bits_of(heard: &[u64]) -> (u64, Vec<u8>) {
    let first = heard.iter().min().map_or(0, |min| min - min % 8);
    let mut bits = Vec::new();
    for seq in heard {
        let at = usize::try_from(seq - first).unwrap();
        if at / 8 >= bits.len() {
            bits.resize(at / 8 + 1, 0);
        }
        bits[at / 8] |= 0x80 >> (at % 8);
    }
    (first, bits)
}

/// The number of a place, whatever kind it is.
fn seq_of(entered: Entered) -> u64 {
    match entered {
        Entered::Waiting(place, _) | Entered::Late(place) | Entered::Active { place, .. } => {
            place.seq.0
        }
        other => panic!("{other:?} is no place"),
    }
}

fn is_waiting(entered: Entered) -> bool {
    matches!(entered, Entered::Waiting(..))
}

fn is_newly_active(entered: Entered) -> bool {
    matches!(entered, Entered::Active { freshness: Freshness::New, .. })
}

/// Runs every case of the contract on a fixture: `store_contract!(embedded, Embedded);`.
#[macro_export]
macro_rules! store_contract {
    ($name:ident, $fixture:expr) => {
        mod $name {
            $crate::store_contract! { @cases $fixture;
                a_user_has_one_live_token_however_often_they_enter
                users_are_admitted_in_the_order_they_entered
                only_when_nobody_waits_does_a_newcomer_go_straight_in
                the_late_lane_counts_as_waiting_for_the_fast_track
                capacity_is_never_exceeded
                admission_keeps_to_the_rate
                a_missed_turn_leads_to_the_late_lane_once
                the_late_lane_is_open_for_late_grace_only
                both_lanes_move_while_both_have_waiters
                a_freed_slot_counts_for_half_a_second_more
                leaving_is_final
                only_a_pass_claims_and_only_sliding_prolongs
                each_mode_does_what_it_says
                a_queue_opens_and_closes_by_the_clock
                a_closed_queue_lets_active_tokens_run_out_and_reopens
                the_silent_are_passed_over_and_come_back_to_the_same_place
                nobody_is_judged_on_incomplete_signs_of_life
                who_entered_during_the_judged_epochs_is_spared
                a_longer_waiting_ttl_waits_until_it_can_look_back_that_far
                malformed_and_foreign_heartbeats_change_nothing
                unchanged_file_text_never_overrides_an_operator
                no_more_than_max_waiting_wait
                compacting_changes_no_answer
                sweeping_the_index_changes_no_answer_about_a_living_place
                one_call_admits_a_thousand_at_most
                time_that_runs_backwards_stands_still
                an_unknown_queue_is_unknown_to_every_command
                two_proposals_of_a_secret_end_in_one
                queues_do_not_touch_each_other
                a_number_seen_beyond_the_tail_is_never_given_again
                a_lost_place_comes_back_with_its_token
                of_two_places_of_a_user_the_lower_counts
                what_ended_in_a_lost_range_stays_over
                leases_come_back_while_nobody_is_admitted
                a_lease_brought_back_late_keeps_to_capacity
                a_head_seen_elsewhere_moves_nobody_while_the_line_is_known
                a_lost_line_is_rebuilt_from_a_copy
                a_lost_line_is_rebuilt_from_its_holders_tokens
                a_line_gives_way_only_to_one_its_store_never_heard_of
                lost_ranges_are_forgotten_when_nobody_can_return
                random_commands_get_the_answers_of_the_line
            }
        }
    };
    (@cases $fixture:expr; $($case:ident)*) => {
        $(
            #[tokio::test]
            async fn $case() {
                let fixture = $fixture;
                $crate::store::contract::$case(&fixture).await;
            }
        )*
    };
}
