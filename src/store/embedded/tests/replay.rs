//! A journal plays to a line that answers everything as the original does.

use rand::SeedableRng;

use super::super::journal::{ReplayError, replay};
use super::*;

/// Lets time pass, or sets the clock back.
fn step(rng: &mut StdRng, now: Timestamp) -> Timestamp {
    match rng.random_range(0..20) {
        0 => now.minus(Duration::from_millis(rng.random_range(0..100_000))),
        1..12 => now.plus(Duration::from_millis(rng.random_range(0..500))),
        12..18 => now.plus(Duration::from_secs(rng.random_range(0..20))),
        _ => now.plus(Duration::from_millis(EPOCH_MS - now.as_millis() % EPOCH_MS)),
    }
}

#[test]
fn a_played_journal_answers_every_further_command_like_the_original() {
    for seed in 0..200 {
        let mut rng = StdRng::seed_from_u64(seed);
        let users = [4, 12, 100][rng.random_range(0..3)];
        let mut held = new_held(&settings(&mut rng));
        let (mut now, mut journal) = (START, Vec::new());
        let mut played = None;
        for _ in 0..rng.random_range(1..300) {
            now = step(&mut rng, now);
            let command = command(&mut rng, users, now);
            carry_out(&mut held, &command, now);
            journal.extend(held.take());
            // Now and then what was played so far goes through a snapshot.
            if rng.random_bool(0.05) {
                played = replay(played, &std::mem::take(&mut journal)).unwrap();
                let bytes = postcard::to_stdvec(&played.unwrap()).unwrap();
                played = Some(postcard::from_bytes(&bytes).unwrap());
            }
        }
        held.observed();
        journal.extend(held.take());
        let line = replay(played, &journal).unwrap().unwrap();
        assert_eq!(line.check(), Ok(()), "seed {seed}");
        let mut copy = Held::journaled(line);
        for step_number in 0..100 {
            now = step(&mut rng, now);
            let command = command(&mut rng, users, now);
            let expected = carry_out(&mut held, &command, now);
            let answered = carry_out(&mut copy, &command, now);
            assert_eq!(answered, expected, "seed {seed}, step {step_number}: {command:?}");
            assert_eq!(copy.take(), held.take(), "seed {seed}, step {step_number}: {command:?}");
        }
    }
}

#[test]
fn a_command_that_changes_nothing_leaves_no_record() {
    let mut held = new_held(&Settings::new(1));
    held.enter(&[tag(1), tag(2)], START);
    held.standing(tag(1), None, Purpose::Pass, START);
    held.heartbeat(&Heartbeat { epoch: 60_000_000, gateway: 1, first: 0, bits: vec![1] }, START);
    held.take();
    let later = START.plus(Duration::from_secs(1));
    held.enter(&[tag(1), tag(2)], later);
    for purpose in [Purpose::Poll, Purpose::Pass] {
        for user in 1..4 {
            held.standing(tag(user), None, purpose, later);
        }
    }
    held.leave(tag(3), None, later);
    held.leave(tag(2), Some(Seq(9)), later);
    held.admit(10, AdmitBy::Tick, later);
    held.heartbeat(&Heartbeat { epoch: 60_000_000, gateway: 1, first: 0, bits: vec![1] }, later);
    held.heartbeat(&Heartbeat { epoch: 70_000_000, gateway: 1, first: 0, bits: vec![1] }, later);
    held.compact(10, later);
    held.configure(&Settings::new(9), &Origin::File(1), later);
    assert_eq!(held.unsaved(), 0);
    held.leave(tag(2), None, later);
    assert!(held.unsaved() > 0);
}

#[test]
fn a_journal_without_its_beginning_or_with_two_is_refused() {
    let mut held = new_held(&Settings::new(1));
    let beginning = held.take();
    held.enter(&[tag(1)], START);
    let rest = held.take();
    assert!(matches!(replay(None, &rest), Err(ReplayError::NoBeginning)));
    let twice = [beginning.as_slice(), &beginning].concat();
    assert!(matches!(replay(None, &twice), Err(ReplayError::TwoBeginnings)));
    let cut = &beginning[..beginning.len() - 1];
    assert!(matches!(replay(None, cut), Err(ReplayError::Unreadable(_))));
    assert!(replay(None, &[]).unwrap().is_none());
}
