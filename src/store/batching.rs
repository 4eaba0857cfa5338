//! Lets users who enter one queue at the same time share one command.
//!
//! While a call is on its way, newcomers collect; when it is back they go out together, in the
//! order they came. Nobody waits for company: the first one goes at once. Every other command
//! passes through untouched.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::queue::command::{
    AdmitBy, Admitted, Configured, Entered, Evidence, Heartbeat, HeldLease, Left, Origin, Purpose,
    Reaped, Rebuilt, Recollection, Sighting, Standing, Synced, Versioned, Versions,
};
use crate::queue::settings::Settings;
use crate::queue::{QueueName, Seq, UserTag};

use super::{QueueStore, SharedSecret, SharedStore, StoreError};

/// Users in one call: about 0.2 ms of the store's time.
const BATCH: usize = 50;

/// `inner`, with entering batched. Must be used inside a tokio runtime.
pub(super) fn batching(inner: SharedStore) -> SharedStore {
    Arc::new(Batching { inner, lanes: Arc::default() })
}

type Answer = Result<Versioned<Vec<Entered>>, StoreError>;

/// One caller.
#[derive(Debug)]
struct Waiting {
    users: Vec<UserTag>,
    answer: oneshot::Sender<Answer>,
}

/// The callers behind the call on its way; a queue without one has no lane.
type Lanes = Mutex<HashMap<QueueName, VecDeque<Waiting>>>;

#[derive(Debug)]
struct Batching {
    inner: SharedStore,
    lanes: Arc<Lanes>,
}

/// Serves one lane until it is empty. If its runtime ends first, the lane is given up, and those
/// in it hear that.
struct Driver {
    inner: SharedStore,
    lanes: Arc<Lanes>,
    queue: QueueName,
    /// Whether the lane was ended in order; the next one of its name is another driver's.
    done: bool,
}

impl Drop for Driver {
    fn drop(&mut self) {
        if !self.done {
            self.lanes.lock().remove(&self.queue);
        }
    }
}

impl Driver {
    async fn serve(mut self) {
        while let Some(batch) = self.next() {
            let users: Vec<UserTag> = batch.iter().flat_map(|one| &one.users).copied().collect();
            match self.inner.enter(&self.queue, &users).await {
                Ok(answer) => hand_out(batch, &answer),
                Err(error) => self.fail(batch, error),
            }
        }
    }

    /// The callers of the next call, at least one; `None` ends the lane.
    fn next(&mut self) -> Option<Vec<Waiting>> {
        let mut lanes = self.lanes.lock();
        let lane = lanes.get_mut(&self.queue)?;
        let (mut batch, mut users) = (Vec::new(), 0);
        while let Some(one) = lane.front() {
            users += one.users.len();
            if users > BATCH && !batch.is_empty() {
                break;
            }
            batch.extend(lane.pop_front());
        }
        if batch.is_empty() {
            lanes.remove(&self.queue);
            self.done = true;
            return None;
        }
        Some(batch)
    }

    /// Tells a whole batch. When the store is away, those behind hear it too: one failed call
    /// after the other would keep the last of them waiting for ever.
    fn fail(&self, batch: Vec<Waiting>, error: StoreError) {
        let away = matches!(error, StoreError::Unavailable(_) | StoreError::Indeterminate(_));
        let cause = Arc::new(error);
        for one in batch {
            let _ = one.answer.send(Err(copy_of(&cause)));
        }
        if away {
            let behind = self.lanes.lock().get_mut(&self.queue).map(std::mem::take);
            for one in behind.into_iter().flatten() {
                let unsent = StoreError::Unavailable(Box::new(Shared(Arc::clone(&cause))));
                let _ = one.answer.send(Err(unsent));
            }
        }
    }
}

fn hand_out(batch: Vec<Waiting>, answer: &Versioned<Vec<Entered>>) {
    let mut entered = answer.value.iter().copied();
    for one in batch {
        let value: Vec<Entered> = entered.by_ref().take(one.users.len()).collect();
        let (version, incarnation, at) = (answer.version, answer.incarnation, answer.at);
        let _ = one.answer.send(Ok(Versioned { version, incarnation, at, value }));
    }
}

/// An error that several callers get.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct Shared(Arc<StoreError>);

fn copy_of(error: &Arc<StoreError>) -> StoreError {
    match &**error {
        StoreError::UnknownQueue(queue) => StoreError::UnknownQueue(queue.clone()),
        StoreError::NeedsFence(queue) => StoreError::NeedsFence(queue.clone()),
        StoreError::Corrupt(what) => StoreError::Corrupt(what.clone()),
        StoreError::Unavailable(_) => StoreError::Unavailable(Box::new(Shared(Arc::clone(error)))),
        StoreError::Indeterminate(_) => {
            StoreError::Indeterminate(Box::new(Shared(Arc::clone(error))))
        }
    }
}

#[async_trait]
impl QueueStore for Batching {
    fn kind(&self) -> &'static str {
        self.inner.kind()
    }

    async fn secret(&self, name: SharedSecret, proposal: [u8; 32]) -> Result<[u8; 32], StoreError> {
        self.inner.secret(name, proposal).await
    }

    async fn configure(
        &self,
        queue: &QueueName,
        settings: &Settings,
        origin: Origin,
    ) -> Result<Configured, StoreError> {
        self.inner.configure(queue, settings, origin).await
    }

    async fn enter(
        &self,
        queue: &QueueName,
        users: &[UserTag],
    ) -> Result<Versioned<Vec<Entered>>, StoreError> {
        let (answer, answered) = oneshot::channel();
        let one = Waiting { users: users.to_vec(), answer };
        let driver = {
            let mut lanes = self.lanes.lock();
            let under_way = lanes.contains_key(queue);
            lanes.entry(queue.clone()).or_default().push_back(one);
            (!under_way).then(|| Driver {
                inner: Arc::clone(&self.inner),
                lanes: Arc::clone(&self.lanes),
                queue: queue.clone(),
                done: false,
            })
        };
        // A task of its own: the caller may hang up while others wait behind.
        if let Some(driver) = driver {
            tokio::spawn(driver.serve());
        }
        answered.await.unwrap_or_else(|error| Err(StoreError::Indeterminate(Box::new(error))))
    }

    async fn standing(
        &self,
        queue: &QueueName,
        user: UserTag,
        seq: Option<Seq>,
        purpose: Purpose,
    ) -> Result<Versioned<Standing>, StoreError> {
        self.inner.standing(queue, user, seq, purpose).await
    }

    async fn leave(
        &self,
        queue: &QueueName,
        user: UserTag,
        seq: Option<Seq>,
    ) -> Result<Versioned<Left>, StoreError> {
        self.inner.leave(queue, user, seq).await
    }

    async fn admit(
        &self,
        queue: &QueueName,
        max: u64,
        by: AdmitBy,
    ) -> Result<Versioned<Admitted>, StoreError> {
        self.inner.admit(queue, max, by).await
    }

    async fn heartbeat(&self, queue: &QueueName, heartbeat: &Heartbeat) -> Result<(), StoreError> {
        self.inner.heartbeat(queue, heartbeat).await
    }

    async fn reap(&self, queue: &QueueName) -> Result<Reaped, StoreError> {
        self.inner.reap(queue).await
    }

    async fn sync(&self, queue: &QueueName, known: Versions) -> Result<Synced, StoreError> {
        self.inner.sync(queue, known).await
    }

    async fn compact(&self, queue: &QueueName, keep: u64) -> Result<(), StoreError> {
        self.inner.compact(queue, keep).await
    }

    async fn fence(&self, queue: &QueueName, seen: &Sighting) -> Result<Versioned<()>, StoreError> {
        self.inner.fence(queue, seen).await
    }

    async fn revive(
        &self,
        queue: &QueueName,
        user: UserTag,
        evidence: &Evidence,
    ) -> Result<Versioned<Standing>, StoreError> {
        self.inner.revive(queue, user, evidence).await
    }

    async fn restore(
        &self,
        queue: &QueueName,
        leases: &[HeldLease],
    ) -> Result<Versioned<u64>, StoreError> {
        self.inner.restore(queue, leases).await
    }

    async fn rebuild(
        &self,
        queue: &QueueName,
        settings: &Settings,
        origin: Origin,
        from: &Recollection,
    ) -> Result<Rebuilt, StoreError> {
        self.inner.rebuild(queue, settings, origin, from).await
    }
}
