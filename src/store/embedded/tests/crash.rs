//! Whatever moment a crash picks, the directory opens again to a state that the queue really had.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use rand::SeedableRng;

use super::super::compaction::compact;
use super::faulty::{Deed, Faults, file_in, store};
use super::*;
use crate::queue::snapshot::Ranks;

const QUEUE: &str = "sale";

/// Carries a command out through the store.
async fn ask(store: &Embedded, command: Command<'_>) {
    let queue = &name(QUEUE);
    match command {
        Command::Configure { settings, origin } => {
            store.configure(queue, &settings, origin.into_owned()).await.unwrap();
        }
        Command::Enter { users } => {
            store.enter(queue, &users).await.unwrap();
        }
        Command::Standing { user, seq, purpose } => {
            store.standing(queue, user, seq, purpose).await.unwrap();
        }
        Command::Leave { user, seq } => {
            store.leave(queue, user, seq).await.unwrap();
        }
        Command::Admit { max, by } => {
            store.admit(queue, max, by).await.unwrap();
        }
        Command::Heartbeat(heartbeat) => store.heartbeat(queue, &heartbeat).await.unwrap(),
        Command::Reap => {
            store.reap(queue).await.unwrap();
        }
        Command::Compact { keep } => store.compact(queue, keep).await.unwrap(),
        // One gap of the real length makes a picture of 25 KB.
        Command::Create { .. }
        | Command::Observe
        | Command::Fence { .. }
        | Command::Rebuild { .. } => {}
        Command::Revive { user, evidence } => {
            store.revive(queue, user, &evidence).await.unwrap();
        }
        Command::Restore { leases } => {
            store.restore(queue, &leases).await.unwrap();
        }
    }
}

/// What a queue looks like. A fence is looked through: it leaves all but the tail, which is where
/// its gap began.
fn shown(synced: Synced) -> String {
    let first_lost = synced.recovery.lost.first().map(|(first, _)| first - 1);
    let Synced { head, live, active, admitted, late, settings, revoked, .. } = synced;
    let tail = first_lost.unwrap_or(synced.tail);
    let ranks = Ranks::new(head, synced.tail, &synced.gone.unwrap_or_default());
    let waiting: Vec<u64> = (head..=tail).filter(|seq| !ranks.is_gone(*seq)).collect();
    format!("{:?}", (head, tail, live, active, admitted, late, settings, revoked, waiting))
}

/// What the queue looks like; nothing if there is none.
async fn look(store: &Embedded) -> String {
    match store.sync(&name(QUEUE), Versions::default()).await {
        Ok(synced) => shown(synced),
        Err(StoreError::UnknownQueue(_)) => String::new(),
        Err(error) => panic!("{error:?}"),
    }
}

/// A new snapshot, now.
fn snapshot(store: &Embedded) {
    let queue = store.queue(&name(QUEUE)).unwrap();
    let progress = queue.progress.as_ref().unwrap();
    let data = store.disk.as_ref().unwrap().data();
    compact(data, &queue, progress, &AtomicBool::new(false)).unwrap();
}

/// A life of a store: all that was done to its file, and how the queue looked after each command,
/// with how much had been done by then.
struct Life {
    diary: Vec<Deed>,
    looks: Vec<(usize, String)>,
}

async fn live(seed: u64) -> Life {
    let directory = tempfile::tempdir().unwrap();
    let faults = Arc::new(Faults::default());
    let store = store(directory.path(), Durability::Sync, &faults);
    let mut rng = StdRng::seed_from_u64(seed);
    let mut looks = vec![(0, String::new())];
    let settings = Settings::new(3);
    store.configure(&name(QUEUE), &settings, Origin::File(1)).await.unwrap();
    let shown = look(&store).await;
    looks.push((faults.diary.lock().len(), shown));
    for round in 0..60 {
        ask(&store, command(&mut rng, 12, START)).await;
        let shown = look(&store).await;
        looks.push((faults.diary.lock().len(), shown));
        if round % 20 == 10 {
            snapshot(&store);
        }
    }
    let diary = faults.diary.lock().clone();
    Life { diary, looks }
}

fn apply(image: &mut Vec<u8>, deed: &Deed) {
    match deed {
        Deed::Write(at, bytes) => {
            let at = usize::try_from(*at).unwrap();
            if image.len() < at + bytes.len() {
                image.resize(at + bytes.len(), 0);
            }
            image[at..at + bytes.len()].copy_from_slice(bytes);
        }
        Deed::Length(length) => image.resize(usize::try_from(*length).unwrap(), 0),
        Deed::Confirmed => {}
    }
}

fn open(directory: &Path, image: &[u8]) -> Result<Embedded, OpenError> {
    std::fs::write(file_in(directory), image).unwrap();
    let clock = Arc::new(crate::clock::ManualClock::at(START));
    let data = database::Data::open(directory)?;
    Embedded::on(data, &disk_settings(directory, FAST), clock)
}

/// Everything up to one confirmation is on the disk, and of what follows before the next, whatever
/// the disk got round to.
#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_any_commit_loses_nothing_that_was_answered() {
    let life = live(1).await;
    let mut rng = StdRng::seed_from_u64(2);
    let (mut confirmed, mut next) = (Vec::new(), 0);
    while next < life.diary.len() {
        let torn: Vec<&Deed> =
            life.diary[next..].iter().take_while(|deed| !matches!(deed, Deed::Confirmed)).collect();
        // What was answered by now is what may not be lost; one command more may be there.
        let answered = life.looks.iter().rposition(|(done, _)| *done <= next).unwrap();
        let legal = &life.looks[answered..(answered + 2).min(life.looks.len())];
        for chance in [0.0, 0.5, 0.9] {
            let mut image = confirmed.clone();
            for deed in &torn {
                match deed {
                    _ if !rng.random_bool(chance) => {}
                    Deed::Write(at, bytes) if rng.random_bool(0.1) => {
                        // A disk writes its sectors whole.
                        let at_once = 512;
                        let cut = rng.random_range(0..=bytes.len() / at_once) * at_once;
                        apply(&mut image, &Deed::Write(*at, bytes[..cut].to_vec()));
                    }
                    deed => apply(&mut image, deed),
                }
            }
            let directory = tempfile::tempdir().unwrap();
            let store = match open(directory.path(), &image) {
                Ok(store) => store,
                // Before the first confirmation there is nothing that could be lost.
                Err(_) if answered == 0 => continue,
                Err(error) => panic!("after {next} deeds: {error:?}"),
            };
            let found = look(&store).await;
            assert!(
                legal.iter().any(|(_, look)| *look == found),
                "after {next} deeds:\n{found}\nis none of\n{legal:#?}"
            );
        }
        for deed in torn {
            apply(&mut confirmed, deed);
        }
        next += life.diary[next..]
            .iter()
            .position(|deed| matches!(deed, Deed::Confirmed))
            .map_or(life.diary.len() - next, |confirmed| confirmed + 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_file_opens_to_a_real_state_or_is_refused() {
    let life = live(3).await;
    let mut image = Vec::new();
    for deed in &life.diary {
        apply(&mut image, deed);
    }
    let mut rng = StdRng::seed_from_u64(4);
    let (mut refused, mut opened) = (0, 0);
    for _ in 0..150 {
        let mut image = image.clone();
        if rng.random_bool(0.3) {
            image.truncate(rng.random_range(0..image.len()));
        }
        for _ in 0..rng.random_range(0..4) {
            if !image.is_empty() {
                let at = rng.random_range(0..image.len());
                // Much of a file is free pages: half of the hits go where the head is.
                let at = if rng.random_bool(0.5) { at } else { at % 40_000 };
                let end = (at + rng.random_range(1..64)).min(image.len());
                image[at.min(end)..end].iter_mut().for_each(|byte| *byte ^= rng.random::<u8>());
            }
        }
        let directory = tempfile::tempdir().unwrap();
        match open(directory.path(), &image) {
            Ok(store) => {
                opened += 1;
                let found = look(&store).await;
                assert!(life.looks.iter().any(|(_, look)| *look == found), "{found}");
            }
            Err(error) => {
                refused += 1;
                let text = error.to_string();
                assert!(text.contains(&directory.path().display().to_string()), "{text}");
            }
        }
    }
    assert!(refused > 10 && opened > 10, "{refused} refused, {opened} opened");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_beside_the_living_queue_changes_nothing_and_shortens_the_journal() {
    let directory = tempfile::tempdir().unwrap();
    let faults = Arc::new(Faults::default());
    let store = Arc::new(store(directory.path(), FAST, &faults));
    store.configure(&name(QUEUE), &Settings::new(30), Origin::File(1)).await.unwrap();
    let writing = tokio::spawn({
        let store = Arc::clone(&store);
        async move {
            let mut rng = StdRng::seed_from_u64(5);
            for _ in 0..3000 {
                ask(&store, command(&mut rng, 200, START)).await;
            }
        }
    });
    while !writing.is_finished() {
        let store = Arc::clone(&store);
        tokio::task::spawn_blocking(move || snapshot(&store)).await.unwrap();
    }
    writing.await.unwrap();
    store.close().await.unwrap();
    let store = Arc::into_inner(store).unwrap();
    snapshot(&store);
    assert_eq!(store.disk().unwrap().journal_bytes, 0);
    let before =
        store.queue(&name(QUEUE)).unwrap().held.lock().line.sync(Versions::default(), START);
    drop(store);
    let again = super::faulty::store(directory.path(), FAST, &faults);
    assert_eq!(look(&again).await, shown(before));
}

/// A queue without its line, as after a deletion.
fn delete(store: &Embedded) {
    store.queues.write().remove(&name(QUEUE));
}

#[tokio::test]
async fn a_later_queue_of_a_name_has_a_greater_incarnation_whatever_the_clock_says() {
    let directory = tempfile::tempdir().unwrap();
    let faults = Arc::new(Faults::default());
    let clock = Arc::new(crate::clock::ManualClock::at(START));
    let settings = disk_settings(directory.path(), FAST);
    let data = super::faulty::data(directory.path(), &faults);
    let store = Embedded::on(data, &settings, Arc::clone(&clock) as Arc<dyn Clock>).unwrap();
    let incarnation = async |store: &Embedded| {
        delete(store);
        store.configure(&name(QUEUE), &Settings::new(1), Origin::Operator).await.unwrap();
        store.sync(&name(QUEUE), Versions::default()).await.unwrap().incarnation
    };
    let first = incarnation(&store).await;
    assert_eq!(u64::from(first), START.as_secs());
    assert_eq!(incarnation(&store).await, first + 1);
    drop(store);
    let data = super::faulty::data(directory.path(), &faults);
    let clock = Arc::new(crate::clock::ManualClock::at(START.minus(Duration::from_secs(100))));
    let store = Embedded::on(data, &settings, Arc::clone(&clock) as Arc<dyn Clock>).unwrap();
    assert_eq!(incarnation(&store).await, first + 2);
    clock.advance(Duration::from_secs(1000));
    assert_eq!(incarnation(&store).await, first + 900);
    // What is left of a queue that is over does not bring it back.
    delete(&store);
    let left = |incarnation| Recollection {
        incarnation,
        sighting: Sighting { head: 1, tail: 9, issued: START },
        copy: None,
    };
    let rebuild = async |incarnation| {
        let settings = Settings::new(1);
        let from = left(incarnation);
        store.rebuild(&name(QUEUE), &settings, Origin::Operator, &from).await.unwrap()
    };
    assert_eq!(rebuild(first + 900).await, Rebuilt::Refused);
    assert_eq!(rebuild(first + 901).await, Rebuilt::Done);
    drop(store);
    let again = super::faulty::store(directory.path(), FAST, &faults);
    let synced = again.sync(&name(QUEUE), Versions::default()).await.unwrap();
    assert_eq!((synced.incarnation, synced.tail), (first + 901, 9));
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_crash_every_queue_is_fenced_and_after_a_clean_stop_none() {
    let life = live(6).await;
    let mut image = Vec::new();
    for deed in &life.diary {
        apply(&mut image, deed);
    }
    let directory = tempfile::tempdir().unwrap();
    let picture =
        async |store: &Embedded| store.sync(&name(QUEUE), Versions::default()).await.unwrap();
    // `live` ends with the file as it is while the store runs.
    let store = open(directory.path(), &image).unwrap();
    let crashed = picture(&store).await;
    assert_eq!(crashed.recovery.fences, 1);
    let (first, last) = crashed.recovery.lost[0];
    assert_eq!((last - first + 1, last), (GAP, crashed.tail));
    assert!(crashed.recovery.admit_after > START);
    drop(store);
    let clock = Arc::new(crate::clock::ManualClock::at(START));
    let data = database::Data::open(directory.path()).unwrap();
    let again = Embedded::on(data, &disk_settings(directory.path(), FAST), clock).unwrap();
    assert_eq!(picture(&again).await, crashed);
}
