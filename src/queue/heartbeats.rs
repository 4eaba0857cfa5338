//! Signs of life by epoch, and who gave none.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::command::Heartbeat;

/// What was heard in one epoch.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Epoch {
    /// Number of the first bit; a multiple of 64.
    first: u64,
    bits: Vec<u8>,
    gateways: BTreeSet<u64>,
}

/// Signs of life of the last epochs, and where the line ended when each began.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Heartbeats {
    epochs: BTreeMap<u64, Epoch>,
    tails: BTreeMap<u64, u64>,
    /// Epochs before this one are forgotten, and stay so.
    known_from: u64,
}

impl Heartbeats {
    /// Somebody is about to get number `tail + 1` in `epoch`.
    pub(crate) fn entering(&mut self, epoch: u64, tail: u64) {
        self.tails.entry(epoch).or_insert(tail);
    }

    /// Merges one gateway's signs of life; numbers below `base` or above `tail` are dropped, and so
    /// is an epoch that has been forgotten: it could only be remembered in part.
    pub(crate) fn merge(&mut self, heartbeat: &Heartbeat, base: u64, tail: u64) {
        if heartbeat.epoch < self.known_from {
            return;
        }
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
    /// and no gateway that reported one of them, or the one before, is missing from the next. What
    /// a gateway heard before it vanished is lost, so nobody is judged by those epochs.
    pub(crate) fn complete(&self, current: u64, silent: u64) -> bool {
        let gateways = |back| {
            let epoch = current.checked_sub(back)?;
            self.epochs.get(&epoch).map(|epoch| &epoch.gateways)
        };
        (1..=silent).all(|back| {
            gateways(back).is_some_and(|reported| {
                let before = gateways(back + 1);
                !reported.is_empty() && before.is_none_or(|before| before.is_subset(reported))
            })
        })
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
        self.known_from = self.known_from.max(epoch);
    }

    /// What differs after anything was heard or forgotten: `known_from`, then how many epochs,
    /// tails, gateways and bits there are. Nothing of it but the numbers of epochs and tails ever
    /// falls, and those only when `known_from` rises.
    pub(crate) fn measure(&self) -> [u64; 5] {
        let (mut gateways, mut bits) = (0, 0);
        for epoch in self.epochs.values() {
            gateways += epoch.gateways.len() as u64;
            bits += epoch.bits.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>();
        }
        [self.known_from, self.epochs.len() as u64, self.tails.len() as u64, gateways, bits]
    }

    /// How many epochs are remembered.
    #[cfg(test)]
    pub(crate) fn epochs(&self) -> usize {
        self.epochs.len().max(self.tails.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(epoch: u64, gateway: u64, first: u64, bits: &[u8]) -> Heartbeat {
        Heartbeat { epoch, gateway, first, bits: bits.to_vec() }
    }

    #[test]
    fn signs_of_life_of_several_gateways_and_epochs_add_up() {
        let mut heartbeats = Heartbeats::default();
        heartbeats.merge(&heard(10, 1, 64, &[0b1000_0000]), 64, 90);
        heartbeats.merge(&heard(10, 2, 72, &[0b0000_0001]), 64, 90);
        heartbeats.merge(&heard(11, 1, 64, &[0b0100_0000, 0, 0b1111_1111]), 64, 90);
        assert_eq!(heartbeats.heard(64, 87, 12, 2), [0b1100_0000, 1, 0xff]);
        assert_eq!(heartbeats.heard(72, 87, 12, 2), [1, 0xff]);
        assert_eq!(heartbeats.heard(64, 87, 12, 1), [0b0100_0000, 0, 0xff]);
        assert!(heartbeats.heard(96, 90, 12, 2).is_empty());
    }

    #[test]
    fn an_epoch_keeps_its_own_base_when_the_queue_moves_on() {
        let mut heartbeats = Heartbeats::default();
        heartbeats.merge(&heard(10, 1, 0, &[0, 0, 0, 0, 0, 0, 0, 0, 0b1010_0000]), 0, 80);
        heartbeats.merge(&heard(11, 1, 64, &[0b0100_0000]), 64, 80);
        assert_eq!(heartbeats.heard(64, 71, 12, 2), [0b1110_0000]);
    }

    #[test]
    fn numbers_outside_the_line_take_no_memory() {
        let mut heartbeats = Heartbeats::default();
        heartbeats.merge(&heard(10, 1, 1 << 50, &[0xff; 4]), 0, 80);
        heartbeats.merge(&heard(10, 1, u64::MAX - 7, &[0xff; 4]), 0, 80);
        assert!(heartbeats.epochs[&10].bits.is_empty());
    }

    #[test]
    fn a_gateway_that_stops_reporting_makes_the_last_epoch_incomplete() {
        let mut heartbeats = Heartbeats::default();
        for (epoch, gateway) in [(10, 1), (10, 2), (11, 1)] {
            heartbeats.merge(&heard(epoch, gateway, 0, &[]), 0, 0);
        }
        assert!(!heartbeats.complete(12, 2));
        heartbeats.merge(&heard(11, 2, 0, &[]), 0, 0);
        assert!(heartbeats.complete(12, 2));
        assert!(!heartbeats.complete(12, 3), "nobody reported epoch 9");
        // A gateway that is gone for good is missed as long as what it heard could count.
        for epoch in [12, 13] {
            heartbeats.merge(&heard(epoch, 1, 0, &[]), 0, 0);
            assert!(!heartbeats.complete(epoch + 1, 2));
        }
        heartbeats.merge(&heard(14, 1, 0, &[]), 0, 0);
        assert!(heartbeats.complete(15, 2));
    }

    #[test]
    fn silence_is_judged_only_for_those_who_were_there_all_the_time() {
        let mut heartbeats = Heartbeats::default();
        heartbeats.entering(10, 0);
        heartbeats.entering(10, 1);
        heartbeats.entering(12, 2);
        assert_eq!(heartbeats.judged_up_to(12, 2, 5), 0);
        assert_eq!(heartbeats.judged_up_to(13, 2, 5), 2);
        assert_eq!(heartbeats.judged_up_to(15, 2, 5), 5);
    }

    #[test]
    fn a_forgotten_epoch_does_not_come_back() {
        let mut heartbeats = Heartbeats::default();
        heartbeats.merge(&heard(10, 1, 0, &[0xff]), 0, 7);
        heartbeats.forget_before(11);
        heartbeats.merge(&heard(10, 1, 0, &[]), 0, 7);
        heartbeats.merge(&heard(11, 1, 0, &[]), 0, 7);
        assert_eq!(heartbeats.epochs(), 1);
        assert!(!heartbeats.complete(12, 2));
    }
}
