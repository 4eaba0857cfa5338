//! What a visitor gets while the store is away: hold, open, closed.

use tracing::debug;

use crate::problem::{Code, Problem};
use crate::queue::UserId;
use crate::queue::settings::OnStoreFailure;
use crate::queue::view::Status;
use crate::route::{Gated, WhenWaiting};
use crate::store::StoreError;
use crate::store::mirror::LocalQueue;
use crate::token::Claims;

use super::credentials::Carrier;
use super::headers::Passage;
use super::metrics::Decision;
use super::{Gate, Navigation, Verdict, Visit, answer};

/// Seconds after which a client may try again.
const RETRY_AFTER_SECS: u64 = 3;

impl Gate {
    /// Decides without the store, as the queue's policy says.
    pub(super) fn store_away(
        &self,
        visit: Visit<'_>,
        gated: &Gated,
        queue: &LocalQueue,
        token: Option<(&Claims, Option<&UserId>, Carrier)>,
        error: &StoreError,
    ) -> Verdict {
        debug!(%error, queue.name = %queue.name(), "deciding on queue `{}` without the store", queue.name());
        let policy = queue.settings().on_store_failure;
        if policy == OnStoreFailure::Hold
            && let Some((claims, owner, carrier)) = token
            && let Some(until) = queue.proven_active_until(claims)
        {
            let passage = Passage::active(queue, claims, owner, claims.place, until, carrier);
            let decision = Some((queue, Decision::FailedHeld));
            return self.forward(visit, decision, Some(passage.unrenewed()));
        }
        match policy {
            OnStoreFailure::Open => self.forward(visit, Some((queue, Decision::FailedOpen)), None),
            OnStoreFailure::Hold | OnStoreFailure::Closed => {
                self.parts.metrics.count(queue, Decision::FailedClosed);
                let inline = gated.when_waiting != WhenWaiting::Reject
                    && Navigation::of(visit.parts) != Navigation::No;
                let response = if inline {
                    self.inline_page(&visit, gated, &queue.view_of(Status::StoreAway))
                } else {
                    let problem = Problem::new(Code::StoreUnavailable).with_queue(queue.name());
                    problem.with_retry_after(RETRY_AFTER_SECS).into_response()
                };
                Verdict::Answer(answer::hardened(response))
            }
        }
    }
}
