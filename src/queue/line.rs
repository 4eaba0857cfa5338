//! One queue: the waiting line and the active set, and every rule about them.
//!
//! This is the engine of the embedded store and the model that every other store is tested
//! against. It reads no clock: the caller passes the store's time, and a time that runs backwards
//! is taken as standing still.
//!
//! A waiter is a number; a bit says whether that number is gone. Invariants, checked by tests:
//! `live` counts the zero bits from `head` to `tail`; numbers are called in ascending order, late
//! ones apart, each at most once unless it goes through the late lane, which it may do once;
//! never more than `capacity` entries are active; one live place per user; `head` and `tail` never
//! go back. What happens after a store has lost something is in `line/recovery.rs`.

mod check;
mod footprint;
mod recovery;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;

use super::bitmap::Bitmap;
use super::bucket::Bucket;
use super::command::{
    AdmitBy, Admitted, Configured, Entered, Freshness, Gone, Heartbeat, Left, Origin, Purpose,
    Reaped, Standing, Synced, Versioned, Versions,
};
use super::heartbeats::Heartbeats;
use super::marks::Marks;
use super::schedule::Phase;
use super::settings::{EPOCH_MS, Mode, Renew, Settings};
use super::{Place, Seq, UserTag};

use recovery::Recovery;

pub use check::Broken;
pub use footprint::{Footprint, Hearing, Trace};
pub use recovery::{GAP, REBUILD_EPOCHS, REBUILD_MAX_EPOCHS, RESTORE_TIME};

/// How many numbers may lie between head and tail for each user who may wait: whoever enters and
/// falls silent no longer waits, but is remembered until the head passes.
pub const UNCALLED_PER_WAITING: u64 = 4;

/// How long a freed active slot still counts: the age up to which another gateway may answer from
/// its copy.
pub const REVOCATION_DELAY: Duration = Duration::from_millis(500);

/// How long a revocation is repeated to gateways. A gateway that was away longer forgets its
/// leases.
pub const REVOCATION_KEPT: Duration = Duration::from_secs(10);

/// The most users one call admits: about two milliseconds of a store's time.
pub const MAX_ADMITTED: u64 = 1000;

/// Every fifth admission is the late lane's while both lanes have waiters. Turns are counted over
/// all admissions, not per call: with a slow rate each call admits one.
const LATE_SHARE: u64 = 5;

/// What the user index knows about one user.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Entry {
    place: Place,
    /// When the place was first used; `None` while waiting or merely called.
    claimed: Option<Timestamp>,
    /// Whether it has been through the late lane: a second missed turn is final.
    was_late: bool,
}

/// One queue. Serialised, it is the whole of it: what is read back answers as the original would.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Line {
    incarnation: u32,
    settings: Settings,
    text_hash: Option<u64>,
    last_now: Timestamp,
    /// Number of the bitmap's first bit; a multiple of 64.
    base: u64,
    /// The next number to be called.
    head: u64,
    /// The last number given.
    tail: u64,
    /// Zero bits from `head` to `tail`.
    live: u64,
    gone: Bitmap,
    users: HashMap<UserTag, Entry>,
    active: HashMap<u64, Timestamp>,
    ends: BTreeSet<(Timestamp, u64)>,
    late: BTreeSet<u64>,
    bucket: Bucket,
    marks: Marks,
    revoked: BTreeMap<u64, Timestamp>,
    heartbeats: Heartbeats,
    judged_epoch: u64,
    versions: Versions,
    admitted: u64,
    recovery: Recovery,
}

impl Line {
    /// An empty queue.
    ///
    /// - `incarnation`: greater than that of any earlier queue of this name.
    /// - `text_hash`: of the declaration it comes from, if it comes from a file.
    #[must_use]
    pub fn new(
        incarnation: u32,
        settings: Settings,
        text_hash: Option<u64>,
        now: Timestamp,
    ) -> Self {
        let bucket = Bucket::full(settings.rate, now);
        Self {
            incarnation,
            settings,
            text_hash,
            last_now: now,
            base: 0,
            head: 1,
            tail: 0,
            live: 0,
            gone: Bitmap::default(),
            users: HashMap::new(),
            active: HashMap::new(),
            ends: BTreeSet::new(),
            late: BTreeSet::new(),
            bucket,
            marks: Marks::default(),
            revoked: BTreeMap::new(),
            heartbeats: Heartbeats::default(),
            judged_epoch: 0,
            versions: Versions { all: 1, gone: 1, late: 1, settings: 1, revoked: 1 },
            admitted: 0,
            recovery: Recovery::of_new(now),
        }
    }

    /// Replaces the settings if `origin` may.
    pub fn configure(
        &mut self,
        settings: &Settings,
        origin: &Origin,
        now: Timestamp,
    ) -> Configured {
        let now = self.advance(now);
        if let Origin::File(hash) = origin {
            if self.text_hash == Some(*hash) {
                return Configured::Kept;
            }
            self.text_hash = Some(*hash);
        }
        self.bucket.change(settings.rate, now);
        self.settings = settings.clone();
        self.versions.settings += 1;
        self.versions.all += 1;
        Configured::Changed
    }

    /// Enters users in order.
    pub fn enter(&mut self, users: &[UserTag], now: Timestamp) -> Versioned<Vec<Entered>> {
        let now = self.advance(now);
        let before = (self.tail, self.live, self.versions);
        let entered = users.iter().map(|user| self.enter_one(*user, now)).collect();
        if (self.tail, self.live, self.versions) != before {
            self.versions.all += 1;
        }
        self.answer(entered, now)
    }

    fn enter_one(&mut self, user: UserTag, now: Timestamp) -> Entered {
        match self.settings.phase(now) {
            Phase::NotOpen { opens_at } => return Entered::NotOpen { opens_at },
            Phase::Closed => return Entered::Closed,
            Phase::Open => {}
        }
        if self.recovery.rebuilding.is_some() {
            return Entered::Rebuilding;
        }
        if let Some(entry) = self.users.get(&user).copied() {
            match self.standing_of(user, entry, Purpose::Poll, now) {
                Standing::Waiting(place) => return Entered::Waiting(place, Freshness::Known),
                Standing::Late(place) => return Entered::Late(place),
                Standing::Active { place, until, claimed } => {
                    return Entered::Active { place, until, claimed, freshness: Freshness::Known };
                }
                // The index remembers a place that is over: a new one takes its stead.
                Standing::Gone(_) => self.bury(entry.place.seq.0),
            }
        }
        if self.tail >= Seq::MAX.0 {
            return Entered::Full;
        }
        let place = Place { seq: Seq(self.tail + 1), entered: now };
        let entry = Entry { place, claimed: None, was_late: false };
        if self.fast_track_is_open(now) {
            self.heartbeats.entering(now.as_millis() / EPOCH_MS, self.tail);
            self.tail += 1;
            self.head = self.tail + 1;
            self.marks.record(self.head, now, self.settings.late_grace);
            self.bucket.take(1, now);
            self.admitted += 1;
            self.users.insert(user, entry);
            let until = now.plus(self.settings.claim_ttl);
            self.set_lease(place.seq.0, until);
            return Entered::Active { place, until, claimed: false, freshness: Freshness::New };
        }
        let waiting = self.live + self.late.len() as u64;
        let uncalled = self.tail + 1 - self.head - self.recovery.lost_from(self.head);
        let max = self.settings.max_waiting;
        if waiting >= max || uncalled >= max * UNCALLED_PER_WAITING {
            return Entered::Full;
        }
        self.heartbeats.entering(now.as_millis() / EPOCH_MS, self.tail);
        self.tail += 1;
        self.live += 1;
        self.users.insert(user, entry);
        Entered::Waiting(place, Freshness::New)
    }

    /// Only when nobody waits may a newcomer go in at once.
    fn fast_track_is_open(&mut self, now: Timestamp) -> bool {
        self.settings.mode == Mode::Auto
            && now >= self.recovery.admit_after
            && self.live == 0
            && self.late.is_empty()
            && self.bucket.available(now) >= 1
            && self.active_count(now) < self.settings.capacity
    }

    /// Where `user` stands; see [`QueueStore::standing`](crate::store::QueueStore::standing).
    pub fn standing(
        &mut self,
        user: UserTag,
        seq: Option<Seq>,
        purpose: Purpose,
        now: Timestamp,
    ) -> Versioned<Standing> {
        let now = self.advance(now);
        let before = self.versions;
        let entry = self.users.get(&user).copied();
        let standing = match entry.filter(|entry| seq.is_none_or(|seq| entry.place.seq == seq)) {
            Some(entry) => self.standing_of(user, entry, purpose, now),
            None if seq.is_some_and(|seq| self.may_be_lost(seq.0)) => Standing::Gone(Gone::Lost),
            None => Standing::Gone(Gone::Unknown),
        };
        if self.versions != before {
            self.versions.all += 1;
        }
        self.answer(standing, now)
    }

    fn standing_of(
        &mut self,
        user: UserTag,
        entry: Entry,
        purpose: Purpose,
        now: Timestamp,
    ) -> Standing {
        let place = entry.place;
        let seq = place.seq.0;
        if let Some(until) = self.active.get(&seq).copied().filter(|until| *until > now) {
            let (until, claimed) = match purpose {
                Purpose::Poll => (until, entry.claimed.is_some()),
                Purpose::Pass => (self.claim(user, entry, until, now), true),
            };
            return Standing::Active { place, until, claimed };
        }
        if entry.claimed.is_some() {
            return Standing::Gone(Gone::Expired);
        }
        if self.settings.phase(now) == Phase::Closed {
            return Standing::Gone(Gone::Closed);
        }
        if seq >= self.head {
            if self.gone.set(seq - self.base, false) {
                self.live += 1;
                self.versions.gone += 1;
            }
            return Standing::Waiting(place);
        }
        if self.late.contains(&seq) {
            return Standing::Late(place);
        }
        let grace = self.settings.late_grace;
        if entry.was_late || !self.marks.passed_in_grace(seq, now, grace) {
            return Standing::Gone(Gone::Missed);
        }
        self.late.insert(seq);
        self.users.insert(user, Entry { was_late: true, ..entry });
        self.versions.late += 1;
        Standing::Late(place)
    }

    /// The end of an active place after it has been used at `now`.
    fn claim(
        &mut self,
        user: UserTag,
        entry: Entry,
        until: Timestamp,
        now: Timestamp,
    ) -> Timestamp {
        let seq = entry.place.seq.0;
        let wanted = match entry.claimed {
            None => {
                self.users.insert(user, Entry { claimed: Some(now), ..entry });
                now.plus(self.settings.active_ttl)
            }
            Some(first) if self.settings.renew == Renew::Sliding => {
                now.plus(self.settings.active_ttl).min(first.plus(self.settings.active_max))
            }
            Some(_) => until,
        };
        let extended = wanted.max(until);
        if extended != until {
            self.set_lease(seq, extended);
        }
        extended
    }

    /// Ends the place of `user`; see [`QueueStore::leave`](crate::store::QueueStore::leave).
    pub fn leave(&mut self, user: UserTag, seq: Option<Seq>, now: Timestamp) -> Versioned<Left> {
        let now = self.advance(now);
        let entry = self.users.get(&user).copied();
        let seq = match (entry, seq) {
            (Some(entry), _) if seq.is_none_or(|seq| entry.place.seq == seq) => {
                self.users.remove(&user);
                entry.place.seq.0
            }
            // The store has lost the entry, but leaving is final all the same.
            (_, Some(seq)) if seq.0 <= self.tail && self.may_be_lost(seq.0) => seq.0,
            _ => return self.answer(Left::Nothing, now),
        };
        let before = self.versions;
        let mut gave = Left::Gave;
        if let Some(until) = self.active.get(&seq).copied().filter(|until| *until > now) {
            self.set_lease(seq, until.min(now.plus(REVOCATION_DELAY)));
            self.forget_old_revocations(now);
            self.revoked.insert(seq, now.plus(REVOCATION_KEPT));
            self.versions.revoked += 1;
        } else if seq < self.head && !self.late.contains(&seq) {
            gave = Left::Nothing;
        }
        self.take_out(seq);
        self.bury(seq);
        if self.versions != before {
            self.versions.all += 1;
        }
        self.answer(gave, now)
    }

    /// Takes a number out of the line and the late lane, wherever it is.
    fn take_out(&mut self, seq: u64) {
        if seq >= self.head {
            if !self.gone.set(seq - self.base, true) {
                self.live -= 1;
                self.versions.gone += 1;
            }
        } else if self.late.remove(&seq) {
            self.versions.late += 1;
        }
    }

    /// Admits up to `max`; see [`QueueStore::admit`](crate::store::QueueStore::admit).
    pub fn admit(&mut self, max: u64, by: AdmitBy, now: Timestamp) -> Versioned<Admitted> {
        let now = self.advance(now);
        let budget = self.budget(by, now).min(max).min(MAX_ADMITTED);
        if budget == 0 {
            return self.answer(Admitted { head: self.head, ..Admitted::default() }, now);
        }
        let late_waiting = self.late.len() as u64;
        // The late lane gets the turns that fall into this call, or whatever the line cannot use.
        let turns_before = |admitted: u64| admitted.div_ceil(LATE_SHARE);
        let turns = turns_before(self.admitted + budget) - turns_before(self.admitted);
        let late_share = turns.max(budget.saturating_sub(self.live)).min(late_waiting);
        let until = now.plus(self.settings.claim_ttl);
        for _ in 0..late_share {
            if let Some(seq) = self.late.pop_first() {
                self.set_lease(seq, until);
            }
        }
        let from_line = (budget - late_share).min(self.live);
        for _ in 0..from_line {
            let seq = self.base + self.gone.next_zero(self.head - self.base);
            self.set_lease(seq, until);
            self.head = seq + 1;
        }
        self.live -= from_line;
        let count = late_share + from_line;
        if by == AdmitBy::Tick {
            self.bucket.take(count, now);
        }
        if from_line > 0 {
            self.marks.record(self.head, now, self.settings.late_grace);
        }
        if late_share > 0 {
            self.versions.late += 1;
        }
        self.admitted += count;
        self.versions.all += 1;
        self.answer(Admitted { count, late: late_share, head: self.head }, now)
    }

    /// How many `by` may admit at `now`.
    fn budget(&mut self, by: AdmitBy, now: Timestamp) -> u64 {
        let moving = match self.settings.mode {
            Mode::Auto | Mode::QueueAll => true,
            Mode::Paused => by == AdmitBy::Operator,
            Mode::PassAll | Mode::Closed => false,
        };
        let paused = now < self.recovery.admit_after;
        if !moving || paused || self.settings.phase(now) != Phase::Open {
            return 0;
        }
        let pace = match by {
            AdmitBy::Tick => self.bucket.available(now),
            AdmitBy::Operator => u64::MAX,
        };
        let room = self.settings.capacity.saturating_sub(self.active_count(now));
        pace.min(room).min(self.live + self.late.len() as u64)
    }

    /// Merges signs of life. Epochs in the future and such that cannot matter any more are ignored.
    pub fn heartbeat(&mut self, heartbeat: &Heartbeat, now: Timestamp) {
        let now = self.advance(now);
        let current = now.as_millis() / EPOCH_MS;
        let oldest = current.saturating_sub(self.settings.silent_epochs() + 1);
        if (oldest..=current).contains(&heartbeat.epoch) && heartbeat.first.is_multiple_of(8) {
            self.heartbeats.merge(heartbeat, self.base, self.tail);
        }
    }

    /// Marks the silent absent; see [`QueueStore::reap`](crate::store::QueueStore::reap).
    pub fn reap(&mut self, now: Timestamp) -> Reaped {
        let now = self.advance(now);
        let current = now.as_millis() / EPOCH_MS;
        if self.judged_epoch >= current {
            return Reaped::Already;
        }
        let Some(silent) = self.epochs_to_judge(current, now) else { return Reaped::Incomplete };
        self.heartbeats.forget_before(current.saturating_sub(silent + 1));
        if !self.heartbeats.complete(current, silent) {
            return Reaped::Incomplete;
        }
        self.judged_epoch = current;
        let up_to = self.heartbeats.judged_up_to(current, silent, self.tail).min(self.tail);
        let first = self.head - self.head % 8;
        let heard = self.heartbeats.heard(first, up_to, current, silent);
        let mut absent = 0;
        for (byte, at) in heard.into_iter().zip((first..).step_by(8)).filter(|(b, _)| *b != 0xff) {
            for seq in (at..at + 8).filter(|seq| (self.head..=up_to).contains(seq)) {
                let was_silent = byte >> (7 - (seq - at)) & 1 == 0;
                if was_silent && !self.gone.set(seq - self.base, true) {
                    absent += 1;
                }
            }
        }
        if absent > 0 {
            self.live -= absent;
            self.versions.gone += 1;
            self.versions.all += 1;
        }
        self.end_rebuilding(now);
        Reaped::Absent(absent)
    }

    /// What changed since `known`.
    pub fn sync(&mut self, known: Versions, now: Timestamp) -> Synced {
        let now = self.advance(now);
        self.forget_old_revocations(now);
        let ours = self.versions;
        let gone = (known.gone != ours.gone).then(|| {
            if self.head > self.tail {
                return Vec::new();
            }
            let first = self.head - self.head % 8;
            self.gone.bytes(first - self.base, self.tail - self.base)
        });
        Synced {
            now,
            incarnation: self.incarnation,
            versions: ours,
            head: self.head,
            tail: self.tail,
            live: self.live,
            active: self.active_count(now),
            admitted: self.admitted,
            gone,
            late: (known.late != ours.late).then(|| self.late.clone()),
            settings: (known.settings != ours.settings).then(|| self.settings.clone()),
            revoked: (known.revoked != ours.revoked)
                .then(|| self.revoked.keys().copied().collect()),
            recovery: self.recovery.state(),
        }
    }

    /// Frees memory; see [`QueueStore::compact`](crate::store::QueueStore::compact).
    pub fn compact(&mut self, keep: u64, now: Timestamp) {
        let now = self.advance(now);
        let base = self.head.saturating_sub(keep) / 64 * 64;
        if base > self.base {
            self.gone.drop_front(base - self.base);
            self.base = base;
        }
        self.close_lost_ranges(now);
        let meant = self.live + self.late.len() as u64 + self.active_count(now);
        if self.users.len() as u64 > 2 * meant + 1024 {
            self.sweep(now);
        }
    }

    /// Drops index entries whose place is over: they answer as if they were not there.
    fn sweep(&mut self, now: Timestamp) {
        let (head, grace) = (self.head, self.settings.late_grace);
        let (late, active, marks) = (&self.late, &self.active, &self.marks);
        let recovery = &self.recovery;
        self.users.retain(|_, entry| {
            let seq = entry.place.seq.0;
            let may_come_late = entry.claimed.is_none()
                && !entry.was_late
                && marks.passed_in_grace(seq, now, grace);
            seq >= head
                || recovery.is_lost(seq)
                || late.contains(&seq)
                || active.get(&seq).is_some_and(|until| *until > now)
                || may_come_late
        });
        self.users.shrink_to_fit();
    }

    /// Tokens active at `now`. Drops those that ended.
    fn active_count(&mut self, now: Timestamp) -> u64 {
        while let Some((until, seq)) = self.ends.first().copied() {
            if until > now {
                break;
            }
            self.ends.pop_first();
            self.active.remove(&seq);
        }
        self.active.len() as u64
    }

    fn set_lease(&mut self, seq: u64, until: Timestamp) {
        if let Some(old) = self.active.insert(seq, until) {
            self.ends.remove(&(old, seq));
        }
        self.ends.insert((until, seq));
    }

    fn forget_old_revocations(&mut self, now: Timestamp) {
        self.revoked.retain(|_, kept_until| *kept_until > now);
    }

    /// Time never runs backwards inside a queue.
    fn advance(&mut self, now: Timestamp) -> Timestamp {
        self.last_now = self.last_now.max(now);
        self.last_now
    }

    fn answer<T>(&self, value: T, now: Timestamp) -> Versioned<T> {
        Versioned { version: self.versions.all, incarnation: self.incarnation, at: now, value }
    }
}

#[cfg(test)]
mod tests;
