//! The rules of a line, without a clock, a store or a socket.
//!
//! One user's token lives like this; `ACTIVE` covers *called* (admitted, not used yet) and
//! *claimed*:
//!
//! ```text
//!            enter               admit (the head passes)      first use
//!  (none) ─────────► WAITING ───────────────────────► ACTIVE ───────────► ACTIVE ──► gone
//!            │        │  ▲                            called               claimed    (left, expired)
//!            │  silent│  │ heard again                   │ not used in time
//!            │        ▼  │                               ▼
//!            │      absent ───────── head passes ────► missed ─ back in time ─► late lane ─► ACTIVE
//!            └─ fast track (only if nobody waits) ─► ACTIVE
//! ```
//!
//! Order is a number the store hands out; time only expires.

mod bitmap;
mod bucket;
pub mod command;
pub mod definition;
pub mod estimate;
mod heartbeats;
pub mod line;
mod marks;
mod name;
pub mod polling;
pub mod schedule;
pub mod settings;
pub mod snapshot;
mod user;
pub mod view;

use std::fmt;

use crate::clock::Timestamp;

pub use name::{ParameterKind, QueueName, QueueTemplate};
pub use user::{MAX_USER_ID_BYTES, UserId, UserSource, UserTag};

/// A number in line, from 1, handed out by the store in order of arrival. At most 2⁵³ − 1, the
/// greatest whole number a Redis script holds exactly.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct Seq(pub u64);

impl Seq {
    /// The last number a queue can hand out.
    pub const MAX: Self = Self((1 << 53) - 1);
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A place in line: the number, and when its holder entered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Place {
    /// The number.
    pub seq: Seq,
    /// The moment of entry by the store's clock.
    pub entered: Timestamp,
}
