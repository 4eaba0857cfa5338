//! The embedded store: the lines of this process, in its memory.
//!
//! One lock a queue, held for the length of one command. Time is the process's clock.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::{Mutex, RwLock};

use crate::clock::Clock;
use crate::queue::command::{
    AdmitBy, Admitted, Configured, Entered, Evidence, Heartbeat, HeldLease, Left, Origin, Purpose,
    Reaped, Rebuilt, Recollection, Server, Sighting, Standing, Synced, Versioned, Versions,
};
use crate::queue::line::{GAP, Line};
use crate::queue::settings::Settings;
use crate::queue::{QueueName, Seq, UserTag};

use super::{QueueStore, SharedSecret, SharedStore, StoreError};

/// A store in this process's memory: what it holds ends with the process.
#[must_use]
pub fn embedded(clock: Arc<dyn Clock>) -> SharedStore {
    Arc::new(Embedded { clock, lines: RwLock::default(), secrets: Mutex::default() })
}

#[derive(Debug)]
struct Embedded {
    clock: Arc<dyn Clock>,
    lines: RwLock<HashMap<QueueName, Arc<Mutex<Line>>>>,
    secrets: Mutex<HashMap<SharedSecret, [u8; 32]>>,
}

impl Embedded {
    /// Runs one command on one line.
    fn with<T>(
        &self,
        queue: &QueueName,
        command: impl FnOnce(&mut Line) -> T,
    ) -> Result<T, StoreError> {
        let line = self.lines.read().get(queue).cloned();
        let line = line.ok_or_else(|| StoreError::UnknownQueue(queue.clone()))?;
        let mut line = line.lock();
        Ok(command(&mut line))
    }
}

#[async_trait]
impl QueueStore for Embedded {
    fn kind(&self) -> &'static str {
        "embedded"
    }

    async fn secret(&self, name: SharedSecret, proposal: [u8; 32]) -> Result<[u8; 32], StoreError> {
        Ok(*self.secrets.lock().entry(name).or_insert(proposal))
    }

    async fn configure(
        &self,
        queue: &QueueName,
        settings: &Settings,
        origin: Origin,
    ) -> Result<Configured, StoreError> {
        let now = self.clock.now();
        let mut lines = self.lines.write();
        if let Some(line) = lines.get(queue) {
            return Ok(line.lock().configure(settings, &origin, now));
        }
        // Nothing outlives the process, so the start time is greater than any earlier incarnation.
        let incarnation = u32::try_from(now.as_secs()).unwrap_or(u32::MAX);
        let line = Line::new(incarnation, settings.clone(), text_hash(&origin), now);
        lines.insert(queue.clone(), Arc::new(Mutex::new(line)));
        Ok(Configured::Created)
    }

    async fn enter(
        &self,
        queue: &QueueName,
        users: &[UserTag],
    ) -> Result<Versioned<Vec<Entered>>, StoreError> {
        self.with(queue, |line| line.enter(users, self.clock.now()))
    }

    async fn standing(
        &self,
        queue: &QueueName,
        user: UserTag,
        seq: Option<Seq>,
        purpose: Purpose,
    ) -> Result<Versioned<Standing>, StoreError> {
        self.with(queue, |line| line.standing(user, seq, purpose, self.clock.now()))
    }

    async fn leave(
        &self,
        queue: &QueueName,
        user: UserTag,
        seq: Option<Seq>,
    ) -> Result<Versioned<Left>, StoreError> {
        self.with(queue, |line| line.leave(user, seq, self.clock.now()))
    }

    async fn admit(
        &self,
        queue: &QueueName,
        max: u64,
        by: AdmitBy,
    ) -> Result<Versioned<Admitted>, StoreError> {
        self.with(queue, |line| line.admit(max, by, self.clock.now()))
    }

    async fn heartbeat(&self, queue: &QueueName, heartbeat: &Heartbeat) -> Result<(), StoreError> {
        self.with(queue, |line| line.heartbeat(heartbeat, self.clock.now()))
    }

    async fn reap(&self, queue: &QueueName) -> Result<Reaped, StoreError> {
        self.with(queue, |line| line.reap(self.clock.now()))
    }

    async fn sync(&self, queue: &QueueName, known: Versions) -> Result<Synced, StoreError> {
        self.with(queue, |line| line.sync(known, self.clock.now()))
    }

    async fn compact(&self, queue: &QueueName, keep: u64) -> Result<(), StoreError> {
        self.with(queue, |line| line.compact(keep, self.clock.now()))
    }

    async fn fence(&self, queue: &QueueName, seen: &Sighting) -> Result<Versioned<()>, StoreError> {
        self.with(queue, |line| line.fence(seen, Server::Same, GAP, self.clock.now()))
    }

    async fn revive(
        &self,
        queue: &QueueName,
        user: UserTag,
        evidence: &Evidence,
    ) -> Result<Versioned<Standing>, StoreError> {
        self.with(queue, |line| line.revive(user, evidence, self.clock.now()))
    }

    async fn restore(
        &self,
        queue: &QueueName,
        leases: &[HeldLease],
    ) -> Result<Versioned<u64>, StoreError> {
        self.with(queue, |line| line.restore(leases, self.clock.now()))
    }

    async fn rebuild(
        &self,
        queue: &QueueName,
        settings: &Settings,
        origin: Origin,
        from: &Recollection,
    ) -> Result<Rebuilt, StoreError> {
        let now = self.clock.now();
        let mut lines = self.lines.write();
        let (compared, last) = lines.get(queue).map_or((Rebuilt::Done, 0), |line| {
            let line = line.lock();
            (line.compare(from, now), line.last_incarnation())
        });
        if compared == Rebuilt::Done {
            let declared = (settings.clone(), text_hash(&origin));
            let line = Line::rebuilt(declared, from, last, GAP, now);
            lines.insert(queue.clone(), Arc::new(Mutex::new(line)));
        }
        Ok(compared)
    }
}

const fn text_hash(origin: &Origin) -> Option<u64> {
    match origin {
        Origin::File(hash) => Some(*hash),
        Origin::Operator => None,
    }
}
