//! The embedded store on a disk: the same contract, also when it is closed and opened in between.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anteroom::clock::Clock;
use anteroom::queue::command::{
    AdmitBy, Admitted, Configured, Entered, Evidence, Heartbeat, HeldLease, Left, Origin, Purpose,
    Reaped, Rebuilt, Recollection, Sighting, Standing, Synced, Versioned, Versions,
};
use anteroom::queue::settings::Settings;
use anteroom::queue::{QueueName, Seq, UserTag};
use anteroom::store::contract::Fixture;
use anteroom::store::{
    DiskSettings, Durability, QueueStore, SharedSecret, SharedStore, StoreError, embedded_at,
};
use async_trait::async_trait;
use tempfile::TempDir;
use tokio::sync::RwLock;

/// Stores in directories of their own, gone with the value.
#[derive(Debug)]
pub(crate) struct OnDisk {
    durability: Durability,
    /// After how many commands the store is closed and opened again; 0 = never.
    reopen_after: u64,
    directories: Mutex<Vec<TempDir>>,
}

impl OnDisk {
    fn new(durability: Durability, reopen_after: u64) -> Self {
        Self { durability, reopen_after, directories: Mutex::default() }
    }

    /// Answers at once.
    pub(crate) fn asynchronous() -> Self {
        let commit_interval = Duration::from_millis(1);
        Self::new(Durability::Async { commit_interval }, 0)
    }

    /// Answers when the disk has it.
    pub(crate) fn synchronous() -> Self {
        Self::new(Durability::Sync, 0)
    }

    /// Closed and opened again all the time.
    pub(crate) fn reopened() -> Self {
        Self::new(Durability::default(), 19)
    }
}

impl Fixture for OnDisk {
    fn store(&self, clock: Arc<dyn Clock>) -> SharedStore {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        self.directories.lock().unwrap().push(directory);
        let settings = DiskSettings { path: path.clone(), durability: self.durability };
        let store = embedded_at(&settings, Arc::clone(&clock)).unwrap();
        if self.reopen_after == 0 {
            return store;
        }
        Arc::new(Reopening {
            path,
            durability: self.durability,
            after: self.reopen_after,
            clock,
            commands: AtomicU64::new(0),
            inner: RwLock::new(Some(store)),
        })
    }

    fn sequences(&self) -> u64 {
        if self.reopen_after > 0 { 8 } else { 30 }
    }
}

/// A store that is closed and opened again every few commands.
#[derive(Debug)]
struct Reopening {
    path: PathBuf,
    durability: Durability,
    after: u64,
    clock: Arc<dyn Clock>,
    commands: AtomicU64,
    inner: RwLock<Option<SharedStore>>,
}

impl Reopening {
    async fn inner(&self) -> SharedStore {
        if (self.commands.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(self.after) {
            let mut inner = self.inner.write().await;
            inner.take().unwrap().close().await.unwrap();
            let settings = DiskSettings { path: self.path.clone(), durability: self.durability };
            *inner = Some(embedded_at(&settings, Arc::clone(&self.clock)).unwrap());
        }
        self.inner.read().await.clone().unwrap()
    }
}

#[async_trait]
impl QueueStore for Reopening {
    fn kind(&self) -> &'static str {
        "embedded, reopened"
    }

    async fn secret(&self, name: SharedSecret, proposal: [u8; 32]) -> Result<[u8; 32], StoreError> {
        self.inner().await.secret(name, proposal).await
    }

    async fn configure(
        &self,
        queue: &QueueName,
        settings: &Settings,
        origin: Origin,
    ) -> Result<Configured, StoreError> {
        self.inner().await.configure(queue, settings, origin).await
    }

    async fn enter(
        &self,
        queue: &QueueName,
        users: &[UserTag],
    ) -> Result<Versioned<Vec<Entered>>, StoreError> {
        self.inner().await.enter(queue, users).await
    }

    async fn standing(
        &self,
        queue: &QueueName,
        user: UserTag,
        seq: Option<Seq>,
        purpose: Purpose,
    ) -> Result<Versioned<Standing>, StoreError> {
        self.inner().await.standing(queue, user, seq, purpose).await
    }

    async fn leave(
        &self,
        queue: &QueueName,
        user: UserTag,
        seq: Option<Seq>,
    ) -> Result<Versioned<Left>, StoreError> {
        self.inner().await.leave(queue, user, seq).await
    }

    async fn admit(
        &self,
        queue: &QueueName,
        max: u64,
        by: AdmitBy,
    ) -> Result<Versioned<Admitted>, StoreError> {
        self.inner().await.admit(queue, max, by).await
    }

    async fn heartbeat(&self, queue: &QueueName, heartbeat: &Heartbeat) -> Result<(), StoreError> {
        self.inner().await.heartbeat(queue, heartbeat).await
    }

    async fn reap(&self, queue: &QueueName) -> Result<Reaped, StoreError> {
        self.inner().await.reap(queue).await
    }

    async fn sync(&self, queue: &QueueName, known: Versions) -> Result<Synced, StoreError> {
        self.inner().await.sync(queue, known).await
    }

    async fn compact(&self, queue: &QueueName, keep: u64) -> Result<(), StoreError> {
        self.inner().await.compact(queue, keep).await
    }

    async fn fence(&self, queue: &QueueName, seen: &Sighting) -> Result<Versioned<()>, StoreError> {
        self.inner().await.fence(queue, seen).await
    }

    async fn revive(
        &self,
        queue: &QueueName,
        user: UserTag,
        evidence: &Evidence,
    ) -> Result<Versioned<Standing>, StoreError> {
        self.inner().await.revive(queue, user, evidence).await
    }

    async fn restore(
        &self,
        queue: &QueueName,
        leases: &[HeldLease],
    ) -> Result<Versioned<u64>, StoreError> {
        self.inner().await.restore(queue, leases).await
    }

    async fn rebuild(
        &self,
        queue: &QueueName,
        settings: &Settings,
        origin: Origin,
        from: &Recollection,
    ) -> Result<Rebuilt, StoreError> {
        self.inner().await.rebuild(queue, settings, origin, from).await
    }
}
