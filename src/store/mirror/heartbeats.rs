//! Who spoke in the current epoch: one bit a number, set on every poll without a lock that blocks.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

use crate::queue::command::Heartbeat;

/// Words of headroom when the bitmap grows: 4096 newcomers.
const HEADROOM: usize = 64;

/// The longest line that is listened to: more than `max_waiting` can be, 32 MiB. A genuine token
/// can name any number when the store has lost its last ones.
const MAX_NUMBERS: u64 = 1 << 28;

#[derive(Debug, Default)]
struct Epoch {
    number: u64,
    /// Number of the first bit; a multiple of 64.
    first: u64,
    words: Vec<AtomicU64>,
}

/// The signs of life of one queue at one gateway.
#[derive(Debug, Default)]
pub(super) struct Heartbeats {
    current: RwLock<Epoch>,
}

impl Heartbeats {
    /// `seq` spoke. Numbers the head has passed are not recorded.
    pub(super) fn mark(&self, seq: u64) {
        {
            let current = self.current.read();
            let Some(at) = seq.checked_sub(current.first) else { return };
            if let Some(word) = usize::try_from(at / 64).ok().and_then(|i| current.words.get(i)) {
                let bit = (1 << 63) >> (at % 64);
                // A load is cheaper than a write to a line that all cores share.
                if word.load(Ordering::Relaxed) & bit == 0 {
                    word.fetch_or(bit, Ordering::Relaxed);
                }
                return;
            }
        }
        let mut current = self.current.write();
        let Some(at) = seq.checked_sub(current.first) else { return };
        if at >= MAX_NUMBERS {
            return;
        }
        let Ok(index) = usize::try_from(at / 64) else { return };
        if index >= current.words.len() {
            current.words.resize_with(index + HEADROOM, AtomicU64::default);
        }
        current.words[index].fetch_or((1 << 63) >> (at % 64), Ordering::Relaxed);
    }

    /// Forgets what was heard: numbers start anew with an incarnation.
    pub(super) fn start_anew(&self) {
        self.current.write().words.clear();
    }

    /// Begins `epoch` for the line from `head`; returns what the one before heard, or `None` while
    /// it goes on.
    pub(super) fn turn(&self, epoch: u64, head: u64, gateway: u64) -> Option<Heartbeat> {
        if self.current.read().number >= epoch {
            return None;
        }
        let first = head / 64 * 64;
        let next = Epoch { number: epoch, first, words: Vec::new() };
        let last = std::mem::replace(&mut *self.current.write(), next);
        if last.number == 0 {
            return None;
        }
        let bits = last.words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_be_bytes());
        let mut bits: Vec<u8> = bits.collect();
        bits.truncate(bits.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1));
        Some(Heartbeat { epoch: last.number, gateway, first: last.first, bits })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_hands_over_exactly_who_spoke_in_it() {
        let heartbeats = Heartbeats::default();
        assert_eq!(heartbeats.turn(7, 70, 1), None);
        for seq in [63, 64, 71, 71, 9000] {
            heartbeats.mark(seq);
        }
        assert_eq!(heartbeats.turn(7, 70, 1), None);
        let heard = heartbeats.turn(8, 70, 1).unwrap();
        assert_eq!((heard.epoch, heard.first, heard.gateway), (7, 64, 1));
        let mut numbers = Vec::new();
        for (at, byte) in heard.bits.iter().enumerate() {
            numbers.extend(
                (0..8).filter(|bit| byte >> (7 - bit) & 1 == 1).map(|bit| 64 + at * 8 + bit),
            );
        }
        assert_eq!(numbers, [64, 71, 9000]);
        assert_eq!(heartbeats.turn(9, 70, 1).unwrap().bits, Vec::<u8>::new());
    }

    #[test]
    fn a_number_far_beyond_any_line_takes_no_memory() {
        let heartbeats = Heartbeats::default();
        heartbeats.turn(7, 70, 1);
        heartbeats.mark(1 << 53);
        heartbeats.mark(70 + MAX_NUMBERS);
        assert_eq!(heartbeats.current.read().words.len(), 0);
    }
}
