//! A file that keeps a diary and fails on demand.

use std::fs::File;
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};

use redb::backends::FileBackend;
use redb::{BackendError, Builder, Database, DatabaseError, StorageBackend};

use super::super::database::Data;
use super::*;

/// What is done to a file, and what goes wrong with it.
#[derive(Debug, Default)]
pub(super) struct Faults {
    /// Whether writing fails, as on a full disk.
    pub(super) full: std::sync::atomic::AtomicBool,
    /// Whether the disk fails to confirm what was written.
    pub(super) unconfirmed: std::sync::atomic::AtomicBool,
    /// Everything written so far.
    pub(super) diary: Mutex<Vec<Deed>>,
}

/// One thing done to the file.
#[derive(Clone, Debug)]
pub(super) enum Deed {
    Write(u64, Vec<u8>),
    Length(u64),
    /// All before is on the disk.
    Confirmed,
}

impl Faults {
    pub(super) fn set_full(&self, full: bool) {
        self.full.store(full, std::sync::atomic::Ordering::SeqCst);
    }

    pub(super) fn set_unconfirmed(&self, unconfirmed: bool) {
        self.unconfirmed.store(unconfirmed, std::sync::atomic::Ordering::SeqCst);
    }

    fn writes(&self) -> Result<(), io::Error> {
        if self.full.load(std::sync::atomic::Ordering::SeqCst) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Faulty {
    file: FileBackend,
    faults: Arc<Faults>,
}

impl StorageBackend for Faulty {
    fn len(&self) -> Result<u64, io::Error> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), io::Error> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.faults.writes()?;
        self.faults.diary.lock().push(Deed::Length(len));
        self.file.set_len(len)
    }

    fn sync_data(&self) -> Result<(), io::Error> {
        self.faults.writes()?;
        if self.faults.unconfirmed.load(std::sync::atomic::Ordering::SeqCst) {
            return Err(io::Error::other("the disk does not confirm"));
        }
        // Left to the machine: these tests are about order, not about the real disk.
        self.faults.diary.lock().push(Deed::Confirmed);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        self.faults.writes()?;
        self.faults.diary.lock().push(Deed::Write(offset, data.to_vec()));
        self.file.write(offset, data)
    }

    fn close(&self) -> Result<(), io::Error> {
        self.file.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.try_lock_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.query_lock_range(start, end)
    }
}

fn open(path: &Path, faults: &Arc<Faults>) -> Result<Database, DatabaseError> {
    let file = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
    let faults = Arc::clone(faults);
    Builder::new().create_with_backend(Faulty { file: FileBackend::new(file)?, faults })
}

/// A data directory on such a file.
pub(super) fn data(directory: &Path, faults: &Arc<Faults>) -> Data {
    let faults = Arc::clone(faults);
    Data::open_by(directory, Box::new(move |path| open(path, &faults))).unwrap()
}

/// A store on it, going by a clock of its own.
pub(super) fn store(directory: &Path, durability: Durability, faults: &Arc<Faults>) -> Embedded {
    let clock = Arc::new(crate::clock::ManualClock::at(START));
    let settings = disk_settings(directory, durability);
    Embedded::on(data(directory, faults), &settings, clock).unwrap()
}

/// Where a copy of the file goes.
pub(super) fn file_in(directory: &Path) -> PathBuf {
    directory.join("anteroom.redb")
}
