//! Masters that die, are demoted, fall silent or give slots away: the store follows by itself.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use anteroom::clock::Timestamp;
use anteroom::queue::QueueName;
use anteroom::queue::command::{AdmitBy, Entered, Origin, Purpose, Sighting, Standing, Versions};
use anteroom::queue::line::GAP;
use anteroom::queue::settings::Settings;
use anteroom::store::contract::user;
use anteroom::store::{RedisSettings, SharedStore, StoreError, redis as redis_store};

use crate::cluster::Cluster;
use crate::sentinels::Sentinels;

static QUEUE: LazyLock<QueueName> = LazyLock::new(|| QueueName::new("failover").expect("a name"));
static SETTINGS: Settings = Settings::new(1);

/// Long enough for any failover here on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The time limits of a gateway, a little wider: the machine that tests is busier.
fn impatient(mut settings: RedisSettings) -> RedisSettings {
    settings.connect_timeout = Duration::from_millis(600);
    settings.response_timeout = Duration::from_millis(400);
    settings
}

/// Repeats a command until it gets through, as gateways do: on a server that is new to the queue
/// they fence it first.
async fn repeat<T, F>(store: &SharedStore, command: impl Fn() -> F) -> T
where
    F: Future<Output = Result<T, StoreError>>,
{
    let deadline = Instant::now() + PATIENCE;
    let seen = Sighting { head: 2, tail: 2, issued: Timestamp::EPOCH };
    loop {
        let asked = Instant::now();
        let error = match command().await {
            Ok(answer) => return answer,
            Err(StoreError::NeedsFence(_)) => store.fence(&QUEUE, &seen).await.err(),
            Err(error) => Some(error),
        };
        assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
        assert!(Instant::now() < deadline, "it never came back: {error:?}");
        match error {
            Some(StoreError::Unavailable(_) | StoreError::Indeterminate(_)) | None => {}
            Some(other) => panic!("{other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A queue with one active user and one who waits, known to every replica.
async fn opened(store: &SharedStore, is_replicated: impl Fn() -> bool) {
    repeat(store, || store.configure(&QUEUE, &SETTINGS, Origin::File(1))).await;
    let both = [user(1), user(2)];
    repeat(store, || store.enter(&QUEUE, &both)).await;
    crate::servers::wait_for("replication", is_replicated);
}

/// Every command, with the answers that an intact queue gives; scripts have to be sent anew. The
/// third to enter gets a number after those that may have been lost, and leaves again.
async fn everybody_is_still_there(store: &SharedStore, third: u64) {
    let third = GAP + third;
    let standing =
        repeat(store, || store.standing(&QUEUE, user(1), None, Purpose::Pass)).await.value;
    assert!(matches!(standing, Standing::Active { claimed: true, .. }), "{standing:?}");
    let both = [user(2), user(third)];
    let entered = repeat(store, || store.enter(&QUEUE, &both)).await.value;
    let [Entered::Waiting(old, _), Entered::Waiting(new, _)] = entered[..] else {
        panic!("{entered:?}")
    };
    assert_eq!((old.seq.0, new.seq.0), (2, third));
    repeat(store, || store.admit(&QUEUE, 1, AdmitBy::Tick)).await;
    repeat(store, || store.reap(&QUEUE)).await;
    repeat(store, || store.compact(&QUEUE, 64)).await;
    repeat(store, || store.leave(&QUEUE, user(third), None)).await;
    let synced = repeat(store, || store.sync(&QUEUE, Versions::default())).await;
    assert_eq!((synced.tail, synced.live, synced.active), (third, 1, 1));
}

fn has_queue(mut client: redis::Connection) -> bool {
    // A replica of a cluster answers about its data only on request.
    let _ = redis::cmd("READONLY").exec(&mut client);
    let mut tail = redis::cmd("HGET");
    tail.arg("anteroom:{failover}:m")
        .arg("tail")
        .query::<Option<u64>>(&mut client)
        .is_ok_and(|tail| tail == Some(2))
}

#[tokio::test]
async fn after_a_master_died_the_one_that_sentinels_promote_is_used() {
    let mut sentinels = Sentinels::start();
    let store = redis_store(&impatient(sentinels.settings())).unwrap();
    opened(&store, || has_queue(sentinels.client(1))).await;
    sentinels.first().server.kill();
    everybody_is_still_there(&store, 3).await;
}

#[tokio::test]
async fn a_master_that_hangs_is_left_for_the_promoted_one() {
    let mut sentinels = Sentinels::start();
    let store = redis_store(&impatient(sentinels.settings())).unwrap();
    opened(&store, || has_queue(sentinels.client(1))).await;
    sentinels.first().server.signal("STOP");
    everybody_is_still_there(&store, 3).await;
    sentinels.first().server.signal("CONT");
    everybody_is_still_there(&store, 4).await;
}

#[tokio::test]
async fn a_demoted_master_is_left_though_it_answers() {
    let sentinels = Sentinels::start();
    let store = redis_store(&impatient(sentinels.settings())).unwrap();
    opened(&store, || has_queue(sentinels.client(1))).await;
    sentinels.fail_over();
    crate::servers::wait_for("a promotion", || sentinels.master() == 1);
    // For a moment the old one may be used, as long as nobody has told it that it is a replica.
    let deadline = Instant::now() + PATIENCE;
    while !sentinels.is_used(1) {
        repeat(&store, || store.sync(&QUEUE, Versions::default())).await;
        assert!(Instant::now() < deadline, "the new master is not used");
    }
    everybody_is_still_there(&store, 3).await;
}

#[tokio::test]
async fn after_a_node_died_its_replica_serves_its_queues() {
    let mut cluster = Cluster::start();
    let store = redis_store(&impatient(cluster.settings())).unwrap();
    let master = cluster.master_of("{failover}");
    opened(&store, || has_queue(cluster.client(master + 3))).await;
    cluster.node(master).server.kill();
    everybody_is_still_there(&store, 3).await;
}

#[tokio::test]
async fn a_node_that_hangs_is_left_for_its_replica_and_disturbs_no_other() {
    let mut cluster = Cluster::start();
    let store = redis_store(&impatient(cluster.settings())).unwrap();
    let master = cluster.master_of("{failover}");
    opened(&store, || has_queue(cluster.client(master + 3))).await;
    cluster.node(master).server.signal("STOP");
    everybody_is_still_there(&store, 3).await;
    cluster.node(master).server.signal("CONT");
    everybody_is_still_there(&store, 4).await;
}

#[tokio::test]
async fn a_queue_is_followed_while_its_slot_moves_to_another_node() {
    let cluster = Cluster::start();
    let store = redis_store(&impatient(cluster.settings())).unwrap();
    let from = cluster.master_of("{failover}");
    let to = (from + 1) % 3;
    opened(&store, || true).await;
    cluster.begin_to_move("{failover}", from, to);
    // Half of its keys are here, half there: only once they are together again it works.
    let error = store.enter(&QUEUE, &[user(4)]).await.unwrap_err();
    // On a busy machine time is over before the last of the client's own tries.
    let away = matches!(error, StoreError::Unavailable(_) | StoreError::Indeterminate(_));
    assert!(away, "{error:?}");
    cluster.finish_to_move("{failover}", from, to);
    everybody_is_still_there(&store, 3).await;
}
