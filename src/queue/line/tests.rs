//! Stories and properties of one line.
//!
//! The stories say one promise each; the properties run random commands on the line and on a naive
//! list of people and compare every answer; the sale replays twenty thousand shoppers.

mod model;
mod properties;
mod sale;
mod stories;

use super::*;

/// A Sunday evening, at the start of an epoch.
const START_MS: u64 = 1_764_540_000_000;

/// User number `n`.
fn user(n: u64) -> UserTag {
    UserTag(n.to_be_bytes())
}

/// What must hold between any two commands, whatever they were.
fn check_invariants(line: &Line) -> Result<(), String> {
    let now = line.last_now;
    let mut bits = line.gone.clone();
    let holders: HashMap<u64, &Entry> =
        line.users.values().map(|entry| (entry.place.seq.0, entry)).collect();
    let waiting: Vec<u64> =
        (line.head..=line.tail).filter(|seq| !bits.set(seq - line.base, false)).collect();
    let ends: BTreeSet<_> = line.active.iter().map(|(seq, until)| (*until, *seq)).collect();
    let rules = [
        (line.base.is_multiple_of(64) && line.base <= line.head, "the base is behind the head"),
        (line.head <= line.tail + 1, "the head is at most one ahead of the tail"),
        (line.live == waiting.len() as u64, "live counts the present waiters"),
        (holders.len() == line.users.len(), "no two users hold one number"),
        (
            waiting.iter().all(|seq| holders.contains_key(seq) || line.recovery.is_lost(*seq)),
            "every present waiter has a holder",
        ),
        (line.late.iter().all(|seq| *seq < line.head), "late numbers have been passed"),
        (
            line.late.iter().all(|seq| {
                line.recovery.is_lost(*seq)
                    || holders
                        .get(seq)
                        .is_some_and(|entry| entry.was_late && entry.claimed.is_none())
            }),
            "every late number has a holder who has had no turn yet",
        ),
        (
            line.active.iter().filter(|(_, until)| **until > now).all(|(seq, _)| {
                (*seq < line.head || line.gone.get(seq - line.base)) && !line.late.contains(seq)
            }),
            "nobody is active and waiting at once",
        ),
        (ends == line.ends, "the ends agree with the active set"),
        (
            line.users.values().all(|entry| entry.place.seq.0 <= line.tail),
            "numbers end at the tail",
        ),
    ];
    rules.into_iter().find(|(holds, _)| !holds).map_or(Ok(()), |(_, rule)| Err(rule.to_owned()))
}
