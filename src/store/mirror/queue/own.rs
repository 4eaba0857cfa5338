//! What happened through this gateway and the newest picture may not show yet.

use std::collections::HashMap;

use super::Picture;

/// What happened through this gateway and the picture may not show yet.
#[derive(Debug, Default)]
pub(super) struct Own {
    /// Numbers that left, with the version that shows it.
    pub(super) left: HashMap<u64, u64>,
    /// The last number that was admitted at once, and its incarnation. Nobody waited then, so
    /// nobody up to it is ahead of anybody.
    pub(super) fast_track: (u32, u64),
}

impl Own {
    pub(super) fn knows_left(&self, seq: u64, picture: &Picture) -> bool {
        self.left.get(&seq).is_some_and(|version| picture.versions.all < *version)
    }

    /// The rank of `seq` in the line, or `None` when its turn has come.
    pub(super) fn rank(&self, seq: u64, picture: &Picture) -> Option<u64> {
        let rank = picture.ranks.rank(seq)?;
        let (incarnation, last) = self.fast_track;
        if incarnation != picture.incarnation {
            return Some(rank);
        }
        seq.checked_sub(last).filter(|behind| *behind > 0).map(|behind| rank.min(behind))
    }
}
