//! A whole line that its store has lost comes back from its holders' tokens, in order.
//!
//! `RECOVERY_TOKENS` in the environment says how many hold one; the times are printed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anteroom::clock::{Clock, ManualClock, Timestamp};
use anteroom::queue::command::Entered;
use anteroom::queue::definition::Definition;
use anteroom::queue::settings::{EPOCH_MS, Mode, Settings};
use anteroom::queue::{QueueName, QueueTemplate, UserSource, UserTag};
use anteroom::store::SharedStore;
use anteroom::store::contract::{Fixture, user};
use anteroom::store::mirror::{LocalQueue, Mirror, Seen};
use anteroom::token::{Claims, Keyring, Proof, TokenKey, UnverifiedToken};
use tokio::sync::watch;

use crate::Embedded;
use crate::redis_server::RedisServer;

const QUEUE: &str = "sale";

async fn mirror(store: SharedStore, clock: &Arc<ManualClock>) -> Arc<Mirror> {
    let mut settings = Settings::new(100);
    settings.mode = Mode::QueueAll;
    settings.max_waiting = 100_000_000;
    let definition = Definition {
        template: QueueTemplate::Fixed(QueueName::new(QUEUE).expect("a name")),
        settings,
        identity: None,
        max_instances: 1,
        text_hash: 1,
    };
    let own = Arc::clone(clock) as Arc<dyn Clock>;
    let mirror = Mirror::new(store, own, 1, vec![definition]);
    mirror.open().await.expect("the store answers");
    Arc::new(mirror)
}

fn queue_of(mirror: &Mirror) -> Arc<LocalQueue> {
    mirror.known(&QueueName::new(QUEUE).expect("a name")).expect("it is declared")
}

/// Polls with every token, as a gateway does; how many wait.
async fn poll_all(queue: &LocalQueue, keyring: &Keyring, tokens: &[String]) -> usize {
    let mut waiting = 0;
    for token in tokens {
        let token = UnverifiedToken::parse(token).expect("it was signed");
        let claims = keyring.verify(queue.name(), &token).expect("it was signed");
        waiting += usize::from(matches!(queue.poll(&claims).await, Ok(Seen::Waiting { .. })));
    }
    waiting
}

async fn until(what: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !what() {
        assert!(Instant::now() < deadline, "it never came");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn a_lost_line_comes_back(name: &str, before: impl Fixture, after: impl Fixture) {
    let count = std::env::var("RECOVERY_TOKENS").ok().and_then(|count| count.parse().ok());
    let count: u64 = count.unwrap_or(2_000);
    // The beginning of an epoch.
    let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_800_000_000_000)));
    let keyring = Keyring::new(vec![TokenKey::new(1, [7; 32])]).expect("one key");
    let store = before.store(Arc::clone(&clock) as Arc<dyn Clock>);
    let lost = mirror(Arc::clone(&store), &clock).await;
    let queue = QueueName::new(QUEUE).expect("a name");
    let mut tokens = Vec::new();
    let users: Vec<UserTag> = (0..count).map(user).collect();
    for some in users.chunks(1000) {
        let entered = store.enter(&queue, some).await.expect("the store answers");
        for (owner, entered) in some.iter().zip(entered.value) {
            let Entered::Waiting(place, _) = entered else { panic!("{entered:?}") };
            let claims = Claims {
                source: UserSource::Visitor,
                owner: *owner,
                incarnation: entered_in(&lost),
                place,
                proof: Proof::Waited { at: clock.now(), head: 1 },
            };
            tokens.push(keyring.sign(&queue, &claims));
        }
    }
    clock.advance(Duration::from_secs(5));

    let store = after.store(Arc::clone(&clock) as Arc<dyn Clock>);
    let found = mirror(store, &clock).await;
    let local = queue_of(&found);
    let (stop, stopped) = watch::channel(false);
    let upkeep = tokio::spawn(Arc::clone(&found).run(stopped));
    let began = Instant::now();
    assert_eq!(poll_all(&local, &keyring, &tokens).await, tokens.len());
    println!("{name}: {count} tokens shown and counted as waiting in {:?}", began.elapsed());
    until(|| local.picture().live == count).await;
    println!("{name}: known to the store {:?} after the first", began.elapsed());
    // The first whole epoch: everybody is heard. The second: nobody is, and it is over.
    clock.advance(Duration::from_millis(EPOCH_MS));
    until(|| local.picture().asked >= clock.now()).await;
    let began = Instant::now();
    assert_eq!(poll_all(&local, &keyring, &tokens).await, tokens.len());
    println!("{name}: polls of one epoch {:?}", began.elapsed());
    let began = Instant::now();
    for _ in 0..2 {
        clock.advance(Duration::from_millis(EPOCH_MS));
        until(|| local.picture().asked >= clock.now()).await;
    }
    until(|| !local.picture().recovery.rebuilding).await;
    println!("{name}: signs of life brought, the silent judged {:?}", began.elapsed());
    let picture = local.picture();
    assert_eq!(picture.live, count);
    assert!((1..=count).all(|seq| picture.ranks.rank(seq) == Some(seq)), "everybody's rank");
    stop.send_replace(true);
    upkeep.await.expect("it ends");
}

fn entered_in(mirror: &Mirror) -> u32 {
    queue_of(mirror).picture().incarnation
}

#[tokio::test]
async fn a_line_lost_by_the_embedded_store_comes_back_from_tokens() {
    a_lost_line_comes_back("embedded", Embedded, Embedded).await;
}

#[tokio::test]
async fn a_line_lost_by_redis_comes_back_from_tokens() {
    a_lost_line_comes_back("redis", RedisServer::start(), RedisServer::start()).await;
}
