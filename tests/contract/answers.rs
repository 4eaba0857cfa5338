//! What servers say instead of an answer, provoked on real ones: each is the documented error, and
//! each is over when its cause is.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use anteroom::clock::Timestamp;
use anteroom::queue::QueueName;
use anteroom::queue::command::{Origin, Sighting, Versions};
use anteroom::queue::line::GAP;
use anteroom::queue::settings::Settings;
use anteroom::store::contract::user;
use anteroom::store::{SharedStore, StoreError, redis as redis_store};

use crate::redis_server::RedisServer;
use crate::servers::{TcpServer, patient, wait_for};

static QUEUE: LazyLock<QueueName> = LazyLock::new(|| QueueName::new("answers").expect("a name"));
static SETTINGS: Settings = Settings::new(1);

/// What a gateway that saw nothing knows of a line.
const SEEN: Sighting = Sighting { head: 0, tail: 0, issued: Timestamp::EPOCH };

async fn opened(server: &RedisServer) -> SharedStore {
    let store = redis_store(&server.settings()).unwrap();
    store.configure(&QUEUE, &SETTINGS, Origin::Operator).await.unwrap();
    store.enter(&QUEUE, &[user(1)]).await.unwrap();
    store
}

fn config(client: &mut redis::Connection, name: &str, value: &str) {
    redis::cmd("CONFIG").arg("SET").arg(name).arg(value).exec(client).expect("it can be set");
}

/// Fails unless entering is refused with words that contain `code`.
async fn refuses(store: &SharedStore, code: &str) {
    is_unavailable(&store.enter(&QUEUE, &[user(2)]).await.unwrap_err(), code);
}

fn is_unavailable(error: &StoreError, code: &str) {
    let mut words = String::new();
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        words = format!("{words}{error}; ");
        cause = error.source();
    }
    assert!(matches!(error, StoreError::Unavailable(_)), "{words}");
    assert!(words.contains(code), "{words}");
}

/// Waits until users enter again.
async fn recovers(store: &SharedStore) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while let Err(error) = store.enter(&QUEUE, &[user(2)]).await {
        if matches!(error, StoreError::NeedsFence(_)) {
            let _ = store.fence(&QUEUE, &SEEN).await;
        }
        assert!(Instant::now() < deadline, "it never came back");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_server_busy_with_another_script_is_unavailable() {
    let server = RedisServer::start();
    let store = opened(&server).await;
    let mut admin = server.client();
    config(&mut admin, "busy-reply-threshold", "50");
    let mut other = server.client();
    let endless = std::thread::spawn(move || {
        redis::cmd("EVAL").arg("while true do end").arg(0).exec(&mut other).unwrap_err()
    });
    wait_for("a busy server", || {
        let pong = redis::cmd("PING").exec(&mut admin);
        pong.is_err_and(|error| error.code() == Some("BUSY"))
    });
    refuses(&store, "BUSY").await;
    redis::cmd("SCRIPT").arg("KILL").exec(&mut admin).expect("it wrote nothing");
    endless.join().expect("it was killed");
    recovers(&store).await;
}

#[tokio::test]
async fn a_server_that_cannot_save_or_lacks_replicas_is_unavailable() {
    let server = RedisServer::start();
    let store = opened(&server).await;
    let mut admin = server.client();
    config(&mut admin, "min-replicas-to-write", "1");
    refuses(&store, "NOREPLICAS").await;
    assert!(store.sync(&QUEUE, Versions::default()).await.is_ok(), "it may be read");
    config(&mut admin, "min-replicas-to-write", "0");
    recovers(&store).await;

    // A file in place of the directory that it would rename over makes saving fail.
    config(&mut admin, "save", "3600 1");
    let directory: Vec<String> =
        redis::cmd("CONFIG").arg("GET").arg("dir").query(&mut admin).expect("its directory");
    std::fs::create_dir(std::path::Path::new(&directory[1]).join("dump.rdb")).expect("it is free");
    redis::cmd("BGSAVE").exec(&mut admin).expect("it tries");
    wait_for("a failed save", || {
        let info: String =
            redis::cmd("INFO").arg("persistence").query(&mut admin).expect("it runs");
        info.contains("rdb_last_bgsave_status:err")
    });
    refuses(&store, "MISCONF").await;
    config(&mut admin, "stop-writes-on-bgsave-error", "no");
    recovers(&store).await;
}

#[tokio::test]
async fn a_server_without_memory_is_unavailable() {
    let server = RedisServer::start();
    let store = opened(&server).await;
    let mut admin = server.client();
    config(&mut admin, "maxmemory", "1");
    refuses(&store, "OOM").await;
    config(&mut admin, "maxmemory", "0");
    recovers(&store).await;
}

#[tokio::test]
async fn a_replica_is_unavailable_and_so_is_one_without_its_master() {
    let mut master = TcpServer::start_with(&["--repl-diskless-sync-delay", "0"]);
    let server = RedisServer::start();
    let store = opened(&server).await;
    let mut admin = server.client();
    let port = master.port.to_string();
    redis::cmd("REPLICAOF").arg("127.0.0.1").arg(&port).exec(&mut admin).expect("it may");
    wait_for("a replica", || {
        let info: String = redis::cmd("INFO").arg("replication").query(&mut admin).unwrap();
        info.contains("master_link_status:up")
    });
    refuses(&store, "ReadOnly").await;
    config(&mut admin, "replica-serve-stale-data", "no");
    master.server.kill();
    wait_for("a lonely replica", || {
        let info: String = redis::cmd("INFO").arg("replication").query(&mut admin).unwrap();
        info.contains("master_link_status:down")
    });
    refuses(&store, "ReadOnly").await;
    let error = store.sync(&QUEUE, Versions::default()).await.unwrap_err();
    is_unavailable(&error, "MasterDown");
    redis::cmd("REPLICAOF").arg("NO").arg("ONE").exec(&mut admin).expect("it may");
    // Its data was that of the master: nothing.
    let deadline = Instant::now() + Duration::from_secs(30);
    while store.configure(&QUEUE, &SETTINGS, Origin::Operator).await.is_err() {
        assert!(Instant::now() < deadline, "it never came back");
    }
    recovers(&store).await;
}

#[tokio::test]
async fn a_server_that_reads_its_files_is_unavailable_until_it_has() {
    let mut server = RedisServer::start_with(&[
        "--save",
        "3600 1",
        "--key-load-delay",
        "3000",
        "--loading-process-events-interval-bytes",
        "1024",
    ]);
    let store = opened(&server).await;
    // 3 ms for each key.
    let filling = "for i = 1, 1000 do redis.call('SET', 'filling' .. i, string.rep('x', 500)) end";
    redis::cmd("EVAL").arg(filling).arg(0).exec(&mut server.client()).expect("it runs");
    redis::cmd("SAVE").exec(&mut server.client()).expect("it runs");
    server.kill();
    server.restart();
    let deadline = Instant::now() + Duration::from_secs(10);
    let words = loop {
        // The first may meet the connection of the dead server.
        if let Err(StoreError::Unavailable(cause)) = store.sync(&QUEUE, Versions::default()).await
            && !cause.to_string().contains("timed out")
        {
            break cause.to_string();
        }
        assert!(Instant::now() < deadline, "it never said so");
    };
    assert!(words.contains("oading"), "{words}");
    recovers(&store).await;
    let synced = store.sync(&QUEUE, Versions::default()).await.unwrap();
    assert_eq!((synced.head, synced.tail), (2, GAP + 2), "nobody lost a place");
}

#[tokio::test]
async fn a_user_who_is_changed_meanwhile_is_unavailable_until_that_is_undone() {
    let server = TcpServer::start_with(&[]);
    let mut admin = server.server.client();
    let acl = |admin: &mut redis::Connection, rules: &[&str]| {
        redis::cmd("ACL").arg("SETUSER").arg("gate").arg(rules).exec(admin).expect("rules");
    };
    acl(&mut admin, &["on", ">secret", "~*", "+@all"]);
    let store =
        redis_store(&patient(format!("redis://gate:secret@127.0.0.1:{}", server.port))).unwrap();
    store.configure(&QUEUE, &SETTINGS, Origin::Operator).await.unwrap();
    store.enter(&QUEUE, &[user(1)]).await.unwrap();
    acl(&mut admin, &["-evalsha"]);
    refuses(&store, "NoPerm").await;
    acl(&mut admin, &["+evalsha", "-hset"]);
    // Redis notices only in the middle of a script.
    let error = store.enter(&QUEUE, &[user(2)]).await.unwrap_err();
    assert!(matches!(error, StoreError::Indeterminate(_)), "{error:?}");
    acl(&mut admin, &["+hset", "resetpass", ">other"]);
    redis::cmd("CLIENT").arg("KILL").arg("USER").arg("gate").exec(&mut admin).expect("it may");
    let _ = store.sync(&QUEUE, Versions::default()).await;
    refuses(&store, "uthentication").await;
    acl(&mut admin, &[">secret"]);
    recovers(&store).await;
}

#[tokio::test]
async fn a_cluster_node_taken_for_a_single_server_is_unavailable() {
    let node = TcpServer::start_with(&["--cluster-enabled", "yes"]);
    let store = redis_store(&patient(format!("redis://127.0.0.1:{}", node.port))).unwrap();
    let error = store.enter(&QUEUE, &[user(1)]).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
}
