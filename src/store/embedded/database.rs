//! The file: tables, the format, and what a transaction is.
//!
//! One row of the journal holds what one commit saved of one queue. After an error the database refuses everything, so it is closed and
//! opened again before the next try. This file decides neither what is written nor when.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use parking_lot::RwLock;
use redb::backends::FileBackend;
use redb::{
    Builder, Database, DatabaseError, Durability, ReadableDatabase, ReadableTable, StorageError,
    TableDefinition, WriteTransaction,
};
use serde::{Deserialize, Serialize};

use crate::queue::QueueName;
use crate::store::SharedSecret;

use super::open::{DamageError, OpenError};
use super::snapshots::SnapshotRow;

/// The version of everything below and of what the rows hold. Raise it when an old directory could
/// not be read any more as it is, and teach [`Data::open`] to bring the older one up to date or to
/// refuse it in words.
pub(super) const FORMAT: u64 = 1;

/// What the file is called inside the data directory.
const FILE: &str = "anteroom.redb";

/// Locked as long as the directory is in use, also while the database is opened again.
const LOCK: &str = "anteroom.lock";

/// Pages kept in memory: enough for the inner pages of both trees; a snapshot is read once.
const CACHE_BYTES: usize = 8 << 20;

const META: TableDefinition<&str, u64> = TableDefinition::new("meta");
const SECRETS: TableDefinition<&str, [u8; 32]> = TableDefinition::new("secrets");
/// By name: survives the queue, so that a later one of the name gets a greater incarnation.
const QUEUES: TableDefinition<&str, &[u8]> = TableDefinition::new("queues");
/// (queue, generation, number of the chunk).
pub(super) const SNAPSHOTS: TableDefinition<(u32, u32, u32), &[u8]> =
    TableDefinition::new("snapshots");
/// (queue, number of the row).
pub(super) const JOURNAL: TableDefinition<(u32, u64), &[u8]> = TableDefinition::new("journal");

const FORMAT_KEY: &str = "format";
const CLEAN_KEY: &str = "stopped_cleanly";

/// What is known of a queue beside its contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct QueueRow {
    /// Stands for the name in the other tables.
    pub(super) id: u32,
    /// Of the queue, or of the last one of the name.
    pub(super) incarnation: u32,
    /// The snapshot that counts.
    pub(super) snapshot: Option<SnapshotRow>,
}

impl QueueRow {
    /// The first row of the journal that counts.
    pub(super) fn first_row(&self) -> u64 {
        self.snapshot.map_or(0, |snapshot| snapshot.up_to + 1)
    }
}

/// What one commit saves of one queue.
#[derive(Debug)]
pub(super) struct Batch<'a> {
    pub(super) queue: u32,
    pub(super) number: u64,
    pub(super) records: &'a [u8],
    /// The name and the last incarnation of a queue whose row in the file does not say so yet.
    pub(super) named: Option<(&'a QueueName, u32)>,
}

/// Any error of the database: what was asked for has not been saved, as far as one can know.
pub(super) type Failed = redb::Error;

/// How the database is opened; tests put faults in between.
type Opening = Box<dyn Fn(&Path) -> Result<Database, DatabaseError> + Send + Sync>;

/// A data directory in use.
pub(super) struct Data {
    directory: PathBuf,
    opening: Opening,
    /// `None` after an error, until it could be opened again.
    database: RwLock<Option<Database>>,
    _lock: File,
}

impl std::fmt::Debug for Data {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Data").field("directory", &self.directory).finish_non_exhaustive()
    }
}

/// What every open has in common. The check makes a file that was changed from outside an error
/// instead of a panic, and reads the whole file: half a second for each GiB.
fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_BYTES).set_check_integrity_on_open(true);
    builder
}

/// Opens or makes the file, for nobody else to read: it holds secrets.
fn open_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

fn open_plainly(path: &Path) -> Result<Database, DatabaseError> {
    builder().create_with_backend(FileBackend::new(open_file(path)?)?)
}

impl Data {
    /// Opens the directory, making it if only it is missing, and brings the tables about.
    pub(super) fn open(directory: &Path) -> Result<Self, OpenError> {
        Self::open_by(directory, Box::new(open_plainly))
    }

    /// The same with another way to open the file.
    pub(super) fn open_by(directory: &Path, opening: Opening) -> Result<Self, OpenError> {
        let unusable = |source| OpenError::Unusable { path: directory.to_owned(), source };
        if !directory.is_dir() {
            DirBuilder::new().mode(0o700).create(directory).map_err(unusable)?;
        }
        let lock = open_file(&directory.join(LOCK)).map_err(unusable)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(OpenError::InUse { path: directory.to_owned() });
            }
            Err(TryLockError::Error(source)) => return Err(unusable(source)),
        }
        let data = Self {
            directory: directory.to_owned(),
            opening,
            database: RwLock::new(None),
            _lock: lock,
        };
        data.reopen().map_err(|error| OpenError::of_database(directory, error))?;
        // The name of a new file has to last as well.
        File::open(directory).and_then(|directory| directory.sync_all()).map_err(unusable)?;
        match data.format().map_err(|error| OpenError::of_storage(directory, error))? {
            None => data.begin().map_err(|error| OpenError::of_storage(directory, error))?,
            Some(FORMAT) => {}
            Some(found) if found > FORMAT => {
                let path = directory.to_owned();
                return Err(OpenError::Newer { path, found, known: FORMAT });
            }
            Some(found) => {
                let what = DamageError::Format(found);
                return Err(OpenError::Damaged { path: directory.to_owned(), source: what.into() });
            }
        }
        Ok(data)
    }

    /// Closes the database, if it is open, and opens it again.
    pub(super) fn reopen(&self) -> Result<(), DatabaseError> {
        let mut database = self.database.write();
        *database = None;
        let path = self.directory.join(FILE);
        // The check above is what finds damage; this is for what it does not think of.
        let opened = catch_unwind(AssertUnwindSafe(|| (self.opening)(&path)));
        let damaged =
            |_| Err(StorageError::Corrupted("it could not be made sense of".to_owned()).into());
        *database = Some(opened.unwrap_or_else(damaged)?);
        Ok(())
    }

    pub(super) fn with<T>(
        &self,
        work: impl FnOnce(&Database) -> Result<T, Failed>,
    ) -> Result<T, Failed> {
        let database = self.database.read();
        let closed = || Failed::from(StorageError::DatabaseClosed);
        // A panic in the database must not take the thread along that keeps records for a retry.
        let worked = catch_unwind(AssertUnwindSafe(|| work(database.as_ref().ok_or_else(closed)?)));
        worked.unwrap_or_else(|_| {
            Err(StorageError::Corrupted("it could not be made sense of".to_owned()).into())
        })
    }

    /// One transaction, on the disk when this returns.
    pub(super) fn write<T>(
        &self,
        work: impl FnOnce(&WriteTransaction) -> Result<T, Failed>,
    ) -> Result<T, Failed> {
        self.write_with(Durability::Immediate, work)
    }

    pub(super) fn write_with<T>(
        &self,
        durability: Durability,
        work: impl FnOnce(&WriteTransaction) -> Result<T, Failed>,
    ) -> Result<T, Failed> {
        self.with(|database| {
            let mut transaction = database.begin_write()?;
            transaction.set_durability(durability)?;
            let done = work(&transaction)?;
            transaction.commit()?;
            Ok(done)
        })
    }

    fn format(&self) -> Result<Option<u64>, Failed> {
        self.with(|database| {
            let transaction = database.begin_read()?;
            match transaction.open_table(META) {
                Ok(meta) => Ok(meta.get(FORMAT_KEY)?.map(|format| format.value())),
                Err(redb::TableError::TableDoesNotExist(_)) => Ok(None),
                Err(error) => Err(error.into()),
            }
        })
    }

    /// Writes an empty store.
    fn begin(&self) -> Result<(), Failed> {
        self.write(|transaction| {
            transaction.open_table(SECRETS)?;
            transaction.open_table(QUEUES)?;
            transaction.open_table(SNAPSHOTS)?;
            transaction.open_table(JOURNAL)?;
            let mut meta = transaction.open_table(META)?;
            meta.insert(FORMAT_KEY, FORMAT)?;
            meta.insert(CLEAN_KEY, 1)?;
            Ok(())
        })
    }

    /// From now on a stop is unclean, until it is told to be clean. Says how the last one was.
    pub(super) fn start(&self) -> Result<bool, Failed> {
        self.set_clean(0)
    }

    /// Everything is saved: the next start finds it all.
    pub(super) fn stop(&self) -> Result<(), Failed> {
        self.set_clean(1).map(drop)
    }

    fn set_clean(&self, clean: u64) -> Result<bool, Failed> {
        self.write(|transaction| {
            let mut meta = transaction.open_table(META)?;
            let before = meta.insert(CLEAN_KEY, clean)?.map(|clean| clean.value());
            Ok(before == Some(1))
        })
    }

    /// The secret, or `proposal` after saving it.
    pub(super) fn secret(
        &self,
        name: SharedSecret,
        proposal: [u8; 32],
    ) -> Result<[u8; 32], Failed> {
        let name = match name {
            SharedSecret::UserSalt => "user_salt",
            SharedSecret::TokenKey => "token_key",
        };
        self.write(|transaction| {
            let mut secrets = transaction.open_table(SECRETS)?;
            let stored = secrets.get(name)?.map(|stored| stored.value());
            if stored.is_none() {
                secrets.insert(name, proposal)?;
            }
            Ok(stored.unwrap_or(proposal))
        })
    }

    /// All queues there are or were.
    pub(super) fn queues(&self) -> Result<Vec<(QueueName, QueueRow)>, Failed> {
        self.with(|database| {
            let queues = database.begin_read()?.open_table(QUEUES)?;
            let mut found = Vec::new();
            for entry in queues.iter()? {
                let (name, row) = entry?;
                let read = QueueName::new(name.value())
                    .zip(postcard::from_bytes(row.value()).ok())
                    .ok_or_else(|| StorageError::Corrupted("a queue's row".to_owned()))?;
                found.push(read);
            }
            Ok(found)
        })
    }

    /// The row of one queue.
    pub(super) fn queue(&self, name: &QueueName) -> Result<Option<QueueRow>, Failed> {
        self.with(|database| {
            let queues = database.begin_read()?.open_table(QUEUES)?;
            let row = queues.get(name.as_str())?;
            Ok(row.and_then(|row| postcard::from_bytes(row.value()).ok()))
        })
    }

    /// Saves what changed, all of it or nothing. Doing it twice is doing it once.
    pub(super) fn commit<'a>(
        &self,
        batches: impl IntoIterator<Item = Batch<'a>>,
    ) -> Result<(), Failed> {
        self.write(|transaction| {
            let mut journal = transaction.open_table(JOURNAL)?;
            for batch in batches {
                if let Some((name, incarnation)) = batch.named {
                    let id = batch.queue;
                    let known = get_row(transaction, name)?.filter(|row| row.id == id);
                    let snapshot = known.and_then(|row| row.snapshot);
                    put_row(transaction, name, &QueueRow { id, incarnation, snapshot })?;
                }
                journal.insert((batch.queue, batch.number), sealed(batch.records).as_slice())?;
            }
            Ok(())
        })
    }

    /// The records of the rows from `first` on, as many as fit into about a MiB, and the number of
    /// the last; `None` behind the end. `last` bounds them.
    pub(super) fn rows(
        &self,
        queue: u32,
        first: u64,
        last: u64,
    ) -> Result<Option<(Vec<u8>, u64)>, Failed> {
        self.with(|database| {
            let journal = database.begin_read()?.open_table(JOURNAL)?;
            let (mut records, mut end) = (Vec::new(), None);
            for entry in journal.range((queue, first)..=(queue, last))? {
                let (key, row) = entry?;
                let number = key.value().1;
                if number != end.map_or(first, |end| end + 1) {
                    return Err(StorageError::Corrupted("a row is missing".to_owned()).into());
                }
                let unsealed = unsealed(row.value());
                records.extend_from_slice(unsealed.ok_or_else(|| {
                    StorageError::Corrupted("a row is not what was written".to_owned())
                })?);
                end = Some(number);
                if records.len() >= 1 << 20 {
                    break;
                }
            }
            Ok(end.map(|end| (records, end)))
        })
    }
}

pub(super) fn get_row(
    transaction: &WriteTransaction,
    name: &QueueName,
) -> Result<Option<QueueRow>, Failed> {
    let queues = transaction.open_table(QUEUES)?;
    let row = queues.get(name.as_str())?;
    Ok(row.and_then(|row| postcard::from_bytes(row.value()).ok()))
}

pub(super) fn put_row(
    transaction: &WriteTransaction,
    name: &QueueName,
    row: &QueueRow,
) -> Result<(), Failed> {
    let mut bytes = Vec::new();
    let _ = postcard::to_io(row, &mut bytes);
    transaction.open_table(QUEUES)?.insert(name.as_str(), bytes.as_slice())?;
    Ok(())
}

/// Bytes of the seal in front of each row.
const SEAL_BYTES: usize = 8;

fn seal(records: &[u8]) -> [u8; SEAL_BYTES] {
    let mut seal = [0; SEAL_BYTES];
    seal.copy_from_slice(&blake3::hash(records).as_bytes()[..SEAL_BYTES]);
    seal
}

/// The database vouches for its pages when it is opened; this does whenever a row is read.
fn sealed(records: &[u8]) -> Vec<u8> {
    [seal(records).as_slice(), records].concat()
}

fn unsealed(row: &[u8]) -> Option<&[u8]> {
    let (have, records) = row.split_at_checked(SEAL_BYTES)?;
    (have == seal(records)).then_some(records)
}
