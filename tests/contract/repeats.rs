//! Every command again after its answer was lost: as if it had been given once.

use std::sync::LazyLock;
use std::time::Duration;

use anteroom::clock::{Clock as _, SystemClock, Timestamp};
use anteroom::queue::command::{
    AdmitBy, Configured, Entered, Evidence, Freshness, Heartbeat, HeldLease, Left, Origin,
    ProvenLease, Purpose, Rebuilt, Recollection, Sighting, Standing, Synced, Versions,
};
use anteroom::queue::settings::{Mode, Settings};
use anteroom::queue::{Place, QueueName, Seq};
use anteroom::store::contract::user;
use anteroom::store::{RedisSettings, SharedSecret, SharedStore, StoreError, redis as redis_store};

use crate::link::{Link, Weather};
use crate::redis_server::RedisServer;

static QUEUE: LazyLock<QueueName> = LazyLock::new(|| QueueName::new("repeats").expect("a name"));

/// A store behind a network that loses answers on demand.
struct Lossy {
    store: SharedStore,
    link: Link,
    _server: RedisServer,
}

impl Lossy {
    async fn start() -> Self {
        let server = RedisServer::start();
        has_seen_every_script(&redis_store(&server.settings()).unwrap()).await;
        let link = Link::to(&server.socket()).await;
        let mut settings = RedisSettings::new(format!("redis://{}", link.address));
        settings.connect_timeout = Duration::from_secs(5);
        settings.response_timeout = Duration::from_millis(700);
        Self { store: redis_store(&settings).unwrap(), link, _server: server }
    }

    /// Gives a command that the server has the script of, loses the answer, cuts the connection, and gives it again.
    async fn twice<T, F>(&self, command: impl Fn() -> F) -> T
    where
        F: Future<Output = Result<T, StoreError>>,
        T: std::fmt::Debug,
    {
        // So that the command itself finds a connection.
        let _ = self.store.sync(&QUEUE, Versions::default()).await;
        self.link.set(Weather::NoReplies);
        let error = command().await.unwrap_err();
        assert!(matches!(error, StoreError::Indeterminate(_)), "{error:?}");
        self.link.set(Weather::Clear);
        self.link.cut();
        let _ = self.store.sync(&QUEUE, Versions::default()).await;
        command().await.unwrap()
    }

    async fn synced(&self) -> Synced {
        self.store.sync(&QUEUE, Versions::default()).await.unwrap()
    }
}

/// Gives every command once, about another queue: of a script that the server does not have, only
/// the question would be lost.
async fn has_seen_every_script(store: &SharedStore) {
    let other = QueueName::new("other").unwrap();
    store.configure(&other, &Settings::new(1), Origin::Operator).await.unwrap();
    store.enter(&other, &[user(1)]).await.unwrap();
    store.standing(&other, user(1), None, Purpose::Pass).await.unwrap();
    store.admit(&other, 1, AdmitBy::Tick).await.unwrap();
    let heartbeat = Heartbeat { epoch: 0, gateway: 1, first: 0, bits: vec![0] };
    store.heartbeat(&other, &heartbeat).await.unwrap();
    store.reap(&other).await.unwrap();
    store.sync(&other, Versions::default()).await.unwrap();
    store.compact(&other, 0).await.unwrap();
    store.leave(&other, user(1), None).await.unwrap();
    let sighting = Sighting { head: 0, tail: 0, issued: Timestamp::EPOCH };
    store.fence(&other, &sighting).await.unwrap();
    let place = Place { seq: Seq(1), entered: Timestamp::EPOCH };
    let evidence = Evidence { place, issued: Timestamp::EPOCH, lease: None };
    store.revive(&other, user(1), &evidence).await.unwrap();
    store.restore(&other, &[]).await.unwrap();
    let from = Recollection { incarnation: 1, sighting, copy: None };
    store.rebuild(&other, &Settings::new(1), Origin::File(1), &from).await.unwrap();
}

#[tokio::test]
async fn every_command_repeated_after_its_answer_was_lost_is_harmless() {
    let lossy = Lossy::start().await;
    let store = &lossy.store;
    // Two gateways that propose at the same time end with one secret; so does one that asks twice.
    let secret = lossy.twice(|| store.secret(SharedSecret::UserSalt, [1; 32])).await;
    assert_eq!(secret, [1; 32]);

    let settings = Settings::new(2);
    let created = lossy.twice(|| store.configure(&QUEUE, &settings, Origin::File(1))).await;
    assert_eq!(created, Configured::Kept, "it was created by the first");
    let incarnation = lossy.synced().await.incarnation;
    let mut paused = settings.clone();
    paused.mode = Mode::QueueAll;
    let changed = lossy.twice(|| store.configure(&QUEUE, &paused, Origin::Operator)).await;
    assert_eq!(changed, Configured::Changed);
    assert_eq!(lossy.synced().await.incarnation, incarnation);

    let users: Vec<_> = (1..=5).map(user).collect();
    let entered = lossy.twice(|| store.enter(&QUEUE, &users)).await.value;
    for (seq, entered) in (1..).zip(&entered) {
        assert!(
            matches!(entered, Entered::Waiting(place, Freshness::Known) if place.seq.0 == seq),
            "{entered:?}"
        );
    }
    assert_eq!((lossy.synced().await.tail, lossy.synced().await.live), (5, 5));

    let admitted = lossy.twice(|| store.admit(&QUEUE, 1, AdmitBy::Tick)).await.value;
    assert_eq!((admitted.count, admitted.head), (1, 3), "each call admits one of two");
    let synced = lossy.synced().await;
    assert_eq!((synced.active, synced.admitted), (2, 2), "never more than capacity");
    let admitted = lossy.twice(|| store.admit(&QUEUE, 9, AdmitBy::Operator)).await.value;
    assert_eq!((admitted.count, admitted.head), (0, 3));

    let claim = || store.standing(&QUEUE, user(1), None, Purpose::Pass);
    let Standing::Active { until, claimed: true, .. } = lossy.twice(claim).await.value else {
        panic!("it was claimed")
    };
    let again = claim().await.unwrap().value;
    assert!(matches!(again, Standing::Active { until: same, .. } if same == until), "{again:?}");

    let heartbeat = Heartbeat { epoch: 0, gateway: 1, first: 0, bits: vec![0xff] };
    lossy.twice(|| store.heartbeat(&QUEUE, &heartbeat)).await;
    lossy.twice(|| store.reap(&QUEUE)).await;
    lossy.twice(|| store.compact(&QUEUE, 0)).await;
    assert_eq!(lossy.synced().await.live, 3);

    let left = lossy.twice(|| store.leave(&QUEUE, user(4), None)).await.value;
    assert_eq!(left, Left::Nothing, "the first call gave the place back");
    let left = lossy.twice(|| store.leave(&QUEUE, user(2), None)).await.value;
    assert_eq!(left, Left::Nothing);
    let synced = lossy.synced().await;
    assert_eq!((synced.live, synced.tail), (2, 5));
    assert_eq!(synced.revoked.map(|revoked| revoked.len()), Some(1), "told once");
}

#[tokio::test]
async fn every_step_of_a_recovery_repeated_after_its_answer_was_lost_is_harmless() {
    let lossy = Lossy::start().await;
    let store = &lossy.store;
    let settings = Settings::new(1);
    let now = SystemClock.now();
    let sighting = Sighting { head: 1, tail: 9, issued: now };
    let incarnation = u32::try_from(now.as_secs()).unwrap();
    let from = Recollection { incarnation, sighting, copy: None };
    let rebuilt = lossy.twice(|| store.rebuild(&QUEUE, &settings, Origin::File(1), &from)).await;
    assert_eq!(rebuilt, Rebuilt::Known, "it was made by the first");
    let before = lossy.synced().await;

    lossy.twice(|| store.fence(&QUEUE, &sighting)).await;
    let after = lossy.synced().await;
    assert_eq!((after.head, after.tail, after.live), (before.head, before.tail, before.live));

    let place = |seq| Place { seq: Seq(seq), entered: now };
    let evidence = Evidence { place: place(3), issued: now, lease: None };
    let standing = lossy.twice(|| store.revive(&QUEUE, user(3), &evidence)).await.value;
    assert!(matches!(standing, Standing::Waiting(place) if place.seq == Seq(3)), "{standing:?}");
    assert_eq!(lossy.synced().await.live, before.live);

    let lease = ProvenLease { until: now.plus(Duration::from_secs(600)), claimed: true };
    let held = [HeldLease { owner: user(1), place: place(1), lease }];
    lossy.twice(|| store.restore(&QUEUE, &held)).await;
    let synced = lossy.synced().await;
    assert_eq!((synced.active, synced.tail), (1, before.tail));
}

#[tokio::test]
async fn a_command_that_did_not_arrive_is_given_for_the_first_time_by_its_repetition() {
    let lossy = Lossy::start().await;
    let store = &lossy.store;
    store.configure(&QUEUE, &Settings::new(1), Origin::Operator).await.unwrap();
    lossy.link.set(Weather::NoRequests);
    let error = store.enter(&QUEUE, &[user(1)]).await.unwrap_err();
    assert!(matches!(error, StoreError::Indeterminate(_)), "{error:?}");
    lossy.link.set(Weather::Clear);
    lossy.link.cut();
    let _ = store.sync(&QUEUE, Versions::default()).await;
    let entered = store.enter(&QUEUE, &[user(1)]).await.unwrap().value;
    let fresh = Freshness::New;
    assert!(
        matches!(entered[0], Entered::Active { freshness, .. } if freshness == fresh),
        "{entered:?}"
    );
}
