//! A store's life on a disk: from what is read at the start to the last word at a stop.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Instant;

use parking_lot::Mutex;
use tracing::{info, warn};

use crate::clock::Timestamp;
use crate::queue::QueueName;
use crate::queue::command::{Server, Sighting};
use crate::queue::line::{GAP, RESTORE_TIME};
use crate::store::{DiskSettings, DiskState, SharedSecret, StoreError};

use super::database::Data;
use super::held::Held;
use super::open::{self, OpenError, ReadError};
use super::saver::{Progress, Saver};
use super::{Queue, compaction};

/// The threads and the file behind a store.
#[derive(Debug)]
pub(super) struct Disk {
    data: Arc<Data>,
    pub(super) saver: Saver,
    names: Mutex<Names>,
    compactor: Mutex<Option<JoinHandle<()>>>,
    stop: Arc<AtomicBool>,
    compactions: Arc<AtomicU64>,
}

/// Names of queues that are or were, with the last incarnation of each.
#[derive(Debug, Default)]
struct Names {
    incarnations: HashMap<QueueName, u32>,
    next_id: u32,
}

impl Disk {
    /// Reads everything and starts the threads.
    pub(super) fn start(
        data: Data,
        settings: &DiskSettings,
        now: Timestamp,
    ) -> Result<(Self, HashMap<QueueName, Arc<Queue>>), OpenError> {
        let path = &settings.path;
        let began = Instant::now();
        let failed = |error| OpenError::of_storage(path, error);
        let mut names = Names::default();
        let mut queues = HashMap::new();
        for (name, row) in data.queues().map_err(failed)? {
            names.next_id = names.next_id.max(row.id + 1);
            names.incarnations.insert(name.clone(), row.incarnation);
            let saved = open::read(&data, &name, &row, u64::MAX, &|| true);
            let saved = saved.map_err(|error| match error {
                ReadError::Database(error) => OpenError::of_storage(path, error),
                error => OpenError::Damaged { path: path.clone(), source: error.into() },
            })?;
            data.sweep(&row).map_err(failed)?;
            let Some(saved) = saved else { continue };
            let snapshot = row.snapshot.map_or(0, |snapshot| snapshot.bytes);
            let read = Some((row, saved.next_row, saved.journal_bytes));
            let queue = Queue {
                name: name.clone(),
                id: row.id,
                held: Mutex::new(Held::journaled(saved.line)),
                progress: Some(Progress::new(read, compaction::due_at(snapshot))),
            };
            queues.insert(name, Arc::new(queue));
        }
        let stopped_cleanly = data.start().map_err(failed)?;
        let data = Arc::new(data);
        let stop = Arc::new(AtomicBool::new(false));
        let compactions = Arc::new(AtomicU64::new(0));
        let unusable = |source| OpenError::Unusable { path: path.clone(), source };
        let (sender, due) = mpsc::channel();
        let saver = Saver::start(Arc::clone(&data), settings.durability, sender);
        let saver = saver.map_err(unusable)?;
        let compactor = std::thread::Builder::new().name("anteroom-compact".into()).spawn({
            let (data, stop, done) =
                (Arc::clone(&data), Arc::clone(&stop), Arc::clone(&compactions));
            move || compaction::run(&data, &due, &stop, &done)
        });
        let compactor = Mutex::new(Some(compactor.map_err(unusable)?));
        let (count, elapsed_ms) = (queues.len(), began.elapsed().as_millis());
        info!(queues = count, elapsed_ms, "read {count} queues from {}", path.display());
        if !stopped_cleanly && !queues.is_empty() {
            fence_all(&saver, queues.values(), now);
        }
        let names = Mutex::new(names);
        Ok((Self { data, saver, names, compactor, stop, compactions }, queues))
    }

    /// The id in the file of a queue that is created, of which `incarnation` is the last.
    pub(super) fn register(&self, name: &QueueName, incarnation: u32) -> u32 {
        let mut names = self.names.lock();
        names.incarnations.insert(name.clone(), incarnation);
        names.next_id += 1;
        names.next_id - 1
    }

    /// The queue goes on as a later incarnation.
    pub(super) fn note_incarnation(&self, name: &QueueName, incarnation: u32) {
        let mut names = self.names.lock();
        let last = names.incarnations.entry(name.clone()).or_default();
        *last = incarnation.max(*last);
    }

    /// The last incarnation of a queue that is or was; 0 = none.
    pub(super) fn last_incarnation(&self, name: &QueueName) -> u32 {
        self.names.lock().incarnations.get(name).copied().unwrap_or(0)
    }

    /// The secret, or `proposal` after saving it. Blocks.
    pub(super) fn secret(
        &self,
        name: SharedSecret,
        proposal: [u8; 32],
    ) -> Result<[u8; 32], StoreError> {
        self.data.secret(name, proposal).map_err(|error| StoreError::Unavailable(error.into()))
    }

    /// The file.
    #[cfg(test)]
    pub(super) fn data(&self) -> &Data {
        &self.data
    }

    /// What an operator may want to know.
    pub(super) fn state<'a>(&self, queues: impl Iterator<Item = &'a Arc<Queue>>) -> DiskState {
        let progress = queues.filter_map(|queue| queue.progress.as_ref());
        let journal = progress.map(|progress| progress.journal_bytes.load(Ordering::Relaxed));
        DiskState {
            failing: self.saver.is_failing(),
            failures: self.saver.failures(),
            unsaved_bytes: self.saver.unsaved_bytes(),
            journal_bytes: journal.sum(),
            compactions: self.compactions.load(Ordering::Relaxed),
        }
    }

    /// Ends the threads, the saver with everything saved. Blocks.
    pub(super) fn stop(&self) -> Result<(), StoreError> {
        self.stop.store(true, Ordering::Relaxed);
        let stopped = self.saver.stop();
        if let Some(compactor) = self.compactor.lock().take() {
            // It ends between two steps, now that nobody can send it work.
            let _ = compactor.join();
        }
        stopped
    }
}

/// What the last run did in its last moments may be missing, and with it numbers that people hold:
/// each line moves past them, and whoever comes with a token of such a number has it back.
fn fence_all<'a>(saver: &Saver, queues: impl Iterator<Item = &'a Arc<Queue>>, now: Timestamp) {
    for queue in queues {
        let mut held = queue.held.lock();
        held.fence(&Sighting::default(), Server::New, GAP, now);
        saver.grew(queue, 0, held.unsaved());
        warn!(
            queue.name = %queue.name,
            "the last run did not stop cleanly: queue `{}` is fenced, and admits nobody for {} s",
            queue.name, RESTORE_TIME.as_secs()
        );
    }
}
