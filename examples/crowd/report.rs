//! The end of a run: numbers, and whether every promise held.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::samples::{ActiveSamples, StoreSamples};
use super::shopper::{Ending, Visit};

/// What a whole crowd saw.
pub(crate) struct Report {
    /// One a shopper.
    pub(crate) visits: Vec<Visit>,
    /// From the first arrival to the last departure.
    pub(crate) took: Duration,
    /// Samples of the queue's status.
    pub(crate) status: Option<ActiveSamples>,
    /// Samples of the store.
    pub(crate) store: Option<StoreSamples>,
    /// Whether each shopper stayed with one gateway: copies of two gateways may differ for a moment.
    pub(crate) one_gateway_each: bool,
}

/// How often each text occurs, the most frequent first.
fn counted<'a>(texts: impl Iterator<Item = &'a String>) -> Vec<(usize, &'a String)> {
    let mut counts = BTreeMap::<&String, usize>::new();
    texts.for_each(|text| *counts.entry(text).or_default() += 1);
    let mut counts: Vec<_> = counts.into_iter().map(|(text, count)| (count, text)).collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    counts
}

/// The value below which `percent` of the sorted values lie.
fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let at = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(at).copied().unwrap_or_default()
}

impl Report {
    fn sum(&self, of: impl Fn(&Visit) -> u64) -> u64 {
        self.visits.iter().map(of).sum()
    }

    fn worse_ranks(&self) -> u64 {
        self.sum(|visit| visit.worse_ranks.len() as u64)
    }

    fn ended(&self, ending: Ending) -> usize {
        self.visits.iter().filter(|visit| visit.ending == ending).count()
    }

    /// Whether everybody who wanted to come was served.
    fn everyone_served(&self) -> bool {
        self.ended(Ending::Unfinished) == 0
    }

    /// By how much somebody seemed to be overtaken by a later one at most. Polls are up to 20 s
    /// apart, so this is a hint, not a measure.
    fn greatest_overtaking(&self) -> Duration {
        let entered =
            |visit: &Visit| OffsetDateTime::parse(visit.entered_at.as_deref()?, &Rfc3339).ok();
        let mut order: Vec<_> = self
            .visits
            .iter()
            .filter_map(|visit| Some((entered(visit)?, visit.admitted_at?)))
            .collect();
        order.sort_unstable();
        let (mut latest, mut greatest) = (Duration::ZERO, Duration::ZERO);
        for (_, admitted) in order {
            greatest = greatest.max(latest.saturating_sub(admitted));
            latest = latest.max(admitted);
        }
        greatest
    }

    /// What was broken; empty when every promise held.
    fn broken(&self) -> Vec<String> {
        let mut broken = Vec::new();
        for (count, what) in counted(self.visits.iter().flat_map(|visit| &visit.violations)) {
            broken.push(format!("{count} × {what}"));
        }
        for (count, what) in counted(self.visits.iter().flat_map(|visit| &visit.unexpected)) {
            broken.push(format!("{count} × unexpected answer to {what}"));
        }
        let worse = self.worse_ranks();
        let steps = self.visits.iter().flat_map(|visit| &visit.worse_ranks);
        let greatest = steps.max_by_key(|(before, after)| after - before);
        if let Some((before, after)) = greatest.filter(|_| self.one_gateway_each) {
            broken.push(format!("{worse} × a rank got worse, at most from {before} to {after}"));
        }
        let over = self.status.map_or(0, |samples| samples.over_capacity);
        if over > 0 {
            broken.push(format!("{over} × status over capacity"));
        }
        if let Some(store) = &self.store {
            if store.active.over_capacity > 0 {
                broken.push(format!("{} × store over capacity", store.active.over_capacity));
            }
            if store.inversions > 0 {
                broken.push(format!("{} × admitted out of order", store.inversions));
            }
        }
        if !self.everyone_served() {
            broken.push(format!("{} not served in time", self.ended(Ending::Unfinished)));
        }
        broken
    }

    /// Whether every promise held.
    pub(crate) fn is_clean(&self) -> bool {
        self.broken().is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut waits: Vec<_> = self.visits.iter().filter_map(|visit| visit.waited).collect();
        waits.sort_unstable();
        let at = |percent| percentile(&waits, percent).as_secs_f64();
        let entered = self.visits.iter().filter(|visit| visit.entered_at.is_some()).count();
        writeln!(f, "shoppers         {}", self.visits.len())?;
        writeln!(f, "took             {:.1} s", self.took.as_secs_f64())?;
        writeln!(f, "entered          {entered}")?;
        writeln!(f, "admitted         {}", waits.len())?;
        writeln!(f, "served           {}", self.ended(Ending::Served))?;
        writeln!(f, "did not come     {}", self.ended(Ending::DidNotCome))?;
        writeln!(f, "polls            {}", self.sum(|visit| visit.polls))?;
        writeln!(f, "refused waiting  {}", self.sum(|visit| visit.refused))?;
        writeln!(f, "entered again    {}", self.sum(|visit| visit.entered_again))?;
        writeln!(f, "unanswered       {}", self.sum(|visit| visit.unanswered))?;
        writeln!(f, "worse ranks      {}", self.worse_ranks())?;
        writeln!(
            f,
            "waits            p50 {:.1} s, p95 {:.1} s, p99 {:.1} s",
            at(50),
            at(95),
            at(99)
        )?;
        writeln!(f, "longest wait     {:.1} s", at(100))?;
        let overtaking = self.greatest_overtaking().as_secs_f64();
        writeln!(f, "overtaking       {overtaking:.1} s at most, as seen through polls")?;
        if let Some(status) = self.status {
            writeln!(f, "status samples   {}, at most {} active", status.count, status.most)?;
        }
        if let Some(store) = &self.store {
            writeln!(
                f,
                "store samples    {}, at most {} active",
                store.active.count, store.active.most
            )?;
            writeln!(
                f,
                "store order      {} numbers, {} late, {} inversions",
                store.numbers, store.late, store.inversions
            )?;
        }
        writeln!(f, "everyone served  {}", if self.everyone_served() { "yes" } else { "no" })?;
        let broken = self.broken();
        write!(f, "violations       {}", if broken.is_empty() { "none" } else { "" })?;
        broken.iter().try_for_each(|what| write!(f, "\n  {what}"))
    }
}
