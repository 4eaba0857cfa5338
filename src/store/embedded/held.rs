//! One queue under its lock: the line, and the records of what changed it that are not saved yet.
//!
//! Every command goes through here. A command that changed nothing leaves no record; which one
//! did is told by comparing footprints, so no rule of the line is repeated.

use std::borrow::Cow;

use crate::clock::Timestamp;
use crate::queue::command::{
    AdmitBy, Admitted, Configured, Entered, Evidence, Heartbeat, HeldLease, Left, Origin, Purpose,
    Reaped, Rebuilt, Recollection, Server, Sighting, Standing, Versioned,
};
use crate::queue::line::{Line, Trace};
use crate::queue::settings::Settings;
use crate::queue::{Seq, UserTag};

use super::journal::{Command, Record};

/// What a line is made of, where there was none.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewLine<'a> {
    pub(super) incarnation: u32,
    /// The last incarnation that is known of the queue; 0 = none.
    pub(super) previous: u32,
    pub(super) settings: &'a Settings,
    pub(super) text_hash: Option<u64>,
}

impl NewLine<'_> {
    /// The line.
    pub(super) fn line(&self, now: Timestamp) -> Line {
        Line::new(self.incarnation, self.settings.clone(), self.text_hash, now).after(self.previous)
    }
}

/// A line and its unsaved records.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) line: Line,
    /// Records since the last ones were taken away to be saved, in order; `None` when the line is
    /// kept in memory only.
    records: Option<Vec<u8>>,
    /// Records ever made by this process.
    count: u64,
    /// The latest moment in them, or in what was read from the disk.
    recorded: Timestamp,
}

impl Held {
    /// A line that ends with the process.
    pub(super) const fn in_memory(line: Line) -> Self {
        Self { line, records: None, count: 0, recorded: Timestamp::EPOCH }
    }

    /// A line whose changes are written down.
    pub(super) const fn journaled(line: Line) -> Self {
        let recorded = line.last_now();
        Self { line, records: Some(Vec::new()), count: 0, recorded }
    }

    /// How many records there have been, saved or not.
    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    /// Bytes of records that nobody has taken yet.
    pub(super) fn unsaved(&self) -> usize {
        self.records.as_ref().map_or(0, Vec::len)
    }

    /// Takes the unsaved records away.
    pub(super) fn take(&mut self) -> Vec<u8> {
        self.records.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn note(&mut self, command: Command<'_>) {
        let Some(records) = &mut self.records else { return };
        // Not the clock's time but the line's: it may have been ahead already.
        self.recorded = self.line.last_now();
        Record { now: self.recorded, command }.append_to(records);
        self.count += 1;
    }

    /// Writes down how the line began.
    pub(super) fn created(&mut self, new: &NewLine<'_>) {
        let NewLine { incarnation, previous, settings, text_hash } = *new;
        let settings = Cow::Borrowed(settings);
        self.note(Command::Create { incarnation, previous, settings, text_hash });
    }

    /// Writes down the time, if the line has seen a later one than its records say.
    pub(super) fn observed(&mut self) {
        if self.line.last_now() > self.recorded {
            self.note(Command::Observe);
        }
    }

    pub(super) fn configure(
        &mut self,
        settings: &Settings,
        origin: &Origin,
        now: Timestamp,
    ) -> Configured {
        let configured = self.line.configure(settings, origin, now);
        if configured != Configured::Kept {
            let (settings, origin) = (Cow::Borrowed(settings), Cow::Borrowed(origin));
            self.note(Command::Configure { settings, origin });
        }
        configured
    }

    pub(super) fn enter(&mut self, users: &[UserTag], now: Timestamp) -> Versioned<Vec<Entered>> {
        let before = self.line.footprint();
        let entered = self.line.enter(users, now);
        if self.line.footprint() != before {
            self.note(Command::Enter { users: Cow::Borrowed(users) });
        }
        entered
    }

    pub(super) fn standing(
        &mut self,
        user: UserTag,
        seq: Option<Seq>,
        purpose: Purpose,
        now: Timestamp,
    ) -> Versioned<Standing> {
        let before = self.line.trace(user, now);
        let standing = self.line.standing(user, seq, purpose, now);
        if self.line.trace(user, now) != before {
            self.note(Command::Standing { user, seq, purpose });
        }
        standing
    }

    pub(super) fn leave(
        &mut self,
        user: UserTag,
        seq: Option<Seq>,
        now: Timestamp,
    ) -> Versioned<Left> {
        let before = self.line.trace(user, now);
        let left = self.line.leave(user, seq, now);
        if self.line.trace(user, now) != before {
            self.note(Command::Leave { user, seq });
        }
        left
    }

    pub(super) fn admit(&mut self, max: u64, by: AdmitBy, now: Timestamp) -> Versioned<Admitted> {
        let before = self.line.footprint();
        let admitted = self.line.admit(max, by, now);
        if self.line.footprint() != before {
            self.note(Command::Admit { max, by });
        }
        admitted
    }

    pub(super) fn heartbeat(&mut self, heartbeat: &Heartbeat, now: Timestamp) {
        if self.records.is_none() {
            return self.line.heartbeat(heartbeat, now);
        }
        let before = self.line.hearing();
        self.line.heartbeat(heartbeat, now);
        if self.line.hearing() != before {
            self.note(Command::Heartbeat(Cow::Borrowed(heartbeat)));
        }
    }

    pub(super) fn reap(&mut self, now: Timestamp) -> Reaped {
        if self.records.is_none() {
            return self.line.reap(now);
        }
        let before = self.line.hearing();
        let reaped = self.line.reap(now);
        if self.line.hearing() != before {
            self.note(Command::Reap);
        }
        reaped
    }

    pub(super) fn compact(&mut self, keep: u64, now: Timestamp) {
        let before = self.line.footprint();
        self.line.compact(keep, now);
        if self.line.footprint() != before {
            self.note(Command::Compact { keep });
        }
    }

    pub(super) fn fence(
        &mut self,
        seen: &Sighting,
        server: Server,
        gap: u64,
        now: Timestamp,
    ) -> Versioned<()> {
        let before = self.line.footprint();
        let fenced = self.line.fence(seen, server, gap, now);
        if self.line.footprint() != before {
            self.note(Command::Fence { seen: *seen, server, gap });
        }
        fenced
    }

    pub(super) fn revive(
        &mut self,
        user: UserTag,
        evidence: &Evidence,
        now: Timestamp,
    ) -> Versioned<Standing> {
        let before = self.line.trace(user, now);
        let revived = self.line.revive(user, evidence, now);
        if self.line.trace(user, now) != before {
            self.note(Command::Revive { user, evidence: *evidence });
        }
        revived
    }

    pub(super) fn restore(&mut self, leases: &[HeldLease], now: Timestamp) -> Versioned<u64> {
        let traces = |line: &Line| -> Vec<Trace> {
            leases.iter().map(|held| line.trace(held.owner, now)).collect()
        };
        let before = traces(&self.line);
        let restored = self.line.restore(leases, now);
        if traces(&self.line) != before {
            self.note(Command::Restore { leases: Cow::Borrowed(leases) });
        }
        restored
    }

    /// Puts what is left of a lost line into the place of this one.
    pub(super) fn rebuild(
        &mut self,
        (settings, text_hash): (&Settings, Option<u64>),
        from: &Recollection,
        gap: u64,
        now: Timestamp,
    ) -> Rebuilt {
        let compared = self.line.compare(from, now);
        if compared == Rebuilt::Done {
            let superseded = self.line.last_incarnation();
            self.line = Line::rebuilt((settings.clone(), text_hash), from, superseded, gap, now);
            self.rebuilt((settings, text_hash), from, superseded, gap);
        }
        compared
    }

    /// Writes down of what the line was made.
    pub(super) fn rebuilt(
        &mut self,
        (settings, text_hash): (&Settings, Option<u64>),
        from: &Recollection,
        superseded: u32,
        gap: u64,
    ) {
        let (settings, from) = (Cow::Borrowed(settings), Cow::Borrowed(from));
        self.note(Command::Rebuild { settings, text_hash, from, superseded, gap });
    }
}
