//! One queue at one gateway: what it answers by itself, and when it asks the store.

mod own;
mod recovery;
mod upkeep;
mod view;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::{Mutex, RwLock};
use quick_cache::sync::Cache;

use crate::clock::{Clock, Timestamp};
use crate::queue::command::{
    AdmitBy, Admitted, Entered, Freshness, Gone, Heartbeat, Left, Purpose, Sighting, Standing,
    Versioned, Versions,
};
use crate::queue::definition::Definition;
use crate::queue::estimate::Estimator;
use crate::queue::schedule::Phase;
use crate::queue::settings::{EPOCH_MS, Mode, OnStoreFailure, Renew, Settings};
use crate::queue::{Place, QueueName, Seq, UserSource, UserTag};
use crate::token::Claims;

use self::own::Own;
use self::recovery::Recovery;
use super::arrivals::Arrivals;
use super::heartbeats::Heartbeats;
use super::leases::{Lease, Leases};
use super::picture::Picture;
use super::{LEASE_MARGIN, SharedStore, StoreError, VOUCHES_FOR};

/// How long an answer of the store about one number is repeated.
const ANSWER_KEPT: Duration = Duration::from_secs(1);

/// How many such answers are kept at most.
const ANSWERS: usize = 16_384;

/// A queue counts as used for this long after a request for it.
const USED_FOR: Duration = Duration::from_secs(10);

/// An instance of a template is forgotten this long after the last request for it.
const ABANDONED_AFTER: Duration = Duration::from_secs(600);

/// Sliding leases are prolonged at most this often.
const RENEW_EVERY: Duration = Duration::from_secs(5);

/// Two clocks in whole milliseconds, and what they drift apart in a minute.
const CLOCK_GRAIN: Duration = Duration::from_millis(4);

/// Where a token stands, as this gateway tells it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    /// In the line or in the late lane.
    Waiting {
        /// The place.
        place: Place,
        /// 1-based, within its lane.
        rank: u64,
        /// Whether it is in the late lane.
        late: bool,
    },
    /// Admitted.
    Active {
        /// The place.
        place: Place,
        /// When it ends.
        until: Timestamp,
        /// Whether it has been used.
        claimed: bool,
    },
    /// Nowhere any more.
    Gone(Gone),
}

type AnswerKey = (u64, UserTag, Purpose);

/// One queue at this gateway.
#[derive(Debug)]
pub struct LocalQueue {
    name: QueueName,
    label: String,
    identity: Option<Vec<UserSource>>,
    store: SharedStore,
    clock: Arc<dyn Clock>,
    /// Whether the last copy of this queue came: another queue may lie in another part of the
    /// store.
    store_answers: AtomicBool,
    picture: ArcSwap<Picture>,
    estimator: Mutex<Estimator>,
    /// The store's clock minus ours, milliseconds.
    clock_offset: AtomicI64,
    /// The round trip of the sample the offset comes from, and when it was taken.
    offset_sample: Mutex<Option<(Duration, Timestamp)>>,
    heartbeats: Heartbeats,
    unsent: tokio::sync::Mutex<Option<Heartbeat>>,
    judged_epoch: AtomicU64,
    leases: Leases,
    own: RwLock<Own>,
    /// What was answered: when by this gateway's clock, and when by the store's.
    answers: Cache<AnswerKey, (Timestamp, Standing, Timestamp)>,
    last_request: AtomicU64,
    /// Hash of the text the queue was declared with.
    text_hash: u64,
    pulling: tokio::sync::Mutex<()>,
    recovery: Recovery,
    arrivals: Arrivals,
}

impl LocalQueue {
    pub(super) async fn open(
        name: QueueName,
        definition: &Definition,
        store: SharedStore,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, StoreError> {
        let asked = clock.now();
        let synced = match store.sync(&name, Versions::default()).await {
            Err(StoreError::NeedsFence(_)) => {
                // This gateway has seen nothing of it yet.
                store.fence(&name, &Sighting::default()).await?;
                store.sync(&name, Versions::default()).await?
            }
            synced => synced?,
        };
        let picture_recovery = synced.recovery.clone();
        let mut estimator = Estimator::default();
        estimator.observe(&synced, &definition.settings);
        let (now, head) = (synced.now, synced.head);
        let picture = Picture::first(synced, estimator.pace(), asked)
            .ok_or_else(|| StoreError::Corrupt("a queue without settings".into()))?;
        let queue = Self {
            name,
            label: definition.template.label(),
            identity: definition.identity.clone(),
            store,
            store_answers: AtomicBool::new(true),
            picture: ArcSwap::from_pointee(picture),
            estimator: Mutex::new(estimator),
            clock_offset: AtomicI64::new(0),
            offset_sample: Mutex::default(),
            heartbeats: Heartbeats::default(),
            unsent: tokio::sync::Mutex::default(),
            judged_epoch: AtomicU64::new(0),
            leases: Leases::default(),
            own: RwLock::default(),
            answers: Cache::new(ANSWERS),
            last_request: AtomicU64::new(clock.now().as_millis()),
            clock,
            text_hash: definition.text_hash,
            pulling: tokio::sync::Mutex::default(),
            recovery: Recovery::of(&picture_recovery),
            arrivals: Arrivals::default(),
        };
        queue.sample_offset(asked, now);
        queue.heartbeats.turn(now.as_millis() / EPOCH_MS, head, 0);
        Ok(queue)
    }

    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &QueueName {
        &self.name
    }

    /// Its name or template as declared: the label of its metrics.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Its own identity sources, where it has any.
    #[must_use]
    pub fn identity(&self) -> Option<&[UserSource]> {
        self.identity.as_deref()
    }

    /// The newest picture.
    #[must_use]
    pub fn picture(&self) -> Arc<Picture> {
        self.picture.load_full()
    }

    /// The settings in force.
    #[must_use]
    pub fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.picture.load().settings)
    }

    /// What the queue does as a whole.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.picture.load().settings.mode
    }

    /// The present by the store's clock, as far as it is known.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.now_at(self.clock.now())
    }

    /// A moment of this gateway's clock by the store's.
    fn now_at(&self, own: Timestamp) -> Timestamp {
        let offset = self.clock_offset.load(Ordering::Relaxed);
        Timestamp::from_millis(own.as_millis().saturating_add_signed(offset))
    }

    /// Enters `user`.
    ///
    /// # Errors
    /// The store's error; repeating is safe and gives the same place.
    pub async fn enter(&self, user: UserTag) -> Result<Versioned<Entered>, StoreError> {
        self.touch();
        let entered = match self.check_store() {
            // Those who came while the store was away go first.
            Ok(()) if self.arrivals.len() > 0 => Err(StoreError::away()),
            Ok(()) => self.enter_now(user).await,
            Err(error) => Err(error),
        };
        if let Err(StoreError::Unavailable(_) | StoreError::Indeterminate(_)) = &entered {
            self.arrivals.note(user, self.clock.now());
        }
        entered
    }

    async fn enter_now(&self, user: UserTag) -> Result<Versioned<Entered>, StoreError> {
        let mut entered = self.enter_store(user).await?;
        if let Entered::Active { place, until, claimed: true, .. } = entered.value
            && until <= entered.at.plus(LEASE_MARGIN)
        {
            // The gate takes a place for over a moment before the store does. Who enters again in
            // between gets a new one, not the one that is refused.
            self.fenced(|| self.store.leave(&self.name, user, Some(place.seq))).await?;
            entered = self.enter_store(user).await?;
        }
        let (one, at) = (entered.value, entered.at);
        match one {
            Entered::Waiting(place, _) => self.heartbeats.mark(place.seq.0),
            Entered::Active { place, until, claimed, freshness } => {
                self.leases.put(Lease { owner: user, place, until, claimed, asked: at });
                if freshness == Freshness::New {
                    let mut own = self.own.write();
                    own.fast_track = own.fast_track.max((entered.incarnation, place.seq.0));
                }
            }
            _ => {}
        }
        if let Entered::Waiting(place, _) | Entered::Late(place) | Entered::Active { place, .. } =
            one
        {
            self.forget_answers(place.seq, user);
        }
        Ok(entered)
    }

    async fn enter_store(&self, user: UserTag) -> Result<Versioned<Entered>, StoreError> {
        let users = [user];
        let Versioned { version, incarnation, at, value } =
            self.fenced(|| self.store.enter(&self.name, &users)).await?;
        let value = value.first().copied();
        let value = value.ok_or_else(|| StoreError::Corrupt("no answer to an enter".into()))?;
        if value == Entered::Rebuilding {
            return Err(StoreError::rebuilding());
        }
        Ok(Versioned { version, incarnation, at, value })
    }

    /// What was answered to an enter, as a standing.
    #[must_use]
    pub fn seen_of(&self, entered: &Versioned<Entered>) -> Option<Seen> {
        let standing = match entered.value {
            Entered::Waiting(place, _) => Standing::Waiting(place),
            Entered::Late(place) => Standing::Late(place),
            Entered::Active { place, until, claimed, .. } => {
                Standing::Active { place, until, claimed }
            }
            Entered::NotOpen { .. } | Entered::Closed | Entered::Rebuilding | Entered::Full => {
                return None;
            }
        };
        Some(self.seen(standing, entered.at))
    }

    /// Where the holder of a verified token stands. Never claims. Asks the store only when the
    /// turn has come, or for an absent waiter who speaks again, and then once a second at most.
    ///
    /// # Errors
    /// The store's error.
    pub async fn poll(&self, claims: &Claims) -> Result<Seen, StoreError> {
        self.touch();
        if !self.knows_incarnation_of(claims).await? {
            return Ok(Seen::Gone(Gone::Unknown));
        }
        if let Some(seen) = self.answer_locally(claims) {
            return Ok(seen);
        }
        self.ask(claims.owner, Some(claims), Purpose::Poll).await
    }

    /// Whether the holder of a verified token may pass now. The first pass claims the place.
    ///
    /// # Errors
    /// The store's error: the failure policy decides then.
    pub async fn pass(&self, claims: &Claims) -> Result<Seen, StoreError> {
        self.touch();
        // While the store is known to be away the policy decides, whatever is remembered here.
        self.check_store()?;
        if !self.knows_incarnation_of(claims).await? {
            return Ok(Seen::Gone(Gone::Unknown));
        }
        if let Some(seen) = self.answer_locally(claims) {
            return Ok(seen);
        }
        self.ask(claims.owner, Some(claims), Purpose::Pass).await
    }

    /// The live place of `user`, if there is one, for who asks without a token.
    ///
    /// # Errors
    /// The store's error.
    pub async fn lookup(&self, user: UserTag) -> Result<Seen, StoreError> {
        self.touch();
        self.ask(user, None, Purpose::Poll).await
    }

    /// As [`LocalQueue::pass`] for who has no token but is known by other means.
    ///
    /// # Errors
    /// The store's error.
    pub async fn pass_user(&self, user: UserTag) -> Result<Seen, StoreError> {
        self.touch();
        self.check_store()?;
        let found =
            self.fenced(|| self.store.standing(&self.name, user, None, Purpose::Pass)).await?;
        self.remember(user, found.value, found.at);
        Ok(self.seen(found.value, found.at))
    }

    /// Ends the place of `user`; with `seq` only if that is the place.
    ///
    /// # Errors
    /// The store's error; repeating is safe.
    pub async fn leave(&self, user: UserTag, seq: Option<Seq>) -> Result<Left, StoreError> {
        self.touch();
        self.arrivals.remove(&[user]);
        self.check_store()?;
        // Which place it is must be known here, too, for this copy to show that it ended.
        let seq = match seq {
            Some(seq) => Some(seq),
            None => self.place_of(user).await?,
        };
        let left = self.fenced(|| self.store.leave(&self.name, user, seq)).await?;
        if let Some(seq) = seq.filter(|_| left.value == Left::Gave) {
            self.note_left(user, seq);
        }
        let seq = seq.unwrap_or(Seq(0));
        self.leases.remove(seq.0);
        self.own.write().left.insert(seq.0, left.version);
        self.forget_answers(seq, user);
        Ok(left.value)
    }

    async fn place_of(&self, user: UserTag) -> Result<Option<Seq>, StoreError> {
        let found =
            self.fenced(|| self.store.standing(&self.name, user, None, Purpose::Poll)).await?;
        Ok(match found.value {
            Standing::Waiting(place) | Standing::Late(place) | Standing::Active { place, .. } => {
                Some(place.seq)
            }
            Standing::Gone(_) => None,
        })
    }

    /// Admits up to `max`.
    ///
    /// # Errors
    /// The store's error; the next call finds out what happened.
    pub async fn admit(&self, max: u64, by: AdmitBy) -> Result<Admitted, StoreError> {
        self.check_store()?;
        Ok(self.fenced(|| self.store.admit(&self.name, max, by)).await?.value)
    }

    /// Until when this gateway can prove without the store that the holder is active: by a lease
    /// it has seen, or by a pass token. `None` if it cannot.
    #[must_use]
    pub fn proven_active_until(&self, claims: &Claims) -> Option<Timestamp> {
        let seq = claims.place.seq.0;
        if self.own.read().left.contains_key(&seq)
            || self.leases.is_revoked(seq)
            || claims.incarnation != self.picture.load().incarnation
        {
            return None;
        }
        let now = self.now();
        let known = self.leases.get(seq, claims.owner, now, LEASE_MARGIN);
        known
            .filter(|lease| lease.claimed)
            .map(|lease| lease.until)
            .or_else(|| claims.lease().map(|lease| lease.until))
            .filter(|until| *until > now.plus(LEASE_MARGIN))
    }

    /// Whether a token is older than the queue itself: over, whoever holds it.
    #[must_use]
    pub fn outlived(&self, claims: &Claims) -> bool {
        claims.incarnation < self.picture.load().incarnation && !self.may_be_rebuilt(claims)
    }

    /// What the picture alone can say about a token: that it waits, or that it is over.
    fn answer_locally(&self, claims: &Claims) -> Option<Seen> {
        // In this order: what a new picture shows is forgotten only after it is there.
        let own = self.own.read();
        let picture = self.picture.load();
        if claims.incarnation != picture.incarnation {
            // Changed this very moment.
            return Some(Seen::Gone(Gone::Unknown));
        }
        self.witness(claims, &picture);
        if picture.recovery.rebuilding && claims.issued() < picture.recovery.issued_floor {
            return Some(Seen::Gone(Gone::Unknown));
        }
        let seq = claims.place.seq.0;
        if own.knows_left(seq, &picture) {
            return Some(Seen::Gone(Gone::Unknown));
        }
        // A place that was admitted after this picture was taken still looks as if it waited.
        let was_admitted = claims.lease().is_some() || self.leases.knows(seq);
        if was_admitted || picture.ranks.is_gone(seq) {
            return None;
        }
        let place = claims.place;
        let (rank, late) = match own.rank(seq, &picture) {
            Some(rank) => (rank, false),
            None => (picture.late_rank(seq)?, true),
        };
        drop(own);
        let here = self.clock.now();
        if picture.settings.phase(self.now_at(here)) == Phase::Closed {
            // Unless it only seems so, because this gateway's clock was set: the store knows.
            let sure = is_recent(here, picture.asked, VOUCHES_FOR);
            return sure.then_some(Seen::Gone(Gone::Closed));
        }
        self.heartbeats.mark(seq);
        Some(Seen::Waiting { place, rank, late })
    }

    /// An active place this gateway may vouch for.
    fn leased(&self, user: UserTag, seq: Seq, purpose: Purpose) -> Option<Seen> {
        let here = self.clock.now();
        if !is_recent(here, self.picture.load().asked, VOUCHES_FOR) {
            return None;
        }
        let now = self.now_at(here);
        let lease = self.leases.get(seq.0, user, now, LEASE_MARGIN)?;
        let enough = match purpose {
            Purpose::Poll => true,
            Purpose::Pass => lease.claimed && !self.wants_renewal(&lease, now),
        };
        enough.then_some(Seen::Active {
            place: lease.place,
            until: lease.until,
            claimed: lease.claimed,
        })
    }

    /// Asks the store about one number; concurrent and repeated questions within a second share
    /// one answer. Active places of a known number are remembered as leases instead, which a
    /// revocation ends.
    async fn ask(
        &self,
        user: UserTag,
        claims: Option<&Claims>,
        purpose: Purpose,
    ) -> Result<Seen, StoreError> {
        let seq = claims.map(|claims| claims.place.seq);
        // No number is 0: it stands for "whatever place the user has".
        let key = (seq.map_or(0, |seq| seq.0), user, purpose);
        loop {
            if let Some(seen) = seq.and_then(|seq| self.leased(user, seq, purpose)) {
                return Ok(seen);
            }
            match self.answers.get_value_or_guard_async(&key).await {
                Ok((answered, standing, at)) => {
                    let here = self.clock.now();
                    if is_recent(here, answered, ANSWER_KEPT) {
                        return Ok(self.seen(standing, at.plus(here.since(answered))));
                    }
                    self.answers.remove(&key);
                }
                Err(guard) => {
                    // Somebody may have asked while this one stood behind.
                    if let Some(seen) = seq.and_then(|seq| self.leased(user, seq, purpose)) {
                        return Ok(seen);
                    }
                    self.check_store()?;
                    let found = self.find(user, claims, purpose).await?;
                    self.remember(user, found.value, found.at);
                    if seq.is_none() || !matches!(found.value, Standing::Active { .. }) {
                        // Refused only if somebody else has just put an answer there.
                        let _ = guard.insert((self.clock.now(), found.value, found.at));
                    }
                    return Ok(self.seen(found.value, found.at));
                }
            }
        }
    }

    fn remember(&self, owner: UserTag, standing: Standing, at: Timestamp) {
        match standing {
            Standing::Active { place, until, claimed } => {
                self.leases.put(Lease { owner, place, until, claimed, asked: at });
            }
            Standing::Waiting(place) => self.heartbeats.mark(place.seq.0),
            Standing::Late(_) | Standing::Gone(_) => {}
        }
    }

    /// What the store's answer of the moment `at`, by its own clock, means. This gateway's idea of
    /// that clock is off for a moment after its own was set, and must not end anybody's turn.
    fn seen(&self, standing: Standing, at: Timestamp) -> Seen {
        let own = self.own.read();
        let picture = self.picture.load();
        match standing {
            Standing::Waiting(place) => {
                let rank = own.rank(place.seq.0, &picture).unwrap_or(1);
                Seen::Waiting { place, rank, late: false }
            }
            Standing::Late(place) => {
                let next = picture.late.partition_point(|seq| *seq < place.seq.0) as u64 + 1;
                Seen::Waiting { place, rank: next, late: true }
            }
            // Gate and store must never both count a slot: the last moments belong to the store.
            // An unclaimed one is the store's anyway: a claim begins a new time.
            Standing::Active { until, claimed: true, .. } if until <= at.plus(LEASE_MARGIN) => {
                Seen::Gone(Gone::Expired)
            }
            Standing::Active { place, until, claimed } => Seen::Active { place, until, claimed },
            Standing::Gone(gone) => Seen::Gone(gone),
        }
    }

    fn wants_renewal(&self, lease: &Lease, now: Timestamp) -> bool {
        let settings = &self.picture.load().settings;
        settings.renew == Renew::Sliding
            && now.since(lease.asked) >= RENEW_EVERY.min(settings.active_ttl / 4)
    }

    /// The last copy came, or did not; returns whether the one before did.
    pub(super) fn set_store_answers(&self, answers: bool) -> bool {
        self.store_answers.swap(answers, Ordering::Relaxed)
    }

    /// Whether the store answered about this queue last time.
    #[must_use]
    pub fn store_answers(&self) -> bool {
        self.store_answers.load(Ordering::Relaxed)
    }

    /// Whether everybody passes because the store is away.
    #[must_use]
    pub fn fails_open(&self) -> bool {
        !self.store_answers() && self.settings().on_store_failure == OnStoreFailure::Open
    }

    fn check_store(&self) -> Result<(), StoreError> {
        if self.store_answers() { Ok(()) } else { Err(StoreError::away()) }
    }

    fn forget_answers(&self, seq: Seq, user: UserTag) {
        for (seq, purpose) in [(seq.0, Purpose::Poll), (seq.0, Purpose::Pass), (0, Purpose::Poll)] {
            self.answers.remove(&(seq, user, purpose));
        }
    }

    fn touch(&self) {
        let now = self.clock.now().as_millis();
        // One write a second is enough, and spares the cores a shared line.
        if now.saturating_sub(self.last_request.load(Ordering::Relaxed)) > 1000 {
            self.last_request.store(now, Ordering::Relaxed);
        }
    }
}

/// Whether `at` is at most `span` before `now`. What lies in the future was seen by a clock that
/// has been set since.
fn is_recent(now: Timestamp, at: Timestamp, span: Duration) -> bool {
    at <= now && now.since(at) <= span
}
