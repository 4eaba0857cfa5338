//! What a user in some standing is told, with an estimate and the time to ask again.

use std::time::Duration;

use crate::queue::command::Gone;
use crate::queue::estimate::Estimate;
use crate::queue::polling::{poll_after, until_opening};
use crate::queue::settings::Mode;
use crate::queue::view::{Status, View};

use super::{LocalQueue, Seen};

impl LocalQueue {
    /// What a user in this standing is told.
    #[must_use]
    pub fn view(&self, seen: Seen) -> View {
        let picture = self.picture.load();
        let settings = &picture.settings;
        let (status, rank, place, expires, estimate) = match seen {
            Seen::Waiting { place, rank, late } => {
                let status = match (late, settings.mode) {
                    (_, Mode::Paused) => Status::Paused,
                    (true, _) => Status::Late,
                    (false, _) => Status::Waiting,
                };
                (status, Some(rank), Some(place), None, picture.pace.estimate(rank))
            }
            Seen::Active { place, until, .. } => {
                (Status::Active, Some(0), Some(place), Some(until), None)
            }
            Seen::Gone(Gone::Closed) => (Status::Closed, None, None, None, None),
            Seen::Gone(Gone::Unknown | Gone::Expired | Gone::Missed | Gone::Lost) => {
                (Status::Over, None, None, None, None)
            }
        };
        View {
            queue: self.name.clone(),
            status,
            rank,
            entered: place.map(|place| place.entered),
            expires,
            poll_after: self.poll_after(rank.unwrap_or(0), estimate),
            estimate,
        }
    }

    /// A view of a state without a place.
    #[must_use]
    pub fn view_of(&self, status: Status) -> View {
        View {
            queue: self.name.clone(),
            status,
            rank: None,
            entered: None,
            expires: None,
            poll_after: match status {
                Status::Joining => Duration::from_secs(1),
                Status::NotOpen { opens_at } => until_opening(
                    opens_at.since(self.now()),
                    &self.picture.load().settings,
                    rand::random(),
                ),
                _ => self.poll_after(0, None),
            },
            estimate: None,
        }
    }

    fn poll_after(&self, rank: u64, estimate: Option<Estimate>) -> Duration {
        poll_after(rank, estimate, &self.picture.load().settings, rand::random())
    }
}
