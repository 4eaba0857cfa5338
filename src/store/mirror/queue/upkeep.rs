//! Keeping the copy of one queue fresh: pictures, signs of life, the store's clock.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::clock::Timestamp;
use crate::queue::command::{Entered, Reaped, Versions};
use crate::queue::line::REVOCATION_KEPT;
use crate::queue::settings::EPOCH_MS;
use crate::store::StoreError;

use super::own::Own;
use super::{ABANDONED_AFTER, CLOCK_GRAIN, LocalQueue, Picture, USED_FOR};

/// Users entered in one call when the store is back: a few milliseconds of its time.
const ARRIVALS_A_CALL: usize = 500;

impl LocalQueue {
    pub(in super::super) fn is_in_use(&self) -> bool {
        let last = Timestamp::from_millis(self.last_request.load(Ordering::Relaxed));
        let picture = self.picture.load();
        self.clock.now().since(last) < USED_FOR || picture.waiting() > 0 || picture.active > 0
    }

    /// Whether this gateway may forget the queue: nobody has asked for it for a long time, and
    /// nobody is in it.
    pub(in super::super) fn is_abandoned(&self) -> bool {
        let last = Timestamp::from_millis(self.last_request.load(Ordering::Relaxed));
        self.clock.now().since(last) > ABANDONED_AFTER && !self.is_in_use()
    }

    /// Takes a new picture.
    pub(in super::super) async fn pull(&self) -> Result<(), StoreError> {
        // An older picture must not take the place of a newer one.
        let _one_at_a_time = self.pulling.lock().await;
        let old = self.picture.load_full();
        let seen = self.sighting();
        let mut asked = self.clock.now();
        let mut synced = self.fenced(|| self.store.sync(&self.name, old.versions)).await?;
        if synced.incarnation != old.incarnation {
            // Somebody made a new line. If the store had lost ours, this copy brings it back.
            if let Some(from) = self.recollection_of(&old) {
                self.rebuild(&from).await?;
            }
            asked = self.clock.now();
            synced = self.store.sync(&self.name, Versions::default()).await?;
        }
        let known = synced.incarnation == old.incarnation;
        self.sample_offset(asked, synced.now);
        if known {
            self.keep_leases_to_restore(&synced.recovery);
            // A copy that was stale for too long may have missed a revocation.
            if asked < old.asked || asked.since(old.asked) > REVOCATION_KEPT / 2 {
                self.leases.clear();
            }
        } else {
            self.leases.start_anew();
            self.heartbeats.start_anew();
            self.answers.clear();
            self.recovery.start_anew(&synced.recovery);
        }
        self.leases.revoke(synced.revoked.take().unwrap_or_default());
        if asked.as_secs() != old.asked.as_secs() {
            self.leases.drop_ended(synced.now);
        }
        let pace = {
            let mut estimator = self.estimator.lock();
            estimator.observe(&synced, synced.settings.as_ref().unwrap_or(&old.settings));
            estimator.pace()
        };
        let picture = if known {
            old.next(synced, pace, asked)
        } else {
            Picture::first(synced, pace, asked)
                .ok_or_else(|| StoreError::Corrupt("a queue without settings".into()))?
        };
        self.note_head(self.now_at(asked), picture.ranks.head(), picture.settings.claim_ttl);
        let picture = Arc::new(picture);
        self.picture.store(Arc::clone(&picture));
        {
            let mut own = self.own.write();
            if !known {
                // Versions start anew with an incarnation.
                *own = Own::default();
            }
            own.left.retain(|_, version| picture.versions.all < *version);
        }
        if known { self.remind(seen, &picture).await } else { Ok(()) }
    }

    /// Enters those who came while the store was away, in the order in which they came.
    pub(in super::super) async fn enter_arrivals(&self) -> Result<(), StoreError> {
        while self.arrivals.len() > 0 {
            let since = self.clock.now().minus(self.settings().waiting_ttl);
            let users = self.arrivals.first(ARRIVALS_A_CALL, since);
            if users.is_empty() {
                break;
            }
            let entered = self.fenced(|| self.store.enter(&self.name, &users)).await?;
            if entered.value.contains(&Entered::Rebuilding) {
                break;
            }
            for one in &entered.value {
                if let Entered::Waiting(place, _) = one {
                    self.heartbeats.mark(place.seq.0);
                }
            }
            self.arrivals.remove(&users);
        }
        Ok(())
    }

    /// How many came while the store was away and have not entered yet.
    #[must_use]
    pub fn arrivals(&self) -> usize {
        self.arrivals.len()
    }

    /// Brings signs of life to the store when an epoch ends, and has the silent judged.
    pub(in super::super) async fn tend(&self, gateway: u64, keep: u64) -> Result<(), StoreError> {
        let epoch = self.now().as_millis() / EPOCH_MS;
        let head = self.picture.load().ranks.head();
        let mut unsent = self.unsent.lock().await;
        if let Some(heard) = self.heartbeats.turn(epoch, head, gateway) {
            *unsent = Some(heard);
        }
        if let Some(heard) = unsent.as_ref() {
            self.fenced(|| self.store.heartbeat(&self.name, heard)).await?;
            *unsent = None;
        }
        if self.judged_epoch.load(Ordering::Relaxed) >= epoch {
            return Ok(());
        }
        if self.fenced(|| self.store.reap(&self.name)).await? != Reaped::Incomplete {
            self.judged_epoch.store(epoch, Ordering::Relaxed);
            self.fenced(|| self.store.compact(&self.name, keep)).await?;
        }
        Ok(())
    }

    /// Keeps the offset of the quickest round trip of the last minute: its error is at most half
    /// of that trip. An answer that this offset cannot explain means that a clock was set.
    pub(in super::super) fn sample_offset(&self, asked: Timestamp, store_now: Timestamp) {
        let answered = self.clock.now();
        if answered < asked {
            // Set back meanwhile: the next answer tells.
            return;
        }
        let trip = answered.since(asked);
        let mut best = self.offset_sample.lock();
        let better = best.is_none_or(|(best_trip, taken)| {
            // The store looked at its clock between the two moments.
            let error = best_trip / 2 + CLOCK_GRAIN;
            let expected = self.now_at(asked).minus(error)..=self.now_at(answered).plus(error);
            trip <= best_trip
                || !expected.contains(&store_now)
                || answered.since(taken) > Duration::from_secs(60)
        });
        if better {
            *best = Some((trip, answered));
            let middle = i64::try_from(asked.plus(trip / 2).as_millis()).unwrap_or(i64::MAX);
            let store = i64::try_from(store_now.as_millis()).unwrap_or(i64::MAX);
            self.clock_offset.store(store.saturating_sub(middle), Ordering::Relaxed);
        }
    }
}
