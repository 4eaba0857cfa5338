//! A store that has lost everything, and gateways that have not, or their visitors.

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

impl Bench {
    /// The same clock, and a store and gateways that know nothing of what was.
    async fn after_a_total_loss(&self, settings: Settings) -> Self {
        self.clock.advance(10 * SECOND);
        bench_at(Arc::clone(&self.clock), settings, 1).await
    }

    /// Time passes as gateways live it, while these ask where they stand.
    async fn live(&self, span: Duration, asking: &[Claims]) {
        for _ in 0..span.as_secs() / 10 {
            self.clock.advance(10 * SECOND);
            for (mirror, queue) in &self.gateways {
                for claims in asking {
                    let _ = queue.poll(claims).await;
                }
                mirror.care_for(queue).await;
            }
        }
    }

    async fn ranks(&self, of: &[Claims]) -> Vec<u64> {
        let mut ranks = Vec::new();
        for claims in of {
            ranks.push(rank(self.queue(0).poll(claims).await.unwrap()));
        }
        ranks
    }

    /// The tokens as their holders keep them: renewed by polls.
    async fn renewed(&self, claims: &[Claims]) -> Vec<Claims> {
        let mut renewed = Vec::new();
        for claims in claims {
            let seen = self.queue(0).poll(claims).await.unwrap();
            renewed.push(self.queue(0).renewed(claims, seen).unwrap_or(*claims));
        }
        renewed
    }
}

/// Two who are in, seven who wait, and one who left long ago with a token in hand.
struct Sale {
    bench: Bench,
    inside: Vec<Claims>,
    waiting: Vec<Claims>,
    left: Claims,
}

async fn sale() -> Sale {
    let bench = bench(Settings::new(2), 1).await;
    let mut all = Vec::new();
    for user in 1..=10 {
        all.push(bench.enter(0, user).await);
    }
    bench.later(SECOND).await;
    let left = all.remove(4);
    bench.queue(0).leave(left.owner, None).await.unwrap();
    for claims in &all[..2] {
        let seen = bench.queue(0).pass(claims).await.unwrap();
        assert!(matches!(seen, Seen::Active { claimed: true, .. }));
    }
    bench.live(3 * MINUTE, &all[2..]).await;
    let all = bench.renewed(&all).await;
    let (inside, waiting) = (all[..2].to_vec(), all[2..].to_vec());
    assert!(matches!(waiting[0].proof, Proof::Waited { head: 3, .. }));
    assert!(inside[0].lease().is_some_and(|lease| lease.claimed));
    assert_eq!(bench.ranks(&waiting).await, [1, 2, 3, 4, 5, 6, 7]);
    Sale { bench, inside, waiting, left }
}

#[tokio::test]
async fn tokens_alone_bring_a_lost_line_back_in_order() {
    let Sale { bench: before, inside, waiting, left } = sale().await;
    let bench = before.after_a_total_loss(Settings::new(2)).await;
    let queue = bench.queue(0);
    // The last in line comes first; nobody is told a wrong place by that.
    for claims in waiting.iter().rev() {
        let seen = queue.poll(claims).await.unwrap();
        assert!(matches!(seen, Seen::Waiting { .. }), "{claims:?}: {seen:?}");
    }
    for claims in &inside {
        assert!(matches!(queue.pass(claims).await.unwrap(), Seen::Active { .. }));
    }
    bench.live(10 * SECOND, &waiting).await;
    assert!(queue.enter(UserTag([99; 8])).await.is_err(), "newcomers come after them");
    assert_eq!(queue.admit(10, AdmitBy::Tick).await.unwrap().count, 0);
    assert_eq!(queue.poll(&left).await.unwrap(), Seen::Gone(Gone::Unknown), "given up long ago");
    // One of them does not come back.
    let mut heard = waiting.clone();
    let silent = heard.remove(3);
    bench.live(2 * MINUTE, &heard).await;
    assert!(!queue.picture().recovery.rebuilding);
    assert_eq!(bench.ranks(&heard).await, [1, 2, 3, 4, 5, 6]);
    let newcomer = queue.enter(UserTag([99; 8])).await.unwrap().value;
    let Entered::Waiting(place, _) = newcomer else { panic!("{newcomer:?}") };
    assert!(place.seq > waiting[6].place.seq);
    // Or late, and then to the place it had.
    bench.later(SECOND).await;
    assert_eq!(rank(queue.poll(&silent).await.unwrap()), 4);
    // Who was in is in, and who was served before is not served again.
    assert_eq!(queue.picture().active, 2);
    queue.leave(inside[0].owner, None).await.unwrap();
    bench.later(SECOND).await;
    assert_eq!(queue.admit(10, AdmitBy::Tick).await.unwrap().count, 1);
    bench.later(SECOND).await;
    assert!(matches!(queue.pass(&waiting[0]).await.unwrap(), Seen::Active { .. }));
    assert_eq!(queue.pass(&inside[0]).await.unwrap(), Seen::Gone(Gone::Unknown));
}

#[tokio::test]
async fn the_token_of_an_old_sale_does_not_end_a_new_one() {
    let Sale { bench: before, waiting, .. } = sale().await;
    before.clock.advance(20 * MINUTE);
    let bench = before.after_a_total_loss(Settings::new(2)).await;
    let alice = bench.enter(0, 50).await;
    for claims in &waiting {
        assert_eq!(bench.queue(0).poll(claims).await.unwrap(), Seen::Gone(Gone::Unknown));
    }
    assert!(matches!(bench.queue(0).pass(&alice).await.unwrap(), Seen::Active { .. }));
    // Nor does a fresh one, once the new sale has begun.
    let Sale { bench: before, waiting, .. } = sale().await;
    let bench = before.after_a_total_loss(Settings::new(2)).await;
    bench.live(70 * SECOND, &[]).await;
    assert_eq!(bench.queue(0).poll(&waiting[0]).await.unwrap(), Seen::Gone(Gone::Unknown));
}

#[tokio::test]
async fn a_token_beyond_the_tail_of_a_store_that_lost_its_end_keeps_its_place() {
    let bench = bench(Settings::new(0), 1).await;
    let known = bench.enter(0, 1).await;
    let mut lost = bench.enter(0, 2).await;
    lost.place.seq = Seq(40);
    lost.owner = UserTag([40; 8]);
    assert_eq!(rank(bench.queue(0).poll(&lost).await.unwrap()), 40, "as far as known here");
    bench.later(SECOND).await;
    bench.later(SECOND).await;
    assert_eq!(rank(bench.queue(0).poll(&lost).await.unwrap()), 3);
    assert_eq!(rank(bench.queue(0).poll(&known).await.unwrap()), 1);
    let third = bench.enter(0, 3).await;
    assert!(third.place.seq > Seq(40));
    bench.later(SECOND).await;
    assert_eq!(rank(bench.queue(0).poll(&third).await.unwrap()), 4);
}
