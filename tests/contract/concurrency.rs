//! Several clients of one store at once, on the real clock.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anteroom::clock::SystemClock;
use anteroom::queue::QueueName;
use anteroom::queue::command::{AdmitBy, Entered, Left, Origin, Purpose, Standing, Versions};
use anteroom::queue::settings::{Mode, Settings};
use anteroom::store::contract::user;
use anteroom::store::{SharedStore, embedded, redis};
use futures_util::future::join_all;

use crate::redis_server::RedisServer;

fn queue() -> QueueName {
    QueueName::new("crowd").expect("a name")
}

fn seq_of(entered: Entered) -> u64 {
    match entered {
        Entered::Waiting(place, _) | Entered::Late(place) | Entered::Active { place, .. } => {
            place.seq.0
        }
        other => panic!("{other:?} is no place"),
    }
}

/// Three clients of one embedded store.
fn of_embedded() -> Vec<SharedStore> {
    vec![embedded(Arc::new(SystemClock)); 3]
}

/// Three clients with connections of their own, as of three processes.
fn of_redis(server: &RedisServer) -> Vec<SharedStore> {
    (0..3).map(|_| redis(&server.settings()).expect("a URL")).collect()
}

async fn one_user_enters_a_thousand_times(clients: Vec<SharedStore>) {
    let settings = Settings::new(0);
    clients[0].configure(&queue(), &settings, Origin::Operator).await.unwrap();
    let tasks: Vec<_> = (0..1000)
        .map(|at| {
            let client = Arc::clone(&clients[at % 3]);
            tokio::spawn(async move { client.enter(&queue(), &[user(7)]).await })
        })
        .collect();
    for entered in join_all(tasks).await {
        assert_eq!(seq_of(entered.unwrap().unwrap().value[0]), 1);
    }
    assert_eq!(clients[1].sync(&queue(), Versions::default()).await.unwrap().tail, 1);
}

/// Users enter, wait, use their turn and leave, each on another client than the step before, while
/// all clients admit. Answers how many were admitted.
async fn a_sale(clients: &[SharedStore], users: u64, capacity: u64) -> u64 {
    let mut settings = Settings::new(capacity);
    settings.mode = Mode::QueueAll;
    clients[0].configure(&queue(), &settings, Origin::Operator).await.unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let admitted = Arc::new(AtomicU64::new(0));
    let gateways: Vec<_> = clients
        .iter()
        .map(|client| {
            let (client, over, admitted) =
                (Arc::clone(client), Arc::clone(&over), Arc::clone(&admitted));
            tokio::spawn(async move {
                while !over.load(Ordering::SeqCst) {
                    let moved = client.admit(&queue(), 4, AdmitBy::Tick).await.unwrap().value;
                    admitted.fetch_add(moved.count, Ordering::SeqCst);
                    let synced = client.sync(&queue(), Versions::default()).await.unwrap();
                    assert!(synced.active <= capacity, "{} of {capacity} active", synced.active);
                    client.compact(&queue(), 64).await.unwrap();
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    let shoppers: Vec<_> = (0..users)
        .map(|number| {
            let clients = clients.to_vec();
            tokio::spawn(async move {
                let at = |step: u64| &clients[usize::try_from((number + step) % 3).unwrap()];
                let entered = at(0).enter(&queue(), &[user(number)]).await.unwrap();
                let seq = seq_of(entered.value[0]);
                let mut step = 0;
                loop {
                    step += 1;
                    let standing = at(step)
                        .standing(&queue(), user(number), None, Purpose::Pass)
                        .await
                        .unwrap();
                    match standing.value {
                        Standing::Waiting(place) => assert_eq!(place.seq.0, seq),
                        Standing::Active { place, claimed: true, .. } => {
                            assert_eq!(place.seq.0, seq);
                            break;
                        }
                        other => panic!("{other:?} in the middle of a move"),
                    }
                    tokio::task::yield_now().await;
                }
                let left = at(step + 1).leave(&queue(), user(number), None).await.unwrap();
                assert_eq!(left.value, Left::Gave);
                number
            })
        })
        .collect();
    let shoppers = join_all(shoppers).await;
    let served: HashSet<u64> = shoppers.into_iter().map(Result::unwrap).collect();
    assert_eq!(served.len() as u64, users);
    over.store(true, Ordering::SeqCst);
    for gateway in join_all(gateways).await {
        gateway.unwrap();
    }
    let synced = clients[0].sync(&queue(), Versions::default()).await.unwrap();
    assert_eq!((synced.admitted, synced.tail, synced.live), (users, users, 0));
    admitted.load(Ordering::SeqCst)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_parallel_enters_of_one_user_give_one_token() {
    one_user_enters_a_thousand_times(of_embedded()).await;
    let server = RedisServer::start();
    one_user_enters_a_thousand_times(of_redis(&server)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_clients_of_the_embedded_store_admit_each_user_once() {
    assert_eq!(a_sale(&of_embedded(), 100, 40).await, 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_processes_on_redis_admit_each_user_once() {
    let server = RedisServer::start();
    assert_eq!(a_sale(&of_redis(&server), 150, 60).await, 150);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_forgets_its_scripts_disturbs_nobody() {
    let server = RedisServer::start();
    let mut admin = server.client();
    let over = Arc::new(AtomicBool::new(false));
    let flushing = {
        let over = Arc::clone(&over);
        std::thread::spawn(move || {
            let mut flushed = 0;
            while !over.load(Ordering::SeqCst) {
                redis::cmd("SCRIPT").arg("FLUSH").exec(&mut admin).expect("it runs");
                flushed += 1;
            }
            flushed
        })
    };
    assert_eq!(a_sale(&of_redis(&server), 40, 40).await, 40);
    over.store(true, Ordering::SeqCst);
    assert!(flushing.join().expect("no panic") > 10);
}

#[tokio::test]
async fn users_who_enter_together_share_a_call_and_keep_their_order() {
    let server = RedisServer::start();
    let store = redis(&server.settings()).unwrap();
    store.configure(&queue(), &Settings::new(0), Origin::Operator).await.unwrap();
    let before = script_calls(&server);
    let tags: Vec<_> = (0..1000).map(|number| [user(number)]).collect();
    let queue = queue();
    let entered = join_all(tags.iter().map(|tag| store.enter(&queue, tag))).await;
    let seqs: Vec<u64> = entered.into_iter().map(|e| seq_of(e.unwrap().value[0])).collect();
    assert_eq!(seqs, (1..=1000).collect::<Vec<_>>());
    let calls = script_calls(&server) - before;
    assert!(calls <= 25, "{calls} calls for 1000 users");
}

fn script_calls(server: &RedisServer) -> u64 {
    let stats: String =
        redis::cmd("INFO").arg("commandstats").query(&mut server.client()).expect("it runs");
    stats
        .lines()
        .filter(|line| line.starts_with("cmdstat_eval"))
        .filter_map(|line| line.split_once("calls=")?.1.split_once(',')?.0.parse::<u64>().ok())
        .sum()
}
