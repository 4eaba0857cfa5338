//! Starting from a data directory: lock, read, play, look at every rule; and why it may not work.

use std::io;
use std::path::{Path, PathBuf};

use redb::{DatabaseError, StorageError};

use crate::queue::QueueName;
use crate::queue::line::{Broken, Line};

use super::database::{Data, Failed, QueueRow};
use super::journal::{ReplayError, replay};

/// Why a data directory cannot be used. Nothing in it was changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It cannot be made, read or written.
    #[error("the data directory {} cannot be used", path.display())]
    Unusable {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Another process has it.
    #[error(
        "the data directory {} is in use by another process: each gateway needs its own, or all \
         of them one Redis",
        path.display()
    )]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// A later version wrote it.
    #[error(
        "the data directory {} was written by a later version of anteroom (format {found}; this \
         version knows {known}): run that version, or give this one another directory",
        path.display()
    )]
    Newer {
        /// The directory.
        path: PathBuf,
        /// Its format.
        found: u64,
        /// The latest that this version knows.
        known: u64,
    },
    /// What is in it is not what was written.
    #[error("the data directory {} is damaged: restore a copy, or move it away to start empty", path.display())]
    Damaged {
        /// The directory.
        path: PathBuf,
        /// How.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// What is wrong inside a database that could be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum DamageError {
    #[error("there is no format {0}")]
    Format(u64),
    #[error("the snapshot of queue `{queue}` cannot be read")]
    Snapshot { queue: QueueName, source: postcard::Error },
    #[error("the journal of queue `{queue}` cannot be played")]
    Journal { queue: QueueName, source: ReplayError },
    #[error("queue `{queue}` does not keep the rules of a line")]
    Rules { queue: QueueName, source: Broken },
}

impl OpenError {
    pub(super) fn of_database(path: &Path, error: DatabaseError) -> Self {
        let path = path.to_owned();
        match error {
            DatabaseError::Storage(StorageError::Io(source))
                if source.kind() != io::ErrorKind::InvalidData
                    && source.kind() != io::ErrorKind::UnexpectedEof =>
            {
                Self::Unusable { path, source }
            }
            DatabaseError::DatabaseAlreadyOpen => Self::InUse { path },
            source => Self::Damaged { path, source: source.into() },
        }
    }

    pub(super) fn of_storage(path: &Path, error: Failed) -> Self {
        let path = path.to_owned();
        match error {
            Failed::Io(source) => Self::Unusable { path, source },
            source => Self::Damaged { path, source: source.into() },
        }
    }
}

/// A queue as it was saved.
#[derive(Debug)]
pub(super) struct Saved {
    pub(super) line: Line,
    /// The number of the next row of its journal.
    pub(super) next_row: u64,
    /// Bytes in rows that are not in its snapshot.
    pub(super) journal_bytes: u64,
}

/// Why a queue cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReadError {
    #[error(transparent)]
    Database(#[from] Failed),
    #[error(transparent)]
    Damage(#[from] DamageError),
    #[error("it was told to stop")]
    Stopped,
}

/// Reads one queue: its snapshot, then its journal up to the row `last`, and looks whether it
/// keeps the rules. `None` when nothing of it is there. `goes_on` is asked about once a MiB.
pub(super) fn read(
    data: &Data,
    queue: &QueueName,
    row: &QueueRow,
    last: u64,
    goes_on: &dyn Fn() -> bool,
) -> Result<Option<Saved>, ReadError> {
    let named = || queue.clone();
    let mut line: Option<Line> = None;
    if let Some(snapshot) = &row.snapshot {
        let bytes = data.snapshot(row.id, snapshot)?;
        let read = postcard::from_bytes(&bytes)
            .map_err(|source| DamageError::Snapshot { queue: named(), source })?;
        line = Some(read);
    }
    let (mut next_row, mut journal_bytes) = (row.first_row(), 0);
    while next_row <= last
        && let Some((records, end)) = data.rows(row.id, next_row, last)?
    {
        journal_bytes += records.len() as u64;
        line = replay(line, &records)
            .map_err(|source| DamageError::Journal { queue: named(), source })?;
        next_row = end + 1;
        if !goes_on() {
            return Err(ReadError::Stopped);
        }
    }
    let Some(line) = line else { return Ok(None) };
    line.check().map_err(|source| DamageError::Rules { queue: named(), source })?;
    Ok(Some(Saved { line, next_row, journal_bytes }))
}
