//! One queue as the store described it at one moment.

use std::sync::Arc;

use crate::clock::Timestamp;
use crate::queue::command::{RecoveryState, Synced, Versions};
use crate::queue::estimate::Pace;
use crate::queue::settings::Settings;
use crate::queue::snapshot::Ranks;

/// An immutable copy of one queue's state.
#[derive(Clone, Debug)]
pub struct Picture {
    /// The queue's incarnation.
    pub incarnation: u32,
    /// Versions of its parts.
    pub versions: Versions,
    /// Numbers to ranks.
    pub ranks: Ranks,
    /// Present waiters in the line.
    pub live: u64,
    /// Active tokens.
    pub active: u64,
    /// Users ever admitted.
    pub admitted: u64,
    /// Numbers in the late lane, ascending.
    pub late: Arc<[u64]>,
    /// The settings.
    pub settings: Arc<Settings>,
    /// How fast the line moves.
    pub pace: Pace,
    /// What the store may have lost.
    pub recovery: RecoveryState,
    /// When the store was asked, by this gateway's clock: the picture is at least that new.
    pub asked: Timestamp,
}

impl Picture {
    /// The first picture of a queue.
    pub(super) fn first(synced: Synced, pace: Pace, asked: Timestamp) -> Option<Self> {
        let gone = synced.gone.unwrap_or_default();
        Some(Self {
            incarnation: synced.incarnation,
            versions: synced.versions,
            ranks: Ranks::new(synced.head, synced.tail, &gone),
            live: synced.live,
            active: synced.active,
            admitted: synced.admitted,
            late: synced.late.unwrap_or_default().into_iter().collect(),
            settings: Arc::new(synced.settings?),
            pace,
            recovery: synced.recovery,
            asked,
        })
    }

    /// The next picture: parts the store did not send again are taken from this one.
    pub(super) fn next(&self, synced: Synced, pace: Pace, asked: Timestamp) -> Self {
        let ranks = match synced.gone {
            Some(gone) => Ranks::new(synced.head, synced.tail, &gone),
            None if (self.ranks.head(), self.ranks.tail()) == (synced.head, synced.tail) => {
                self.ranks.clone()
            }
            None => self.ranks.moved(synced.head, synced.tail),
        };
        Self {
            incarnation: synced.incarnation,
            versions: synced.versions,
            ranks,
            live: synced.live,
            active: synced.active,
            admitted: synced.admitted,
            late: synced
                .late
                .map_or_else(|| Arc::clone(&self.late), |late| late.into_iter().collect()),
            settings: synced.settings.map_or_else(|| Arc::clone(&self.settings), Arc::new),
            pace,
            recovery: synced.recovery,
            asked,
        }
    }

    /// Waiters in both lanes.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.live + self.late.len() as u64
    }

    /// The 1-based rank of `seq` within the late lane, if it is there.
    #[must_use]
    pub fn late_rank(&self, seq: u64) -> Option<u64> {
        self.late.binary_search(&seq).ok().map(|at| at as u64 + 1)
    }
}
