//! Gone bits: one bit per number in line, most significant bit first as Redis stores them.
//!
//! Bits beyond the stored length are 0 (present), so a line of people who all stay costs nothing.

/// A growing bitmap.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Bitmap {
    words: Vec<u64>,
}

const TOP: u64 = 1 << 63;

/// Ones from bit `from` (0 = most significant) to the end of a word.
const fn tail_mask(from: u64) -> u64 {
    u64::MAX >> from
}

impl Bitmap {
    /// A bitmap with `bytes` from bit `at` on, a multiple of 8, and zeros before.
    pub(crate) fn of_bytes(at: u64, bytes: &[u8]) -> Self {
        let mut bitmap = Self::default();
        for (bit, byte) in (at..).step_by(8).zip(bytes) {
            let index = usize::try_from(bit / 64).unwrap_or(usize::MAX);
            if index >= bitmap.words.len() {
                bitmap.words.resize(index + 1, 0);
            }
            bitmap.words[index] |= u64::from(*byte) << (56 - bit % 64);
        }
        bitmap
    }

    /// One bit.
    pub(crate) fn get(&self, at: u64) -> bool {
        self.word(at / 64) & (TOP >> (at % 64)) != 0
    }

    /// Sets a bit and returns what it was.
    pub(crate) fn set(&mut self, at: u64, value: bool) -> bool {
        let index = usize::try_from(at / 64).unwrap_or(usize::MAX);
        if index >= self.words.len() {
            if !value {
                return false;
            }
            self.words.resize(index + 1, 0);
        }
        let bit = TOP >> (at % 64);
        let word = &mut self.words[index];
        let old = *word & bit != 0;
        if value {
            *word |= bit;
        } else {
            *word &= !bit;
        }
        old
    }

    /// How many bits are 0 from `from` up to, but without, `to`.
    pub(crate) fn zeros(&self, from: u64, to: u64) -> u64 {
        // Only stored words can hold ones.
        let stored = (self.words.len() as u64).saturating_mul(64).min(to);
        let mut ones = 0;
        for index in from / 64..stored.div_ceil(64) {
            let mut word = self.word(index);
            if index == from / 64 {
                word &= tail_mask(from % 64);
            }
            if index == to / 64 {
                word &= !tail_mask(to % 64);
            }
            ones += u64::from(word.count_ones());
        }
        to.saturating_sub(from) - ones
    }

    /// The first 0 at or after `from`. Always exists: everything beyond the length is 0.
    pub(crate) fn next_zero(&self, from: u64) -> u64 {
        let mut word = from / 64;
        let mut zeros = !self.word(word) & tail_mask(from % 64);
        while zeros == 0 {
            word += 1;
            zeros = !self.word(word);
        }
        word * 64 + u64::from(zeros.leading_zeros())
    }

    /// Forgets the first `bits` bits, a multiple of 64.
    pub(crate) fn drop_front(&mut self, bits: u64) {
        let words = usize::try_from(bits / 64).unwrap_or(usize::MAX).min(self.words.len());
        self.words.drain(..words);
        self.words.shrink_to_fit();
    }

    /// The bytes that hold bits `from` to `to`, both included, zeros where nothing is stored.
    /// `from` must be a multiple of 8.
    pub(crate) fn bytes(&self, from: u64, to: u64) -> Vec<u8> {
        (from / 8..=to / 8)
            .map(|byte| self.word(byte / 8).to_be_bytes()[usize::try_from(byte % 8).unwrap_or(0)])
            .collect()
    }

    fn word(&self, index: u64) -> u64 {
        usize::try_from(index).ok().and_then(|index| self.words.get(index)).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_a_list_of_bools(
            sets in prop::collection::vec((0u64..700, any::<bool>()), 0..200),
            from in 0u64..700,
            cut in 0u64..10,
        ) {
            let mut bitmap = Bitmap::default();
            let mut model = vec![false; 1500];
            for (at, value) in sets {
                let old = std::mem::replace(&mut model[usize::try_from(at).unwrap()], value);
                prop_assert_eq!(bitmap.set(at, value), old);
            }
            for (at, bit) in (0u64..1500).zip(&model) {
                prop_assert_eq!(bitmap.get(at), *bit);
            }
            let copy = Bitmap::of_bytes(64, &bitmap.bytes(64, 1400));
            prop_assert!((64..1400).all(|at| copy.get(at) == bitmap.get(at)));
            let zero = (from..1500).find(|at| !model[usize::try_from(*at).unwrap()]).unwrap();
            prop_assert_eq!(bitmap.next_zero(from), zero);
            for to in [from, from + 1, from + 63, from + 64, 900] {
                let zeros = (from..to).filter(|at| !model[usize::try_from(*at).unwrap()]).count();
                prop_assert_eq!(bitmap.zeros(from, to), zeros as u64);
            }
            let bytes = bitmap.bytes(from - from % 8, 1000);
            for (at, bit) in model.iter().enumerate().take(1001).skip(usize::try_from(from).unwrap()) {
                let offset = at - usize::try_from(from - from % 8).unwrap();
                prop_assert_eq!(bytes[offset / 8] >> (7 - offset % 8) & 1 == 1, *bit);
            }
            bitmap.drop_front(cut * 64);
            for at in cut * 64..800 {
                let bit = model[usize::try_from(at).unwrap()];
                prop_assert_eq!(bitmap.set(at - cut * 64, bit), bit);
            }
        }
    }
}
