//! What a run proves: every acknowledged fact held against every other, against the shop, and
//! against the store.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Once;
use std::time::{Duration, Instant};

use super::facts::{Fact, Number, What, name_of};
use super::origin::Hit;
use super::store_samples::Sample;

/// How old a rank may be while the store answers, with room for a busy machine.
const STALE: Duration = Duration::from_secs(1);

/// Everything that was seen.
#[derive(Debug)]
pub struct Evidence {
    /// What shoppers were told.
    pub facts: Vec<Fact>,
    /// Shoppers who were still in line when the story's patience ended.
    pub not_served: u32,
    /// Requests that were let wait, and those that no gateway took.
    pub without_answer: (u64, u64),
    /// What the store held. Empty where it cannot be looked at.
    pub samples: Vec<Sample>,
    /// What reached the shop.
    pub hits: Vec<Hit>,
    /// The queue's capacity.
    pub capacity: usize,
    /// What went wrong, in order.
    pub faults: Vec<Spell>,
}

/// A time in which something was wrong.
#[derive(Clone, Copy, Debug)]
pub struct Spell {
    /// When it began.
    pub from: Instant,
    /// When it was over.
    pub to: Instant,
    /// The gateway it was about, unless it was about both.
    pub gateway: Option<usize>,
}

/// What a fault may cost. The default is nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Policy {
    /// Places that may be lost.
    pub lost: usize,
    /// Pairs that may be out of order.
    pub out_of_order: usize,
    /// Users active at once beyond capacity.
    pub over_admitted: usize,
    /// Requests that no gateway takes, because none is there.
    pub no_gateway: bool,
    /// The store goes back to what it was a moment before.
    pub goes_back: bool,
}

/// What a run showed.
#[derive(Debug)]
pub struct Verdict {
    acknowledged: usize,
    lost: Vec<String>,
    out_of_order: Vec<String>,
    over_admitted: usize,
    /// Signs that the store is not as far as it was.
    gone_back: Vec<String>,
    /// Broken promises that no fault excuses.
    broken: Vec<String>,
    failed: u64,
    enters_after: Option<Duration>,
    admits_after: Option<Duration>,
}

impl Evidence {
    /// Judges.
    pub fn verdict(&self) -> Verdict {
        let mut broken = Vec::new();
        let mut lost = Vec::new();
        for fact in &self.facts {
            let user = fact.user;
            match &fact.what {
                What::Lost(how) => lost.push(format!("user {user}: {how}")),
                What::Odd(answer) => broken.push(format!("user {user}: {answer}")),
                What::Intruded => broken.push(format!("user {user} passed after leaving")),
                _ => {}
            }
        }
        if self.not_served > 0 {
            broken.push(format!("{} were not served", self.not_served));
        }
        let (unanswered, failed) = self.without_answer;
        if unanswered > 0 {
            broken.push(format!("{unanswered} requests were let wait"));
        }
        broken.extend(self.shared_numbers());
        broken.extend(self.intruders());
        let mut out_of_order = self.overtakers();
        out_of_order.extend(self.admitted_before_their_turn());
        out_of_order.extend(self.risen_ranks());
        let (enters_after, admits_after) = self.recovery();
        let acknowledged =
            |fact: &&Fact| !matches!(fact.what, What::Lost(_) | What::Odd(_) | What::Intruded);
        Verdict {
            acknowledged: self.facts.iter().filter(acknowledged).count(),
            lost,
            out_of_order,
            over_admitted: self.most_at_once().saturating_sub(self.capacity),
            gone_back: self.backward_steps(),
            broken,
            failed,
            enters_after,
            admits_after,
        }
    }

    /// The first acknowledged entry of each user.
    fn entries(&self) -> Vec<(&Fact, Number)> {
        let mut known = BTreeSet::new();
        let entered = |fact: &'_ Fact| match fact.what {
            What::Entered(number) => Some(number),
            _ => None,
        };
        let all = self.facts.iter().filter_map(|fact| Some((fact, entered(fact)?)));
        all.filter(|(fact, _)| known.insert(fact.user)).collect()
    }

    /// Two users with one number.
    fn shared_numbers(&self) -> Vec<String> {
        let mut owners = HashMap::new();
        let mut shared = Vec::new();
        for fact in &self.facts {
            let What::Entered(number) = fact.what else { continue };
            let owner = *owners.entry(number).or_insert(fact.user);
            if owner != fact.user {
                shared.push(format!("{number:?} belongs to {owner} and to {}", fact.user));
            }
        }
        shared
    }

    /// Users who entered after somebody else had been told a number, and got a better one.
    fn overtakers(&self) -> Vec<String> {
        let entries = self.entries();
        let mut by_answer = entries.clone();
        by_answer.sort_by_key(|(fact, _)| fact.came);
        let mut by_question = entries;
        by_question.sort_by_key(|(fact, _)| fact.asked);
        let mut told = by_answer.into_iter().peekable();
        let (mut last, mut overtakers) = (None::<(Number, u32)>, Vec::new());
        for (fact, number) in by_question {
            while let Some((earlier, had)) = told.next_if(|(earlier, _)| earlier.came < fact.asked)
            {
                last = last.max(Some((had, earlier.user)));
            }
            if let Some((had, earlier)) = last.filter(|(had, _)| *had > number) {
                overtakers
                    .push(format!("{} got {number:?} after {earlier} had {had:?}", fact.user));
            }
        }
        overtakers
    }

    /// Numbers that became active after a higher one had, by the store.
    fn admitted_before_their_turn(&self) -> Vec<String> {
        let (mut seen, mut found) = (BTreeSet::new(), Vec::new());
        let mut incarnation = 0;
        for sample in &self.samples {
            if sample.incarnation != incarnation {
                (seen, incarnation) = (BTreeSet::new(), sample.incarnation);
            }
            let highest = seen.last().copied();
            for seq in sample.active.difference(&seen.clone()) {
                if highest.is_some_and(|highest| *seq < highest) {
                    found.push(format!("number {seq} was admitted after {highest:?}"));
                }
                seen.insert(*seq);
            }
        }
        found
    }

    /// Whether `number` had been called by then: whoever does not come in time waits in the late
    /// lane, which has ranks of its own.
    fn was_called(&self, number: Number, by: Instant) -> bool {
        let later = self.samples.partition_point(|sample| sample.asked < by);
        self.samples[..=later.min(self.samples.len().saturating_sub(1))]
            .iter()
            .any(|sample| sample.incarnation == number.incarnation && number.seq < sample.head)
    }

    /// Ranks that got worse while nothing was wrong.
    fn risen_ranks(&self) -> Vec<String> {
        let mut numbers = HashMap::<u32, Number>::new();
        let calm = |at: Instant| {
            self.faults.iter().all(|spell| at + STALE < spell.from || at > spell.to + STALE)
        };
        let mut best = HashMap::<u32, Vec<(Instant, u64)>>::new();
        let mut risen = Vec::new();
        for fact in &self.facts {
            if let What::Entered(number) = fact.what {
                numbers.insert(fact.user, number);
            }
            let What::Waiting(rank) = fact.what else { continue };
            if !calm(fact.asked) || !calm(fact.came) {
                continue;
            }
            if numbers.get(&fact.user).is_some_and(|number| self.was_called(*number, fact.came)) {
                continue;
            }
            let told = best.entry(fact.user).or_default();
            let before = told.iter().filter(|(at, _)| *at + STALE < fact.asked);
            if let Some(before) = before.map(|(_, rank)| *rank).min().filter(|best| *best < rank) {
                risen.push(format!("{} had rank {before}, then {rank}", fact.user));
            }
            told.push((fact.came, rank));
        }
        risen
    }

    /// Whoever reached the shop without being active.
    fn intruders(&self) -> Vec<String> {
        let mut numbers = HashMap::<String, Vec<Number>>::new();
        let mut left = HashMap::<String, Instant>::new();
        for fact in &self.facts {
            match fact.what {
                What::Entered(number) => {
                    numbers.entry(name_of(fact.user)).or_default().push(number);
                }
                What::Left => {
                    left.insert(name_of(fact.user), fact.came);
                }
                _ => {}
            }
        }
        let mut first_active = HashMap::new();
        for (at, sample) in self.samples.iter().enumerate() {
            for seq in &sample.active {
                let number = Number { incarnation: sample.incarnation, seq: *seq };
                first_active.entry(number).or_insert(at);
            }
        }
        let mut found = Vec::new();
        for hit in &self.hits {
            let (Some(user), Some("ACTIVE")) = (&hit.user, hit.status.as_deref()) else {
                found.push(format!("a request passed as {:?}, {:?}", hit.user, hit.status));
                continue;
            };
            let Some(numbers) = numbers.get(user) else {
                found.push(format!("{user} passed and never entered"));
                continue;
            };
            if left.get(user).is_some_and(|left| hit.at > *left) {
                found.push(format!("{user} passed after it had left"));
            }
            let later = self.samples.partition_point(|sample| sample.asked < hit.at);
            if let Some(sample) = self.samples.get(later) {
                let incarnation = sample.incarnation;
                // After a failover the head may be behind those who are inside.
                let was_called = |number: &Number| {
                    number.incarnation != incarnation
                        || number.seq < sample.head
                        || first_active.get(number).is_some_and(|first| *first <= later)
                };
                if !numbers.iter().any(was_called) {
                    let number = numbers.last();
                    found.push(format!("{user} passed with {number:?}, head {}", sample.head));
                }
            }
        }
        found
    }

    /// What never goes back within one life of a queue.
    fn backward_steps(&self) -> Vec<String> {
        let pairs = self.samples.windows(2).map(|pair| (&pair[0], &pair[1]));
        pairs
            .filter(|(before, after)| {
                let key = |s: &Sample| (s.head, s.tail, s.admitted);
                let (a, b) = (key(before), key(after));
                before.incarnation > after.incarnation
                    || before.incarnation == after.incarnation
                        && (a.0 > b.0 || a.1 > b.1 || a.2 > b.2)
            })
            .map(|(before, after)| format!("the line went back: {before:?}, {after:?}"))
            .collect()
    }

    /// The most users active at once by the store, or inside at once by the shop.
    fn most_at_once(&self) -> usize {
        let by_store = self.samples.iter().map(|sample| sample.active.len()).max().unwrap_or(0);
        // Who loses a place and gets another stays twice.
        let mut stays = HashMap::<_, (Instant, Instant)>::new();
        for hit in &self.hits {
            let stay = stays.entry((&hit.user, &hit.entered)).or_insert((hit.at, hit.at));
            *stay = (stay.0.min(hit.at), stay.1.max(hit.at));
        }
        let mut steps: Vec<_> =
            stays.values().flat_map(|(from, to)| [(*from, 0), (*to, 1)]).collect();
        steps.sort_unstable();
        let (mut inside, mut most) = (0_usize, 0);
        for (_, step) in steps {
            if step == 0 {
                inside += 1;
                most = most.max(inside);
            } else {
                inside -= 1;
            }
        }
        by_store.max(most)
    }

    /// From the end of the last fault to the next acknowledged entry, through the gateway it was
    /// about, and to the next admission.
    fn recovery(&self) -> (Option<Duration>, Option<Duration>) {
        let Some(Spell { to: end, gateway, .. }) = self.faults.last() else { return (None, None) };
        let entered = self.facts.iter().filter(|fact| {
            matches!(fact.what, What::Entered(_))
                && gateway.is_none_or(|gateway| gateway == fact.gateway)
        });
        let entered = entered.map(|fact| fact.came).filter(|came| came >= end).min();
        let later = self.samples.partition_point(|sample| sample.asked < *end);
        let before = later.checked_sub(1).map_or(0, |last| self.samples[last].admitted);
        let admitted = self.samples[later..].iter().find(|sample| sample.admitted > before);
        let since = |at: Instant| at.duration_since(*end);
        (entered.map(since), admitted.map(|sample| since(sample.came)))
    }
}

impl Verdict {
    /// Prints a line of the table, and fails the story if more was broken than `policy` allows.
    pub fn holds(&self, fault: &str, policy: &Policy) {
        self.print(fault);
        self.judged(fault, policy);
    }

    fn judged(&self, fault: &str, policy: &Policy) {
        let mut broken = self.broken.clone();
        if !policy.goes_back {
            broken.extend(self.gone_back.clone());
        }
        if self.lost.len() > policy.lost {
            broken.extend(self.lost.clone());
        }
        if self.out_of_order.len() > policy.out_of_order {
            broken.extend(self.out_of_order.clone());
        }
        if self.over_admitted > policy.over_admitted {
            broken.push(format!("{} too many at once", self.over_admitted));
        }
        if self.failed > 0 && !policy.no_gateway {
            broken.push(format!("{} requests were taken by no gateway", self.failed));
        }
        if self.acknowledged == 0 {
            broken.push("nothing was acknowledged".to_owned());
        }
        broken.truncate(20);
        assert!(broken.is_empty(), "{fault}:\n{}", broken.join("\n"));
    }

    /// Past the test runner, which shows what it captured only when a story fails.
    fn print(&self, fault: &str) {
        static HEADING: Once = Once::new();
        let mut text = String::new();
        HEADING.call_once(|| {
            text.push_str(
                "\n| fault | acknowledged | lost | out of order | over-admitted \
                 | enters again after | admits again after |\n|---|---|---|---|---|---|---|\n",
            );
        });
        let after = |span: Option<Duration>| {
            span.map_or_else(|| "–".to_owned(), |span| format!("{} ms", span.as_millis()))
        };
        let _ = writeln!(
            text,
            "| {fault} | {} | {} | {} | {} | {} | {} |",
            self.acknowledged,
            self.lost.len(),
            self.out_of_order.len(),
            self.over_admitted,
            after(self.enters_after),
            after(self.admits_after),
        );
        let _ = std::io::stderr().lock().write_all(text.as_bytes());
    }
}

#[cfg(test)]
mod tests;
