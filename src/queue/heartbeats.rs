//! Signs of life by epoch, and who gave none.

use std::collections::{BTreeMap, BTreeSet};

use super::command::Heartbeat;

/// What was heard in one epoch.
#[derive(Clone, Debug, Default)]
struct Epoch {
    /// Number of the first bit; a multiple of 64.
    first: u64,
    bits: Vec<u8>,
    gateways: BTreeSet<u64>,
}

/// Signs of life of the last epochs, and where the line ended when each began.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heartbeats {
    epochs: BTreeMap<u64, Epoch>,
    tails: BTreeMap<u64, u64>,
}

impl Heartbeats {
    /// Somebody is about to get number `tail + 1` in `epoch`.
    pub(crate) fn entering(&mut self, epoch: u64, tail: u64) {
        self.tails.entry(epoch).or_insert(tail);
    }

    /// Merges one gateway's signs of life; numbers below `base` or above `tail` are dropped.
    pub(crate) fn merge(&mut self, heartbeat: &Heartbeat, base: u64, tail: u64) {
        let epoch = self
            .epochs
            .entry(heartbeat.epoch)
            .or_insert_with(|| Epoch { first: base, ..Epoch::default() });
        epoch.gateways.insert(heartbeat.gateway);
        for (at, byte) in heartbeat.bits.iter().enumerate() {
            let number = heartbeat.first.saturating_add(at as u64 * 8);
            if *byte == 0 || number < epoch.first || number > tail {
                continue;
            }
            let Ok(index) = usize::try_from((number - epoch.first) / 8) else { continue };
            if index >= epoch.bits.len() {
                epoch.bits.resize(index + 1, 0);
            }
            epoch.bits[index] |= byte;
        }
    }

    /// Whether the `silent` epochs before `current` are complete: each was reported by a gateway,
    /// and none of those that reported the last but one is missing from the last.
    pub(crate) fn complete(&self, current: u64, silent: u64) -> bool {
        let gateways = |epoch| self.epochs.get(&epoch).map(|epoch| &epoch.gateways);
        let reported = (1..=silent)
            .all(|back| gateways(current.saturating_sub(back)).is_some_and(|set| !set.is_empty()));
        let last_two = (gateways(current.saturating_sub(2)), gateways(current.saturating_sub(1)));
        reported && matches!(last_two, (Some(before), Some(last)) if before.is_subset(last))
    }

    /// The last number that had entered when the `silent` epochs before `current` began: only up
    /// to there can silence be judged.
    pub(crate) fn judged_up_to(&self, current: u64, silent: u64, tail: u64) -> u64 {
        let start = current.saturating_sub(silent);
        self.tails.range(start..).next().map_or(tail, |(_, at_start)| *at_start)
    }

    /// Everybody heard from in the `silent` epochs before `current`, among the numbers from
    /// `first`, a multiple of 8, to `last`: one bit each, most significant bit first.
    pub(crate) fn heard(&self, first: u64, last: u64, current: u64, silent: u64) -> Vec<u8> {
        let bytes = usize::try_from((last + 1).saturating_sub(first).div_ceil(8)).unwrap_or(0);
        let mut heard = vec![0; bytes];
        for epoch in self.epochs.range(current.saturating_sub(silent)..current).map(|(_, e)| e) {
            // How far the epoch's first byte is behind or ahead of ours.
            let behind = usize::try_from(first.saturating_sub(epoch.first) / 8).unwrap_or(0);
            let ahead = usize::try_from(epoch.first.saturating_sub(first) / 8).unwrap_or(0);
            let theirs = epoch.bits.get(behind..).unwrap_or_default();
            for (ours, byte) in heard.iter_mut().skip(ahead).zip(theirs) {
                *ours |= byte;
            }
        }
        heard
    }

    /// Forgets epochs that no judgement can need any more.
    pub(crate) fn forget_before(&mut self, epoch: u64) {
        self.epochs = self.epochs.split_off(&epoch);
        self.tails = self.tails.split_off(&epoch);
    }
}
