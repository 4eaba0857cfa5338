//! The port behind which a queue's state lives, and the promises every adapter makes.
//!
//! Promises:
//! - each method is atomic: other callers see all of it or nothing;
//! - the adapter has no rules of its own: it answers exactly as [`Line`](crate::queue::line::Line)
//!   does for the same commands at the same times;
//! - every method may be repeated after an error without harm;
//! - time is the store's own, never the caller's.

mod batching;
#[cfg(any(test, feature = "testing"))]
pub mod contract;
mod embedded;
pub mod metrics;
pub mod mirror;
mod redis;
mod settings;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use crate::queue::command::{
    AdmitBy, Admitted, Configured, Entered, Evidence, Heartbeat, HeldLease, Left, Origin, Purpose,
    Reaped, Rebuilt, Recollection, Sighting, Standing, Synced, Versioned, Versions,
};
use crate::queue::settings::Settings;
use crate::queue::{QueueName, Seq, UserTag};

pub use embedded::{OpenError, embedded, embedded_at};
#[cfg(any(test, feature = "testing"))]
pub use redis::redis_with_clock;
pub use redis::{
    Credentials, RedisAddress, RedisAddressError, RedisConcern, RedisFinding, RedisTls,
    RedisTlsError, RedisTopology, redis, redis_checkup,
};
pub use settings::{DiskSettings, Durability, RedisSettings, StoreSettings};

/// A secret that all gateways on one store share. 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SharedSecret {
    /// Keys the user tags. Never rotates.
    UserSalt,
    /// Signs tokens where none is configured.
    TokenKey,
}

/// Why a store did not answer as asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The store has no such queue. It was never configured there, or the store lost its data.
    #[error("the store does not know queue `{0}`")]
    UnknownQueue(QueueName),
    /// The queue lies on a server it has not been fenced on, whose last moments may be missing.
    /// Nothing changed: [`QueueStore::fence`] comes first.
    #[error("queue `{0}` lies on a new server of the store and has to be fenced first")]
    NeedsFence(QueueName),
    /// The store could not be reached or refused. Nothing changed.
    #[error("the store is not available")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The answer did not come in time: it may have happened. Repeating finds out.
    #[error("the store did not answer in time")]
    Indeterminate(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The store answered something this version does not understand.
    #[error("the store answered something unexpected: {0}")]
    Corrupt(String),
}

impl StoreError {
    /// What is behind it, for a log: the words of the server or of the system, or its own.
    #[must_use]
    pub fn cause(&self) -> &dyn std::error::Error {
        let mut cause: &dyn std::error::Error = self;
        while let Some(deeper) = cause.source() {
            cause = deeper;
        }
        cause
    }

    /// The answer while the store is known not to answer: nobody waits for it.
    #[must_use]
    pub fn away() -> Self {
        Self::Unavailable("it did not answer a moment ago".into())
    }

    /// The answer to newcomers while a lost line is rebuilt.
    #[must_use]
    pub fn rebuilding() -> Self {
        Self::Unavailable("the line is being rebuilt from its holders' tokens".into())
    }
}

/// How a store's own disk fares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskState {
    /// Whether the last try to save failed: the store takes nothing until one succeeds.
    pub failing: bool,
    /// Tries to save that failed since the start.
    pub failures: u64,
    /// Bytes of changes that are carried out but not on the disk yet.
    pub unsaved_bytes: u64,
    /// Bytes of changes that a start would play again.
    pub journal_bytes: u64,
    /// Snapshots made since the start.
    pub compactions: u64,
}

/// A queue store. See the module text for what every adapter promises.
#[async_trait]
pub trait QueueStore: Send + Sync + fmt::Debug {
    /// What it is, for logs and metrics: `embedded` or `redis`.
    fn kind(&self) -> &'static str;

    /// How its disk fares, if it has one of its own.
    fn disk(&self) -> Option<DiskState> {
        None
    }

    /// Saves what is not saved yet, for good: every later command is refused. A store that is not
    /// part of this process has nothing to do.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`]: the last changes could not be saved.
    async fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// The shared secret `name`: the stored one, or `proposal` after storing it.
    async fn secret(&self, name: SharedSecret, proposal: [u8; 32]) -> Result<[u8; 32], StoreError>;

    /// Creates `queue` or changes its settings, as `origin` allows. A created queue gets an
    /// incarnation greater than any it had before.
    async fn configure(
        &self,
        queue: &QueueName,
        settings: &Settings,
        origin: Origin,
    ) -> Result<Configured, StoreError>;

    /// Enters users in the given order; one answer each, in that order. At most 1 000 users.
    async fn enter(
        &self,
        queue: &QueueName,
        users: &[UserTag],
    ) -> Result<Versioned<Vec<Entered>>, StoreError>;

    /// Where `user` stands. With `seq` the answer is about exactly that number; without, about
    /// whatever live place the user has.
    async fn standing(
        &self,
        queue: &QueueName,
        user: UserTag,
        seq: Option<Seq>,
        purpose: Purpose,
    ) -> Result<Versioned<Standing>, StoreError>;

    /// Ends the place of `user`; with `seq` only if that is the place. A freed active slot counts
    /// against capacity for another 500 ms, the time other gateways need to hear of it.
    async fn leave(
        &self,
        queue: &QueueName,
        user: UserTag,
        seq: Option<Seq>,
    ) -> Result<Versioned<Left>, StoreError>;

    /// Admits up to `max` users (at most 1 000 a call).
    async fn admit(
        &self,
        queue: &QueueName,
        max: u64,
        by: AdmitBy,
    ) -> Result<Versioned<Admitted>, StoreError>;

    /// Adds one gateway's signs of life.
    async fn heartbeat(&self, queue: &QueueName, heartbeat: &Heartbeat) -> Result<(), StoreError>;

    /// Marks those absent who gave no sign of life in the epochs of `waiting_ttl` before the
    /// current one. Once per epoch, whoever asks first.
    async fn reap(&self, queue: &QueueName) -> Result<Reaped, StoreError>;

    /// What changed since `known`.
    async fn sync(&self, queue: &QueueName, known: Versions) -> Result<Synced, StoreError>;

    /// Frees memory: the part of the bitmap behind the head beyond `keep` numbers, and index
    /// entries that mean nothing any more (some each call). Changes no answer, except that a place
    /// that is over may be answered as [`Gone::Unknown`](crate::queue::command::Gone::Unknown)
    /// instead of how it ended.
    async fn compact(&self, queue: &QueueName, keep: u64) -> Result<(), StoreError>;

    /// Moves the line past what has been `seen` of it, so that no number is given twice. On a
    /// server that is new to the queue the tail also jumps by
    /// [`GAP`](crate::queue::line::GAP), and nobody is admitted for
    /// [`RESTORE_TIME`](crate::queue::line::RESTORE_TIME).
    async fn fence(&self, queue: &QueueName, seen: &Sighting) -> Result<Versioned<()>, StoreError>;

    /// Gives `user` a lost place back, for which a genuine token is the evidence, and answers where
    /// it stands. A number beyond the tail is [`Gone::Lost`](crate::queue::command::Gone::Lost): it
    /// takes a fence first. The lower of two places of a user counts, but an active one stays; no
    /// lease is brought back beyond capacity, except while nobody is admitted.
    async fn revive(
        &self,
        queue: &QueueName,
        user: UserTag,
        evidence: &Evidence,
    ) -> Result<Versioned<Standing>, StoreError>;

    /// Brings back leases that a lost server knew, while nobody is admitted after a fence. At most
    /// 1 000 a call. Answers how many are active by this.
    async fn restore(
        &self,
        queue: &QueueName,
        leases: &[HeldLease],
    ) -> Result<Versioned<u64>, StoreError>;

    /// Makes a line that the store has lost again, with these settings. Only if the store has no
    /// such queue, one of an earlier incarnation, or one that it made a moment ago not knowing of
    /// this one.
    async fn rebuild(
        &self,
        queue: &QueueName,
        settings: &Settings,
        origin: Origin,
        from: &Recollection,
    ) -> Result<Rebuilt, StoreError>;
}

/// A store that any part of the gateway may hold.
pub type SharedStore = Arc<dyn QueueStore>;
