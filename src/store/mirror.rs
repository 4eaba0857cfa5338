//! A gateway's local copy of what it needs to answer polls and to gate requests.
//!
//! Each queue has an immutable [`Picture`], replaced about ten times a second;
//! ranks come from it without asking the store. The store is asked only for what changes it
//! (enter, leave) and when somebody's turn has come (the first use of a place, an absent waiter
//! who speaks again), and then at most once a second for one number.
//!
//! Staleness is at most a quarter of a second while the store answers. An active token is taken at
//! its word from the local copy only while that copy is younger than [`REVOCATION_DELAY`].

mod arrivals;
mod heartbeats;
mod leases;
mod picture;
mod queue;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use foldhash::fast::RandomState;
use tokio::sync::watch;
use tracing::{debug, error, info, warn};

use crate::clock::Clock;
use crate::queue::command::{Configured, Origin};
use crate::queue::definition::Definition;
use crate::queue::line::REVOCATION_DELAY;
use crate::queue::settings::OnStoreFailure;
use crate::queue::{QueueName, QueueTemplate};

use super::{SharedSecret, SharedStore, StoreError};

pub use picture::Picture;
pub use queue::{LocalQueue, Seen};

/// How often a queue in use is copied.
const PULL_EVERY: Duration = Duration::from_millis(100);

/// Pulls between two looks at a queue that nobody uses: once a second.
const IDLE_PULLS: u64 = 10;

/// Numbers kept in the bitmap behind the head, for waiters whose turn has just come.
const KEPT_BEHIND_HEAD: u64 = 1 << 16;

/// All queues of one gateway.
#[derive(Debug)]
pub struct Mirror {
    store: SharedStore,
    clock: Arc<dyn Clock>,
    /// Identifies this gateway's heartbeats; random, so that two never share one.
    gateway: u64,
    definitions: Vec<Definition>,
    /// What all gateways on the store share, to be told to it again when it has lost it.
    secrets: Vec<(SharedSecret, [u8; 32])>,
    queues: ArcSwap<HashMap<QueueName, Arc<LocalQueue>, RandomState>>,
    /// Serialises additions to `queues`.
    adding: tokio::sync::Mutex<()>,
    store_answers: AtomicBool,
}

impl Mirror {
    /// A mirror of `store` for the declared queues. Call [`Mirror::open`] before serving.
    ///
    /// - `gateway`: a random number that identifies this gateway.
    #[must_use]
    pub fn new(
        store: SharedStore,
        clock: Arc<dyn Clock>,
        gateway: u64,
        definitions: Vec<Definition>,
    ) -> Self {
        Self {
            store,
            clock,
            gateway,
            definitions,
            secrets: Vec::new(),
            queues: ArcSwap::default(),
            adding: tokio::sync::Mutex::new(()),
            store_answers: AtomicBool::new(true),
        }
    }

    /// With these secrets, which a store that loses its data is told again.
    #[must_use]
    pub fn with_secrets(mut self, secrets: Vec<(SharedSecret, [u8; 32])>) -> Self {
        self.secrets = secrets;
        self
    }

    /// Makes sure that every declared queue exists in the store, and takes a first picture of each.
    ///
    /// # Errors
    /// The store's error; repeating is safe.
    pub async fn open(&self) -> Result<(), StoreError> {
        for definition in &self.definitions {
            if let QueueTemplate::Fixed(name) = &definition.template {
                self.add(name, definition).await?;
            }
        }
        Ok(())
    }

    /// The queue of this name, if it is declared. An instance of a template is created on first
    /// use, up to the template's limit; beyond it there is no such queue.
    ///
    /// # Errors
    /// The store's error while creating an instance.
    pub async fn queue(&self, name: &QueueName) -> Result<Option<Arc<LocalQueue>>, StoreError> {
        if let Some(queue) = self.queues.load().get(name) {
            return Ok(Some(Arc::clone(queue)));
        }
        let Some(definition) = self.definitions.iter().find(|d| d.owns(name)) else {
            return Ok(None);
        };
        if !self.store_answers.load(Ordering::Relaxed) {
            return Err(StoreError::away());
        }
        self.add(name, definition).await
    }

    /// What a declared queue's policy is while the store is away, also for an instance of a
    /// template that this gateway does not have yet.
    #[must_use]
    pub fn failure_policy(&self, name: &QueueName) -> Option<OnStoreFailure> {
        self.definition_of(name).map(|definition| definition.settings.on_store_failure)
    }

    /// The queue of this name if this gateway has it already.
    #[must_use]
    pub fn known(&self, name: &QueueName) -> Option<Arc<LocalQueue>> {
        self.queues.load().get(name).cloned()
    }

    /// All queues this gateway has.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<LocalQueue>> {
        self.queues.load().values().cloned().collect()
    }

    /// Whether the store answered last time.
    #[must_use]
    pub fn store_answers(&self) -> bool {
        self.store_answers.load(Ordering::Relaxed)
    }

    async fn add(
        &self,
        name: &QueueName,
        definition: &Definition,
    ) -> Result<Option<Arc<LocalQueue>>, StoreError> {
        let _one_at_a_time = self.adding.lock().await;
        let queues = self.queues.load_full();
        if let Some(queue) = queues.get(name) {
            return Ok(Some(Arc::clone(queue)));
        }
        let label = definition.template.label();
        let instances = queues.values().filter(|queue| queue.label() == label).count();
        if instances >= definition.max_instances {
            debug!(queue.name = %name, "`{label}` has its {instances} instances; `{name}` is refused");
            return Ok(None);
        }
        self.configure(name, definition).await?;
        let queue = LocalQueue::open(
            name.clone(),
            definition,
            Arc::clone(&self.store),
            Arc::clone(&self.clock),
        )
        .await?;
        let queue = Arc::new(queue);
        // Once, and not for every made-up name after it.
        if instances + 1 == definition.max_instances && definition.max_instances > 1 {
            warn!("`{label}` has {} instances now; further names are refused", instances + 1);
        }
        let mut grown = (*queues).clone();
        grown.insert(name.clone(), Arc::clone(&queue));
        self.queues.store(Arc::new(grown));
        Ok(Some(queue))
    }

    async fn configure(&self, name: &QueueName, from: &Definition) -> Result<(), StoreError> {
        let origin = Origin::File(from.text_hash);
        match self.store.configure(name, &from.settings, origin).await? {
            Configured::Created => info!(queue.name = %name, "queue `{name}` was created"),
            Configured::Changed => {
                info!(queue.name = %name, "queue `{name}` takes its changed settings from the file");
            }
            Configured::Kept => debug!(queue.name = %name, "queue `{name}` keeps its settings"),
        }
        Ok(())
    }

    /// Keeps all pictures fresh, brings signs of life to the store and has the silent judged,
    /// until `stop` turns true.
    pub async fn run(self: Arc<Self>, mut stop: watch::Receiver<bool>) {
        let mut pulls = tokio::time::interval(PULL_EVERY);
        pulls.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut round: u64 = 0;
        while !*stop.borrow_and_update() {
            tokio::select! {
                _ = pulls.tick() => {}
                _ = stop.changed() => continue,
            }
            round += 1;
            // Side by side, so that a slow one does not let the others grow old.
            let due =
                |queue: &Arc<LocalQueue>| queue.is_in_use() || round.is_multiple_of(IDLE_PULLS);
            let all = self.all();
            let due = all.iter().filter(|queue| due(queue)).map(|queue| self.care_for(queue));
            let answered = futures_util::future::join_all(due).await;
            if !answered.is_empty() {
                // Of a cluster a part may be away: its queues know, and others can still be made.
                let any = answered.contains(&true);
                self.store_answers.store(any, Ordering::Relaxed);
            }
            if round.is_multiple_of(IDLE_PULLS) {
                self.forget_abandoned();
            }
        }
    }

    /// Makes room among the instances of templates: those that nobody uses any more are forgotten
    /// here. The store keeps them.
    fn forget_abandoned(&self) {
        // Whoever is adding may wait for the store; there is time enough for this.
        let Ok(_one_at_a_time) = self.adding.try_lock() else { return };
        let queues = self.queues.load_full();
        let abandoned =
            |queue: &LocalQueue| queue.label() != queue.name().as_str() && queue.is_abandoned();
        if queues.values().any(|queue| abandoned(queue)) {
            let mut kept = (*queues).clone();
            kept.retain(|_, queue| !abandoned(queue));
            self.queues.store(Arc::new(kept));
        }
    }

    /// One round for one queue. Whether the store answered.
    async fn care_for(&self, queue: &LocalQueue) -> bool {
        let pulled = match queue.pull().await {
            Err(StoreError::UnknownQueue(_)) => self.bring_back(queue).await,
            pulled => pulled,
        };
        // Before anybody else may enter.
        let pulled = match pulled {
            Ok(()) => queue.enter_arrivals().await,
            failed => failed,
        };
        let answers = pulled.is_ok();
        let answered = queue.set_store_answers(answers);
        match &pulled {
            Ok(()) if !answered => {
                info!(queue.name = %queue.name(), "the store answers again about queue `{}`", queue.name());
            }
            Err(error) if answered => {
                let cause = error.cause();
                warn!(%error, %cause, queue.name = %queue.name(), "the store does not answer about queue `{}`: {error} ({cause})", queue.name());
            }
            _ => {}
        }
        if answers && let Err(error) = queue.tend(self.gateway, KEPT_BEHIND_HEAD).await {
            debug!(%error, queue.name = %queue.name(), "signs of life could not be brought: {error}");
        }
        answers
    }

    /// The store has lost a queue: its line is made again from the copy here, if there is one.
    async fn bring_back(&self, queue: &LocalQueue) -> Result<(), StoreError> {
        for (name, secret) in &self.secrets {
            if self.store.secret(*name, *secret).await? != *secret {
                error!(
                    secret.name = ?name,
                    "the store has lost its data and got a new {name:?} from another gateway; restart this gateway"
                );
            }
        }
        if let Some(from) = queue.recollection() {
            return queue.rebuild(&from).await;
        }
        let name = queue.name();
        let Some(definition) = self.definition_of(name) else { return Ok(()) };
        warn!(queue.name = %name, "the store does not know queue `{name}`; creating it");
        self.configure(name, definition).await
    }

    fn definition_of(&self, name: &QueueName) -> Option<&Definition> {
        self.definitions.iter().find(|definition| definition.owns(name))
    }
}

/// The store's clock must be this close to the end of a lease for a gateway to stop honouring it:
/// half a pull and the error of the clock offset, so that gate and store never both count a slot.
pub const LEASE_MARGIN: Duration = Duration::from_millis(250);

/// A local copy older than this does not vouch for active tokens.
pub(crate) const VOUCHES_FOR: Duration = REVOCATION_DELAY;

#[cfg(test)]
mod tests;
