//! The journal of one queue: the commands that changed it, in the order its lock saw them.
//!
//! [`Line`] is a function of its commands and their times, so playing them again gives the same
//! line. A new command is one variant of [`Command`] and one arm of [`Record::replay`]. Order of
//! variants and fields is part of the format: append, and raise
//! [`FORMAT`](super::database::FORMAT) for anything else. This file decides neither when records
//! are written nor where.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::clock::Timestamp;
use crate::queue::command::{
    AdmitBy, Evidence, Heartbeat, HeldLease, Origin, Purpose, Recollection, Server, Sighting,
};
use crate::queue::line::Line;
use crate::queue::settings::Settings;
use crate::queue::{Seq, UserTag};

use super::held::NewLine;

/// One command, and the time it was carried out at.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) struct Record<'a> {
    pub(super) now: Timestamp,
    pub(super) command: Command<'a>,
}

/// What changed a queue.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(super) enum Command<'a> {
    /// The queue was created: the first record of its life, unless that is a rebuild.
    Create {
        incarnation: u32,
        previous: u32,
        settings: Cow<'a, Settings>,
        text_hash: Option<u64>,
    },
    Configure {
        settings: Cow<'a, Settings>,
        origin: Cow<'a, Origin>,
    },
    Enter {
        users: Cow<'a, [UserTag]>,
    },
    Standing {
        user: UserTag,
        seq: Option<Seq>,
        purpose: Purpose,
    },
    Leave {
        user: UserTag,
        seq: Option<Seq>,
    },
    Admit {
        max: u64,
        by: AdmitBy,
    },
    Heartbeat(Cow<'a, Heartbeat>),
    Reap,
    Compact {
        keep: u64,
    },
    /// The queue has seen this moment and nothing else has changed since the last record: kept at
    /// a clean stop, so that its time does not run backwards.
    Observe,
    Fence {
        seen: Sighting,
        server: Server,
        gap: u64,
    },
    Revive {
        user: UserTag,
        evidence: Evidence,
    },
    Restore {
        leases: Cow<'a, [HeldLease]>,
    },
    /// Another line takes the place of this one, or of none.
    Rebuild {
        settings: Cow<'a, Settings>,
        text_hash: Option<u64>,
        from: Cow<'a, Recollection>,
        superseded: u32,
        gap: u64,
    },
}

/// Why a journal cannot be played.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReplayError {
    #[error("a record cannot be read")]
    Unreadable(#[from] postcard::Error),
    #[error("it does not begin with the creation of the queue")]
    NoBeginning,
    #[error("the queue is created twice in it")]
    TwoBeginnings,
}

impl Record<'_> {
    /// Appends the record to `bytes`.
    pub(super) fn append_to(&self, bytes: &mut Vec<u8>) {
        // A vector takes everything, and the types above have no form that cannot be written.
        let _ = postcard::to_io(self, bytes);
    }

    /// Carries the command out again.
    fn replay(self, on: Option<Line>) -> Result<Line, ReplayError> {
        let now = self.now;
        let (mut line, command) = match (on, self.command) {
            (None, Command::Create { incarnation, previous, settings, text_hash }) => {
                let settings = &settings;
                return Ok(NewLine { incarnation, previous, settings, text_hash }.line(now));
            }
            (_, Command::Rebuild { settings, text_hash, from, superseded, gap }) => {
                let declared = (settings.into_owned(), text_hash);
                return Ok(Line::rebuilt(declared, &from, superseded, gap, now));
            }
            (Some(_), Command::Create { .. }) => return Err(ReplayError::TwoBeginnings),
            (None, _) => return Err(ReplayError::NoBeginning),
            (Some(line), command) => (line, command),
        };
        match command {
            Command::Create { .. } | Command::Rebuild { .. } => {}
            Command::Configure { settings, origin } => {
                line.configure(&settings, &origin, now);
            }
            Command::Enter { users } => {
                line.enter(&users, now);
            }
            Command::Standing { user, seq, purpose } => {
                line.standing(user, seq, purpose, now);
            }
            Command::Leave { user, seq } => {
                line.leave(user, seq, now);
            }
            Command::Admit { max, by } => {
                line.admit(max, by, now);
            }
            Command::Heartbeat(heartbeat) => line.heartbeat(&heartbeat, now),
            Command::Reap => {
                line.reap(now);
            }
            Command::Compact { keep } => line.compact(keep, now),
            Command::Observe => line.observe(now),
            Command::Fence { seen, server, gap } => {
                line.fence(&seen, server, gap, now);
            }
            Command::Revive { user, evidence } => {
                line.revive(user, &evidence, now);
            }
            Command::Restore { leases } => {
                line.restore(&leases, now);
            }
        }
        Ok(line)
    }
}

/// Plays `bytes`, whole records one after the other, on what was there before.
pub(super) fn replay(
    mut line: Option<Line>,
    mut bytes: &[u8],
) -> Result<Option<Line>, ReplayError> {
    while !bytes.is_empty() {
        let (record, rest) = postcard::take_from_bytes::<Record<'_>>(bytes)?;
        line = Some(record.replay(line)?);
        bytes = rest;
    }
    Ok(line)
}
