//! What the store port costs: the same body for every store, so that numbers compare.
//!
//! Budgets are for the embedded store, one user: enter 2 µs (1 µs in batches of 50), standing 1 µs,
//! admit 1 µs; on a disk, with `durability = "async"`, half a microsecond more for each command that
//! leaves a record. A store that answers from a disk or a socket is measured without a budget.

mod measure;

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anteroom::clock::SystemClock;
use anteroom::queue::command::{AdmitBy, Origin, Purpose};
use anteroom::queue::settings::{Mode, Settings};
use anteroom::queue::{QueueName, UserTag};
use anteroom::store::{
    DiskSettings, Durability, RedisSettings, SharedSecret, SharedStore, embedded_at,
};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use measure::{Case, Run, Time, Walk};

const MICROSECOND: Duration = Duration::from_micros(1);

/// Budgets of one store; `None` where only the numbers are wanted.
#[derive(Clone, Copy, Default)]
struct Budgets {
    enter: Option<Duration>,
    enter_batched: Option<Duration>,
    standing: Option<Duration>,
    admit: Option<Duration>,
}

fn tag(n: u64) -> UserTag {
    UserTag(n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes())
}

/// A queue in which `waiting` users wait.
async fn fill(store: &SharedStore, queue: &QueueName, waiting: u64) {
    let mut settings = Settings::new(Settings::MAX_CAPACITY);
    settings.mode = Mode::QueueAll;
    settings.max_waiting = 100_000_000;
    store.configure(queue, &settings, Origin::Operator).await.expect("the store answers");
    let users: Vec<_> = (1..=waiting).map(tag).collect();
    for batch in users.chunks(1000) {
        store.enter(queue, batch).await.expect("the store answers");
    }
}

/// The cases of one store, each on a queue of its own with `waiting` users.
fn cases<'a>(
    run: Run,
    runtime: &'a Runtime,
    (kind, store): (&str, &SharedStore),
    waiting: u64,
    budgets: Budgets,
) -> Vec<Case<'a>> {
    let waiting = run.size(waiting);
    let operations = run.size(5_000);
    let queue = |part: &str| {
        let queue = QueueName::new(&format!("bench-{waiting}-{part}")).expect("a name");
        runtime.block_on(fill(store, &queue, waiting));
        (store.clone(), queue)
    };
    let name = |what: &str| format!("{kind}: {what}, {waiting} waiting");

    let enter = |part: &str, batch: u64, budget| {
        let (store, queue) = queue(part);
        let mut next = waiting + 1;
        let what = format!("enter, {batch} a call");
        Case::new(name(&what), budget, move || {
            runtime.block_on(async {
                for _ in 0..operations / batch {
                    let users: Vec<_> = (next..next + batch).map(tag).collect();
                    store.enter(&queue, &users).await.expect("the store answers");
                    next += batch;
                }
            });
            operations / batch * batch
        })
    };
    let standing = {
        let (store, queue) = queue("standing");
        let mut walk = Walk::below(waiting);
        Case::new(name("standing"), budgets.standing, move || {
            runtime.block_on(async {
                for _ in 0..operations {
                    let user = tag(walk.step() + 1);
                    let standing = store.standing(&queue, user, None, Purpose::Pass).await;
                    standing.expect("the store answers");
                }
            });
            operations
        })
    };
    let admit = {
        let (store, queue) = queue("admit");
        Case::new(name("admit a user, 500 a call"), budgets.admit, move || {
            runtime.block_on(async {
                let mut count = 0;
                for _ in 0..operations / 500 {
                    let admitted = store.admit(&queue, 500, AdmitBy::Tick).await;
                    count += admitted.expect("the store answers").value.count;
                }
                count
            })
        })
    };
    vec![
        enter("enter", 1, budgets.enter),
        enter("batches", 50, budgets.enter_batched),
        standing,
        admit,
    ]
}

/// A server of its own on a socket in a temporary directory, gone with the value.
struct Redis {
    process: Child,
    store: SharedStore,
    _directory: TempDir,
}

impl Redis {
    async fn start() -> Option<Self> {
        let directory = tempfile::tempdir().ok()?;
        let socket = directory.path().join("redis.sock");
        let process = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"])
            .arg(&socket)
            .stdout(Stdio::null())
            .spawn()
            .ok()?;
        let mut settings = RedisSettings::new(format!("redis+unix://{}", socket.display()));
        settings.response_timeout = Duration::from_secs(5);
        let store = anteroom::store::redis(&settings).ok()?;
        let server = Self { process, store, _directory: directory };
        let began = Instant::now();
        while server.store.secret(SharedSecret::UserSalt, [0; 32]).await.is_err() {
            assert!(began.elapsed() < Duration::from_secs(10), "redis-server does not answer");
        }
        Some(server)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // It may have ended by itself; nothing is left to do then.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn main() {
    let run = Run::from_arguments();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let embedded = anteroom::store::embedded(Arc::new(SystemClock));
    let budgets = Budgets {
        enter: Some(2 * MICROSECOND),
        enter_batched: Some(MICROSECOND),
        standing: Some(MICROSECOND),
        admit: Some(MICROSECOND),
    };
    let mut all = cases(run, &runtime, ("embedded", &embedded), 100_000, budgets);
    all.extend(cases(run, &runtime, ("embedded", &embedded), 1_000_000, budgets));
    let half = MICROSECOND / 2;
    let on_disk = Budgets {
        enter: Some(2 * MICROSECOND + half),
        enter_batched: Some(MICROSECOND + half),
        standing: Some(MICROSECOND + half),
        admit: Some(MICROSECOND),
    };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let on = |name: &str, durability| {
        let settings = DiskSettings { path: directory.path().join(name), durability };
        embedded_at(&settings, Arc::new(SystemClock)).expect("a data directory")
    };
    let asynchronous = on("async", Durability::default());
    all.extend(cases(run, &runtime, ("on disk, async", &asynchronous), 1_000_000, on_disk));
    let synchronous = on("sync", Durability::Sync);
    let unlimited = Budgets::default();
    all.extend(cases(run, &runtime, ("on disk, sync", &synchronous), 100_000, unlimited));
    let server = runtime.block_on(Redis::start());
    match &server {
        Some(server) => {
            all.extend(cases(run, &runtime, ("redis", &server.store), 100_000, unlimited));
        }
        None => println!("redis: left out, `redis-server` is not installed"),
    }
    measure::run(run, Time::Wall, all);
}
