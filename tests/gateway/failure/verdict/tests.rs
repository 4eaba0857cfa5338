//! The judge is judged: each promise, broken in made-up evidence, is noticed.

use super::*;

/// A sale that is told in milliseconds.
struct Sale {
    start: Instant,
    evidence: Evidence,
}

impl Sale {
    /// Two users, one after the other, in a queue for one.
    fn fair() -> Self {
        let evidence = Evidence {
            facts: Vec::new(),
            not_served: 0,
            without_answer: (0, 0),
            samples: Vec::new(),
            hits: Vec::new(),
            capacity: 1,
            faults: Vec::new(),
        };
        let mut sale = Self { start: Instant::now(), evidence };
        for (user, seq, entered, passed, left) in [(1, 1, 0, 100, 200), (2, 2, 20, 1000, 1100)] {
            sale.told(user, entered, What::Entered(number(seq)));
            sale.told(user, passed, What::Passed);
            sale.told(user, left, What::Left);
            sale.hit(user, passed + 5);
        }
        sale.store(50, 2, &[1]);
        sale.store(150, 2, &[1]);
        sale.store(900, 3, &[2]);
        sale.store(1050, 3, &[2]);
        sale
    }

    fn at(&self, ms: u64) -> Instant {
        self.start + Duration::from_millis(ms)
    }

    /// Asked at `ms`, answered 10 ms later.
    fn told(&mut self, user: u32, ms: u64, what: What) {
        let (asked, came) = (self.at(ms), self.at(ms + 10));
        self.evidence.facts.push(Fact { user, asked, came, gateway: 0, what });
    }

    fn hit(&mut self, user: u32, ms: u64) {
        let (user, status) = (Some(name_of(user)), Some("ACTIVE".to_owned()));
        self.evidence.hits.push(Hit { at: self.at(ms), user, status, entered: None });
    }

    fn store(&mut self, ms: u64, head: u64, active: &[u64]) {
        let active = active.iter().copied().collect();
        let (asked, came) = (self.at(ms), self.at(ms + 1));
        let (incarnation, tail, admitted) = (1, 9, head - 1);
        self.evidence.samples.push(Sample {
            asked,
            came,
            incarnation,
            head,
            tail,
            admitted,
            active,
        });
        self.evidence.samples.sort_by_key(|sample| sample.asked);
    }

    /// Counts: broken in whatever way, lost, out of order, over-admitted.
    fn counts(&self) -> [usize; 4] {
        let verdict = self.evidence.verdict();
        let lists = [&verdict.broken, &verdict.gone_back, &verdict.lost, &verdict.out_of_order];
        let [broken, gone_back, lost, out_of_order] = lists.map(Vec::len);
        [broken + gone_back, lost, out_of_order, verdict.over_admitted]
    }
}

const fn number(seq: u64) -> Number {
    Number { incarnation: 1, seq }
}

/// What the judge says about a fair sale to which `something` happens.
fn after(something: impl FnOnce(&mut Sale)) -> [usize; 4] {
    let mut sale = Sale::fair();
    something(&mut sale);
    sale.counts()
}

#[test]
fn a_fair_sale_is_fair() {
    assert_eq!(after(|_| {}), [0, 0, 0, 0]);
    assert_eq!(Sale::fair().evidence.verdict().acknowledged, 6);
}

#[test]
fn a_place_that_is_denied_is_lost() {
    assert_eq!(after(|sale| sale.told(2, 500, What::Lost("410".into()))), [0, 1, 0, 0]);
}

#[test]
fn one_number_for_two_users_is_noticed() {
    assert_eq!(after(|sale| sale.told(3, 25, What::Entered(number(2))))[0], 1);
}

#[test]
fn a_later_user_with_a_better_number_overtakes() {
    let entered = |ms| move |sale: &mut Sale| sale.told(3, ms, What::Entered(number(0)));
    assert_eq!(after(entered(40)), [0, 0, 1, 0]);
    assert_eq!(after(entered(5)), [0, 0, 0, 0], "enters that overlap have no order");
}

#[test]
fn a_number_that_is_admitted_behind_a_higher_one_overtakes() {
    assert_eq!(after(|sale| sale.store(1200, 9, &[7])), [0, 0, 0, 0]);
    assert_eq!(
        after(|sale| {
            sale.store(1200, 9, &[7]);
            sale.store(1300, 9, &[5]);
        }),
        [0, 0, 1, 0]
    );
}

#[test]
fn a_rank_that_rises_is_noticed_unless_something_was_wrong() {
    let rises = |sale: &mut Sale| {
        sale.told(3, 2000, What::Entered(number(9)));
        sale.told(3, 3000, What::Waiting(1));
        sale.told(3, 5000, What::Waiting(2));
    };
    assert_eq!(after(rises)[..3], [0, 0, 1]);
    assert_eq!(
        after(|sale| {
            rises(sale);
            let (from, to) = (sale.at(2500), sale.at(4500));
            sale.evidence.faults.push(Spell { from, to, gateway: None });
        })[..3],
        [0, 0, 0]
    );
}

#[test]
fn too_many_at_once_are_counted_by_the_store_and_by_the_shop() {
    assert_eq!(after(|sale| sale.store(1060, 5, &[2, 3, 4])), [0, 0, 0, 2]);
    assert_eq!(
        after(|sale| {
            sale.hit(1, 110);
            sale.hit(1, 190);
            sale.hit(2, 150);
        })[3],
        1
    );
}

#[test]
fn whoever_reaches_the_shop_without_being_active_is_noticed() {
    assert_eq!(after(|sale| sale.hit(2, 120))[0], 1, "it waits until 900");
    assert_eq!(after(|sale| sale.hit(3, 120))[0], 1, "it never entered");
    assert_eq!(after(|sale| sale.hit(1, 400))[0], 1, "it has left");
    assert_eq!(after(|sale| sale.evidence.hits[0].user = None)[0], 1, "nobody knows who it is");
    assert_eq!(after(|sale| sale.evidence.hits[0].status = Some("WAITING".into()))[0], 1);
    assert_eq!(after(|sale| sale.told(1, 300, What::Intruded))[0], 1);
}

#[test]
fn a_line_that_goes_back_is_noticed() {
    assert_eq!(after(|sale| sale.store(1200, 2, &[]))[0], 1);
}

#[test]
fn who_is_not_answered_or_not_served_is_noticed() {
    assert_eq!(after(|sale| sale.evidence.not_served = 3)[0], 1);
    assert_eq!(after(|sale| sale.evidence.without_answer.0 = 1)[0], 1);
    assert_eq!(after(|sale| sale.told(1, 300, What::Odd("500".into())))[0], 1);
}

#[test]
#[should_panic(expected = "1 requests were taken by no gateway")]
fn a_request_that_no_gateway_takes_breaks_the_story() {
    let mut sale = Sale::fair();
    sale.evidence.without_answer.1 = 1;
    sale.evidence.verdict().judged("a rolling restart", &Policy::default());
}

#[test]
fn recovery_is_measured_at_the_gateway_that_was_in_trouble() {
    let mut sale = Sale::fair();
    let (from, to) = (sale.at(100), sale.at(300));
    sale.evidence.faults.push(Spell { from, to, gateway: Some(1) });
    sale.told(3, 310, What::Entered(number(3)));
    sale.told(4, 390, What::Entered(number(4)));
    sale.evidence.facts.last_mut().unwrap().gateway = 1;
    let verdict = sale.evidence.verdict();
    assert_eq!(verdict.enters_after, Some(Duration::from_millis(100)));
    assert_eq!(verdict.admits_after, Some(Duration::from_millis(601)));
}
