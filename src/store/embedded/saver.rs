//! The thread that brings records to the disk, many with one commit.
//!
//! Queues whose lock holds unsaved records stand in a list. The thread takes the list, takes the
//! records, and saves all of them in one transaction; what comes meanwhile goes with the next. When
//! the disk refuses, it keeps what it has in order and tries again until it is saved; meanwhile the
//! store takes no commands, so no more comes. No worker of the runtime ever waits for the disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tokio::sync::watch;
use tracing::{error, info};

use crate::store::{Durability, StoreError};

use super::Queue;
use super::database::{Batch, Data, Failed, QueueRow};

/// Bytes of unsaved records with which the store takes no more: about four million users who
/// enter. A disk that is that far behind is as good as none.
const MOST_UNSAVED: u64 = 64 << 20;

/// Between two tries to save, at first and at most.
const FIRST_RETRY: Duration = Duration::from_millis(100);
const LAST_RETRY: Duration = Duration::from_secs(5);

/// Why nothing is taken, or was not saved.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotSaved {
    #[error("the data directory cannot be written")]
    Failing,
    #[error("the disk is too slow: {MOST_UNSAVED} bytes wait for it")]
    Behind,
    #[error("the store was closed")]
    Closed,
}

/// What the saver has of one queue, under the lock of nobody.
#[derive(Debug)]
pub(super) struct Progress {
    /// Records saved.
    saved: watch::Sender<u64>,
    next_row: AtomicU64,
    /// Bytes of the journal behind the snapshot.
    pub(super) journal_bytes: AtomicU64,
    /// With that many a new snapshot is due; all ones while one is being made.
    pub(super) compact_at: AtomicU64,
    /// The last incarnation that the file knows; 0 = none.
    incarnation: AtomicU32,
}

impl Progress {
    /// Of a queue that was read: its row, the number of the next row of its journal, and the bytes
    /// in that; or of a new one.
    pub(super) fn new(read: Option<(QueueRow, u64, u64)>, compact_at: u64) -> Self {
        let (next_row, journal_bytes) = read.map_or((0, 0), |(_, next, bytes)| (next, bytes));
        Self {
            saved: watch::Sender::new(0),
            next_row: AtomicU64::new(next_row),
            journal_bytes: AtomicU64::new(journal_bytes),
            compact_at: AtomicU64::new(compact_at),
            incarnation: AtomicU32::new(read.map_or(0, |(row, ..)| row.incarnation)),
        }
    }

    /// The number of the last row that is on the disk, if there is one.
    pub(super) fn last_row(&self) -> Option<u64> {
        self.next_row.load(Ordering::Acquire).checked_sub(1)
    }
}

/// The thread and what it shares with the store.
#[derive(Debug)]
pub(super) struct Saver {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<Result<(), Failed>>>>,
}

#[derive(Debug)]
struct Shared {
    data: Arc<Data>,
    durability: Durability,
    state: Mutex<State>,
    wake: Condvar,
    /// Bytes of records that are not on the disk.
    unsaved: AtomicU64,
    failing: watch::Sender<bool>,
    refusing: AtomicBool,
    closed: AtomicBool,
    failures: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    dirty: Vec<Arc<Queue>>,
    /// Since when something waits.
    since: Option<Instant>,
    stop: bool,
}

/// Records on their way to the disk.
struct Unsaved {
    queue: Arc<Queue>,
    number: u64,
    records: Vec<u8>,
    /// Records of the queue including these.
    count: u64,
    /// Its last incarnation.
    incarnation: u32,
}

impl Saver {
    /// Starts the thread. Queues that need a new snapshot are sent to `compactions`.
    pub(super) fn start(
        data: Arc<Data>,
        durability: Durability,
        compactions: Sender<Arc<Queue>>,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            data,
            durability,
            state: Mutex::default(),
            wake: Condvar::new(),
            unsaved: AtomicU64::new(0),
            failing: watch::Sender::new(false),
            refusing: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            failures: AtomicU64::new(0),
        });
        let thread = std::thread::Builder::new().name("anteroom-saver".into()).spawn({
            let shared = Arc::clone(&shared);
            move || shared.run(&compactions)
        })?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Whether commands may be carried out. To be asked under the lock of the queue.
    pub(super) fn takes(&self) -> Result<(), StoreError> {
        let refused = if self.shared.closed.load(Ordering::Acquire) {
            NotSaved::Closed
        } else if self.shared.refusing.load(Ordering::Acquire) {
            NotSaved::Failing
        } else if self.shared.unsaved.load(Ordering::Relaxed) > MOST_UNSAVED {
            NotSaved::Behind
        } else {
            return Ok(());
        };
        Err(StoreError::Unavailable(refused.into()))
    }

    /// Notes that the unsaved records of `queue` grew from `before` to `after` bytes. To be told
    /// under the lock of the queue.
    pub(super) fn grew(&self, queue: &Arc<Queue>, before: usize, after: usize) {
        if after == before {
            return;
        }
        self.shared.unsaved.fetch_add((after - before) as u64, Ordering::Relaxed);
        if before > 0 {
            // It stands in the list already. Twice, and its records would get one number.
            return;
        }
        let mut state = self.shared.state.lock();
        state.dirty.push(Arc::clone(queue));
        if state.since.is_none() {
            state.since = Some(Instant::now());
            self.shared.wake.notify_one();
        }
    }

    /// Whether every answer waits for the disk.
    pub(super) fn is_sync(&self) -> bool {
        self.shared.durability == Durability::Sync
    }

    /// Waits until the first `count` records of `queue` are on the disk.
    pub(super) async fn saved(&self, queue: &Queue, count: u64) -> Result<(), StoreError> {
        let Some(progress) = &queue.progress else { return Ok(()) };
        let mut saved = progress.saved.subscribe();
        let mut failing = self.shared.failing.subscribe();
        tokio::select! {
            biased;
            Ok(_) = saved.wait_for(|saved| *saved >= count) => Ok(()),
            // It is carried out and will be saved when the disk is back, but nobody may count on it.
            _ = failing.wait_for(|failing| *failing) => {
                Err(StoreError::Indeterminate(NotSaved::Failing.into()))
            }
        }
    }

    /// Bytes that are not on the disk yet.
    pub(super) fn unsaved_bytes(&self) -> u64 {
        self.shared.unsaved.load(Ordering::Relaxed)
    }

    /// Whether the last try to save failed.
    pub(super) fn is_failing(&self) -> bool {
        self.shared.refusing.load(Ordering::Relaxed)
    }

    /// Tries to save that failed.
    pub(super) fn failures(&self) -> u64 {
        self.shared.failures.load(Ordering::Relaxed)
    }

    /// From now on nothing is taken any more. The queues' locks have to be taken once before
    /// [`Saver::stop`], so that no command is half-way.
    pub(super) fn close(&self) -> bool {
        !self.shared.closed.swap(true, Ordering::AcqRel)
    }

    /// Saves the rest, says in the file that this was a clean stop, and ends the thread.
    pub(super) fn stop(&self) -> Result<(), StoreError> {
        let Some(thread) = self.thread.lock().take() else { return Ok(()) };
        self.shared.state.lock().stop = true;
        self.shared.wake.notify_one();
        match thread.join() {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(StoreError::Unavailable(error.into())),
            Err(_) => Err(StoreError::Unavailable(NotSaved::Failing.into())),
        }
    }
}

/// The end of the thread.
struct End<'a>(&'a Shared);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.refusing.store(true, Ordering::Release);
        self.0.failing.send_replace(true);
    }
}

impl Shared {
    fn run(&self, compactions: &Sender<Arc<Queue>>) -> Result<(), Failed> {
        // Whatever ends this thread, nobody waits for it then.
        let _end = End(self);
        loop {
            let (dirty, stop) = self.collect();
            let idle = dirty.is_empty();
            if !idle {
                self.save(&dirty.into_iter().filter_map(take).collect::<Vec<_>>(), compactions)?;
            }
            if stop && idle {
                return self.data.stop().or_else(|_| {
                    self.data.reopen()?;
                    self.data.stop()
                });
            }
        }
    }

    /// Waits for something to save, and then as long as it may wait for company.
    fn collect(&self) -> (Vec<Arc<Queue>>, bool) {
        let mut state = self.state.lock();
        loop {
            let wait = match (state.since, self.durability) {
                _ if state.stop => break,
                (None, _) => None,
                (Some(_), Durability::Sync) => break,
                (Some(since), Durability::Async { commit_interval }) => {
                    match commit_interval.checked_sub(since.elapsed()) {
                        None | Some(Duration::ZERO) => break,
                        left => left,
                    }
                }
            };
            match wait {
                None => self.wake.wait(&mut state),
                Some(left) => drop(self.wake.wait_for(&mut state, left)),
            }
        }
        state.since = None;
        (std::mem::take(&mut state.dirty), state.stop)
    }

    /// Saves it, however often that has to be tried; gives up only at a stop.
    fn save(&self, unsaved: &[Unsaved], compactions: &Sender<Arc<Queue>>) -> Result<(), Failed> {
        let mut wait = FIRST_RETRY;
        let mut stopping = false;
        let mut outcome = self.commit(unsaved);
        let mut tries = 0;
        while let Err(failed) = outcome {
            self.failures.fetch_add(1, Ordering::Relaxed);
            tries += 1;
            // The first failure may be of something else: a snapshot that did not fit spoils the
            // database for the records behind it. They get one more chance before anybody hears.
            if tries > 1 {
                self.say_failing(&failed);
                if stopping {
                    let bytes = self.unsaved.load(Ordering::Relaxed);
                    error!(error = %failed, bytes, "stopping with {bytes} bytes of changes that could not be saved: {failed}");
                    return Err(failed);
                }
                stopping = self.wait_to_retry(wait);
                wait = (wait * 2).min(LAST_RETRY);
            }
            outcome = self.data.reopen().map_err(Failed::from).and_then(|()| self.commit(unsaved));
        }
        if self.refusing.swap(false, Ordering::AcqRel) {
            self.failing.send_replace(false);
            info!("the data directory can be written again; every change is saved");
        }
        for one in unsaved {
            self.note(one, compactions);
        }
        Ok(())
    }

    fn commit(&self, unsaved: &[Unsaved]) -> Result<(), Failed> {
        self.data.commit(unsaved.iter().map(|one| {
            let progress = one.queue.progress.as_ref();
            let known = progress.map(|progress| progress.incarnation.load(Ordering::Relaxed));
            let named =
                (known != Some(one.incarnation)).then_some((&one.queue.name, one.incarnation));
            Batch { queue: one.queue.id, number: one.number, records: &one.records, named }
        }))
    }

    /// These records are on the disk.
    fn note(&self, one: &Unsaved, compactions: &Sender<Arc<Queue>>) {
        let Some(progress) = &one.queue.progress else { return };
        let bytes = one.records.len() as u64;
        self.unsaved.fetch_sub(bytes, Ordering::Relaxed);
        progress.incarnation.store(one.incarnation, Ordering::Relaxed);
        // Counted before the row shows: a compaction takes off what it has seen.
        let journal = progress.journal_bytes.fetch_add(bytes, Ordering::AcqRel) + bytes;
        progress.next_row.store(one.number + 1, Ordering::Release);
        progress.saved.send_replace(one.count);
        if journal >= progress.compact_at.load(Ordering::Relaxed) {
            progress.compact_at.store(u64::MAX, Ordering::Relaxed);
            // Without the other thread nothing is compacted, and nothing is lost.
            let _ = compactions.send(Arc::clone(&one.queue));
        }
    }

    fn say_failing(&self, failed: &Failed) {
        if !self.refusing.swap(true, Ordering::AcqRel) {
            self.failing.send_replace(true);
            error!(error = %failed, "the data directory cannot be written: {failed}; the store takes nothing until it can");
        }
    }

    /// Whether it is time to stop instead.
    fn wait_to_retry(&self, wait: Duration) -> bool {
        let until = Instant::now() + wait;
        let mut state = self.state.lock();
        while !state.stop {
            if self.wake.wait_until(&mut state, until).timed_out() {
                return false;
            }
        }
        true
    }
}

/// Takes what is unsaved out of a queue.
fn take(queue: Arc<Queue>) -> Option<Unsaved> {
    let (records, count, incarnation) = {
        let mut held = queue.held.lock();
        (held.take(), held.count(), held.line.last_incarnation())
    };
    let progress = queue.progress.as_ref()?;
    let number = progress.next_row.load(Ordering::Relaxed);
    Some(Unsaved { queue, number, records, count, incarnation })
}
