//! A disk that is full or broken: nothing is promised that is not kept, and it ends by itself.

use std::time::Instant;

use super::faulty::{Faults, store};
use super::*;

const QUEUE: &str = "sale";

async fn until(what: &str, condition: impl Fn() -> bool) {
    let patience = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < patience, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn enter(store: &Embedded, user: u64) -> Result<Entered, StoreError> {
    Ok(store.enter(&name(QUEUE), &[tag(user)]).await?.value[0])
}

fn is_unavailable<T>(result: &Result<T, StoreError>) -> bool {
    matches!(result, Err(StoreError::Unavailable(_)))
}

fn seq(entered: Entered) -> u64 {
    match entered {
        Entered::Waiting(place, _) | Entered::Late(place) | Entered::Active { place, .. } => {
            place.seq.0
        }
        other => panic!("{other:?}"),
    }
}

async fn with_queue(
    directory: &std::path::Path,
    durability: Durability,
) -> (Embedded, Arc<Faults>) {
    let faults = Arc::new(Faults::default());
    let store = store(directory, durability, &faults);
    let created = store.configure(&name(QUEUE), &Settings::new(1), Origin::Operator).await;
    assert_eq!(created.unwrap(), Configured::Created);
    (store, faults)
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_full_disk_an_async_store_soon_takes_nothing_and_goes_on_by_itself() {
    let directory = tempfile::tempdir().unwrap();
    let (store, faults) = with_queue(directory.path(), FAST).await;
    for user in 1..10 {
        enter(&store, user).await.unwrap();
    }
    until("saved", || store.disk().unwrap().unsaved_bytes == 0).await;
    faults.set_full(true);
    // Answered before anybody can know: what a crash now would lose.
    let last = enter(&store, 10).await.unwrap();
    until("the failure shows", || store.disk().unwrap().failing).await;
    let unsaved = store.disk().unwrap().unsaved_bytes;
    for user in 1..100 {
        assert!(is_unavailable(&enter(&store, user).await));
        let polled = store.standing(&name(QUEUE), tag(user), None, Purpose::Poll).await;
        assert!(is_unavailable(&polled));
    }
    assert!(is_unavailable(&store.admit(&name(QUEUE), 1, AdmitBy::Operator).await));
    assert!(is_unavailable(&store.leave(&name(QUEUE), tag(1), None).await));
    assert!(is_unavailable(&store.sync(&name(QUEUE), Versions::default()).await));
    let settings = Settings::new(5);
    assert!(is_unavailable(&store.configure(&name(QUEUE), &settings, Origin::Operator).await));
    assert!(is_unavailable(&store.configure(&name("b"), &settings, Origin::Operator).await));
    assert!(is_unavailable(&store.secret(SharedSecret::TokenKey, [1; 32]).await));
    assert_eq!(store.disk().unwrap().unsaved_bytes, unsaved, "nothing piles up");

    faults.set_full(false);
    until("it goes on", || !store.disk().unwrap().failing).await;
    assert_eq!(seq(enter(&store, 10).await.unwrap()), seq(last));
    assert_eq!(seq(enter(&store, 11).await.unwrap()), seq(last) + 1);
    store.close().await.unwrap();
    drop(store);
    let again = super::faulty::store(directory.path(), FAST, &faults);
    assert_eq!(seq(enter(&again, 10).await.unwrap()), seq(last));
    assert_eq!(seq(enter(&again, 11).await.unwrap()), seq(last) + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sync_store_answers_nothing_that_is_not_on_the_disk() {
    let directory = tempfile::tempdir().unwrap();
    let (store, faults) = with_queue(directory.path(), Durability::Sync).await;
    let first = enter(&store, 1).await.unwrap();
    faults.set_full(true);
    // Carried out, kept for later, and not promised.
    let second = enter(&store, 2).await;
    assert!(matches!(second, Err(StoreError::Indeterminate(_))), "{second:?}");
    assert!(is_unavailable(&enter(&store, 2).await));
    assert!(is_unavailable(&enter(&store, 1).await));
    faults.set_full(false);
    until("it goes on", || !store.disk().unwrap().failing).await;
    assert_eq!(seq(enter(&store, 2).await.unwrap()), seq(first) + 1);
    drop(store);
    let again = super::faulty::store(directory.path(), Durability::Sync, &faults);
    assert_eq!(seq(enter(&again, 2).await.unwrap()), seq(first) + 1);
    assert_eq!(seq(enter(&again, 3).await.unwrap()), seq(first) + 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_is_not_confirmed_is_done_again_and_counts_once() {
    let directory = tempfile::tempdir().unwrap();
    let (store, faults) = with_queue(directory.path(), FAST).await;
    faults.set_unconfirmed(true);
    enter(&store, 1).await.unwrap();
    until("the failure shows", || store.disk().unwrap().failing).await;
    faults.set_unconfirmed(false);
    until("it goes on", || !store.disk().unwrap().failing).await;
    enter(&store, 2).await.unwrap();
    drop(store);
    let again = super::faulty::store(directory.path(), FAST, &faults);
    let synced = again.sync(&name(QUEUE), Versions::default()).await.unwrap();
    assert_eq!((synced.tail, synced.active), (2, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_failure_that_does_not_come_back_is_not_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let (store, faults) = with_queue(directory.path(), Durability::Sync).await;
    faults.set_unconfirmed(true);
    let entering = enter(&store, 1);
    let mending = async {
        until("a failure", || store.disk().unwrap().failures > 0).await;
        faults.set_unconfirmed(false);
    };
    // Either the second try came in time, or it is refused, but never lost.
    let (entered, ()) = tokio::join!(entering, mending);
    until("it goes on", || !store.disk().unwrap().failing).await;
    let again = enter(&store, 1).await.unwrap();
    if let Ok(entered) = entered {
        assert_eq!(seq(entered), seq(again));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_with_a_full_disk_ends_and_says_that_something_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let (store, faults) = with_queue(directory.path(), FAST).await;
    enter(&store, 1).await.unwrap();
    until("saved", || store.disk().unwrap().unsaved_bytes == 0).await;
    faults.set_full(true);
    enter(&store, 2).await.unwrap();
    assert!(is_unavailable(&store.close().await));
    drop(store);
    faults.set_full(false);
    // What is there is what was saved, and it is known not to be all.
    let data = super::faulty::data(directory.path(), &faults);
    assert!(!data.start().unwrap());
    drop(data);
    let again = super::faulty::store(directory.path(), FAST, &faults);
    let lost = again.sync(&name(QUEUE), Versions::default()).await.unwrap().recovery.lost;
    assert_eq!(lost[0].0, 2, "the number that was given and is not known counts as lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_taken_after_the_close() {
    let directory = tempfile::tempdir().unwrap();
    let (store, _) = with_queue(directory.path(), FAST).await;
    store.close().await.unwrap();
    assert!(is_unavailable(&enter(&store, 1).await));
    let settings = Settings::new(1);
    assert!(is_unavailable(&store.configure(&name("b"), &settings, Origin::Operator).await));
    store.close().await.unwrap();
}
