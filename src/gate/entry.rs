//! Entering a queue with one request: on a navigation at the gate, and by the queue API.

use crate::identity::Identities;
use crate::queue::command::{Entered, Freshness};
use crate::queue::view::Status;
use crate::queue::{UserId, UserSource, UserTag};
use crate::store::StoreError;
use crate::store::mirror::{LocalQueue, Seen};
use crate::token::{Claims, Proof};

use super::Gate;

/// What entering led to.
#[derive(Clone, Debug)]
pub enum Entry {
    /// A place, new or kept.
    Placed {
        /// What its first token says.
        claims: Claims,
        /// Whose it is, as far as it is known.
        user: Option<UserId>,
        /// Where it stands.
        seen: Seen,
        /// Whether this call made it.
        freshness: Freshness,
    },
    /// The caller is an unknown visitor and must first bring a visitor cookie back.
    NeedsVisitor,
    /// No identity, and visitors are not taken.
    Nobody,
    /// The queue takes nobody now, for the reason in the status.
    Refused(Status),
}

impl Gate {
    /// Enters the first verified identity.
    ///
    /// # Errors
    /// The store's error; repeating is safe.
    pub async fn enter(
        &self,
        queue: &LocalQueue,
        identities: &Identities,
    ) -> Result<Entry, StoreError> {
        let Some(user) = identities.first() else {
            let visitors = self.sources(queue).contains(&UserSource::Visitor);
            return Ok(if visitors { Entry::NeedsVisitor } else { Entry::Nobody });
        };
        self.enter_user(queue, user).await
    }

    /// Enters a user.
    ///
    /// # Errors
    /// The store's error; repeating is safe.
    pub async fn enter_user(&self, queue: &LocalQueue, user: &UserId) -> Result<Entry, StoreError> {
        self.enter_tag(queue, user.source(), self.tag(user), Some(user.clone())).await
    }

    /// Enters the owner of a token whose place the store may have lost: the token brings it back,
    /// if it can.
    ///
    /// # Errors
    /// The store's error; repeating is safe.
    pub async fn enter_again(
        &self,
        queue: &LocalQueue,
        claims: &Claims,
        user: Option<UserId>,
    ) -> Result<Entry, StoreError> {
        match queue.poll(claims).await? {
            Seen::Gone(_) => self.enter_tag(queue, claims.source, claims.owner, user).await,
            seen => {
                let claims = Claims { proof: Proof::Entry, ..*claims };
                Ok(Entry::Placed { claims, user, seen, freshness: Freshness::Known })
            }
        }
    }

    /// Enters the user with this tag, whom a token proved.
    ///
    /// # Errors
    /// The store's error; repeating is safe.
    pub async fn enter_tag(
        &self,
        queue: &LocalQueue,
        source: UserSource,
        owner: UserTag,
        user: Option<UserId>,
    ) -> Result<Entry, StoreError> {
        let entered = queue.enter(owner).await?;
        let (place, freshness) = match entered.value {
            Entered::Waiting(place, freshness) | Entered::Active { place, freshness, .. } => {
                (place, freshness)
            }
            Entered::Late(place) => (place, Freshness::Known),
            Entered::NotOpen { opens_at } => {
                return Ok(Entry::Refused(Status::NotOpen { opens_at }));
            }
            Entered::Rebuilding => return Err(StoreError::rebuilding()),
            Entered::Closed => return Ok(Entry::Refused(Status::Closed)),
            Entered::Full => return Ok(Entry::Refused(Status::Full)),
        };
        let claims =
            Claims { source, owner, incarnation: entered.incarnation, place, proof: Proof::Entry };
        let seen = queue.seen_of(&entered).unwrap_or(Seen::Waiting { place, rank: 1, late: false });
        Ok(Entry::Placed { claims, user, seen, freshness })
    }
}
