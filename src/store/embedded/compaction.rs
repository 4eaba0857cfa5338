//! Replacing a long journal by a snapshot, beside the live queue.
//!
//! What is on the disk is read and played, looked at, and written as a snapshot under a new
//! generation, a chunk at a time; then one small transaction switches over. The live line is not
//! touched, no commit waits longer than for one chunk, and whatever a start would stumble over is
//! found here first. It takes the memory of the queue once more, and of its snapshot, about 25
//! bytes a user; queues take turns.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Receiver;

use tracing::{debug, error};

use super::Queue;
use super::database::Data;
use super::open::{ReadError, read};
use super::saver::Progress;

/// Below this a journal is left alone: it plays in a few hundredths of a second.
const SHORTEST: u64 = 8 << 20;

/// With how many bytes of journal a queue with a snapshot of `bytes` is due: what a start has to
/// play stays in proportion to what it has to read.
pub(super) fn due_at(bytes: u64) -> u64 {
    bytes.max(SHORTEST)
}

/// Makes snapshots as they fall due, until the other end is gone or `stop` says so.
pub(super) fn run(data: &Data, due: &Receiver<Arc<Queue>>, stop: &AtomicBool, done: &AtomicU64) {
    while let Ok(queue) = due.recv() {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let Some(progress) = &queue.progress else { continue };
        let journal = progress.journal_bytes.load(Ordering::Relaxed);
        let next = match compact(data, &queue, progress, stop) {
            Ok(Some(bytes)) => {
                done.fetch_add(1, Ordering::Relaxed);
                debug!(queue.name = %queue.name, bytes, "queue `{}` has a new snapshot", queue.name);
                due_at(bytes)
            }
            // The saver says when the disk is at fault.
            Err(ReadError::Database(error)) => {
                debug!(%error, queue.name = %queue.name, "queue `{}` has no new snapshot: {error}", queue.name);
                journal.saturating_mul(2)
            }
            Err(ReadError::Damage(damage)) => {
                error!(error = %damage, queue.name = %queue.name, "{damage}: the data directory would not start again");
                journal.saturating_mul(2)
            }
            Ok(None) | Err(ReadError::Stopped) => return,
        };
        progress.compact_at.store(next, Ordering::Relaxed);
    }
}

/// The size of the new snapshot; `None` if it is time to stop.
pub(super) fn compact(
    data: &Data,
    queue: &Queue,
    progress: &Progress,
    stop: &AtomicBool,
) -> Result<Option<u64>, ReadError> {
    let goes_on = || !stop.load(Ordering::Relaxed);
    let Some(row) = data.queue(&queue.name)? else { return Ok(Some(0)) };
    let Some(last) = progress.last_row() else { return Ok(Some(0)) };
    let Some(saved) = read(data, &queue.name, &row, last, &goes_on)? else { return Ok(Some(0)) };
    let mut bytes = Vec::new();
    // A vector takes everything, and a line has no form that cannot be written.
    let _ = postcard::to_io(&saved.line, &mut bytes);
    drop(saved.line);
    let generation = row.snapshot.map_or(1, |snapshot| snapshot.generation.wrapping_add(1));
    let up_to = saved.next_row.saturating_sub(1);
    let Some(snapshot) = data.write_snapshot(row.id, generation, &bytes, up_to, goes_on)? else {
        return Ok(None);
    };
    let row = data.switch(&queue.name, &row, snapshot)?;
    progress.journal_bytes.fetch_sub(saved.journal_bytes, Ordering::Relaxed);
    data.sweep(&row)?;
    Ok(Some(snapshot.bytes))
}
