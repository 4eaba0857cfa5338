//! Ranks from an immutable picture of the line: number in, rank out, in constant time.
//!
//! `rank(s) = s - head + 1 - gone numbers from head to s`, with the gone numbers counted up to
//! every 512th. A picture of a line of a million people is 125 KB and the counts add a sixteenth.

/// An immutable picture of one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranks {
    head: u64,
    tail: u64,
    /// Number of the first bit: `head` rounded down to a multiple of 8.
    first: u64,
    /// Gone bits from `first`, most significant bit first.
    words: Box<[u64]>,
    /// Gone bits before each block of [`BLOCK_WORDS`] words.
    before: Box<[u32]>,
    gone: u64,
}

const BLOCK_WORDS: usize = 8;

/// How many of the first `bits` bits of `word` are set, 0 to 64 bits.
const fn ones_in_front(word: u64, bits: u64) -> u32 {
    if bits == 0 { 0 } else { (word >> (64 - bits)).count_ones() }
}

impl Ranks {
    /// A picture of the line from `head` to `tail`; `gone` as in
    /// [`Synced::gone`](super::command::Synced::gone). Bits outside `head..=tail` are ignored.
    #[must_use]
    pub fn new(head: u64, tail: u64, gone: &[u8]) -> Self {
        let first = head - head % 8;
        let mut words: Vec<u64> = gone
            .chunks(8)
            .map(|chunk| {
                let mut bytes = [0; 8];
                bytes[..chunk.len()].copy_from_slice(chunk);
                u64::from_be_bytes(bytes)
            })
            .collect();
        // Clear what is before the head and behind the tail.
        if let Some(word) = words.first_mut() {
            *word &= u64::MAX >> (head - first);
        }
        let bits = (tail + 1).saturating_sub(first);
        words.truncate(usize::try_from(bits.div_ceil(64)).unwrap_or(usize::MAX));
        if let Some(word) = words.get_mut(usize::try_from(bits / 64).unwrap_or(usize::MAX)) {
            *word &= !(u64::MAX >> (bits % 64));
        }
        let mut gone = 0;
        let mut before = Vec::with_capacity(words.len().div_ceil(BLOCK_WORDS));
        for block in words.chunks(BLOCK_WORDS) {
            before.push(gone);
            gone += block.iter().map(|word| word.count_ones()).sum::<u32>();
        }
        let gone = u64::from(gone);
        Self { head, tail, first, words: words.into(), before: before.into(), gone }
    }

    /// The same people after the head moved on to `head` and the tail to `tail`: what was not
    /// changed otherwise need not be copied again.
    #[must_use]
    pub fn moved(&self, head: u64, tail: u64) -> Self {
        let skip = usize::try_from((head - head % 8).saturating_sub(self.first) / 8);
        let bytes = self.gone_bytes();
        let bytes = skip.ok().and_then(|skip| bytes.get(skip..)).unwrap_or_default();
        Self::new(head, tail, bytes)
    }

    /// The gone bits from the byte that holds the head, as [`Ranks::new`] takes them.
    #[must_use]
    pub fn gone_bytes(&self) -> Vec<u8> {
        let bytes = (self.tail + 1).saturating_sub(self.first).div_ceil(8);
        let all = self.words.iter().flat_map(|word| word.to_be_bytes());
        all.take(usize::try_from(bytes).unwrap_or(usize::MAX)).collect()
    }

    /// The next number to be called.
    #[must_use]
    pub const fn head(&self) -> u64 {
        self.head
    }

    /// The last number given.
    #[must_use]
    pub const fn tail(&self) -> u64 {
        self.tail
    }

    /// Whether the number counts as gone in this picture. `false` outside the line.
    #[must_use]
    pub fn is_gone(&self, seq: u64) -> bool {
        if seq < self.head || seq > self.tail {
            return false;
        }
        let at = seq - self.first;
        let word = usize::try_from(at / 64).ok().and_then(|index| self.words.get(index));
        word.is_some_and(|word| word << (at % 64) >> 63 == 1)
    }

    /// The 1-based rank of `seq`, or `None` when the head has passed it. A number younger than the
    /// picture gets the rank it has if none of those between left.
    #[must_use]
    pub fn rank(&self, seq: u64) -> Option<u64> {
        let ahead = seq.checked_sub(self.head)?;
        let gone = if seq > self.tail { self.gone } else { self.gone_before(seq) };
        Some(ahead + 1 - gone.min(ahead))
    }

    /// Gone numbers from `head` up to but without `seq`.
    fn gone_before(&self, seq: u64) -> u64 {
        let at = seq - self.first;
        let index = usize::try_from(at / 64).unwrap_or(usize::MAX);
        let Some(word) = self.words.get(index) else { return self.gone };
        let block = index / BLOCK_WORDS;
        let full: u32 =
            self.words[block * BLOCK_WORDS..index].iter().map(|word| word.count_ones()).sum();
        u64::from(self.before[block] + full + ones_in_front(*word, at % 64))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ranks_count_those_ahead_who_are_still_there(
            head in 1u64..200,
            gone in prop::collection::vec(any::<bool>(), 0..2000),
            on in 0u64..300,
        ) {
            let tail = head + gone.len() as u64 - 1;
            let first = head - head % 8;
            let mut bytes = vec![0xffu8; usize::try_from((tail + 1 - first).div_ceil(8)).unwrap()];
            for (at, gone) in gone.iter().enumerate() {
                let bit = usize::try_from(head - first).unwrap() + at;
                if !gone { bytes[bit / 8] &= !(0x80 >> (bit % 8)); }
            }
            let ranks = Ranks::new(head, tail, &bytes);
            let mut ahead = 0;
            for (seq, gone) in (head..).zip(&gone) {
                prop_assert_eq!(ranks.is_gone(seq), *gone);
                prop_assert_eq!(ranks.rank(seq), Some(ahead + 1));
                if !gone { ahead += 1; }
            }
            prop_assert_eq!(ranks.rank(tail + 1), Some(ahead + 1));
            prop_assert_eq!(ranks.rank(tail + 5), Some(ahead + 5));
            prop_assert_eq!(ranks.rank(head - 1), None);

            let (new_head, new_tail) = (head + on.min(gone.len() as u64), tail + 70);
            let moved = ranks.moved(new_head, new_tail);
            let mut ahead = 0;
            for seq in new_head..=new_tail {
                prop_assert_eq!(moved.rank(seq), Some(ahead + 1));
                if !ranks.is_gone(seq) { ahead += 1; }
            }
        }
    }

    #[test]
    fn an_empty_line_gives_the_first_rank_to_the_next() {
        let ranks = Ranks::new(5, 4, &[]);
        assert_eq!(ranks.rank(5), Some(1));
        assert_eq!(ranks.rank(4), None);
        assert!(!ranks.is_gone(5));
    }
}
