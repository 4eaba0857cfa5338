//! Snapshots in the file: written beside the one that counts, then switched to.
//!
//! A snapshot is the whole of a queue up to some row of its journal, cut into chunks under a
//! generation of its own. The row of the queue names the generation that counts, so one small
//! transaction switches from an old snapshot to a new one. What does not count any more is dropped
//! a little at a time. This file decides neither what a snapshot holds nor when one is made.

use redb::{Durability, ReadableDatabase, StorageError};
use serde::{Deserialize, Serialize};

use crate::queue::QueueName;

use super::database::{Data, Failed, JOURNAL, QueueRow, SNAPSHOTS, get_row, put_row};

/// A chunk of a snapshot. Just under a power of two: pages are, with a head of their own.
const CHUNK_BYTES: usize = (64 << 10) - 512;

/// Rows dropped in one transaction, so that no commit waits long for it.
const SWEEP_ROWS: usize = 256;

/// A snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct SnapshotRow {
    pub(super) generation: u32,
    pub(super) chunks: u32,
    pub(super) bytes: u64,
    /// BLAKE3 of the whole.
    pub(super) hash: [u8; 32],
    /// The last row of the journal that is in it.
    pub(super) up_to: u64,
}

impl Data {
    /// The bytes of a snapshot, checked.
    pub(super) fn snapshot(&self, queue: u32, row: &SnapshotRow) -> Result<Vec<u8>, Failed> {
        let mut bytes = Vec::with_capacity(usize::try_from(row.bytes).unwrap_or(0));
        for chunk in 0..row.chunks {
            // A transaction each: a long one would keep old pages from being used again.
            self.with(|database| {
                let snapshots = database.begin_read()?.open_table(SNAPSHOTS)?;
                let found = snapshots.get((queue, row.generation, chunk))?;
                let found = found.ok_or_else(|| {
                    StorageError::Corrupted("a chunk of a snapshot is missing".to_owned())
                })?;
                bytes.extend_from_slice(found.value());
                Ok(())
            })?;
        }
        if blake3::hash(&bytes) != blake3::Hash::from_bytes(row.hash) {
            let what = "a snapshot is not what was written".to_owned();
            return Err(StorageError::Corrupted(what).into());
        }
        Ok(bytes)
    }

    /// Writes a snapshot beside the one that counts, `step` being asked before each chunk whether
    /// to go on; `None` if not.
    pub(super) fn write_snapshot(
        &self,
        queue: u32,
        generation: u32,
        bytes: &[u8],
        up_to: u64,
        mut step: impl FnMut() -> bool,
    ) -> Result<Option<SnapshotRow>, Failed> {
        let mut chunks = 0;
        for chunk in bytes.chunks(CHUNK_BYTES) {
            if !step() {
                return Ok(None);
            }
            // Carried to the disk by the next commit of anything; nothing refers to it before.
            self.write_with(Durability::None, |transaction| {
                let mut snapshots = transaction.open_table(SNAPSHOTS)?;
                snapshots.insert((queue, generation, chunks), chunk)?;
                Ok(())
            })?;
            chunks += 1;
        }
        let hash = *blake3::hash(bytes).as_bytes();
        Ok(Some(SnapshotRow { generation, chunks, bytes: bytes.len() as u64, hash, up_to }))
    }

    /// From now on `snapshot` and the journal behind it are the queue.
    pub(super) fn switch(
        &self,
        name: &QueueName,
        row: &QueueRow,
        snapshot: SnapshotRow,
    ) -> Result<QueueRow, Failed> {
        self.write(|transaction| {
            let row = get_row(transaction, name)?.unwrap_or(*row);
            let row = QueueRow { snapshot: Some(snapshot), ..row };
            put_row(transaction, name, &row)?;
            Ok(row)
        })
    }

    /// Drops what does not count any more of one queue, a little at a time.
    pub(super) fn sweep(&self, row: &QueueRow) -> Result<(), Failed> {
        let first = row.first_row();
        let counts = row.snapshot.map(|snapshot| snapshot.generation);
        while self.has_stale(row)? {
            self.write(|transaction| {
                let mut journal = transaction.open_table(JOURNAL)?;
                let old = journal.extract_from_if((row.id, 0)..(row.id, first), |_, _| true)?;
                for entry in old.take(SWEEP_ROWS) {
                    entry?;
                }
                let mut snapshots = transaction.open_table(SNAPSHOTS)?;
                let stale = |(_, generation, _)| Some(generation) != counts;
                let of_queue = (row.id, 0, 0)..=(row.id, u32::MAX, u32::MAX);
                let old = snapshots.extract_from_if(of_queue, |key, _| stale(key))?;
                for entry in old.take(SWEEP_ROWS) {
                    entry?;
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    fn has_stale(&self, row: &QueueRow) -> Result<bool, Failed> {
        self.with(|database| {
            let transaction = database.begin_read()?;
            let journal = transaction.open_table(JOURNAL)?;
            if journal.range((row.id, 0)..(row.id, row.first_row()))?.next().is_some() {
                return Ok(true);
            }
            let snapshots = transaction.open_table(SNAPSHOTS)?;
            let counts = row.snapshot.map(|snapshot| snapshot.generation);
            let mut of_queue = snapshots.range((row.id, 0, 0)..=(row.id, u32::MAX, u32::MAX))?;
            // Generations are in order: of one kind only, the first and the last are alike.
            let ends = [of_queue.next(), of_queue.next_back()];
            for entry in ends.into_iter().flatten() {
                if Some(entry?.0.value().1) != counts {
                    return Ok(true);
                }
            }
            Ok(false)
        })
    }
}
