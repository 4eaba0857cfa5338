//! The mirror in front of the embedded store: what it answers alone, and what it must not.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, ManualClock, Timestamp};
use crate::queue::command::{AdmitBy, Entered, Gone, Left, ProvenLease};
use crate::queue::definition::Definition;
use crate::queue::settings::Settings;
use crate::queue::{ParameterKind, QueueName, QueueTemplate, Seq, UserSource, UserTag};
use crate::store::{SharedStore, embedded};
use crate::token::{Claims, Proof};

use super::{LocalQueue, Mirror, Seen};

mod recovery;

struct Bench {
    clock: Arc<ManualClock>,
    gateways: Vec<(Mirror, Arc<LocalQueue>)>,
}

/// Several gateways on one store.
async fn bench(settings: Settings, gateways: u64) -> Bench {
    let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_000_000_000)));
    bench_at(clock, settings, gateways).await
}

async fn bench_at(clock: Arc<ManualClock>, settings: Settings, gateways: u64) -> Bench {
    let store = embedded(Arc::clone(&clock) as Arc<dyn Clock>);
    let name = QueueName::new("deal-1").unwrap();
    let definition = Definition {
        template: QueueTemplate::Fixed(name.clone()),
        settings,
        identity: None,
        max_instances: 1,
        text_hash: 7,
    };
    let mut all = Vec::new();
    for gateway in 0..gateways {
        let clock = Arc::clone(&clock) as Arc<dyn Clock>;
        let mirror = Mirror::new(Arc::clone(&store), clock, gateway, vec![definition.clone()]);
        mirror.open().await.unwrap();
        let queue = mirror.queue(&name).await.unwrap().unwrap();
        all.push((mirror, queue));
    }
    Bench { clock, gateways: all }
}

impl Bench {
    fn queue(&self, gateway: usize) -> &LocalQueue {
        &self.gateways[gateway].1
    }

    async fn enter(&self, gateway: usize, user: u8) -> Claims {
        let entered = self.queue(gateway).enter(UserTag([user; 8])).await.unwrap();
        let place = match entered.value {
            Entered::Waiting(place, _) | Entered::Late(place) | Entered::Active { place, .. } => {
                place
            }
            refused => panic!("{refused:?}"),
        };
        Claims {
            source: UserSource::Visitor,
            owner: UserTag([user; 8]),
            incarnation: entered.incarnation,
            place,
            proof: Proof::Entry,
        }
    }

    async fn later(&self, span: Duration) {
        self.clock.advance(span);
        for (_, queue) in &self.gateways {
            queue.pull().await.unwrap();
        }
    }
}

fn rank(seen: Seen) -> u64 {
    match seen {
        Seen::Waiting { rank, .. } => rank,
        other => panic!("{other:?}"),
    }
}

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_user_admitted_by_the_fast_track_may_pass_at_once() {
    let bench = bench(Settings::new(1), 1).await;
    let alice = bench.enter(0, 1).await;
    assert!(matches!(bench.queue(0).poll(&alice).await.unwrap(), Seen::Active { .. }));
    assert!(matches!(bench.queue(0).pass(&alice).await.unwrap(), Seen::Active { .. }));
    let bob = bench.enter(0, 2).await;
    assert_eq!(rank(bench.queue(0).pass(&bob).await.unwrap()), 1);
}

#[tokio::test]
async fn a_poll_does_not_claim_and_a_pass_does() {
    let bench = bench(Settings::new(1), 1).await;
    let alice = bench.enter(0, 1).await;
    let claim_end = bench.queue(0).now().plus(Duration::from_secs(45));
    let Seen::Active { until, .. } = bench.queue(0).poll(&alice).await.unwrap() else { panic!() };
    assert_eq!(until, claim_end);
    bench.later(SECOND).await;
    let Seen::Active { until, .. } = bench.queue(0).pass(&alice).await.unwrap() else { panic!() };
    assert_eq!(until, bench.queue(0).now().plus(Duration::from_secs(600)));
}

#[tokio::test]
async fn who_left_is_gone_at_once_here_and_within_half_a_second_elsewhere() {
    let bench = bench(Settings::new(1), 2).await;
    let alice = bench.enter(0, 1).await;
    for gateway in [0, 1] {
        bench.later(SECOND).await;
        assert!(matches!(bench.queue(gateway).pass(&alice).await.unwrap(), Seen::Active { .. }));
    }
    let bob = bench.enter(0, 2).await;
    let left = bench.queue(0).leave(alice.owner, Some(alice.place.seq)).await.unwrap();
    assert_eq!(left, Left::Gave);
    assert_eq!(bench.queue(0).pass(&alice).await.unwrap(), Seen::Gone(Gone::Unknown));
    // The other gateway has not heard of it, but its copy may not vouch for longer than this.
    bench.clock.advance(Duration::from_millis(501));
    assert_eq!(bench.queue(1).pass(&alice).await.unwrap(), Seen::Gone(Gone::Unknown));
    // The slot is free only now, so nobody else was in meanwhile.
    assert_eq!(bench.queue(0).admit(10, AdmitBy::Tick).await.unwrap().count, 1);
    bench.later(SECOND).await;
    assert!(matches!(bench.queue(1).pass(&bob).await.unwrap(), Seen::Active { .. }));
}

#[tokio::test]
async fn a_revocation_reaches_a_gateway_with_its_next_picture() {
    let bench = bench(Settings::new(1), 2).await;
    let alice = bench.enter(0, 1).await;
    bench.later(SECOND).await;
    assert!(matches!(bench.queue(1).pass(&alice).await.unwrap(), Seen::Active { .. }));
    bench.queue(0).leave(alice.owner, Some(alice.place.seq)).await.unwrap();
    bench.later(Duration::from_millis(100)).await;
    assert_eq!(bench.queue(1).pass(&alice).await.unwrap(), Seen::Gone(Gone::Unknown));
}

#[tokio::test]
async fn a_waiter_who_left_does_not_wait_in_an_old_picture() {
    let bench = bench(Settings::new(1), 1).await;
    bench.enter(0, 1).await;
    let bob = bench.enter(0, 2).await;
    let carol = bench.enter(0, 3).await;
    bench.later(SECOND).await;
    bench.queue(0).leave(bob.owner, Some(bob.place.seq)).await.unwrap();
    assert_eq!(bench.queue(0).poll(&bob).await.unwrap(), Seen::Gone(Gone::Unknown));
    bench.later(SECOND).await;
    assert_eq!(bench.queue(0).poll(&bob).await.unwrap(), Seen::Gone(Gone::Unknown));
    assert_eq!(rank(bench.queue(0).poll(&carol).await.unwrap()), 1);
}

#[tokio::test]
async fn an_absent_waiter_is_passed_over_and_speaks_up_again_at_the_same_place() {
    let bench =
        bench(Settings { waiting_ttl: Duration::from_secs(60), ..Settings::new(1) }, 1).await;
    bench.enter(0, 1).await;
    let (bob, carol) = (bench.enter(0, 2).await, bench.enter(0, 3).await);
    for _ in 0..20 {
        bench.later(Duration::from_secs(10)).await;
        bench.queue(0).poll(&carol).await.unwrap();
        bench.queue(0).tend(1, 1 << 16).await.unwrap();
    }
    bench.later(SECOND).await;
    assert_eq!(rank(bench.queue(0).poll(&carol).await.unwrap()), 1);
    assert_eq!(rank(bench.queue(0).poll(&bob).await.unwrap()), 1);
    bench.later(SECOND).await;
    assert_eq!(rank(bench.queue(0).poll(&carol).await.unwrap()), 2);
}

#[tokio::test]
async fn a_gateway_that_vanishes_takes_no_waiter_with_it() {
    const STEP: Duration = Duration::from_secs(10);
    // At whatever moment of an epoch of 30 s.
    for calm in 12..15 {
        let settings = Settings { waiting_ttl: Duration::from_secs(60), ..Settings::new(1) };
        let bench = bench(settings, 2).await;
        bench.enter(0, 1).await;
        let (bob, carol) = (bench.enter(1, 2).await, bench.enter(0, 3).await);
        for _ in 0..calm {
            bench.later(STEP).await;
            bench.queue(1).poll(&bob).await.unwrap();
            bench.queue(0).poll(&carol).await.unwrap();
            for gateway in [0, 1] {
                bench.queue(gateway).tend(gateway as u64, 1 << 16).await.unwrap();
            }
        }
        // The second one is gone, and what it heard last with it. Bob asks the first with his next
        // poll, which may be 20 s away.
        for silent in 0..20 {
            bench.later(STEP).await;
            assert_eq!(rank(bench.queue(0).poll(&carol).await.unwrap()), 2, "{calm}, {silent}");
            if silent >= 2 {
                assert_eq!(rank(bench.queue(0).poll(&bob).await.unwrap()), 1);
            }
            bench.queue(0).tend(0, 1 << 16).await.unwrap();
        }
    }
}

#[tokio::test]
async fn an_instance_nobody_uses_makes_room_for_another() {
    let clock = Arc::new(ManualClock::at(Timestamp::from_millis(1_000_000_000)));
    let store = embedded(Arc::clone(&clock) as Arc<dyn Clock>);
    let template = QueueTemplate::PerParameter {
        prefix: "deal-".into(),
        parameter: "id".into(),
        suffix: String::new(),
        kind: ParameterKind::Integer,
    };
    let settings = Settings::new(1);
    let definition =
        Definition { template, settings, identity: None, max_instances: 1, text_hash: 7 };
    let mirror = Mirror::new(store, Arc::clone(&clock) as Arc<dyn Clock>, 1, vec![definition]);
    let name = |number: u32| QueueName::new(&format!("deal-{number}")).unwrap();
    let first = mirror.queue(&name(1)).await.unwrap().unwrap();
    first.enter(UserTag([1; 8])).await.unwrap();
    first.pull().await.unwrap();
    clock.advance(Duration::from_secs(601));
    // Somebody is in it: it stays.
    mirror.forget_abandoned();
    assert!(mirror.queue(&name(2)).await.unwrap().is_none());
    first.leave(UserTag([1; 8]), None).await.unwrap();
    clock.advance(Duration::from_secs(601));
    first.pull().await.unwrap();
    mirror.forget_abandoned();
    assert!(mirror.queue(&name(2)).await.unwrap().is_some());
    assert!(mirror.queue(&name(1)).await.unwrap().is_none());
}

#[tokio::test]
async fn a_token_of_another_incarnation_is_over() {
    let bench = bench(Settings::new(1), 1).await;
    let alice = bench.enter(0, 1).await;
    // The store is not one that has just come back empty.
    bench.later(61 * SECOND).await;
    let old = Claims { incarnation: alice.incarnation - 1, ..alice };
    assert_eq!(bench.queue(0).pass(&old).await.unwrap(), Seen::Gone(Gone::Unknown));
}

#[tokio::test]
async fn a_lease_is_not_honoured_in_its_last_moments() {
    let bench = bench(Settings::new(1), 1).await;
    let alice = bench.enter(0, 1).await;
    assert!(matches!(bench.queue(0).pass(&alice).await.unwrap(), Seen::Active { .. }));
    bench.later(Duration::from_millis(600_000 - 300)).await;
    assert!(matches!(bench.queue(0).pass(&alice).await.unwrap(), Seen::Active { .. }));
    bench.later(Duration::from_millis(100)).await;
    assert_eq!(bench.queue(0).pass(&alice).await.unwrap(), Seen::Gone(Gone::Expired));
}

#[tokio::test]
async fn a_pass_token_of_who_left_proves_nothing_while_the_store_is_away() {
    let bench = bench(Settings::new(1), 2).await;
    let alice = bench.enter(0, 1).await;
    let mut pass = alice;
    for gateway in [0, 1] {
        bench.later(SECOND).await;
        let Seen::Active { until, .. } = bench.queue(gateway).pass(&alice).await.unwrap() else {
            panic!()
        };
        pass.proof = Proof::Lease(ProvenLease { until, claimed: true });
    }
    for gateway in [0, 1] {
        assert!(bench.queue(gateway).proven_active_until(&pass).is_some());
    }
    bench.queue(0).leave(alice.owner, Some(alice.place.seq)).await.unwrap();
    // Somebody else has the slot from here on.
    for _ in 0..20 {
        bench.later(SECOND).await;
        assert_eq!(bench.queue(0).proven_active_until(&pass), None);
        assert_eq!(bench.queue(1).proven_active_until(&pass), None);
    }
}

/// A clock that an administrator sets.
#[derive(Debug)]
struct SettableClock(parking_lot::Mutex<Timestamp>);

impl Clock for SettableClock {
    fn now(&self) -> Timestamp {
        *self.0.lock()
    }
}

/// A store and one gateway, each with a clock of its own, and somebody inside.
struct TwoClocks {
    store: SharedStore,
    store_clock: Arc<ManualClock>,
    own_clock: Arc<SettableClock>,
    mirror: Mirror,
    inside: Claims,
}

impl TwoClocks {
    async fn new() -> Self {
        let start = Timestamp::from_millis(1_000_000_000);
        let store_clock = Arc::new(ManualClock::at(start));
        let own_clock = Arc::new(SettableClock(parking_lot::Mutex::new(start)));
        let store = embedded(Arc::clone(&store_clock) as Arc<dyn Clock>);
        let definition = Definition {
            template: QueueTemplate::Fixed(QueueName::new("deal-1").unwrap()),
            settings: Settings::new(1),
            identity: None,
            max_instances: 1,
            text_hash: 7,
        };
        let clock = Arc::clone(&own_clock) as Arc<dyn Clock>;
        let mirror = Mirror::new(Arc::clone(&store), clock, 1, vec![definition]);
        mirror.open().await.unwrap();
        let queue = Arc::clone(&mirror.all()[0]);
        let owner = UserTag([1; 8]);
        let entered = queue.enter(owner).await.unwrap();
        let Entered::Active { place, .. } = entered.value else { panic!() };
        let (source, incarnation) = (UserSource::Visitor, entered.incarnation);
        let inside = Claims { source, owner, incarnation, place, proof: Proof::Entry };
        assert!(matches!(queue.pass(&inside).await.unwrap(), Seen::Active { .. }));
        Self { store, store_clock, own_clock, mirror, inside }
    }

    fn queue(&self) -> Arc<LocalQueue> {
        Arc::clone(&self.mirror.all()[0])
    }

    fn set_own(&self, to: Timestamp) {
        *self.own_clock.0.lock() = to;
    }
}

#[tokio::test]
async fn a_copy_from_the_future_vouches_for_nothing() {
    let bench = TwoClocks::new().await;
    let (queue, inside) = (bench.queue(), bench.inside);
    // The clock is set back, and the place ends at another gateway before the next copy.
    bench.set_own(bench.own_clock.now().minus(Duration::from_secs(3600)));
    bench.store.leave(queue.name(), inside.owner, None).await.unwrap();
    bench.store_clock.advance(Duration::from_millis(501));
    assert_eq!(queue.pass(&inside).await.unwrap(), Seen::Gone(Gone::Unknown));
}

/// Everybody inside was told that the turn is over, and entering again gave the place away.
#[tokio::test]
async fn a_clock_that_is_set_forward_ends_nobodys_turn() {
    let bench = TwoClocks::new().await;
    let (queue, inside) = (bench.queue(), bench.inside);
    bench.set_own(bench.own_clock.now().plus(Duration::from_secs(3600)));
    assert!(matches!(queue.pass(&inside).await.unwrap(), Seen::Active { .. }));
    assert!(matches!(queue.poll(&inside).await.unwrap(), Seen::Active { .. }));
    let again = queue.enter(inside.owner).await.unwrap();
    assert!(
        matches!(again.value, Entered::Active { place, .. } if place == inside.place),
        "{again:?}"
    );
    assert!(matches!(queue.seen_of(&again), Some(Seen::Active { .. })));
}

#[tokio::test]
async fn a_clock_that_was_set_is_noticed_with_the_next_answer() {
    let bench = bench(Settings::new(1), 1).await;
    let queue = bench.queue(0);
    for ahead in [Duration::from_secs(10), Duration::ZERO] {
        let asked = bench.clock.now();
        bench.clock.advance(Duration::from_millis(4));
        queue.sample_offset(asked, asked.plus(ahead + Duration::from_millis(2)));
        assert_eq!(queue.now(), bench.clock.now().plus(ahead));
    }
    // A slow answer that fits what is known changes nothing.
    let asked = bench.clock.now();
    bench.clock.advance(Duration::from_millis(400));
    queue.sample_offset(asked, asked.plus(Duration::from_millis(10)));
    assert_eq!(queue.now(), bench.clock.now());
}
