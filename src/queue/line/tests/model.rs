//! A line as a list of people, without bitmaps, marks or counters: slow and obviously right.

use super::super::super::settings::{MICRO, Rate};
use super::super::UNCALLED_PER_WAITING;
use super::*;

/// Somebody who once got a number: the number is the position in the list, from 1.
#[expect(clippy::struct_excessive_bools, reason = "plain facts that do not depend on each other")]
#[derive(Clone, Debug)]
struct Person {
    user: UserTag,
    entered: Timestamp,
    /// Whether the number still belongs to the user: not left, not replaced by a newer one.
    holds: bool,
    absent: bool,
    /// When the head passed the number.
    passed: Option<Timestamp>,
    /// The head moved again after the grace had run out.
    grace_over: bool,
    in_late_lane: bool,
    was_late: bool,
    lease: Option<Timestamp>,
    claimed: Option<Timestamp>,
}

impl Person {
    fn waits(&self) -> bool {
        self.holds && self.passed.is_none() && !self.absent
    }
}

/// One gateway's signs of life in one epoch.
#[derive(Clone, Debug)]
struct Heard {
    epoch: u64,
    gateway: u64,
    numbers: Vec<u64>,
}

/// The naive line.
#[derive(Clone, Debug)]
pub(super) struct Model {
    settings: Settings,
    text_hash: Option<u64>,
    now: Timestamp,
    people: Vec<Person>,
    /// What the token bucket holds, in millionths of a user.
    micro: u64,
    heard: Vec<Heard>,
    known_from: u64,
    judged: u64,
    admitted: u64,
    revoked: Vec<(u64, Timestamp)>,
}

/// What a gateway sees of a line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Picture {
    pub(super) head: u64,
    pub(super) tail: u64,
    pub(super) active: u64,
    pub(super) admitted: u64,
    /// Numbers waiting, best rank first.
    pub(super) waiting: Vec<u64>,
    pub(super) late: Vec<u64>,
    pub(super) revoked: Vec<u64>,
}

fn depth(rate: Rate) -> u64 {
    match rate {
        Rate::Unlimited => 0,
        Rate::MicroPerMs(micro) => (micro * 1000).max(MICRO),
    }
}

impl Model {
    pub(super) fn new(settings: Settings, now: Timestamp) -> Self {
        Self {
            micro: depth(settings.rate),
            settings,
            text_hash: None,
            now,
            people: Vec::new(),
            heard: Vec::new(),
            known_from: 0,
            judged: 0,
            admitted: 0,
            revoked: Vec::new(),
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.now
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(super) fn tail(&self) -> u64 {
        self.people.len() as u64
    }

    /// The number that `user` holds.
    pub(super) fn number_of(&self, user: UserTag) -> Option<u64> {
        self.find(user).map(|index| index as u64 + 1)
    }

    pub(super) fn picture(&self) -> Picture {
        let numbers = |of: &dyn Fn(&Person) -> bool| -> Vec<u64> {
            (1..).zip(&self.people).filter(|(_, person)| of(person)).map(|(seq, _)| seq).collect()
        };
        Picture {
            head: self.people.iter().filter(|person| person.passed.is_some()).count() as u64 + 1,
            tail: self.tail(),
            active: self.active(),
            admitted: self.admitted,
            waiting: numbers(&Person::waits),
            late: numbers(&|person| person.in_late_lane),
            revoked: self.revoked.iter().map(|(seq, _)| *seq).collect(),
        }
    }

    /// Time passes: the bucket fills, leases and revocations end.
    pub(super) fn advance(&mut self, now: Timestamp) {
        let elapsed = now.since(self.now);
        self.now = self.now.max(now);
        if let Rate::MicroPerMs(micro) = self.settings.rate {
            let gained = u64::try_from(elapsed.as_millis()).unwrap() * micro;
            self.micro = (self.micro + gained).min(depth(self.settings.rate));
        }
        for person in &mut self.people {
            person.lease = person.lease.filter(|until| *until > self.now);
        }
        self.revoked.retain(|(_, until)| *until > self.now);
    }

    pub(super) fn configure(&mut self, settings: &Settings, origin: &Origin) -> Configured {
        if let Origin::File(hash) = origin {
            if self.text_hash == Some(*hash) {
                return Configured::Kept;
            }
            self.text_hash = Some(*hash);
        }
        if settings.rate != self.settings.rate {
            let full = depth(settings.rate);
            self.micro =
                if self.settings.rate == Rate::Unlimited { full } else { self.micro.min(full) };
        }
        self.settings = settings.clone();
        Configured::Changed
    }

    pub(super) fn enter(&mut self, user: UserTag) -> Entered {
        match self.settings.phase(self.now) {
            Phase::NotOpen { opens_at } => return Entered::NotOpen { opens_at },
            Phase::Closed => return Entered::Closed,
            Phase::Open => {}
        }
        if let Some(index) = self.find(user) {
            match self.standing_at(index, Purpose::Poll) {
                Standing::Waiting(place) => return Entered::Waiting(place, Freshness::Known),
                Standing::Late(place) => return Entered::Late(place),
                Standing::Active { place, until, claimed } => {
                    return Entered::Active { place, until, claimed, freshness: Freshness::Known };
                }
                Standing::Gone(_) => {}
            }
        }
        let straight_in = self.settings.mode == Mode::Auto
            && self.waiting() + self.late() == 0
            && self.pace() >= 1
            && self.active() < self.settings.capacity;
        let uncalled = self.people.iter().filter(|person| person.passed.is_none()).count() as u64;
        let max = self.settings.max_waiting;
        let full = self.waiting() + self.late() >= max || uncalled >= max * UNCALLED_PER_WAITING;
        if !straight_in && full {
            return Entered::Full;
        }
        if let Some(old) = self.find(user) {
            self.people[old].holds = false;
        }
        self.people.push(Person {
            user,
            entered: self.now,
            holds: true,
            absent: false,
            passed: None,
            grace_over: false,
            in_late_lane: false,
            was_late: false,
            lease: None,
            claimed: None,
        });
        let index = self.people.len() - 1;
        let place = self.place(index);
        if !straight_in {
            return Entered::Waiting(place, Freshness::New);
        }
        self.move_head(index);
        self.spend(1);
        let until = self.call(index);
        Entered::Active { place, until, claimed: false, freshness: Freshness::New }
    }

    pub(super) fn standing(
        &mut self,
        user: UserTag,
        seq: Option<Seq>,
        purpose: Purpose,
    ) -> Standing {
        match self.find(user).filter(|index| seq.is_none_or(|seq| self.place(*index).seq == seq)) {
            Some(index) => self.standing_at(index, purpose),
            None if seq.is_some_and(|seq| seq.0 > self.tail()) => Standing::Gone(Gone::Lost),
            None => Standing::Gone(Gone::Unknown),
        }
    }

    pub(super) fn leave(&mut self, user: UserTag, seq: Option<Seq>) -> Left {
        let found = self.find(user);
        let Some(index) = found.filter(|index| seq.is_none_or(|seq| self.place(*index).seq == seq))
        else {
            return Left::Nothing;
        };
        let (now, number) = (self.now, index as u64 + 1);
        let person = &mut self.people[index];
        person.holds = false;
        let in_line = person.passed.is_none();
        let in_late_lane = std::mem::take(&mut person.in_late_lane);
        if let Some(until) = person.lease {
            person.lease = Some(until.min(now.plus(REVOCATION_DELAY)));
            self.revoked.push((number, now.plus(REVOCATION_KEPT)));
            self.revoked.sort_unstable();
            return Left::Gave;
        }
        if in_line || in_late_lane { Left::Gave } else { Left::Nothing }
    }

    /// One user after the other: every fifth turn is the late lane's.
    pub(super) fn admit(&mut self, max: u64, by: AdmitBy) -> Admitted {
        let mut done = Admitted::default();
        let moving = match self.settings.mode {
            Mode::Auto | Mode::QueueAll => true,
            Mode::Paused => by == AdmitBy::Operator,
            Mode::PassAll | Mode::Closed => false,
        };
        let open = moving && self.settings.phase(self.now) == Phase::Open;
        let mut last_of_line = None;
        while open
            && done.count < max
            && self.active() < self.settings.capacity
            && (by == AdmitBy::Operator || self.pace() >= 1)
        {
            let late = self.people.iter().position(|person| person.in_late_lane);
            // The head is moved at the end: one call is one moment.
            let first = last_of_line.map_or(0, |index| index + 1);
            let line = (first..self.people.len()).find(|index| self.people[*index].waits());
            let late_turn = self.admitted.is_multiple_of(LATE_SHARE) || line.is_none();
            if let Some(index) = late.filter(|_| late_turn) {
                self.people[index].in_late_lane = false;
                self.call(index);
                done.late += 1;
            } else if let Some(index) = line {
                self.call(index);
                last_of_line = Some(index);
            } else {
                break;
            }
            if by == AdmitBy::Tick {
                self.spend(1);
            }
            done.count += 1;
        }
        if let Some(index) = last_of_line {
            self.move_head(index);
        }
        done.head = self.picture().head;
        done
    }

    pub(super) fn heartbeat(&mut self, heartbeat: &Heartbeat) {
        let current = self.now.as_millis() / EPOCH_MS;
        let oldest = current.saturating_sub(self.settings.silent_epochs() + 1);
        if heartbeat.epoch < oldest.max(self.known_from)
            || heartbeat.epoch > current
            || !heartbeat.first.is_multiple_of(8)
        {
            return;
        }
        let bits = heartbeat.bits.iter().flat_map(|byte| (0..8).map(move |bit| byte << bit & 0x80));
        let numbers = (heartbeat.first..)
            .zip(bits)
            .filter(|(_, bit)| *bit != 0)
            .map(|(seq, _)| seq)
            .collect();
        let (epoch, gateway) = (heartbeat.epoch, heartbeat.gateway);
        self.heard.push(Heard { epoch, gateway, numbers });
    }

    pub(super) fn reap(&mut self) -> Reaped {
        let current = self.now.as_millis() / EPOCH_MS;
        let silent = self.settings.silent_epochs();
        if self.judged >= current {
            return Reaped::Already;
        }
        self.known_from = self.known_from.max(current.saturating_sub(silent + 1));
        let gateways = |epoch: u64| -> BTreeSet<u64> {
            let known = self.heard.iter().filter(|heard| heard.epoch >= self.known_from);
            known.filter(|heard| heard.epoch == epoch).map(|heard| heard.gateway).collect()
        };
        let window = current - silent..current;
        let complete = window.clone().all(|epoch| {
            let reported = gateways(epoch);
            !reported.is_empty() && gateways(epoch - 1).is_subset(&reported)
        });
        if !complete {
            return Reaped::Incomplete;
        }
        self.judged = current;
        let mut absent = 0;
        for (number, person) in (1..).zip(&mut self.people) {
            let long_here = person.entered.as_millis() / EPOCH_MS < window.start;
            let heard = self
                .heard
                .iter()
                .any(|heard| window.contains(&heard.epoch) && heard.numbers.contains(&number));
            if person.waits() && long_here && !heard {
                person.absent = true;
                absent += 1;
            }
        }
        Reaped::Absent(absent)
    }

    fn find(&self, user: UserTag) -> Option<usize> {
        self.people.iter().rposition(|person| person.user == user && person.holds)
    }

    fn place(&self, index: usize) -> Place {
        Place { seq: Seq(index as u64 + 1), entered: self.people[index].entered }
    }

    fn waiting(&self) -> u64 {
        self.people.iter().filter(|person| person.waits()).count() as u64
    }

    fn late(&self) -> u64 {
        self.people.iter().filter(|person| person.in_late_lane).count() as u64
    }

    fn active(&self) -> u64 {
        self.people.iter().filter(|person| person.lease.is_some()).count() as u64
    }

    fn pace(&self) -> u64 {
        if self.settings.rate == Rate::Unlimited { u64::MAX } else { self.micro / MICRO }
    }

    fn spend(&mut self, users: u64) {
        self.micro = self.micro.saturating_sub(users * MICRO);
    }

    fn call(&mut self, index: usize) -> Timestamp {
        let until = self.now.plus(self.settings.claim_ttl);
        self.people[index].lease = Some(until);
        self.admitted += 1;
        until
    }

    /// The head passes everybody up to and with `index`.
    fn move_head(&mut self, index: usize) {
        for at in 0..self.people.len() {
            self.people[at].grace_over |=
                self.people[at].passed.is_some() && !self.in_grace(&self.people[at]);
        }
        for person in &mut self.people[..=index] {
            person.passed = person.passed.or(Some(self.now));
        }
    }

    /// Times are kept by the second; the whole second counts in favour of the user.
    fn in_grace(&self, person: &Person) -> bool {
        let grace = self.settings.late_grace;
        person.passed.is_some_and(|at| {
            let end_of_second = Timestamp::from_millis(at.as_secs() * 1000 + 999);
            !grace.is_zero() && !person.grace_over && self.now <= end_of_second.plus(grace)
        })
    }

    fn standing_at(&mut self, index: usize, purpose: Purpose) -> Standing {
        let (now, place) = (self.now, self.place(index));
        let (active_ttl, active_max) = (self.settings.active_ttl, self.settings.active_max);
        let sliding = self.settings.renew == Renew::Sliding;
        let closed = self.settings.phase(now) == Phase::Closed;
        let in_grace = self.in_grace(&self.people[index]);
        let person = &mut self.people[index];
        if let Some(until) = person.lease {
            if purpose == Purpose::Poll {
                return Standing::Active { place, until, claimed: person.claimed.is_some() };
            }
            let wanted = match person.claimed {
                None => now.plus(active_ttl),
                Some(first) if sliding => now.plus(active_ttl).min(first.plus(active_max)),
                Some(_) => until,
            };
            person.claimed = person.claimed.or(Some(now));
            let until = until.max(wanted);
            person.lease = Some(until);
            return Standing::Active { place, until, claimed: true };
        }
        if person.claimed.is_some() {
            return Standing::Gone(Gone::Expired);
        }
        if closed {
            return Standing::Gone(Gone::Closed);
        }
        if person.passed.is_none() {
            person.absent = false;
            return Standing::Waiting(place);
        }
        if person.in_late_lane {
            return Standing::Late(place);
        }
        if person.was_late || !in_grace {
            return Standing::Gone(Gone::Missed);
        }
        person.in_late_lane = true;
        person.was_late = true;
        Standing::Late(place)
    }
}
