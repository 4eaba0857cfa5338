//! What every store does after it has lost something; the rules are in
//! [`queue::line`](crate::queue::line).

use std::collections::BTreeSet;
use std::time::Duration;

use crate::clock::Timestamp;
use crate::queue::command::{
    Entered, Evidence, Gone, HeldLease, Left, LineCopy, ProvenLease, Purpose, Reaped, Rebuilt,
    Recollection, Sighting, Standing, Versions,
};
use crate::queue::line::{GAP, RESTORE_TIME};
use crate::queue::settings::Settings;
use crate::queue::{Place, Seq};

use super::{Fixture, Pair, is_newly_active, is_waiting, seq_of, user};

/// A token for `seq`, issued now.
fn token(pair: &Pair, seq: u64) -> Evidence {
    let place = Place { seq: Seq(seq), entered: pair.now() };
    Evidence { place, issued: pair.now(), lease: None }
}

/// The same with a lease of `secs`.
fn pass_token(pair: &Pair, seq: u64, secs: u64) -> Evidence {
    let until = pair.now().plus(Duration::from_secs(secs));
    Evidence { lease: Some(ProvenLease { until, claimed: true }), ..token(pair, seq) }
}

fn seen(head: u64, tail: u64) -> Sighting {
    Sighting { head, tail, issued: Timestamp::EPOCH }
}

/// A queue in which nobody has been admitted: 1 to 3 wait, and 4 to 9 were seen given by a server
/// that is gone.
async fn after_a_loss(on: &impl Fixture) -> Pair {
    after_a_loss_of(on, "contract").await
}

async fn after_a_loss_of(on: &impl Fixture, queue: &str) -> Pair {
    let mut pair = Pair::named(on, Settings::new(0), queue).await;
    pair.enter_all([1, 2, 3]).await;
    pair.fence(seen(0, 9)).await;
    pair
}

/// A fence moves the tail beyond every number that may have been given.
pub async fn a_number_seen_beyond_the_tail_is_never_given_again(on: &impl Fixture) {
    let mut pair = after_a_loss(on).await;
    let synced = pair.synced().await;
    assert_eq!((synced.tail, synced.live), (9 + GAP, 3));
    assert_eq!(synced.recovery.lost, [(4, 9 + GAP)]);
    assert_eq!(seq_of(pair.enter(7).await), 10 + GAP);
    // Seen before: nothing moves.
    pair.fence(seen(0, 9)).await;
    assert_eq!(pair.synced().await.tail, 10 + GAP);
}

/// And it has the rank it had.
pub async fn a_lost_place_comes_back_with_its_token(on: &impl Fixture) {
    let mut pair = after_a_loss(on).await;
    pair.enter(7).await;
    assert_eq!(pair.standing(5, Some(5), Purpose::Poll).await, Standing::Gone(Gone::Lost));
    let evidence = token(&pair, 5);
    assert!(matches!(pair.revive(5, evidence).await, Standing::Waiting(_)));
    assert!(matches!(pair.standing(5, Some(5), Purpose::Poll).await, Standing::Waiting(_)));
    assert_eq!(super::present(&pair.synced().await), [1, 2, 3, 5, 10 + GAP]);
    // Not for a number that was never lost, and not beyond the tail.
    let evidence = token(&pair, 2);
    assert_eq!(pair.revive(6, evidence).await, Standing::Gone(Gone::Unknown));
    let evidence = token(&pair, 20 + GAP);
    assert_eq!(pair.revive(6, evidence).await, Standing::Gone(Gone::Lost));
    // Entering again gives the same place.
    assert_eq!(seq_of(pair.enter(5).await), 5);
}

/// Who entered again without the token goes back to the place the token proves.
pub async fn of_two_places_of_a_user_the_lower_counts(on: &impl Fixture) {
    let mut pair = after_a_loss(on).await;
    let second = seq_of(pair.enter(5).await);
    let evidence = token(&pair, 5);
    assert!(matches!(pair.revive(5, evidence).await, Standing::Waiting(place) if place.seq.0 == 5));
    assert_eq!(pair.standing(5, Some(second), Purpose::Poll).await, Standing::Gone(Gone::Unknown));
    // The other is over: whoever shows its token is told so.
    let evidence = token(&pair, 6);
    assert_eq!(pair.revive(5, evidence).await, Standing::Gone(Gone::Unknown));
    assert_eq!(super::present(&pair.synced().await), [1, 2, 3, 5]);
    // An active place stays, however low the number of the other token.
    pair.change(&Settings::new(10)).await;
    pair.admit(1000).await;
    assert!(matches!(pair.use_(5).await, Standing::Active { .. }));
    let evidence = token(&pair, 4);
    assert_eq!(pair.revive(5, evidence).await, Standing::Gone(Gone::Unknown));
    assert!(matches!(pair.use_(5).await, Standing::Active { .. }));
}

/// Left, expired and replaced numbers are buried.
pub async fn what_ended_in_a_lost_range_stays_over(on: &impl Fixture) {
    let mut pair = after_a_loss(on).await;
    let evidence = token(&pair, 5);
    pair.revive(5, evidence).await;
    assert_eq!(pair.leave(5, Some(5)).await, Left::Gave);
    assert_eq!(pair.revive(5, evidence).await, Standing::Gone(Gone::Unknown));
    // Leaving is final even for who was not revived.
    assert_eq!(pair.leave(6, Some(6)).await, Left::Gave);
    let evidence = token(&pair, 6);
    assert_eq!(pair.revive(6, evidence).await, Standing::Gone(Gone::Unknown));
    assert_eq!(pair.leave(6, Some(6)).await, Left::Nothing);
    // Served, over, entered again: the old token brings nothing back.
    let evidence = token(&pair, 7);
    pair.revive(7, evidence).await;
    pair.change(&Settings::new(10)).await;
    pair.admit(1000).await;
    pair.use_(7).await;
    pair.seconds(3600);
    pair.compact(0).await;
    assert_eq!(pair.standing(7, Some(7), Purpose::Poll).await, Standing::Gone(Gone::Expired));
    assert!(seq_of(pair.enter(7).await) > GAP);
    assert_eq!(pair.revive(7, evidence).await, Standing::Gone(Gone::Unknown));
}

/// As after a fence on a new server; here the pause is that of a rebuilt line.
pub async fn leases_come_back_while_nobody_is_admitted(on: &impl Fixture) {
    let settings = Settings::new(2);
    let mut pair = Pair::new(on, settings.clone()).await;
    pair.seconds(61);
    let copy = LineCopy {
        gone: vec![0],
        late: BTreeSet::new(),
        admitted: 5,
        versions: Versions { all: 7, gone: 7, late: 7, settings: 7, revoked: 7 },
        passed: vec![(pair.now().as_secs() - 20, 4), (pair.now().as_secs(), 6)],
    };
    let incarnation = pair.synced().await.incarnation + 100;
    let sighting = Sighting { head: 6, tail: 7, issued: pair.now() };
    let from = Recollection { incarnation, sighting, copy: Some(copy) };
    assert_eq!(pair.rebuild(&settings, &from).await, Rebuilt::Done);
    let synced = pair.synced().await;
    assert_eq!((synced.live, synced.active, synced.recovery.fences), (2, 0, 1));
    assert_eq!(pair.admit(1000).await.count, 0);
    let until = pair.now().plus(Duration::from_secs(100));
    let lease = |number: u64, claimed| HeldLease {
        owner: user(number),
        place: Place { seq: Seq(number), entered: Timestamp::EPOCH },
        lease: ProvenLease { until, claimed },
    };
    let leases = [lease(4, true), lease(5, false), lease(6, true)];
    assert_eq!(pair.restore(&leases).await, 3, "also beyond capacity: they were active");
    assert_eq!(pair.restore(&leases).await, 3, "the same again");
    let synced = pair.synced().await;
    assert_eq!((synced.active, synced.live), (3, 1), "6 was called, then the head was lost");
    assert!(matches!(pair.use_(5).await, Standing::Active { claimed: true, .. }));
    pair.pass(RESTORE_TIME);
    assert_eq!(pair.restore(&[lease(3, true)]).await, 0, "the pause is over");
    assert_eq!(pair.admit(1000).await.count, 0, "three of two are active");
    pair.seconds(100);
    assert_eq!(pair.admit(1000).await.count, 1);
    pair.synced().await;
}

/// A pass token that shows up after the pause gets its lease only if there is room.
pub async fn a_lease_brought_back_late_keeps_to_capacity(on: &impl Fixture) {
    let mut pair = after_a_loss(on).await;
    pair.change(&Settings::new(2)).await;
    let evidence = pass_token(&pair, 8, 60);
    assert!(matches!(pair.revive(8, evidence).await, Standing::Active { claimed: true, .. }));
    assert_eq!(pair.admit(1000).await.count, 1);
    let evidence = pass_token(&pair, 9, 60);
    assert!(matches!(pair.revive(9, evidence).await, Standing::Waiting(_)), "it keeps its place");
    assert_eq!(pair.synced().await.active, 2);
    // An admission that was lost: the token proves what the line does not know.
    let mut pair = after_a_loss_of(on, "another").await;
    pair.change(&Settings::new(2)).await;
    let evidence = pass_token(&pair, 2, 60);
    assert!(matches!(pair.revive(2, evidence).await, Standing::Active { .. }));
    assert_eq!(super::present(&pair.synced().await), [1, 3]);
    assert_eq!(pair.leave(2, Some(2)).await, Left::Gave);
    pair.seconds(1);
    assert_eq!(pair.admit(1000).await.count, 2);
}

/// Whom a lost server called is called again; nobody loses a place by it.
pub async fn a_head_seen_elsewhere_moves_nobody_while_the_line_is_known(on: &impl Fixture) {
    let mut pair = after_a_loss(on).await;
    pair.fence(seen(3, 0)).await;
    pair.fence(seen(u64::MAX, u64::MAX)).await;
    let synced = pair.synced().await;
    assert_eq!((synced.head, synced.tail, synced.live), (1, 9 + GAP, 3));
}

/// All ranks as they were; everybody's index entry is made again when it is needed.
pub async fn a_lost_line_is_rebuilt_from_a_copy(on: &impl Fixture) {
    let settings = Settings::new(3);
    let mut pair = Pair::new(on, settings.clone()).await;
    pair.seconds(61);
    let second = pair.now().as_secs();
    let copy = LineCopy {
        gone: vec![0b0000_0010, 0b1000_0000],
        late: [90, 95].into(),
        admitted: 101,
        versions: Versions { all: 9, gone: 8, late: 7, settings: 6, revoked: 5 },
        passed: vec![(second - 30, 90), (second - 1, 101)],
    };
    let incarnation = pair.synced().await.incarnation + 1;
    let sighting = Sighting { head: 101, tail: 110, issued: pair.now() };
    let from = Recollection { incarnation, sighting, copy: Some(copy) };
    assert_eq!(pair.rebuild(&settings, &from).await, Rebuilt::Done);
    assert_eq!(pair.rebuild(&settings, &from).await, Rebuilt::Known);
    let synced = pair.synced().await;
    // Bits count from 96: 102 and 104 are gone.
    assert_eq!(super::present(&synced), [101, 103, 105, 106, 107, 108, 109, 110]);
    assert_eq!(synced.recovery.lost, [(1, 110 + GAP)]);
    assert_eq!(synced.incarnation, incarnation);
    assert!(is_waiting(pair.enter(7).await));
    // Called, not come yet, known by the token alone.
    pair.pass(RESTORE_TIME);
    assert_eq!(pair.admit(3).await.count, 3);
    assert_eq!(pair.standing(1, Some(101), Purpose::Pass).await, Standing::Gone(Gone::Lost));
    let evidence = token(&pair, 101);
    assert!(matches!(pair.revive(1, evidence).await, Standing::Active { claimed: false, .. }));
    assert!(matches!(pair.use_(1).await, Standing::Active { claimed: true, .. }));
    // Passed a moment before the loss, or long before.
    let evidence = token(&pair, 97);
    assert!(matches!(pair.revive(2, evidence).await, Standing::Late(_)));
    let evidence = token(&pair, 80);
    assert_eq!(pair.revive(3, evidence).await, Standing::Gone(Gone::Missed));
    pair.synced().await;
}

/// Who is heard keeps the order of the numbers; who is not is absent; newcomers come after them.
pub async fn a_lost_line_is_rebuilt_from_its_holders_tokens(on: &impl Fixture) {
    let settings = Settings::new(3);
    let mut pair = Pair::new(on, settings.clone()).await;
    pair.seconds(61);
    let incarnation = pair.synced().await.incarnation + 1;
    let sighting = Sighting { head: 3, tail: 12, issued: pair.now() };
    let from = Recollection { incarnation, sighting, copy: None };
    assert_eq!(pair.rebuild(&settings, &from).await, Rebuilt::Done);
    assert!(pair.synced().await.recovery.rebuilding);
    assert_eq!(pair.enter(7).await, Entered::Rebuilding);
    assert_eq!(pair.admit(1000).await.count, 0);
    // More tokens show up.
    pair.fence(Sighting { head: 5, tail: 20, issued: pair.now() }).await;
    let synced = pair.synced().await;
    assert_eq!((synced.head, synced.tail, synced.live), (5, 20, 16));
    // A token of long ago is worth nothing now, nor one that was served.
    let old = Evidence { issued: pair.now().minus(Duration::from_secs(101)), ..token(&pair, 9) };
    assert_eq!(pair.revive(9, old).await, Standing::Gone(Gone::Unknown));
    let evidence = token(&pair, 4);
    assert_eq!(pair.revive(4, evidence).await, Standing::Gone(Gone::Missed));
    // An active user shows a pass token.
    let evidence = pass_token(&pair, 2, 600);
    assert!(matches!(pair.revive(2, evidence).await, Standing::Active { .. }));
    pair.live_an_epoch(&[1], &[5, 8, 13]).await;
    assert_eq!(pair.reap().await, Reaped::Incomplete, "not a whole one");
    pair.live_an_epoch(&[1], &[5, 8]).await;
    assert_eq!(pair.reap().await, Reaped::Incomplete);
    pair.live_an_epoch(&[1], &[13, 20]).await;
    assert_eq!(pair.reap().await, Reaped::Absent(12));
    let synced = pair.synced().await;
    assert_eq!(super::present(&synced), [5, 8, 13, 20]);
    assert!(!synced.recovery.rebuilding);
    assert!(seq_of(pair.enter(7).await) > 20 + GAP);
    // Somebody comes late, with the place the token proves.
    let evidence = token(&pair, 6);
    assert!(matches!(pair.revive(6, evidence).await, Standing::Waiting(_)));
    assert_eq!(pair.admit(2).await.count, 2);
    assert_eq!(super::present(&pair.synced().await)[..3], [8, 13, 20]);
}

/// Else the token of yesterday would end today's line.
pub async fn a_line_gives_way_only_to_one_its_store_never_heard_of(on: &impl Fixture) {
    let settings = Settings::new(3);
    let mut pair = Pair::new(on, settings.clone()).await;
    let ours = pair.synced().await.incarnation;
    let minutes = |pair: &Pair, minutes: u64| pair.now().minus(Duration::from_secs(60 * minutes));
    let from = |incarnation, issued| Recollection {
        incarnation,
        sighting: Sighting { head: 1, tail: 5, issued },
        copy: None,
    };
    let old = from(ours - 10, minutes(&pair, 16));
    assert_eq!(pair.rebuild(&settings, &old).await, Rebuilt::Refused, "long over");
    pair.seconds(61);
    let late = from(ours - 10, pair.now());
    assert_eq!(pair.rebuild(&settings, &late).await, Rebuilt::Refused, "too late");
    let newer = from(ours + 1, minutes(&pair, 16));
    assert_eq!(pair.rebuild(&settings, &newer).await, Rebuilt::Refused, "no trace of it lately");
    let mut pair = Pair::named(on, settings.clone(), "young").await;
    let ours = pair.synced().await.incarnation;
    let alive = from(ours - 10, minutes(&pair, 14));
    assert_eq!(pair.rebuild(&settings, &alive).await, Rebuilt::Done);
    let next = from(ours, pair.now());
    assert_eq!(pair.rebuild(&settings, &next).await, Rebuilt::Refused, "it was given up");
    let back = from(ours - 20, pair.now());
    assert_eq!(pair.rebuild(&settings, &back).await, Rebuilt::Refused, "once is enough");
    let unheard = from(ours + 1, pair.now());
    assert_eq!(pair.rebuild(&settings, &unheard).await, Rebuilt::Done, "the store fell behind");
    assert_eq!(pair.enter(1).await, Entered::Rebuilding);
}

/// Nothing piles up.
pub async fn lost_ranges_are_forgotten_when_nobody_can_return(on: &impl Fixture) {
    let mut pair = after_a_loss(on).await;
    pair.change(&Settings::new(10)).await;
    let evidence = token(&pair, 5);
    pair.revive(5, evidence).await;
    pair.leave(5, Some(5)).await;
    pair.compact(0).await;
    assert_eq!(pair.synced().await.recovery.lost.len(), 1);
    pair.enter(7).await;
    assert_eq!(pair.admit(1000).await.count, 4);
    assert!(is_newly_active(pair.enter(8).await));
    pair.compact(0).await;
    assert_eq!(pair.synced().await.recovery.lost.len(), 1, "somebody may come late");
    pair.seconds(400);
    pair.compact(0).await;
    assert!(pair.synced().await.recovery.lost.is_empty());
    assert_eq!(pair.standing(5, Some(5), Purpose::Poll).await, Standing::Gone(Gone::Unknown));
}
