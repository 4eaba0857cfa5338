//! The embedded store: the lines of this process, in its memory, and on its disk if it is given a
//! directory.
//!
//! One lock a queue, held for the length of one command. Time is the process's clock. With a
//! directory every command that changed a line leaves a record in a journal, which a thread of its
//! own brings to the disk; a start plays the journal again. While the disk refuses, the store takes
//! no command at all: nobody is promised what may be lost, and the queue's failure policy applies.

mod compaction;
mod database;
mod disk;
mod held;
mod journal;
mod open;
mod saver;
mod snapshots;

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::{Mutex, RwLock};

use crate::clock::{Clock, Timestamp};
use crate::queue::command::{
    AdmitBy, Admitted, Configured, Entered, Evidence, Heartbeat, HeldLease, Left, Origin, Purpose,
    Reaped, Rebuilt, Recollection, Server, Sighting, Standing, Synced, Versioned, Versions,
};
use crate::queue::line::{GAP, Line};
use crate::queue::settings::Settings;
use crate::queue::{QueueName, Seq, UserTag};

use super::{DiskSettings, DiskState, QueueStore, SharedSecret, SharedStore, StoreError};

use self::disk::Disk;
use self::held::{Held, NewLine};
use self::saver::Progress;

pub use self::open::OpenError;

/// A store in this process's memory: what it holds ends with the process.
#[must_use]
pub fn embedded(clock: Arc<dyn Clock>) -> SharedStore {
    Arc::new(Embedded { clock, queues: RwLock::default(), secrets: Mutex::default(), disk: None })
}

/// A store in this process's memory and in a directory that outlives it. Blocks while what is
/// there is read: about a second for each million users. Dropping it saves what is not saved yet,
/// as [`QueueStore::close`] does, and blocks for that.
///
/// # Errors
/// [`OpenError`]: the directory cannot be used, is used by another process, is of a later version
/// or is damaged.
pub fn embedded_at(
    settings: &DiskSettings,
    clock: Arc<dyn Clock>,
) -> Result<SharedStore, OpenError> {
    let data = database::Data::open(&settings.path)?;
    Ok(Arc::new(Embedded::on(data, settings, clock)?))
}

/// One queue.
#[derive(Debug)]
struct Queue {
    name: QueueName,
    /// Stands for the name in the file.
    id: u32,
    held: Mutex<Held>,
    /// What of it is on the disk; `None` in memory only.
    progress: Option<Progress>,
}

/// A queue, and how many records it has had.
type Changed = (Arc<Queue>, u64);

#[derive(Debug)]
struct Embedded {
    clock: Arc<dyn Clock>,
    queues: RwLock<HashMap<QueueName, Arc<Queue>>>,
    secrets: Mutex<HashMap<SharedSecret, [u8; 32]>>,
    disk: Option<Arc<Disk>>,
}

impl Embedded {
    /// The store that `data` holds.
    fn on(
        data: database::Data,
        settings: &DiskSettings,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, OpenError> {
        let (disk, queues) = Disk::start(data, settings, clock.now())?;
        Ok(Self {
            clock,
            queues: RwLock::new(queues),
            secrets: Mutex::default(),
            disk: Some(Arc::new(disk)),
        })
    }

    fn queue(&self, name: &QueueName) -> Result<Arc<Queue>, StoreError> {
        let queue = self.queues.read().get(name).cloned();
        queue.ok_or_else(|| StoreError::UnknownQueue(name.clone()))
    }

    /// Runs one command on one queue. Also says how many records the queue has had since.
    fn carry_out<T>(
        &self,
        queue: &Arc<Queue>,
        command: impl FnOnce(&mut Held, Timestamp) -> T,
    ) -> Result<(T, u64), StoreError> {
        let mut held = queue.held.lock();
        let Some(disk) = &self.disk else { return Ok((command(&mut held, self.clock.now()), 0)) };
        disk.saver.takes()?;
        let before = held.unsaved();
        let answer = command(&mut held, self.clock.now());
        disk.saver.grew(queue, before, held.unsaved());
        Ok((answer, held.count()))
    }

    /// Runs one command and waits for the disk if answers have to: also for what others did before,
    /// since the answer may rest on it.
    async fn answer<T>(
        &self,
        queue: &QueueName,
        command: impl FnOnce(&mut Held, Timestamp) -> T,
    ) -> Result<T, StoreError> {
        let queue = self.queue(queue)?;
        let (answer, count) = self.carry_out(&queue, command)?;
        if let Some(disk) = &self.disk
            && disk.saver.is_sync()
        {
            disk.saver.saved(&queue, count).await?;
        }
        Ok(answer)
    }

    /// A new queue, which is in nobody's hands yet. `begin` writes down how it began.
    fn new_queue(&self, name: &QueueName, line: Line, begin: impl FnOnce(&mut Held)) -> Arc<Queue> {
        let name = name.clone();
        let Some(disk) = &self.disk else {
            let held = Mutex::new(Held::in_memory(line));
            return Arc::new(Queue { name, id: 0, held, progress: None });
        };
        let id = disk.register(&name, line.last_incarnation());
        let progress = Some(Progress::new(None, compaction::due_at(0)));
        let held = Mutex::new(Held::journaled(line));
        let queue = Arc::new(Queue { name, id, held, progress });
        let mut held = queue.held.lock();
        begin(&mut held);
        disk.saver.grew(&queue, 0, held.unsaved());
        drop(held);
        queue
    }

    /// The last incarnation of `name` that is known, also of a queue that is gone; 0 = none.
    fn last_incarnation(&self, name: &QueueName) -> u32 {
        self.disk.as_ref().map_or(0, |disk| disk.last_incarnation(name))
    }

    /// Whether commands may be carried out. To be asked under the lock of what they change.
    fn takes(&self) -> Result<(), StoreError> {
        self.disk.as_ref().map_or(Ok(()), |disk| disk.saver.takes())
    }

    /// Creates the queue, unless there is one.
    fn create(
        &self,
        name: &QueueName,
        settings: &Settings,
        origin: &Origin,
    ) -> Result<Option<Arc<Queue>>, StoreError> {
        let mut queues = self.queues.write();
        if queues.contains_key(name) {
            return Ok(None);
        }
        self.takes()?;
        let now = self.clock.now();
        // In memory nothing outlives the process, so its time is greater than any earlier one.
        let started = u32::try_from(now.as_secs()).unwrap_or(u32::MAX);
        let previous = self.last_incarnation(name);
        let incarnation = match previous {
            0 => started,
            last => started.max(last.saturating_add(1)),
        };
        let new = NewLine { incarnation, previous, settings, text_hash: text_hash(origin) };
        let queue = self.new_queue(name, new.line(now), |held| held.created(&new));
        queues.insert(name.clone(), Arc::clone(&queue));
        Ok(Some(queue))
    }

    /// Makes a line of what is left of it, if there is none or that one gives way. Also says which
    /// queue that is, and how many records it has had.
    fn make_again(
        &self,
        name: &QueueName,
        declared: (&Settings, Option<u64>),
        from: &Recollection,
    ) -> Result<(Rebuilt, Option<Changed>), StoreError> {
        let mut queues = self.queues.write();
        if let Some(queue) = queues.get(name) {
            let rebuild = |held: &mut Held, now| held.rebuild(declared, from, GAP, now);
            let (outcome, count) = self.carry_out(queue, rebuild)?;
            if let (Rebuilt::Done, Some(disk)) = (outcome, &self.disk) {
                disk.note_incarnation(name, from.incarnation);
            }
            return Ok((outcome, Some((Arc::clone(queue), count))));
        }
        self.takes()?;
        let last = self.last_incarnation(name);
        if from.incarnation <= last {
            // It was there, and is over.
            return Ok((Rebuilt::Refused, None));
        }
        let (settings, hash) = declared;
        let line = Line::rebuilt((settings.clone(), hash), from, last, GAP, self.clock.now());
        let queue = self.new_queue(name, line, |held| held.rebuilt(declared, from, last, GAP));
        queues.insert(name.clone(), Arc::clone(&queue));
        Ok((Rebuilt::Done, Some((queue, 1))))
    }

    /// From now on nothing is taken any more.
    fn take_no_more(&self, disk: &Disk) {
        if disk.saver.close() {
            // Whoever gets a lock after us sees that the store is closed.
            for queue in self.queues.write().values() {
                let mut held = queue.held.lock();
                let before = held.unsaved();
                held.observed();
                disk.saver.grew(queue, before, held.unsaved());
            }
        }
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        if let Some(disk) = &self.disk {
            self.take_no_more(disk);
            // The saver has said what is wrong.
            let _ = disk.stop();
        }
    }
}

#[async_trait]
impl QueueStore for Embedded {
    fn kind(&self) -> &'static str {
        "embedded"
    }

    fn disk(&self) -> Option<DiskState> {
        self.disk.as_ref().map(|disk| disk.state(self.queues.read().values()))
    }

    async fn close(&self) -> Result<(), StoreError> {
        let Some(disk) = self.disk.clone() else { return Ok(()) };
        self.take_no_more(&disk);
        tokio::task::spawn_blocking(move || disk.stop())
            .await
            .unwrap_or_else(|error| Err(StoreError::Indeterminate(error.into())))
    }

    async fn secret(&self, name: SharedSecret, proposal: [u8; 32]) -> Result<[u8; 32], StoreError> {
        let Some(disk) = self.disk.clone() else {
            return Ok(*self.secrets.lock().entry(name).or_insert(proposal));
        };
        disk.saver.takes()?;
        if let Some(stored) = self.secrets.lock().get(&name) {
            return Ok(*stored);
        }
        // Rare, and to be lost at no price: straight to the disk.
        let stored = tokio::task::spawn_blocking(move || disk.secret(name, proposal))
            .await
            .unwrap_or_else(|error| Err(StoreError::Indeterminate(error.into())))?;
        self.secrets.lock().insert(name, stored);
        Ok(stored)
    }

    async fn configure(
        &self,
        queue: &QueueName,
        settings: &Settings,
        origin: Origin,
    ) -> Result<Configured, StoreError> {
        let (queue, configured, count) =
            if let Some(queue) = self.create(queue, settings, &origin)? {
                (queue, Configured::Created, 1)
            } else {
                let queue = self.queue(queue)?;
                let configure = |held: &mut Held, now| held.configure(settings, &origin, now);
                let (configured, count) = self.carry_out(&queue, configure)?;
                (queue, configured, count)
            };
        // As rare, and what an operator said is never lost.
        if let Some(disk) = &self.disk {
            disk.saver.saved(&queue, count).await?;
        }
        Ok(configured)
    }

    async fn enter(
        &self,
        queue: &QueueName,
        users: &[UserTag],
    ) -> Result<Versioned<Vec<Entered>>, StoreError> {
        self.answer(queue, |held, now| held.enter(users, now)).await
    }

    async fn standing(
        &self,
        queue: &QueueName,
        user: UserTag,
        seq: Option<Seq>,
        purpose: Purpose,
    ) -> Result<Versioned<Standing>, StoreError> {
        self.answer(queue, |held, now| held.standing(user, seq, purpose, now)).await
    }

    async fn leave(
        &self,
        queue: &QueueName,
        user: UserTag,
        seq: Option<Seq>,
    ) -> Result<Versioned<Left>, StoreError> {
        self.answer(queue, |held, now| held.leave(user, seq, now)).await
    }

    async fn admit(
        &self,
        queue: &QueueName,
        max: u64,
        by: AdmitBy,
    ) -> Result<Versioned<Admitted>, StoreError> {
        self.answer(queue, |held, now| held.admit(max, by, now)).await
    }

    async fn heartbeat(&self, queue: &QueueName, heartbeat: &Heartbeat) -> Result<(), StoreError> {
        self.answer(queue, |held, now| held.heartbeat(heartbeat, now)).await
    }

    async fn reap(&self, queue: &QueueName) -> Result<Reaped, StoreError> {
        self.answer(queue, Held::reap).await
    }

    async fn sync(&self, queue: &QueueName, known: Versions) -> Result<Synced, StoreError> {
        let queue = self.queue(queue)?;
        Ok(self.carry_out(&queue, |held, now| held.line.sync(known, now))?.0)
    }

    async fn compact(&self, queue: &QueueName, keep: u64) -> Result<(), StoreError> {
        self.answer(queue, |held, now| held.compact(keep, now)).await
    }

    async fn fence(&self, queue: &QueueName, seen: &Sighting) -> Result<Versioned<()>, StoreError> {
        self.answer(queue, |held, now| held.fence(seen, Server::Same, GAP, now)).await
    }

    async fn revive(
        &self,
        queue: &QueueName,
        user: UserTag,
        evidence: &Evidence,
    ) -> Result<Versioned<Standing>, StoreError> {
        self.answer(queue, |held, now| held.revive(user, evidence, now)).await
    }

    async fn restore(
        &self,
        queue: &QueueName,
        leases: &[HeldLease],
    ) -> Result<Versioned<u64>, StoreError> {
        self.answer(queue, |held, now| held.restore(leases, now)).await
    }

    async fn rebuild(
        &self,
        queue: &QueueName,
        settings: &Settings,
        origin: Origin,
        from: &Recollection,
    ) -> Result<Rebuilt, StoreError> {
        let (rebuilt, made) = self.make_again(queue, (settings, text_hash(&origin)), from)?;
        if let (Some(disk), Some((queue, count))) = (&self.disk, made) {
            disk.saver.saved(&queue, count).await?;
        }
        Ok(rebuilt)
    }
}

const fn text_hash(origin: &Origin) -> Option<u64> {
    match origin {
        Origin::File(hash) => Some(*hash),
        Origin::Operator => None,
    }
}

#[cfg(test)]
mod tests;
