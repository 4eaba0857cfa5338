//! A whole sale with injected time: twenty thousand shoppers, and everything they do to a line.
//!
//! The shoppers talk to a gateway that keeps a copy of the line, as a real one does: a plain poll
//! touches the copy only.

use std::collections::BinaryHeap;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::super::super::settings::Rate;
use super::super::super::snapshot::Ranks;
use super::*;

const SHOPPERS: usize = 20_000;
const CAPACITY: u64 = 200;
const PER_SECOND: u64 = 60;
const TICK_MS: u64 = 200;
/// All arrive within a minute.
const ARRIVAL_MS: u64 = 60_000;

/// What kind of shopper somebody is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Waits, comes when called, buys, leaves. 85 %.
    Patient,
    /// Waits, but never comes when called. 5 %.
    NoShow,
    /// Leaves the line after a while. 3 %.
    Leaver,
    /// Stops polling for one to ten minutes. 5 %.
    Sleeper,
    /// A background tab: polls once a minute and so misses calls. 2 %.
    Throttled,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Doing {
    Outside,
    Waiting,
    Shopping,
    Served,
    Left,
    /// Called, and did not come.
    Ignoring,
}

struct Shopper {
    kind: Kind,
    doing: Doing,
    place: Option<Place>,
    /// When it leaves the line, or falls asleep.
    gives_up_at: u64,
    /// The last rank shown, and how many revivals the picture behind it contained.
    shown: Option<(u64, u64)>,
}

/// What happened, for the promises at the end.
#[derive(Default, Debug)]
struct Tally {
    polls: u64,
    store_calls: u64,
    revivals: u64,
    kept_place_after_sleep: u64,
    came_late: u64,
    entered_again: u64,
    late_calls: u64,
    longest_active: u64,
}

struct Sale {
    line: Line,
    now_ms: u64,
    random: StdRng,
    shoppers: Vec<Shopper>,
    /// Who does something next: (when, who), soonest first.
    agenda: BinaryHeap<std::cmp::Reverse<(u64, usize)>>,
    /// The gateway's copy.
    ranks: Ranks,
    versions: Versions,
    revivals_in_copy: u64,
    heartbeats: BTreeMap<u64, Vec<u8>>,
    /// Numbers called from the line, in the order of their calls.
    called: Vec<u64>,
    called_at: HashMap<u64, Timestamp>,
    /// Who holds each number, from 1.
    holders: Vec<usize>,
    tally: Tally,
}

impl Sale {
    fn new(seed: u64) -> Self {
        let mut settings = Settings::new(CAPACITY);
        #[expect(clippy::cast_precision_loss)]
        let rate = Rate::per_second(PER_SECOND as f64).unwrap();
        settings.rate = rate;
        assert_eq!(settings.check(), []);
        let mut random = StdRng::seed_from_u64(seed);
        let mut agenda = BinaryHeap::new();
        let shoppers = (0..SHOPPERS)
            .map(|n| {
                let kind = match random.random_range(0..100) {
                    0..5 => Kind::NoShow,
                    5..8 => Kind::Leaver,
                    8..13 => Kind::Sleeper,
                    13..15 => Kind::Throttled,
                    _ => Kind::Patient,
                };
                let arrives = START_MS + random.random_range(0..ARRIVAL_MS);
                agenda.push(std::cmp::Reverse((arrives, n)));
                let gives_up_at = arrives + random.random_range(5_000..300_000);
                Shopper { kind, doing: Doing::Outside, place: None, gives_up_at, shown: None }
            })
            .collect();
        Self {
            line: Line::new(1, settings, None, Timestamp::from_millis(START_MS)),
            now_ms: START_MS,
            random,
            shoppers,
            agenda,
            ranks: Ranks::new(1, 0, &[]),
            versions: Versions::default(),
            revivals_in_copy: 0,
            heartbeats: BTreeMap::new(),
            called: Vec::new(),
            called_at: HashMap::new(),
            holders: Vec::new(),
            tally: Tally::default(),
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_millis(self.now_ms)
    }

    /// Everything that happens until the next tick, then the tick.
    fn step(&mut self) {
        let tick = self.now_ms - self.now_ms % TICK_MS + TICK_MS;
        while let Some(std::cmp::Reverse((at, n))) = self.agenda.peek().copied() {
            if at >= tick {
                break;
            }
            self.agenda.pop();
            self.now_ms = at;
            self.act(n);
            self.watch();
        }
        let epoch = self.now_ms / EPOCH_MS;
        self.now_ms = tick;
        if tick / EPOCH_MS > epoch {
            let bits = self.heartbeats.remove(&epoch).unwrap_or_default();
            let heartbeat = Heartbeat { epoch, gateway: 1, first: 0, bits };
            self.line.heartbeat(&heartbeat, self.now());
            self.line.reap(self.now());
            self.line.compact(64, self.now());
            check_invariants(&self.line).unwrap();
        }
        self.line.admit(1000, AdmitBy::Tick, self.now());
        self.watch();
        let synced = self.line.sync(self.versions, self.now());
        self.ranks = match synced.gone {
            Some(bytes) => Ranks::new(synced.head, synced.tail, &bytes),
            None => self.ranks.moved(synced.head, synced.tail),
        };
        self.versions = synced.versions;
        self.revivals_in_copy = self.tally.revivals;
    }

    /// The promises that hold at every moment.
    fn watch(&mut self) {
        let now = self.now();
        let active = self.line.active_count(now);
        assert!(active <= CAPACITY);
        self.tally.longest_active = self.tally.longest_active.max(active);
        let elapsed_ms = self.now_ms - START_MS;
        let most = PER_SECOND + PER_SECOND * elapsed_ms / 1000;
        assert!(self.line.admitted <= most, "{} admitted, at most {most}", self.line.admitted);
        if self.line.admitted == self.called.len() as u64 + self.tally.late_calls {
            return;
        }
        // Who was called this very moment still has the whole claim window.
        let whole_window = now.plus(self.line.settings.claim_ttl);
        let just_called = self.line.ends.range((whole_window, 0)..=(whole_window, u64::MAX));
        let just_called: Vec<u64> = just_called.map(|(_, seq)| *seq).collect();
        for seq in just_called {
            if self.called_at.insert(seq, now) == Some(now) {
                continue;
            }
            if self.entry(seq).is_some_and(|entry| entry.was_late) {
                self.tally.late_calls += 1;
            } else {
                assert!(self.called.last().is_none_or(|last| *last < seq), "out of order");
                self.called.push(seq);
            }
        }
        assert_eq!(self.line.admitted, self.called.len() as u64 + self.tally.late_calls);
    }

    /// What the line knows about the holder of `seq`.
    fn entry(&self, seq: u64) -> Option<&Entry> {
        let n = self.holders[usize::try_from(seq - 1).unwrap()];
        self.line.users.get(&user(n as u64)).filter(|entry| entry.place.seq.0 == seq)
    }

    fn again(&mut self, n: usize, after_ms: u64) {
        self.agenda.push(std::cmp::Reverse((self.now_ms + after_ms, n)));
    }

    fn act(&mut self, n: usize) {
        match self.shoppers[n].doing {
            Doing::Outside => self.enter(n),
            Doing::Waiting => self.wait(n),
            Doing::Shopping => {
                self.line.leave(user(n as u64), None, self.now());
                self.shoppers[n].doing = Doing::Served;
            }
            Doing::Served | Doing::Left | Doing::Ignoring => unreachable!("nothing more to do"),
        }
    }

    fn enter(&mut self, n: usize) {
        let now = self.now();
        self.tally.store_calls += 1;
        let entered = self.line.enter(&[user(n as u64)], now).value[0];
        self.holders.push(n);
        self.watch();
        match entered {
            Entered::Waiting(place, Freshness::New) => {
                assert!(place.entered == now);
                self.shoppers[n].place = Some(place);
                self.shoppers[n].doing = Doing::Waiting;
                self.shoppers[n].shown = None;
                self.again(n, 2_000);
            }
            Entered::Active { place, freshness: Freshness::New, .. } => {
                self.shoppers[n].place = Some(place);
                self.come(n);
            }
            other => panic!("{other:?}"),
        }
    }

    fn wait(&mut self, n: usize) {
        let (kind, gives_up_at) = (self.shoppers[n].kind, self.shoppers[n].gives_up_at);
        let tired = self.now_ms >= gives_up_at;
        if kind == Kind::Leaver && tired {
            assert_eq!(self.line.leave(user(n as u64), None, self.now()).value, Left::Gave);
            self.shoppers[n].doing = Doing::Left;
            return;
        }
        if kind == Kind::Sleeper && tired {
            self.shoppers[n].gives_up_at = u64::MAX;
            let nap_ms = self.random.random_range(60_000..600_000);
            return self.again(n, nap_ms);
        }
        self.poll(n);
    }

    fn poll(&mut self, n: usize) {
        self.tally.polls += 1;
        let place = self.shoppers[n].place.expect("a waiting shopper has a place");
        let seq = place.seq.0;
        let rank = self.ranks.rank(seq).filter(|_| !self.ranks.is_gone(seq));
        if let Some(rank) = rank {
            self.heard(seq);
            return self.show(n, rank);
        }
        let was_absent =
            seq >= self.line.head && self.line.gone.clone().set(seq - self.line.base, true);
        self.tally.store_calls += 1;
        let standing =
            self.line.standing(user(n as u64), Some(place.seq), Purpose::Poll, self.now());
        match standing.value {
            Standing::Waiting(same) => {
                assert_eq!(same, place);
                self.tally.revivals += u64::from(was_absent);
                self.tally.kept_place_after_sleep += u64::from(was_absent);
                self.heard(seq);
                self.again(n, 2_000);
            }
            Standing::Late(same) => {
                assert_eq!(same, place);
                self.tally.came_late += 1;
                let pace_ms = if self.shoppers[n].kind == Kind::Throttled { 60_000 } else { 2_000 };
                self.again(n, pace_ms);
            }
            Standing::Active { place: same, .. } => {
                assert_eq!(same, place);
                self.come(n);
            }
            Standing::Gone(Gone::Missed | Gone::Unknown) => {
                self.tally.entered_again += 1;
                self.enter(n);
            }
            Standing::Gone(gone) => panic!("{gone:?}"),
        }
    }

    fn heard(&mut self, seq: u64) {
        let bits = self.heartbeats.entry(self.now_ms / EPOCH_MS).or_default();
        let index = usize::try_from(seq / 8).unwrap();
        bits.resize(bits.len().max(index + 1), 0);
        bits[index] |= 0x80 >> (seq % 8);
    }

    /// A rank never gets worse but by those who come back from absence.
    fn show(&mut self, n: usize, rank: u64) {
        if let Some((before, revivals)) = self.shoppers[n].shown {
            let returned = self.revivals_in_copy - revivals;
            assert!(rank <= before + returned, "rank {before}, then {rank} with {returned} back");
        }
        self.shoppers[n].shown = Some((rank, self.revivals_in_copy));
        let estimate_ms = rank * 1000 / 40;
        let pace_ms = (estimate_ms / 10).clamp(2_000, 17_000) + self.random.random_range(0..500);
        let throttled = self.shoppers[n].kind == Kind::Throttled;
        self.again(n, if throttled { 60_000 } else { pace_ms });
    }

    /// Called: most come.
    fn come(&mut self, n: usize) {
        if self.shoppers[n].kind == Kind::NoShow {
            self.shoppers[n].doing = Doing::Ignoring;
            return;
        }
        let place = self.shoppers[n].place.expect("somebody who was called has a place");
        let standing =
            self.line.standing(user(n as u64), Some(place.seq), Purpose::Pass, self.now()).value;
        assert!(matches!(standing, Standing::Active { claimed: true, .. }), "{standing:?}");
        self.shoppers[n].doing = Doing::Shopping;
        let stay_ms = self.random.random_range(1_000..5_000);
        self.again(n, stay_ms);
    }
}

#[test]
fn a_whole_sale_keeps_every_promise() {
    let mut sale = Sale::new(1);
    while !sale.agenda.is_empty() {
        sale.step();
        assert!(sale.now_ms < START_MS + 3_600_000, "the line stands still");
    }
    for shopper in &sale.shoppers {
        let expected: &[Doing] = match shopper.kind {
            Kind::NoShow => &[Doing::Ignoring],
            Kind::Leaver => &[Doing::Left, Doing::Served],
            Kind::Patient | Kind::Sleeper | Kind::Throttled => &[Doing::Served],
        };
        assert!(expected.contains(&shopper.doing), "{:?} ended {:?}", shopper.kind, shopper.doing);
    }
    // Everything that can go wrong did.
    let tally = &sale.tally;
    assert_eq!(tally.longest_active, CAPACITY);
    assert!(tally.kept_place_after_sleep > 0 && tally.came_late > 0 && tally.entered_again > 0);
    assert!(tally.late_calls > 0);
    assert!(tally.store_calls < tally.polls / 3, "a plain poll costs the store nothing");
}
