//! Random commands on the line and on the model: equal answers, equal ranks, and a gateway's copy
//! that never drifts.

use proptest::prelude::*;

use super::super::super::settings::Rate;
use super::super::super::snapshot::Ranks;
use super::model::Model;
use super::*;

const USERS: u64 = 24;

#[derive(Clone, Debug)]
enum Command {
    Wait {
        millis: u64,
    },
    ClockBack {
        millis: u64,
    },
    Enter(Vec<u64>),
    Standing {
        user: u64,
        seq: Asked,
        purpose: Purpose,
    },
    Leave {
        user: u64,
        seq: Asked,
    },
    Admit {
        max: u64,
        by: AdmitBy,
    },
    Heartbeat {
        back: u64,
        gateway: u64,
        first: u64,
        bits: Vec<u8>,
    },
    Reap,
    /// The next epoch begins; these gateways report the last one.
    NextEpoch {
        gateways: Vec<u64>,
        heard: Vec<u64>,
    },
    Compact {
        keep: u64,
    },
    Configure(Change, Origin),
}

/// Which number a caller names.
#[derive(Clone, Copy, Debug)]
enum Asked {
    Any,
    Own,
    Other(u64),
}

#[derive(Clone, Debug)]
enum Change {
    Capacity(u64),
    Rate(Option<u64>),
    Mode(Mode),
    ActiveTtl(u64),
    Renew(Renew),
    WaitingTtl(u64),
    LateGrace(u64),
    MaxWaiting(u64),
    OpensIn(Option<u64>),
    ClosesIn(Option<u64>),
}

impl Change {
    fn apply(&self, settings: &mut Settings, now: Timestamp) {
        let secs = Duration::from_secs;
        match *self {
            Self::Capacity(capacity) => settings.capacity = capacity,
            Self::Rate(rate) => settings.rate = rate.map_or(Rate::Unlimited, Rate::MicroPerMs),
            Self::Mode(mode) => settings.mode = mode,
            Self::ActiveTtl(ttl) => settings.active_ttl = secs(ttl),
            Self::Renew(renew) => settings.renew = renew,
            Self::WaitingTtl(ttl) => settings.waiting_ttl = secs(ttl),
            Self::LateGrace(grace) => settings.late_grace = secs(grace),
            Self::MaxWaiting(most) => settings.max_waiting = most,
            Self::OpensIn(span) => settings.opens_at = span.map(|span| now.plus(secs(span))),
            Self::ClosesIn(span) => settings.closes_at = span.map(|span| now.plus(secs(span))),
        }
    }
}

fn a_change() -> impl Strategy<Value = Change> {
    let mode = prop_oneof![
        4 => Just(Mode::Auto),
        1 => Just(Mode::QueueAll),
        1 => Just(Mode::PassAll),
        1 => Just(Mode::Closed),
        1 => Just(Mode::Paused),
    ];
    prop_oneof![
        3 => (0..8u64).prop_map(Change::Capacity),
        2 => prop::option::of(1..20_000u64).prop_map(Change::Rate),
        3 => mode.prop_map(Change::Mode),
        1 => (5..30u64).prop_map(Change::ActiveTtl),
        1 => prop_oneof![Just(Renew::Fixed), Just(Renew::Sliding)].prop_map(Change::Renew),
        1 => (60..130u64).prop_map(Change::WaitingTtl),
        2 => (0..90u64).prop_map(Change::LateGrace),
        1 => (1..30u64).prop_map(Change::MaxWaiting),
        1 => prop::option::of(0..10u64).prop_map(Change::OpensIn),
        1 => prop::option::of(0..60u64).prop_map(Change::ClosesIn),
    ]
}

fn a_command() -> impl Strategy<Value = Command> {
    let asked =
        || prop_oneof![Just(Asked::Any), Just(Asked::Own), (0..40u64).prop_map(Asked::Other)];
    let users = |most| prop::collection::vec(0..USERS, 1..most);
    let origin = prop_oneof![Just(Origin::Operator), (0..3u64).prop_map(Origin::File)];
    prop_oneof![
        4 => prop_oneof![0..400u64, 0..4_000u64, 0..40_000u64]
            .prop_map(|millis| Command::Wait { millis }),
        1 => (0..10_000u64).prop_map(|millis| Command::ClockBack { millis }),
        8 => users(6).prop_map(Command::Enter),
        8 => (0..USERS, asked(), prop_oneof![Just(Purpose::Poll), Just(Purpose::Pass)])
            .prop_map(|(user, seq, purpose)| Command::Standing { user, seq, purpose }),
        2 => (0..USERS, asked()).prop_map(|(user, seq)| Command::Leave { user, seq }),
        6 => (0..8u64, prop_oneof![4 => Just(AdmitBy::Tick), 1 => Just(AdmitBy::Operator)])
            .prop_map(|(max, by)| Command::Admit { max, by }),
        1 => (0..6u64, 0..3u64, 0..20u64, prop::collection::vec(any::<u8>(), 0..12))
            .prop_map(|(back, gateway, first, bits)| {
                Command::Heartbeat { back, gateway, first, bits }
            }),
        1 => Just(Command::Reap),
        4 => (prop::collection::vec(0..2u64, 0..3), users(12))
            .prop_map(|(gateways, heard)| Command::NextEpoch { gateways, heard }),
        1 => (0..100u64).prop_map(|keep| Command::Compact { keep }),
        2 => (a_change(), origin).prop_map(|(change, origin)| Command::Configure(change, origin)),
    ]
}

/// One bit per number, for a heartbeat whose first bit is number 0.
fn bits_of(numbers: impl Iterator<Item = u64>) -> Vec<u8> {
    let mut bits = Vec::new();
    for number in numbers {
        let index = usize::try_from(number / 8).unwrap();
        bits.resize(bits.len().max(index + 1), 0);
        bits[index] |= 0x80 >> (number % 8);
    }
    bits
}

/// The line, the model and a gateway's copy, side by side.
struct Pair {
    line: Line,
    model: Model,
    clock_ms: u64,
    copy: Synced,
    copied_ranks: Ranks,
    capacity_seen: u64,
    last_called: u64,
}

impl Pair {
    fn new(settings: &Settings) -> Self {
        let now = Timestamp::from_millis(START_MS);
        let mut line = Line::new(7, settings.clone(), None, now);
        let copy = line.sync(Versions::default(), now);
        Self {
            line,
            model: Model::new(settings.clone(), now),
            clock_ms: START_MS,
            copied_ranks: Ranks::new(copy.head, copy.tail, &[]),
            copy,
            capacity_seen: settings.capacity,
            last_called: 0,
        }
    }

    fn run(&mut self, command: &Command) -> Result<(), TestCaseError> {
        match command {
            Command::Wait { millis } => self.clock_ms += millis,
            Command::ClockBack { millis } => self.clock_ms -= millis,
            Command::NextEpoch { .. } => self.clock_ms += EPOCH_MS - self.clock_ms % EPOCH_MS,
            _ => {}
        }
        let now = Timestamp::from_millis(self.clock_ms);
        self.model.advance(now);
        match command {
            Command::Wait { .. } | Command::ClockBack { .. } => {}
            Command::Enter(users) => {
                let tags: Vec<_> = users.iter().map(|n| user(*n)).collect();
                let expected: Vec<_> = tags.iter().map(|tag| self.model.enter(*tag)).collect();
                let answer = self.line.enter(&tags, now);
                self.same(&answer, &expected)?;
            }
            Command::Standing { user: n, seq, purpose } => {
                let seq = self.asked(*n, *seq);
                let expected = self.model.standing(user(*n), seq, *purpose);
                let answer = self.line.standing(user(*n), seq, *purpose, now);
                self.same(&answer, &expected)?;
            }
            Command::Leave { user: n, seq } => {
                let seq = self.asked(*n, *seq);
                let expected = self.model.leave(user(*n), seq);
                let answer = self.line.leave(user(*n), seq, now);
                self.same(&answer, &expected)?;
            }
            Command::Admit { max, by } => {
                let expected = self.model.admit(*max, *by);
                let answer = self.line.admit(*max, *by, now);
                self.same(&answer, &expected)?;
            }
            Command::Heartbeat { back, gateway, first, bits } => {
                let epoch = (self.clock_ms / EPOCH_MS + 1).saturating_sub(*back);
                self.heartbeat(epoch, *gateway, *first, bits.clone(), now);
            }
            Command::Reap => prop_assert_eq!(self.line.reap(now), self.model.reap()),
            Command::NextEpoch { gateways, heard } => {
                let last = self.clock_ms / EPOCH_MS - 1;
                let numbers = heard.iter().filter_map(|n| self.model.number_of(user(*n)));
                let bits = bits_of(numbers);
                for gateway in gateways {
                    self.heartbeat(last, *gateway, 0, bits.clone(), now);
                }
                prop_assert_eq!(self.line.reap(now), self.model.reap());
            }
            Command::Compact { keep } => self.line.compact(*keep, now),
            Command::Configure(change, origin) => {
                let mut settings = self.model.settings().clone();
                change.apply(&mut settings, self.model.now());
                let expected = self.model.configure(&settings, origin);
                prop_assert_eq!(self.line.configure(&settings, origin, now), expected);
            }
        }
        self.compare(now)
    }

    fn asked(&self, n: u64, asked: Asked) -> Option<Seq> {
        match asked {
            Asked::Any => None,
            Asked::Own => self.model.number_of(user(n)).map(Seq),
            Asked::Other(seq) => Some(Seq(seq)),
        }
    }

    fn heartbeat(&mut self, epoch: u64, gateway: u64, first: u64, bits: Vec<u8>, now: Timestamp) {
        let heartbeat = Heartbeat { epoch, gateway, first, bits };
        self.model.heartbeat(&heartbeat);
        self.line.heartbeat(&heartbeat, now);
    }

    fn same<T: PartialEq + std::fmt::Debug>(
        &self,
        answer: &Versioned<T>,
        expected: &T,
    ) -> Result<(), TestCaseError> {
        prop_assert_eq!(&answer.value, expected);
        prop_assert_eq!(answer.at, self.model.now());
        prop_assert_eq!(answer.incarnation, 7);
        prop_assert_eq!(answer.version, self.line.versions.all);
        Ok(())
    }

    /// State against state, the copy against both, and the invariants.
    fn compare(&mut self, now: Timestamp) -> Result<(), TestCaseError> {
        let picture = self.model.picture();
        let old = self.copy.clone();
        let whole = self.line.sync(Versions::default(), now);
        let new = self.line.sync(old.versions, now);
        check_invariants(&self.line).map_err(TestCaseError::fail)?;

        prop_assert_eq!(new.now, self.model.now());
        prop_assert_eq!(
            (new.head, new.tail, new.live, new.active, new.admitted),
            (
                picture.head,
                picture.tail,
                picture.waiting.len() as u64,
                picture.active,
                picture.admitted,
            )
        );
        prop_assert_eq!(whole.settings.as_ref(), Some(self.model.settings()));
        prop_assert!(whole.late.as_ref().unwrap().iter().eq(&picture.late));
        prop_assert!(whole.revoked.as_ref().unwrap().iter().eq(&picture.revoked));
        prop_assert!(old.head <= new.head && old.tail <= new.tail);

        // Never more active than the capacity, unless it was lowered under those inside.
        self.capacity_seen = self.model.settings().capacity.max(self.capacity_seen.min(new.active));
        prop_assert!(new.active <= self.capacity_seen);

        // Whoever is active for the first time was called after all before him.
        let called: Vec<u64> = self.line.active.keys().copied().collect();
        let late_holders: BTreeSet<u64> = self
            .line
            .users
            .values()
            .filter(|entry| entry.was_late)
            .map(|entry| entry.place.seq.0)
            .collect();
        let first_calls = called.iter().filter(|seq| !late_holders.contains(seq));
        let newly = first_calls.filter(|seq| **seq >= old.head).copied().min();
        prop_assert!(newly.is_none_or(|seq| seq > self.last_called));
        self.last_called = self.last_called.max(called.iter().copied().max().unwrap_or(0));

        // What changed without a new version is what a gateway can work out by itself.
        let changed = (old.head, old.tail, old.live, old.admitted)
            != (new.head, new.tail, new.live, new.admitted);
        let parts = |versions: Versions| {
            (versions.gone, versions.late, versions.settings, versions.revoked)
        };
        if changed || parts(old.versions) != parts(new.versions) {
            prop_assert!(new.versions.all > old.versions.all);
        }
        self.copied_ranks = match &new.gone {
            Some(bytes) => Ranks::new(new.head, new.tail, bytes),
            None => self.copied_ranks.moved(new.head, new.tail),
        };
        for (rank, seq) in (1..).zip(&picture.waiting) {
            prop_assert_eq!(self.copied_ranks.rank(*seq), Some(rank));
            prop_assert!(!self.copied_ranks.is_gone(*seq));
        }
        let absent = (new.head..=new.tail).filter(|seq| self.copied_ranks.is_gone(*seq)).count();
        prop_assert_eq!(absent as u64, new.tail + 1 - new.head - new.live);
        let late = new.late.clone().or(old.late);
        let settings = new.settings.clone().or(old.settings);
        prop_assert_eq!(&late, &whole.late);
        prop_assert_eq!(&settings, &whole.settings);
        let revoked = new.revoked.clone().or(old.revoked);
        let all_known = whole.revoked.as_ref().unwrap().is_subset(revoked.as_ref().unwrap());
        prop_assert!(all_known, "a gateway never misses a revocation");
        self.copy = Synced { late, settings, revoked, ..new };
        Ok(())
    }
}

fn settings() -> impl Strategy<Value = Settings> {
    let rate = prop_oneof![Just(Rate::Unlimited), (500..20_000u64).prop_map(Rate::MicroPerMs)];
    (0..8u64, rate, 0..90u64, 3..40u64, any::<bool>()).prop_map(
        |(capacity, rate, grace, max_waiting, sliding)| {
            let mut settings = Settings::new(capacity);
            settings.rate = rate;
            settings.claim_ttl = Duration::from_secs(2);
            settings.active_ttl = Duration::from_secs(10);
            settings.active_max = Duration::from_secs(25);
            settings.waiting_ttl = Duration::from_secs(60);
            settings.late_grace = Duration::from_secs(grace);
            settings.max_waiting = max_waiting;
            settings.renew = if sliding { Renew::Sliding } else { Renew::Fixed };
            settings
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_line_answers_as_a_list_of_people_would(
        settings in settings(),
        commands in prop::collection::vec(a_command(), 1..150),
    ) {
        let mut pair = Pair::new(&settings);
        for command in &commands {
            pair.run(command)?;
        }
    }
}
