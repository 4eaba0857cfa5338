//! Redis really killed, paused, out of memory, emptied or filled with nonsense.

use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use anteroom::clock::{ManualClock, Timestamp};
use anteroom::queue::command::{
    AdmitBy, Configured, Entered, Freshness, Heartbeat, Left, Origin, Purpose, Sighting, Standing,
    Versioned, Versions,
};
use anteroom::queue::line::{GAP, RESTORE_TIME};
use anteroom::queue::settings::{Mode, Settings};
use anteroom::queue::{QueueName, Seq, UserTag};
use anteroom::store::contract::user;
use anteroom::store::{
    RedisSettings, SharedSecret, SharedStore, StoreError, redis as redis_store, redis_with_clock,
};
use futures_util::future::join_all;

use crate::redis_server::RedisServer;

/// Connecting and answering together, with room for a busy machine.
const BUDGET: Duration = Duration::from_secs(2);

static QUEUE: LazyLock<QueueName> = LazyLock::new(|| QueueName::new("outage").expect("a name"));
static SETTINGS: Settings = Settings::new(1);

/// A store with the time limits that gateways use.
fn impatient(server: &RedisServer) -> SharedStore {
    let defaults = RedisSettings::new("");
    let mut settings = server.settings();
    settings.connect_timeout = defaults.connect_timeout;
    settings.response_timeout = defaults.response_timeout;
    redis_store(&settings).expect("a URL")
}

async fn opened(server: &RedisServer) -> SharedStore {
    let store = impatient(server);
    let created = repeat(|| store.configure(&QUEUE, &SETTINGS, Origin::Operator)).await;
    assert_eq!(created, Configured::Created);
    store
}

/// Repeats a command until it gets through, as a gateway's ticks do.
async fn repeat<T, F>(command: impl Fn() -> F) -> T
where
    F: Future<Output = Result<T, StoreError>>,
{
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        match command().await {
            Ok(answer) => return answer,
            Err(StoreError::Unavailable(_) | StoreError::Indeterminate(_)) => {
                assert!(Instant::now() < deadline, "it never came back");
                tokio::task::yield_now().await;
            }
            Err(other) => panic!("{other:?}"),
        }
    }
}

/// Enters these users once the store answers.
async fn entered(store: &SharedStore, numbers: &[u64]) -> Versioned<Vec<Entered>> {
    let tags: Vec<UserTag> = numbers.iter().copied().map(user).collect();
    repeat(|| store.enter(&QUEUE, &tags)).await
}

fn is_away(error: &StoreError) -> bool {
    matches!(error, StoreError::Unavailable(_) | StoreError::Indeterminate(_))
}

#[tokio::test]
async fn a_killed_redis_is_an_error_in_time_and_is_found_again() {
    let mut server = RedisServer::start();
    let store = opened(&server).await;
    server.kill();
    for _ in 0..5 {
        let asked = Instant::now();
        let error = store.sync(&QUEUE, Versions::default()).await.unwrap_err();
        assert!(is_away(&error), "{error:?}");
        assert!(asked.elapsed() < BUDGET, "{:?}", asked.elapsed());
    }
    let asked = Instant::now();
    let tags: Vec<_> = (0..2000).map(|number| [user(number)]).collect();
    for entered in join_all(tags.iter().map(|tag| store.enter(&QUEUE, tag))).await {
        assert!(is_away(&entered.unwrap_err()));
    }
    assert!(asked.elapsed() < BUDGET, "a crowd waits no longer: {:?}", asked.elapsed());
    server.restart();
    let created = repeat(|| store.configure(&QUEUE, &SETTINGS, Origin::Operator)).await;
    assert_eq!(created, Configured::Created, "it lost everything");
}

#[tokio::test]
async fn a_paused_redis_is_indeterminate_and_repeating_finds_out() {
    let server = RedisServer::start();
    let store = opened(&server).await;
    server.signal("STOP");
    for call in 0..5 {
        let asked = Instant::now();
        let error = store.enter(&QUEUE, &[user(1)]).await.unwrap_err();
        // After three the connection is given up, and without one nothing is sent.
        assert!(call > 2 || matches!(error, StoreError::Indeterminate(_)), "{error:?}");
        assert!(is_away(&error), "{error:?}");
        assert!(asked.elapsed() < BUDGET, "{:?}", asked.elapsed());
    }
    server.signal("CONT");
    let entered = entered(&store, &[1]).await;
    assert!(matches!(entered.value[0], Entered::Active { place, .. } if place.seq == Seq(1)));
}

#[tokio::test]
async fn a_caller_who_hangs_up_does_not_strand_those_behind() {
    let server = RedisServer::start();
    let store = redis_store(&server.settings()).unwrap();
    store.configure(&QUEUE, &SETTINGS, Origin::Operator).await.unwrap();
    server.signal("STOP");
    let first = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.enter(&QUEUE, &[user(1)]).await }
    });
    tokio::task::yield_now().await;
    let second = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.enter(&QUEUE, &[user(2)]).await }
    });
    tokio::task::yield_now().await;
    first.abort();
    server.signal("CONT");
    let entered = second.await.unwrap().unwrap();
    assert!(matches!(entered.value[..], [Entered::Waiting(place, _)] if place.seq == Seq(2)));
}

#[test]
fn a_runtime_that_ends_takes_neither_the_queue_nor_the_connection_with_it() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let server = RedisServer::start();
    let (ending, staying) = (runtime(), runtime());
    let store = ending.block_on(opened(&server));
    server.signal("STOP");
    ending.block_on(async {
        let store = Arc::clone(&store);
        tokio::spawn(async move { store.enter(&QUEUE, &[user(1)]).await });
        tokio::task::yield_now().await;
    });
    drop(ending);
    server.signal("CONT");
    let entered = staying.block_on(entered(&store, &[2]));
    assert!(matches!(entered.value[0], Entered::Active { .. } | Entered::Waiting(..)));
}

#[tokio::test]
async fn nothing_at_the_address_is_unavailable_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("redis+unix://{}", directory.path().join("none").display());
    let store = redis_store(&RedisSettings::new(url)).unwrap();
    let asked = Instant::now();
    let error = store.admit(&QUEUE, 1, AdmitBy::Tick).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    assert!(asked.elapsed() < BUDGET);
    assert!(redis_store(&RedisSettings::new("http://shop.example")).is_err());
}

#[tokio::test]
async fn a_refused_login_is_tried_again() {
    let server = RedisServer::start();
    let mut admin = server.client();
    redis::cmd("CONFIG").arg("SET").arg("requirepass").arg("new").exec(&mut admin).unwrap();
    let mut settings = server.settings();
    settings.url += "?pass=old";
    let store = redis_store(&settings).unwrap();
    for _ in 0..3 {
        let error = store.sync(&QUEUE, Versions::default()).await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    }
    redis::cmd("CONFIG").arg("SET").arg("requirepass").arg("old").exec(&mut admin).unwrap();
    repeat(|| store.configure(&QUEUE, &SETTINGS, Origin::Operator)).await;
}

#[tokio::test]
async fn without_memory_nobody_enters_but_leaving_and_looking_go_on() {
    let server = RedisServer::start();
    let store = opened(&server).await;
    entered(&store, &[1, 2]).await;
    let mut admin = server.client();
    redis::cmd("CONFIG").arg("SET").arg("maxmemory").arg(1).exec(&mut admin).unwrap();
    let error = store.enter(&QUEUE, &[user(3)]).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    assert_eq!(repeat(|| store.leave(&QUEUE, user(2), None)).await.value, Left::Gave);
    repeat(|| store.compact(&QUEUE, 0)).await;
    assert_eq!(repeat(|| store.sync(&QUEUE, Versions::default())).await.tail, 2);
}

#[tokio::test]
async fn a_queue_that_was_lost_comes_back_as_a_later_one() {
    let server = RedisServer::start();
    let store = opened(&server).await;
    let first = entered(&store, &[1]).await.incarnation;
    let mut admin = server.client();
    redis::cmd("DEL").arg("anteroom:{outage}:m").exec(&mut admin).unwrap();
    let error = store.enter(&QUEUE, &[user(1)]).await.unwrap_err();
    assert!(matches!(error, StoreError::UnknownQueue(_)), "{error:?}");
    assert_eq!(
        repeat(|| store.configure(&QUEUE, &SETTINGS, Origin::File(1))).await,
        Configured::Created
    );
    let entered = entered(&store, &[1]).await;
    assert!(entered.incarnation > first);
    let fresh = Freshness::New;
    assert!(
        matches!(entered.value[0], Entered::Active { place, freshness, .. }
            if place.seq == Seq(1) && freshness == fresh),
        "{entered:?}"
    );
}

/// As after a promotion: the data is there, and another server holds it.
#[tokio::test]
async fn on_a_new_server_nothing_is_done_before_the_fence() {
    let server = RedisServer::start();
    let store = opened(&server).await;
    let before = entered(&store, &[1, 2, 3]).await;
    redis::cmd("HSET")
        .arg(&["anteroom:{outage}:m", "run", "another"])
        .exec(&mut server.client())
        .unwrap();
    let needs_fence = |error: StoreError| matches!(error, StoreError::NeedsFence(_));
    assert!(store.enter(&QUEUE, &[user(4)]).await.is_err_and(needs_fence));
    assert!(store.standing(&QUEUE, user(1), None, Purpose::Pass).await.is_err_and(needs_fence));
    assert!(store.leave(&QUEUE, user(1), None).await.is_err_and(needs_fence));
    assert!(store.admit(&QUEUE, 1, AdmitBy::Tick).await.is_err_and(needs_fence));
    assert!(store.sync(&QUEUE, Versions::default()).await.is_err_and(needs_fence));
    assert!(store.restore(&QUEUE, &[]).await.is_err_and(needs_fence));
    let seen = Sighting { head: 2, tail: 7, issued: Timestamp::EPOCH };
    let fenced = store.fence(&QUEUE, &seen).await.unwrap();
    assert!(fenced.version > before.version + 1000, "no gateway may take it for one it knows");
    let synced = store.sync(&QUEUE, Versions::default()).await.unwrap();
    assert_eq!((synced.head, synced.tail, synced.recovery.fences), (2, 7 + GAP, 1));
    assert_eq!(synced.recovery.lost, [(4, 7 + GAP)]);
    assert_eq!(synced.recovery.admit_after, fenced.at.plus(RESTORE_TIME));
    // Another gateway that has seen more.
    let seen = Sighting { head: 9, tail: 9 + GAP, issued: Timestamp::EPOCH };
    store.fence(&QUEUE, &seen).await.unwrap();
    let synced = store.sync(&QUEUE, Versions::default()).await.unwrap();
    assert_eq!((synced.head, synced.tail, synced.recovery.fences), (2, 9 + 2 * GAP, 1));
    assert_eq!(store.admit(&QUEUE, 10, AdmitBy::Operator).await.unwrap().value.count, 0);
    assert!(matches!(entered(&store, &[5]).await.value[0], Entered::Waiting(..)), "no fast track");
}

#[tokio::test]
async fn nonsense_in_the_store_is_corrupt_and_nothing_worse() {
    let server = RedisServer::start();
    let store = opened(&server).await;
    entered(&store, &[1, 2]).await;
    let mut admin = server.client();
    let mut spoil = |command: &str, args: &[&str]| {
        redis::cmd(command).arg(args).exec(&mut admin).expect("it runs");
    };
    let corrupt = |error: StoreError| assert!(matches!(error, StoreError::Corrupt(_)), "{error:?}");
    spoil("HSET", &["anteroom:{outage}:m", "settings", "{"]);
    corrupt(store.sync(&QUEUE, Versions::default()).await.unwrap_err());
    spoil("SET", &["anteroom:secret:user_salt", "short"]);
    corrupt(store.secret(SharedSecret::UserSalt, [0; 32]).await.unwrap_err());
    spoil("HSET", &["anteroom:{outage}:m", "head", "many"]);
    corrupt(store.sync(&QUEUE, Versions::default()).await.unwrap_err());
    corrupt(store.enter(&QUEUE, &[user(3)]).await.unwrap_err());
    spoil("SET", &["anteroom:{outage}:m", "text"]);
    corrupt(store.enter(&QUEUE, &[user(3)]).await.unwrap_err());
    corrupt(store.reap(&QUEUE).await.unwrap_err());
}

#[tokio::test]
async fn the_last_numbers_are_exact() {
    let server = RedisServer::start();
    let store = opened(&server).await;
    let mut admin = server.client();
    let last = Seq::MAX.0;
    let base = (last - 10) / 64 * 64;
    redis::cmd("HSET")
        .arg("anteroom:{outage}:m")
        .arg(&[("head", last - 3), ("tail", last - 4), ("base", base), ("live", 0)])
        .exec(&mut admin)
        .unwrap();
    let entered = entered(&store, &[1, 2, 3, 4, 5]).await.value;
    let seqs = entered[..4].iter().map(|entered| match entered {
        Entered::Active { place, .. } | Entered::Waiting(place, _) => place.seq.0,
        other => panic!("{other:?}"),
    });
    assert_eq!(seqs.collect::<Vec<_>>(), [last - 3, last - 2, last - 1, last]);
    assert_eq!(entered[4], Entered::Full);
    assert_eq!(
        repeat(|| store.leave(&QUEUE, user(3), Some(Seq(last - 1)))).await.value,
        Left::Gave
    );
    repeat(|| store.leave(&QUEUE, user(1), None)).await;
    let admitted = loop {
        let admitted = repeat(|| store.admit(&QUEUE, 10, AdmitBy::Tick)).await.value;
        if admitted.count > 0 {
            break admitted;
        }
    };
    assert_eq!((admitted.count, admitted.head), (1, last - 1));
    let synced = repeat(|| store.sync(&QUEUE, Versions::default())).await;
    assert_eq!((synced.head, synced.tail, synced.live), (last - 1, last, 1));
    assert!(matches!(
        repeat(|| store.standing(&QUEUE, user(2), Some(Seq(last - 2)), Purpose::Pass)).await.value,
        Standing::Active { place, claimed: true, .. } if place.seq.0 == last - 2
    ));
}

/// Time to live of every key of the queue, in seconds; -1 is none.
fn lifetimes(admin: &mut redis::Connection) -> Vec<(String, i64)> {
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(admin).unwrap();
    keys.into_iter()
        .map(|key| {
            let ttl = redis::cmd("TTL").arg(&key).query(admin).unwrap();
            (key, ttl)
        })
        .collect()
}

#[tokio::test]
async fn a_closed_queue_expires_a_day_after_its_last_lease_unless_reopened() {
    let server = RedisServer::start();
    let store = opened(&server).await;
    let heartbeat = Heartbeat { epoch: 0, gateway: 1, first: 0, bits: vec![1] };
    repeat(|| store.heartbeat(&QUEUE, &heartbeat)).await;
    entered(&store, &[1, 2, 3, 4]).await;
    repeat(|| store.standing(&QUEUE, user(1), None, Purpose::Pass)).await;
    let mut closed = SETTINGS.clone();
    closed.mode = Mode::Closed;
    let mut admin = server.client();
    repeat(|| store.configure(&QUEUE, &closed, Origin::Operator)).await;
    repeat(|| store.admit(&QUEUE, 1, AdmitBy::Tick)).await;
    // A key made after that is found by the next tick.
    repeat(|| store.leave(&QUEUE, user(2), None)).await;
    repeat(|| store.admit(&QUEUE, 1, AdmitBy::Tick)).await;
    let day = 24 * 3600;
    let kept = "anteroom:{outage}:inc";
    for (key, ttl) in lifetimes(&mut admin) {
        assert!(key.starts_with("anteroom:{outage}:"), "{key}");
        let expected = if key == kept { -1..=-1 } else { day + 500..=day + 600 };
        assert!(expected.contains(&ttl), "{key} {ttl}");
    }
    repeat(|| store.configure(&QUEUE, &SETTINGS, Origin::Operator)).await;
    for (key, ttl) in lifetimes(&mut admin) {
        assert_eq!(ttl, -1, "{key}");
    }
}

#[tokio::test]
async fn sweeping_frees_the_index() {
    let server = RedisServer::start();
    let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_800_000_000_000)));
    let store = redis_with_clock(&server.settings(), clock.clone()).unwrap();
    let mut settings = Settings::new(10_000);
    settings.late_grace = Duration::ZERO;
    store.configure(&QUEUE, &settings, Origin::Operator).await.unwrap();
    for thousand in 0..4 {
        let tags: Vec<_> = (0..1000).map(|n| user(thousand * 1000 + n)).collect();
        store.enter(&QUEUE, &tags).await.unwrap();
    }
    clock.advance(Duration::from_secs(60));
    for _ in 0..10 {
        store.compact(&QUEUE, 0).await.unwrap();
    }
    let left: u64 =
        redis::cmd("HLEN").arg("anteroom:{outage}:u").query(&mut server.client()).unwrap();
    assert!(left <= 1024, "{left}");
}

#[tokio::test]
async fn only_a_queue_made_for_tests_goes_by_another_clock() {
    let server = RedisServer::start();
    let store = opened(&server).await;
    let now = repeat(|| store.sync(&QUEUE, Versions::default())).await.now;
    let clock = Arc::new(ManualClock::at(now.plus(Duration::from_secs(1_000_000))));
    let other = redis_with_clock(&server.settings(), clock).unwrap();
    let seen = other.sync(&QUEUE, Versions::default()).await.unwrap().now;
    assert!(seen.since(now) < Duration::from_secs(1000), "{seen:?}");
}
