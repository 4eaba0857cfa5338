//! What a store is asked to do to one queue atomically, and what it answers.
//!
//! The types are shared by the pure [`Line`](super::line::Line), the store port and both adapters;
//! none of them says how the work is done.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;

use super::settings::Settings;
use super::{Place, UserTag};

/// Versions of one queue's parts. Each only grows within an incarnation; 0 means "never seen".
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Versions {
    /// Grows with every change of the line or the active set.
    pub all: u64,
    /// Grows when a gone bit changes.
    pub gone: u64,
    /// Grows when the late lane changes.
    pub late: u64,
    /// Grows when the settings change.
    pub settings: u64,
    /// Grows when an active token is revoked.
    pub revoked: u64,
}

/// An answer together with [`Versions::all`] right after it: a local snapshot at least that new
/// contains the change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Versioned<T> {
    /// [`Versions::all`] after the command.
    pub version: u64,
    /// The queue's incarnation, part of every token.
    pub incarnation: u32,
    /// The store's clock when it answered.
    pub at: Timestamp,
    /// The answer itself.
    pub value: T,
}

/// Whether a command found the user already there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Freshness {
    /// The command made a new place.
    New,
    /// The user had this place before.
    Known,
}

/// What entering led to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entered {
    /// A place in the line.
    Waiting(Place, Freshness),
    /// A place in the late lane: the user missed a turn and came back in time.
    Late(Place),
    /// Admitted, until the given moment unless it is claimed.
    Active {
        /// The place.
        place: Place,
        /// End of the claim window or of the active time.
        until: Timestamp,
        /// Whether a first use has been made of it.
        claimed: bool,
        /// New when this very call admitted the user by the fast track.
        freshness: Freshness,
    },
    /// The queue has not opened yet.
    NotOpen {
        /// When it will.
        opens_at: Timestamp,
    },
    /// The queue is closed for good.
    Closed,
    /// The line is being rebuilt from its holders' tokens: newcomers come after them.
    Rebuilding,
    /// `max_waiting` users wait already, or the numbers are used up.
    Full,
}

/// Why one asks for a user's standing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum Purpose {
    /// To show it. Never claims and never prolongs.
    Poll,
    /// To let a request through: claims an unclaimed place, and prolongs a sliding one.
    Pass,
}

/// Where a token stands now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// In the line. An absent waiter became present by asking.
    Waiting(Place),
    /// In the late lane: missed a turn, came back in time.
    Late(Place),
    /// Admitted.
    Active {
        /// The place.
        place: Place,
        /// End of the claim window, or of the active time.
        until: Timestamp,
        /// Whether a first use has been made of it.
        claimed: bool,
    },
    /// The token stands nowhere any more.
    Gone(Gone),
}

/// How a token ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gone {
    /// Left, expelled, replaced by a newer one, or never known here.
    Unknown,
    /// Its active time is over.
    Expired,
    /// Its turn came and went, and so did the grace.
    Missed,
    /// The queue closed before its turn came.
    Closed,
    /// The store may have lost this place: a genuine token brings it back.
    Lost,
}

/// Whether leaving found anything to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Left {
    /// The place or the slot was given back.
    Gave,
    /// There was nothing, or another token of the user is the live one.
    Nothing,
}

/// Who asks for an admission.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum AdmitBy {
    /// The periodic tick: capacity, rate, mode and schedule apply.
    Tick,
    /// An operator: capacity and schedule apply; rate and a pause do not.
    Operator,
}

/// How many really moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Admitted {
    /// Users admitted by this call, late ones included.
    pub count: u64,
    /// Of these, from the late lane.
    pub late: u64,
    /// The next number to be called.
    pub head: u64,
}

/// The signs of life one gateway saw in one epoch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Heartbeat {
    /// Which epoch: store time in milliseconds divided by
    /// [`EPOCH_MS`](super::settings::EPOCH_MS).
    pub epoch: u64,
    /// Which gateway, so that a missing upload is noticed.
    pub gateway: u64,
    /// The number of the first bit; a multiple of 8.
    pub first: u64,
    /// One bit per number from `first`, most significant bit first; 1 = heard from. May be empty.
    pub bits: Vec<u8>,
}

/// What a reaping led to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reaped {
    /// This many waiters were marked absent.
    Absent(u64),
    /// The epoch had been judged before.
    Already,
    /// The signs of life are incomplete: a gateway's upload is missing.
    Incomplete,
}

/// The furthest that anybody has seen a line go. A store that has lost its last moments is
/// behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Sighting {
    /// The next number to be called; 0 = not known. Counts only where the line itself is lost.
    pub head: u64,
    /// The last number given; 0 = not known.
    pub tail: u64,
    /// When the newest token was issued.
    pub issued: Timestamp,
}

/// Whether the server that holds a queue is the one it was fenced on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Server {
    /// It is.
    Same,
    /// It is another one, or the same after a restart: its last moments may be missing.
    New,
}

/// What a genuine token proves about a place, whatever the store remembers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Evidence {
    /// The place.
    pub place: Place,
    /// When the token was issued.
    pub issued: Timestamp,
    /// The lease it proves.
    pub lease: Option<ProvenLease>,
}

/// A lease as a token proves it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProvenLease {
    /// When it ends.
    pub until: Timestamp,
    /// Whether the place has been used.
    pub claimed: bool,
}

/// An active place that a gateway has seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HeldLease {
    /// Whose it is.
    pub owner: UserTag,
    /// The place.
    pub place: Place,
    /// Until when.
    pub lease: ProvenLease,
}

/// What is left of a line that its store has lost.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Recollection {
    /// Its incarnation.
    pub incarnation: u32,
    /// The furthest it was seen to go.
    pub sighting: Sighting,
    /// A gateway's copy of it. Without one it is rebuilt from its holders' tokens.
    pub copy: Option<LineCopy>,
}

/// A gateway's copy of a line.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct LineCopy {
    /// Gone bits as in [`Synced::gone`], from the head of the sighting to its tail.
    pub gone: Vec<u8>,
    /// Numbers in the late lane.
    pub late: BTreeSet<u64>,
    /// Users ever admitted.
    pub admitted: u64,
    /// Versions, so that no other copy takes the rebuilt line for one it knows.
    pub versions: Versions,
    /// Where the head stood in the last seconds: (second, head), both ascending. Who was passed
    /// since then may still come to the late lane.
    pub passed: Vec<(u64, u64)>,
}

/// What came of an attempt to rebuild a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rebuilt {
    /// The line is there again.
    Done,
    /// The store has this incarnation.
    Known,
    /// The store knows that this incarnation is over, or its own line is too old to give way.
    Refused,
}

/// Who sets settings.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Origin {
    /// The configuration file, whose text for this queue has this hash. Wins only when the hash
    /// differs from the one the store remembers.
    File(u64),
    /// An operator at run time. Always wins.
    Operator,
}

/// What configuring led to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Configured {
    /// The queue was created.
    Created,
    /// The settings were replaced.
    Changed,
    /// The store kept the settings it had.
    Kept,
}

/// The state a gateway copies. Parts whose version the caller already knows are `None`.
#[derive(Clone, PartialEq, Debug)]
pub struct Synced {
    /// The store's clock.
    pub now: Timestamp,
    /// The queue's incarnation.
    pub incarnation: u32,
    /// Versions of all parts.
    pub versions: Versions,
    /// The next number to be called.
    pub head: u64,
    /// The last number given.
    pub tail: u64,
    /// Present waiters in the line.
    pub live: u64,
    /// Tokens active now.
    pub active: u64,
    /// Users ever admitted in this incarnation.
    pub admitted: u64,
    /// Gone bits from the byte that holds `head` to the byte that holds `tail`, most significant
    /// bit first; bit 0 is number `head - head % 8`.
    pub gone: Option<Vec<u8>>,
    /// Numbers in the late lane, ascending.
    pub late: Option<BTreeSet<u64>>,
    /// The settings.
    pub settings: Option<Settings>,
    /// Numbers revoked and not yet past their end.
    pub revoked: Option<BTreeSet<u64>>,
    /// What may have been lost, and what is done about it.
    pub recovery: RecoveryState,
}

/// What a store may have lost of a line, and what is done about it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RecoveryState {
    /// How often the line moved to a new server. Whoever sees it grow says what it knows.
    pub fences: u64,
    /// Ranges of numbers, both ends included, ascending, that may have been given without this
    /// store knowing to whom.
    pub lost: Vec<(u64, u64)>,
    /// Whether the line is being rebuilt from its holders' tokens.
    pub rebuilding: bool,
    /// First tokens issued before this moment bring nothing back.
    pub issued_floor: Timestamp,
    /// Until when nobody is admitted, so that lost leases can be brought back first.
    pub admit_after: Timestamp,
}
