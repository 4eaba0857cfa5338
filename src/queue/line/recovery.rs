//! What a line does after its store has lost something: the last moments at a failover or a crash,
//! or everything.
//!
//! A number that was given must never be given again, and its holder must keep it. So on a new
//! server the line is *fenced*: its tail jumps by [`GAP`] numbers that count as gone and as *lost*,
//! those that may have been given unseen. Who holds a genuine token for a lost number is *revived*:
//! the token takes the place of the missing index entry. Nobody is admitted for [`RESTORE_TIME`],
//! in which gateways bring back the leases they have seen.
//!
//! A line that is gone altogether is *rebuilt*: from a gateway's copy, whole, with all its numbers
//! lost; or from nothing but its holders' tokens. Then everybody up to the highest number seen
//! counts as waiting, signs of life are collected for [`REBUILD_EPOCHS`] whole epochs, and who was
//! not heard counts as absent. Lost numbers that ended are *buried*: no token brings them back.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;

use super::super::bitmap::Bitmap;
use super::super::command::{
    Evidence, Gone, HeldLease, ProvenLease, Purpose, Rebuilt, Recollection, RecoveryState, Server,
    Sighting, Standing, Versioned, Versions,
};
use super::super::marks::Marks;
use super::super::settings::{EPOCH_MS, Settings};
use super::super::{Seq, UserTag};
use super::{Entry, Line};

/// How far the tail jumps on a new server: more than is given in the moments that may be missing.
/// 100 000 a second for two seconds.
pub const GAP: u64 = 200_000;

/// How long nobody is admitted on a new server: two pulls of every gateway and time for a store
/// that is still warming up.
pub const RESTORE_TIME: Duration = Duration::from_secs(5);

/// How many whole epochs are listened to while a line is rebuilt from tokens: a waiter asks at
/// least three times in one, a background tab once in two.
pub const REBUILD_EPOCHS: u64 = 2;

/// After how many epochs rebuilding ends even if the signs of life are incomplete.
pub const REBUILD_MAX_EPOCHS: u64 = 10;

/// How much older than the newest token a first token may be to count while a line is rebuilt: the
/// age at which a token is renewed, and two of the longest pauses between polls.
const ISSUED_SLACK: Duration = Duration::from_secs(100);

/// How long a line that has just been made gives way to the one it replaced unknowingly.
const GIVES_WAY_FOR: Duration = Duration::from_secs(60);

/// How old the newest trace of a lost line may be when its store comes back without it.
const TRACES_LAST: Duration = Duration::from_secs(15 * 60);

/// By how much versions jump on a new server, which may have been behind.
const VERSION_JUMP: u64 = 1 << 20;

/// Numbers that may have been given without the store knowing to whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct LostRange {
    first: u64,
    last: u64,
    /// When it was noticed that the head had passed all of it.
    passed: Option<Timestamp>,
}

/// What may have been lost, and what is done about it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Recovery {
    /// When the line was made, if it was made from nothing.
    created: Timestamp,
    /// The last incarnation the store knew of then; 0 = none.
    previous: u32,
    /// The last incarnation the store has had of this queue, if later than the line's own.
    superseded: u32,
    fences: u64,
    /// Ascending and disjoint.
    lost: Vec<LostRange>,
    /// Lost numbers that are over for good.
    buried: BTreeSet<u64>,
    /// In which epoch rebuilding from tokens began.
    pub(super) rebuilding: Option<u64>,
    issued_floor: Timestamp,
    pub(super) admit_after: Timestamp,
}

impl Recovery {
    /// Of a line that is made from nothing.
    pub(super) fn of_new(created: Timestamp) -> Self {
        Self { created, ..Self::default() }
    }

    /// Whether the line was ever taken up after a loss.
    pub(super) const fn has_lost(&self) -> bool {
        self.fences > 0
    }

    pub(super) fn is_lost(&self, seq: u64) -> bool {
        let after = self.lost.partition_point(|range| range.first <= seq);
        after > 0 && seq <= self.lost[after - 1].last
    }

    /// How many lost numbers there are from `head` on.
    pub(super) fn lost_from(&self, head: u64) -> u64 {
        self.lost.iter().map(|range| (range.last + 1).saturating_sub(range.first.max(head))).sum()
    }

    fn lose(&mut self, first: u64, last: u64) {
        match self.lost.last_mut() {
            Some(range) if range.last + 1 >= first => {
                range.last = range.last.max(last);
                range.passed = None;
            }
            _ => self.lost.push(LostRange { first, last, passed: None }),
        }
    }

    /// What differs after anything of this changed: of the numbers that are lost, what is noted
    /// about them; the rest leaves a mark on the versions.
    pub(super) fn measure(&self) -> (Timestamp, [usize; 3]) {
        let passed = self.lost.iter().filter(|range| range.passed.is_some()).count();
        (self.issued_floor, [self.lost.len(), passed, self.buried.len()])
    }

    pub(super) fn state(&self) -> RecoveryState {
        RecoveryState {
            fences: self.fences,
            lost: self.lost.iter().map(|range| (range.first, range.last)).collect(),
            rebuilding: self.rebuilding.is_some(),
            issued_floor: self.issued_floor,
            admit_after: self.admit_after,
        }
    }
}

impl Line {
    /// The same line, made by a store that had last known incarnation `previous` of this queue.
    #[must_use]
    pub fn after(mut self, previous: u32) -> Self {
        self.recovery.previous = previous;
        self
    }

    /// Whether this line may give way to what is left of another, or is that line.
    ///
    /// An incarnation later than any the store has had wins: the store has fallen back behind it.
    /// An earlier one wins only over a line that has just been made, by a store that never heard
    /// of it, and only if it was alive when that happened.
    #[must_use]
    pub fn compare(&self, with: &Recollection, now: Timestamp) -> Rebuilt {
        let now = now.max(self.last_now);
        let (ours, wanted) = (self.incarnation, with.incarnation);
        let Recovery { created, previous, .. } = self.recovery;
        let alive = |at: Timestamp| with.sighting.issued.plus(TRACES_LAST) >= at;
        let wins = if wanted > ours {
            wanted > self.last_incarnation() && alive(now)
        } else {
            previous < wanted && now <= created.plus(GIVES_WAY_FOR) && alive(created)
        };
        match wins {
            _ if wanted == ours => Rebuilt::Known,
            true => Rebuilt::Done,
            false => Rebuilt::Refused,
        }
    }

    /// The last incarnation the store has had of this queue.
    #[must_use]
    pub fn last_incarnation(&self) -> u32 {
        self.incarnation.max(self.recovery.superseded)
    }

    /// Moves the line past everything that has been seen of it; see
    /// [`QueueStore::fence`](crate::store::QueueStore::fence). `gap` is [`GAP`] but in tests.
    pub fn fence(
        &mut self,
        seen: &Sighting,
        server: Server,
        gap: u64,
        now: Timestamp,
    ) -> Versioned<()> {
        let now = self.advance(now);
        let before = (self.versions, self.head, self.tail);
        if server == Server::New {
            self.recovery.fences += 1;
            self.recovery.admit_after = self.recovery.admit_after.max(now.plus(RESTORE_TIME));
            jump(&mut self.versions);
        }
        let seen_tail = if seen.tail <= Seq::MAX.0 - gap { seen.tail } else { 0 };
        if self.recovery.rebuilding.is_some() {
            if seen_tail > self.tail {
                self.recovery.lose(self.tail + 1, seen_tail);
                self.live += seen_tail - self.tail;
                self.tail = seen_tail;
            }
            let floor = seen.issued.minus(ISSUED_SLACK);
            self.recovery.issued_floor = self.recovery.issued_floor.max(floor);
            self.pass_up_to(seen.head);
        } else if server == Server::New || seen_tail > self.tail {
            self.leave_a_gap(self.tail.max(seen_tail).saturating_add(gap).min(Seq::MAX.0));
        }
        if (self.versions, self.head, self.tail) != before {
            self.versions.all += 1;
        }
        self.answer((), now)
    }

    /// The tail jumps to `tail`; the numbers in between are gone and lost.
    fn leave_a_gap(&mut self, tail: u64) {
        if tail <= self.tail {
            return;
        }
        for seq in self.tail + 1..=tail {
            self.gone.set(seq - self.base, true);
        }
        self.recovery.lose(self.tail + 1, tail);
        self.tail = tail;
        self.versions.gone += 1;
    }

    /// The head moves on to where it was seen before everything was lost: who is in between was
    /// served. (After a failover it stays: whom the lost server called is called again, in order,
    /// and leases that are brought back leave the line.)
    fn pass_up_to(&mut self, head: u64) {
        let head = head.min(self.tail + 1);
        if head > self.head {
            let present = (self.head..head).filter(|seq| !self.gone.get(seq - self.base)).count();
            self.live -= present as u64;
            self.head = head;
            self.marks.forget(head);
        }
    }

    /// Whether the store may have given `seq` to somebody without knowing it any more.
    pub(super) fn may_be_lost(&self, seq: u64) -> bool {
        seq > self.tail || self.recovery.is_lost(seq) && !self.recovery.buried.contains(&seq)
    }

    /// A number is over: if it was lost, no token brings it back.
    pub(super) fn bury(&mut self, seq: u64) {
        if self.recovery.is_lost(seq) {
            self.recovery.buried.insert(seq);
        }
    }

    /// Brings a lost place back; see [`QueueStore::revive`](crate::store::QueueStore::revive).
    pub fn revive(
        &mut self,
        user: UserTag,
        evidence: &Evidence,
        now: Timestamp,
    ) -> Versioned<Standing> {
        let now = self.advance(now);
        let before = self.versions;
        let seq = evidence.place.seq.0;
        let standing = if seq > self.tail {
            // Whoever asks has to fence first.
            Standing::Gone(Gone::Lost)
        } else if self.takes_back(user, evidence, now) {
            if let Some(lease) = evidence.lease {
                self.reinstate(seq, user, lease, now);
            }
            let entry = self.users[&user];
            self.standing_of(user, entry, Purpose::Poll, now)
        } else {
            Standing::Gone(Gone::Unknown)
        };
        if self.versions != before {
            self.versions.all += 1;
        }
        self.answer(standing, now)
    }

    /// Makes the index entry of a place again, unless it is there or may not come back. True if
    /// the place is the user's now.
    fn takes_back(&mut self, user: UserTag, evidence: &Evidence, now: Timestamp) -> bool {
        let place = evidence.place;
        let known = self.users.get(&user).copied();
        if known.is_some_and(|entry| entry.place.seq == place.seq) {
            return true;
        }
        if !self.may_be_lost(place.seq.0) || evidence.issued < self.recovery.issued_floor {
            return false;
        }
        if let Some(other) = known
            && !self.yields(user, other, place.seq, now)
        {
            self.take_out(place.seq.0);
            self.bury(place.seq.0);
            return false;
        }
        self.users.insert(user, Entry { place, claimed: None, was_late: false });
        true
    }

    /// Whether the place a user has in the index gives way to a lost one: the lower number counts,
    /// but an active place stays.
    fn yields(&mut self, user: UserTag, other: Entry, to: Seq, now: Timestamp) -> bool {
        let seq = other.place.seq;
        match self.standing_of(user, other, Purpose::Poll, now) {
            Standing::Waiting(_) | Standing::Late(_) if seq > to => {
                self.take_out(seq.0);
                self.bury(seq.0);
                true
            }
            Standing::Gone(_) if seq < to => {
                self.bury(seq.0);
                true
            }
            _ => false,
        }
    }

    /// Makes the place of an index entry active as `lease` says, if there is room for it or nobody
    /// is admitted yet. True if it is active then by this.
    fn reinstate(&mut self, seq: u64, user: UserTag, lease: ProvenLease, now: Timestamp) -> bool {
        let active = self.active.get(&seq).copied().filter(|until| *until > now);
        let room = now < self.recovery.admit_after
            || active.is_some()
            || self.active_count(now) < self.settings.capacity;
        if lease.until <= now || !room {
            return false;
        }
        self.take_out(seq);
        self.set_lease(seq, lease.until.max(active.unwrap_or(now)));
        if let Some(entry) = self.users.get_mut(&user)
            && lease.claimed
            && entry.claimed.is_none()
        {
            entry.claimed = Some(now);
        }
        true
    }

    /// Brings leases back; see [`QueueStore::restore`](crate::store::QueueStore::restore). Returns
    /// how many are active now by this.
    pub fn restore(&mut self, leases: &[HeldLease], now: Timestamp) -> Versioned<u64> {
        let now = self.advance(now);
        let mut restored = 0;
        for held in leases {
            let evidence = Evidence {
                place: held.place,
                issued: Timestamp::from_millis(u64::MAX),
                lease: Some(held.lease),
            };
            if now < self.recovery.admit_after
                && held.place.seq.0 <= self.tail
                && held.lease.until > now
                && self.takes_back(held.owner, &evidence, now)
                && self.reinstate(held.place.seq.0, held.owner, held.lease, now)
            {
                restored += 1;
            }
        }
        if restored > 0 {
            self.versions.all += 1;
        }
        self.answer(restored, now)
    }

    /// A line made of what is left of it; see
    /// [`QueueStore::rebuild`](crate::store::QueueStore::rebuild).
    ///
    /// - `superseded`: the last incarnation the store has had, 0 if none.
    /// - `gap`: [`GAP`] but in tests.
    #[must_use]
    pub fn rebuilt(
        (settings, text_hash): (Settings, Option<u64>),
        from: &Recollection,
        superseded: u32,
        gap: u64,
        now: Timestamp,
    ) -> Self {
        let mut line = Self::new(from.incarnation, settings, text_hash, now);
        let seen = from.sighting;
        line.tail = seen.tail.min(Seq::MAX.0 - gap.min(Seq::MAX.0));
        line.head = seen.head.clamp(1, line.tail + 1);
        line.base = line.head / 64 * 64;
        line.recovery = Recovery { fences: 1, superseded, ..Recovery::default() };
        line.heartbeats.forget_before(now.as_millis() / EPOCH_MS);
        if line.tail > 0 {
            line.recovery.lose(1, line.tail);
        }
        let Some(copy) = &from.copy else {
            line.live = line.tail + 1 - line.head;
            line.marks.forget(line.head);
            let epoch = now.as_millis() / EPOCH_MS;
            line.recovery.rebuilding = Some(epoch);
            line.recovery.issued_floor = seen.issued.minus(ISSUED_SLACK);
            line.recovery.admit_after =
                Timestamp::from_millis((epoch + REBUILD_MAX_EPOCHS + 1) * EPOCH_MS);
            return line;
        };
        let first = line.head - line.head % 8;
        line.gone = Bitmap::of_bytes(first - line.base, &copy.gone);
        line.live =
            (line.head..=line.tail).filter(|seq| !line.gone.get(seq - line.base)).count() as u64;
        line.late = copy.late.iter().copied().filter(|seq| *seq < line.head).collect();
        line.admitted = copy.admitted;
        let forgotten = copy.passed.first().map_or(line.head, |(_, head)| *head);
        line.marks = Marks::of(&copy.passed, forgotten.min(line.head));
        line.versions = copy.versions;
        jump(&mut line.versions);
        line.leave_a_gap(line.tail + gap);
        line.recovery.admit_after = now.plus(RESTORE_TIME);
        line
    }

    /// How many epochs back the silent are judged now; `None` while it is too early.
    pub(super) fn epochs_to_judge(&mut self, current: u64, now: Timestamp) -> Option<u64> {
        let Some(began) = self.recovery.rebuilding else {
            return Some(self.settings.silent_epochs());
        };
        let whole = current.saturating_sub(began + 1);
        if whole > REBUILD_MAX_EPOCHS {
            self.end_rebuilding(now);
            return None;
        }
        (whole >= REBUILD_EPOCHS).then_some(whole)
    }

    /// Those who were heard are the line; admission begins, and newcomers may enter.
    pub(super) fn end_rebuilding(&mut self, now: Timestamp) {
        if self.recovery.rebuilding.take().is_some() {
            self.recovery.admit_after = now;
            let tail = self.tail.saturating_add(GAP).min(Seq::MAX.0);
            self.leave_a_gap(tail);
            self.versions.all += 1;
        }
    }

    /// Forgets lost ranges whose last holder can have no place any more.
    pub(super) fn close_lost_ranges(&mut self, now: Timestamp) {
        let longest = self.settings.claim_ttl + self.settings.late_grace;
        let head = self.head;
        let ranges = self.recovery.lost.len();
        self.recovery.lost.retain_mut(|range| {
            if range.last >= head {
                return true;
            }
            let passed = *range.passed.get_or_insert(now);
            now <= passed.plus(longest)
        });
        if self.recovery.lost.len() != ranges {
            let buried = std::mem::take(&mut self.recovery.buried);
            self.recovery.buried =
                buried.into_iter().filter(|seq| self.recovery.is_lost(*seq)).collect();
        }
    }
}

/// Versions that nobody has seen.
fn jump(versions: &mut Versions) {
    let Versions { all, gone, late, settings, revoked } = versions;
    for version in [all, gone, late, settings, revoked] {
        *version += VERSION_JUMP;
    }
}
