//! What a gateway does when the store has lost something: it says what it has seen, brings leases
//! back, and shows the tokens of those whose places are missing.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tracing::warn;

use crate::clock::Timestamp;
use crate::queue::command::{
    Evidence, Gone, HeldLease, LineCopy, Origin, ProvenLease, Purpose, Rebuilt, Recollection,
    RecoveryState, Sighting, Standing, Versioned,
};
use crate::queue::schedule::Phase;
use crate::queue::{Seq, UserTag};
use crate::store::StoreError;
use crate::token::{Claims, Proof};

use super::{LocalQueue, Picture, Seen};

/// Leases brought back in one call: a few milliseconds of a store's time.
const LEASES_A_CALL: usize = 500;

/// How long it is kept that somebody left, and of how many: longer than a replica is behind.
const LEFT_KEPT: Duration = Duration::from_secs(30);
const MAX_LEFT: usize = 1000;

/// A waiter's token is renewed when it is that old, so that a store that loses everything can
/// tell it from one that was given up long ago.
const RENEW_AFTER: Duration = Duration::from_secs(60);

/// How old a token may be to bring back a line that the store has never heard of, and how long the
/// line that stands there instead gives way: as the store itself judges.
const TRACES_LAST: Duration = Duration::from_secs(15 * 60);
const GIVES_WAY_FOR: Duration = Duration::from_secs(60);

/// The furthest this gateway has seen the line go, and what it has told the store of it.
#[derive(Debug, Default)]
pub(super) struct Recovery {
    tail: AtomicU64,
    head: AtomicU64,
    issued: AtomicU64,
    /// After how many fences leases were brought back, and those that still have to be.
    restored: AtomicU64,
    unrestored: Mutex<Vec<HeldLease>>,
    /// Who left through this gateway in the last moments: a store that loses these is told again.
    left: Mutex<VecDeque<(Timestamp, UserTag, Seq)>>,
    /// The last incarnation that the store refused to go back to.
    refused: AtomicU32,
    /// Where the head stood at each change of the last seconds, by the store's clock.
    passed: Mutex<VecDeque<(u64, u64)>>,
    /// One attempt at a time to rebuild the line.
    rebuilding: tokio::sync::Mutex<()>,
}

impl Recovery {
    /// Of a queue that is in this state when the gateway first sees it: it has nothing to bring.
    pub(super) fn of(state: &RecoveryState) -> Self {
        Self { restored: AtomicU64::new(state.fences), ..Self::default() }
    }

    fn sighting(&self) -> Sighting {
        Sighting {
            head: self.head.load(Ordering::Relaxed),
            tail: self.tail.load(Ordering::Relaxed),
            issued: Timestamp::from_millis(self.issued.load(Ordering::Relaxed)),
        }
    }

    /// Numbers start anew with an incarnation.
    pub(super) fn start_anew(&self, state: &RecoveryState) {
        for seen in [&self.tail, &self.head, &self.issued] {
            seen.store(0, Ordering::Relaxed);
        }
        self.restored.store(state.fences, Ordering::Relaxed);
        self.unrestored.lock().clear();
        self.left.lock().clear();
        self.passed.lock().clear();
    }
}

/// Raises `to` at least to `value`; the usual case costs a load.
fn raise(to: &AtomicU64, value: u64) {
    if to.load(Ordering::Relaxed) < value {
        to.fetch_max(value, Ordering::Relaxed);
    }
}

impl LocalQueue {
    /// Notes what a genuine token proves about the line.
    pub(super) fn witness(&self, claims: &Claims, picture: &Picture) {
        if claims.place.seq.0 > picture.ranks.tail() {
            raise(&self.recovery.tail, claims.place.seq.0);
        }
        if picture.recovery.rebuilding {
            raise(&self.recovery.head, claims.head());
            raise(&self.recovery.issued, claims.issued().min(self.now()).as_millis());
        }
    }

    /// Asks the store, after a fence if it lies on a new server.
    pub(super) async fn fenced<T, F>(&self, ask: impl Fn() -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        match ask().await {
            Err(StoreError::NeedsFence(_)) => {
                self.fence().await?;
                ask().await
            }
            answer => answer,
        }
    }

    async fn fence(&self) -> Result<(), StoreError> {
        raise(&self.recovery.tail, self.picture.load().ranks.tail());
        self.store.fence(&self.name, &self.recovery.sighting()).await?;
        Ok(())
    }

    /// Where a user stands; with `claims` as evidence where the store has lost the place.
    pub(super) async fn find(
        &self,
        user: UserTag,
        claims: Option<&Claims>,
        purpose: Purpose,
    ) -> Result<Versioned<Standing>, StoreError> {
        let seq = claims.map(|claims| claims.place.seq);
        let ask = || self.store.standing(&self.name, user, seq, purpose);
        let found = self.fenced(ask).await?;
        let Some(claims) = claims else { return Ok(found) };
        let is_lost = match found.value {
            Standing::Gone(Gone::Lost) => true,
            // The token proves an admission that the store does not know of.
            Standing::Waiting(_) | Standing::Late(_) => {
                claims.lease().is_some_and(|lease| lease.until > found.at)
            }
            _ => false,
        };
        if !is_lost || found.incarnation != claims.incarnation {
            return Ok(found);
        }
        let revived = self.revive(user, claims).await?;
        match (revived.value, purpose) {
            (Standing::Active { .. }, Purpose::Pass) => self.fenced(ask).await,
            _ => Ok(revived),
        }
    }

    async fn revive(
        &self,
        user: UserTag,
        claims: &Claims,
    ) -> Result<Versioned<Standing>, StoreError> {
        let evidence =
            Evidence { place: claims.place, issued: claims.issued(), lease: claims.lease() };
        let ask = || self.store.revive(&self.name, user, &evidence);
        let revived = self.fenced(ask).await?;
        if revived.value != Standing::Gone(Gone::Lost) {
            return Ok(revived);
        }
        // Beyond the tail of a store that has lost its end without being noticed.
        raise(&self.recovery.tail, claims.place.seq.0);
        self.fence().await?;
        ask().await
    }

    /// Whether this gateway's picture is of the incarnation that a token names. If the store has
    /// fallen behind it or has never heard of it, the token may bring the line back.
    pub(super) async fn knows_incarnation_of(&self, claims: &Claims) -> Result<bool, StoreError> {
        let ours = self.picture.load().incarnation;
        if claims.incarnation == ours {
            return Ok(true);
        }
        if claims.incarnation < ours && !self.may_be_rebuilt(claims) {
            return Ok(false);
        }
        self.check_store()?;
        let _one_at_a_time = self.recovery.rebuilding.lock().await;
        // Another gateway, or the one before in this queue, may have done it.
        self.pull().await?;
        if claims.incarnation == self.picture.load().incarnation {
            return Ok(true);
        }
        if !self.may_be_rebuilt(claims) {
            return Ok(false);
        }
        let from = Recollection {
            incarnation: claims.incarnation,
            sighting: Sighting {
                head: claims.head(),
                tail: claims.place.seq.0,
                issued: claims.issued().min(self.now()),
            },
            copy: None,
        };
        self.rebuild(&from).await?;
        self.pull().await?;
        Ok(claims.incarnation == self.picture.load().incarnation)
    }

    /// Whether the token of another incarnation could bring its line back.
    pub(super) fn may_be_rebuilt(&self, claims: &Claims) -> bool {
        let ours = self.picture.load().incarnation;
        if self.recovery.refused.load(Ordering::Relaxed) == claims.incarnation {
            return false;
        }
        let alive = |at: Timestamp| claims.issued().plus(TRACES_LAST) >= at;
        let now = self.now();
        if claims.incarnation > ours {
            return alive(now);
        }
        // An incarnation is named after the second it began in.
        let began = Timestamp::from_millis(u64::from(ours) * 1000);
        now <= began.plus(GIVES_WAY_FOR) && alive(began)
    }

    /// Asks the store to make the line again.
    pub(in super::super) async fn rebuild(&self, from: &Recollection) -> Result<(), StoreError> {
        let settings = self.settings();
        let origin = Origin::File(self.text_hash);
        let rebuilt = self.store.rebuild(&self.name, &settings, origin, from).await?;
        match (rebuilt, &from.copy) {
            (Rebuilt::Done, Some(_)) => warn!(
                queue.name = %self.name,
                "the store had lost queue `{}`; its line was made again from this gateway's copy",
                self.name
            ),
            (Rebuilt::Done, None) => warn!(
                queue.name = %self.name,
                "the store had lost queue `{}`; its line is rebuilt from its holders' tokens, nobody enters or is admitted meanwhile",
                self.name
            ),
            (Rebuilt::Refused, _) => {
                self.recovery.refused.store(from.incarnation, Ordering::Relaxed);
            }
            (Rebuilt::Known, _) => {}
        }
        Ok(())
    }

    /// This gateway's copy of the line, for a store that has lost it. `None` for a closed queue,
    /// which the store is allowed to forget.
    pub(in super::super) fn recollection(&self) -> Option<Recollection> {
        self.recollection_of(&self.picture.load())
    }

    pub(super) fn recollection_of(&self, picture: &Picture) -> Option<Recollection> {
        let refused = self.recovery.refused.load(Ordering::Relaxed) == picture.incarnation;
        let is_over = picture.settings.phase(self.now()) == Phase::Closed;
        if refused || is_over || picture.recovery.rebuilding {
            return None;
        }
        let copy = LineCopy {
            gone: picture.ranks.gone_bytes(),
            late: picture.late.iter().copied().collect(),
            admitted: picture.admitted,
            versions: picture.versions,
            passed: self.recovery.passed.lock().iter().copied().collect(),
        };
        Some(Recollection {
            incarnation: picture.incarnation,
            sighting: Sighting {
                head: picture.ranks.head(),
                tail: picture.ranks.tail(),
                issued: self.now_at(picture.asked),
            },
            copy: Some(copy),
        })
    }

    /// Keeps where the head stood, as long as somebody it passed may not have heard of it.
    pub(super) fn note_head(&self, now: Timestamp, head: u64, claim_ttl: Duration) {
        let mut passed = self.recovery.passed.lock();
        let oldest = now.minus(claim_ttl).as_secs();
        while passed.len() > 1 && passed.front().is_some_and(|(second, _)| *second < oldest) {
            passed.pop_front();
        }
        match passed.back_mut() {
            Some((_, last)) if *last == head => {}
            Some((second, last)) if *second >= now.as_secs() => *last = head,
            _ => passed.push_back((now.as_secs(), head)),
        }
    }

    /// Tells the store what it does not know: numbers beyond its tail, and after a fence the leases
    /// it may have lost. `seen` is what had been seen before the store was asked for `picture`.
    pub(super) async fn remind(&self, seen: Sighting, picture: &Picture) -> Result<(), StoreError> {
        let state = &picture.recovery;
        // Of the newest tokens a rough idea is enough.
        let newer = state.issued_floor.plus(RENEW_AFTER * 2);
        let further = seen.head > picture.ranks.head() || seen.issued > newer;
        if seen.tail > picture.ranks.tail() || state.rebuilding && further {
            self.store.fence(&self.name, &seen).await?;
        }
        if self.recovery.restored.load(Ordering::Relaxed) < state.fences {
            let restored = self.restore_leases().await?;
            self.recovery.restored.store(state.fences, Ordering::Relaxed);
            warn!(
                queue.name = %self.name,
                leases.restored = restored,
                "queue `{}` lies on a new server of the store; {restored} leases were brought back",
                self.name
            );
        }
        Ok(())
    }

    /// Before leases are forgotten: those that a new server of the store has to be told.
    pub(super) fn keep_leases_to_restore(&self, state: &RecoveryState) {
        if self.recovery.restored.load(Ordering::Relaxed) >= state.fences {
            return;
        }
        let held = self.leases.all(self.now()).into_iter().map(|lease| HeldLease {
            owner: lease.owner,
            place: lease.place,
            lease: ProvenLease { until: lease.until, claimed: lease.claimed },
        });
        let mut unrestored = self.recovery.unrestored.lock();
        if unrestored.is_empty() {
            unrestored.extend(held);
        }
    }

    /// Keeps for a while that `user` left.
    pub(super) fn note_left(&self, user: UserTag, seq: Seq) {
        let now = self.clock.now();
        let mut left = self.recovery.left.lock();
        let is_old = |(at, ..): &(Timestamp, UserTag, Seq)| now.since(*at) > LEFT_KEPT;
        while left.len() >= MAX_LEFT || left.front().is_some_and(is_old) {
            left.pop_front();
        }
        left.push_back((now, user, seq));
    }

    async fn restore_leases(&self) -> Result<u64, StoreError> {
        // First those who gave a slot back: leaving is final.
        let left: Vec<_> = self.recovery.left.lock().iter().copied().collect();
        for (_, user, seq) in left {
            self.store.leave(&self.name, user, Some(seq)).await?;
        }
        let held = self.recovery.unrestored.lock().clone();
        let mut restored = 0;
        for some in held.chunks(LEASES_A_CALL) {
            restored += self.store.restore(&self.name, some).await?.value;
        }
        self.recovery.unrestored.lock().clear();
        Ok(restored)
    }

    pub(super) fn sighting(&self) -> Sighting {
        self.recovery.sighting()
    }

    /// A token that proves more than this one about where its holder stands, if it is worth
    /// another.
    #[must_use]
    pub fn renewed(&self, claims: &Claims, seen: Seen) -> Option<Claims> {
        let proof = match seen {
            Seen::Active { until, claimed, .. } => Proof::Lease(ProvenLease { until, claimed }),
            Seen::Waiting { late: false, .. } => {
                let now = self.now();
                if claims.issued().plus(RENEW_AFTER) > now {
                    return None;
                }
                Proof::Waited { at: now, head: self.picture.load().ranks.head() }
            }
            Seen::Waiting { late: true, .. } | Seen::Gone(_) => return None,
        };
        (proof != claims.proof).then_some(Claims { proof, ..*claims })
    }
}
