//! What the journal, the file and the thread promise, each by itself: a journal plays to the same
//! line, a disk that fails loses nothing that was promised, and a crash at any moment leaves a
//! legal state behind.

mod crash;
mod failing;
mod faulty;
mod format;
mod replay;

use std::time::Duration;

use rand::RngExt;
use rand::rngs::StdRng;

use super::journal::Command;
use super::*;
use crate::queue::Place;
use crate::queue::command::{LineCopy, ProvenLease};
use crate::queue::settings::{EPOCH_MS, Mode, Rate, Renew};
use crate::store::Durability;

use std::borrow::Cow;

/// The beginning of a heartbeat epoch.
const START: Timestamp = Timestamp::from_millis(1_800_000_000_000);

fn tag(number: u64) -> UserTag {
    UserTag(number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes())
}

fn name(text: &str) -> QueueName {
    QueueName::new(text).unwrap()
}

fn disk_settings(path: &std::path::Path, durability: Durability) -> DiskSettings {
    DiskSettings { path: path.to_owned(), durability }
}

const FAST: Durability = Durability::Async { commit_interval: Duration::from_millis(1) };

/// Settings under which anything may happen.
fn settings(rng: &mut StdRng) -> Settings {
    let seconds = Duration::from_secs;
    let mut settings = Settings::new([0, 1, 3, 20][rng.random_range(0..4)]);
    settings.rate = match rng.random_range(0..3) {
        0 => Rate::Unlimited,
        1 => Rate::MicroPerMs(rng.random_range(1..2000)),
        _ => Rate::MicroPerMs(rng.random_range(2000..200_000)),
    };
    settings.active_ttl = Duration::from_millis(rng.random_range(1000..100_000));
    settings.active_max = settings.active_ttl + seconds(rng.random_range(0..200));
    settings.claim_ttl = settings.active_ttl.min(seconds(rng.random_range(1..60)));
    settings.renew = if rng.random_bool(0.5) { Renew::Fixed } else { Renew::Sliding };
    settings.waiting_ttl = seconds(rng.random_range(60..190));
    settings.late_grace = seconds([0, 1, 30, 300][rng.random_range(0..4)]);
    settings.max_waiting = [1, 10, 10_000][rng.random_range(0..3)];
    settings.mode = match rng.random_range(0..20) {
        0 => Mode::Closed,
        1 => Mode::Paused,
        2 => Mode::PassAll,
        3..7 => Mode::QueueAll,
        _ => Mode::Auto,
    };
    settings
}

/// A command of `users` users: sensible, refused, odd.
fn command(rng: &mut StdRng, users: u64, now: Timestamp) -> Command<'static> {
    let user = tag(rng.random_range(0..users));
    let seq = rng.random_bool(0.3).then(|| Seq(rng.random_range(0..users * 2)));
    let purpose = if rng.random_bool(0.5) { Purpose::Poll } else { Purpose::Pass };
    match rng.random_range(0..100) {
        0..25 => {
            let many = rng.random_range(1..5);
            let users = (0..many).map(|_| tag(rng.random_range(0..users))).collect();
            Command::Enter { users: Cow::Owned(users) }
        }
        25..50 => Command::Standing { user, seq, purpose },
        50..60 => Command::Leave { user, seq },
        60..75 => {
            let max = [0, 1, 3, 1000, u64::MAX][rng.random_range(0..5)];
            let by = if rng.random_bool(0.8) { AdmitBy::Tick } else { AdmitBy::Operator };
            Command::Admit { max, by }
        }
        75..85 => {
            let epoch = (now.as_millis() / EPOCH_MS + 1).saturating_sub(rng.random_range(0..5));
            let first = [0, 8, 64, 3, 1 << 40][rng.random_range(0..5)];
            let bits = (0..rng.random_range(0..12)).map(|_| rng.random()).collect();
            let gateway = rng.random_range(1..3);
            Command::Heartbeat(Cow::Owned(Heartbeat { epoch, gateway, first, bits }))
        }
        85..92 => Command::Reap,
        92..94 => recovery(rng, users, now),
        94..97 => Command::Compact { keep: [0, 10, 64, u64::MAX][rng.random_range(0..4)] },
        _ => {
            let origin = match rng.random_range(0..4) {
                0 => Origin::Operator,
                hash => Origin::File(hash),
            };
            let settings = settings(rng);
            Command::Configure { settings: Cow::Owned(settings), origin: Cow::Owned(origin) }
        }
    }
}

/// A command after a loss.
fn recovery(rng: &mut StdRng, users: u64, now: Timestamp) -> Command<'static> {
    let place = |rng: &mut StdRng| Place { seq: Seq(rng.random_range(0..users * 3)), entered: now };
    let lease = |rng: &mut StdRng| {
        let until = now.plus(Duration::from_secs(rng.random_range(0..60)));
        ProvenLease { until, claimed: rng.random_bool(0.5) }
    };
    let seen = Sighting {
        head: rng.random_range(0..users * 2),
        tail: rng.random_range(0..users * 3),
        issued: now.minus(Duration::from_secs(rng.random_range(0..200))),
    };
    match rng.random_range(0..12) {
        0 => {
            let tail = seen.tail.max(seen.head);
            let copy = rng.random_bool(0.5).then(|| LineCopy {
                gone: (0..(tail - seen.head) / 8 + 2).map(|_| rng.random()).collect(),
                late: (0..rng.random_range(0..3))
                    .map(|_| rng.random_range(1..=seen.head.max(1)))
                    .collect(),
                admitted: 7,
                versions: Versions { all: 9, gone: 9, late: 9, settings: 9, revoked: 9 },
                passed: vec![(now.as_secs(), seen.head)],
            });
            let sighting = Sighting { head: seen.head.max(1), tail, ..seen };
            // Of a line far in the future, so that it wins.
            let incarnation = u32::MAX - 10_000_000 + rng.random_range(0..1000);
            Command::Rebuild {
                settings: Cow::Owned(settings(rng)),
                text_hash: None,
                from: Cow::Owned(Recollection { incarnation, sighting, copy }),
                superseded: 0,
                gap: 50,
            }
        }
        1..4 => {
            let server = if rng.random_bool(0.3) { Server::New } else { Server::Same };
            Command::Fence { seen, server, gap: 50 }
        }
        4..8 => {
            let user = tag(rng.random_range(0..users));
            let lease = rng.random_bool(0.5).then(|| lease(rng));
            Command::Revive { user, evidence: Evidence { place: place(rng), issued: now, lease } }
        }
        _ => {
            let many = rng.random_range(0..4);
            let leases = (0..many).map(|_| HeldLease {
                owner: tag(rng.random_range(0..users)),
                place: place(rng),
                lease: lease(rng),
            });
            Command::Restore { leases: Cow::Owned(leases.collect()) }
        }
    }
}

/// Carries a command out as the store does, and says what was answered and what the queue looks
/// like then.
fn carry_out(held: &mut Held, command: &Command<'_>, now: Timestamp) -> String {
    let answer = match command {
        Command::Create { .. } | Command::Observe => String::new(),
        Command::Configure { settings, origin } => {
            format!("{:?}", held.configure(settings, origin, now))
        }
        Command::Enter { users } => format!("{:?}", held.enter(users, now)),
        Command::Standing { user, seq, purpose } => {
            format!("{:?}", held.standing(*user, *seq, *purpose, now))
        }
        Command::Leave { user, seq } => format!("{:?}", held.leave(*user, *seq, now)),
        Command::Admit { max, by } => format!("{:?}", held.admit(*max, *by, now)),
        Command::Heartbeat(heartbeat) => format!("{:?}", held.heartbeat(heartbeat, now)),
        Command::Reap => format!("{:?}", held.reap(now)),
        Command::Compact { keep } => format!("{:?}", held.compact(*keep, now)),
        Command::Fence { seen, server, gap } => {
            format!("{:?}", held.fence(seen, *server, *gap, now))
        }
        Command::Revive { user, evidence } => {
            format!("{:?}", held.revive(*user, evidence, now))
        }
        Command::Restore { leases } => format!("{:?}", held.restore(leases, now)),
        Command::Rebuild { settings, text_hash, from, gap, .. } => {
            format!("{:?}", held.rebuild((settings, *text_hash), from, *gap, now))
        }
    };
    format!("{answer} {:?}", held.line.sync(Versions::default(), now))
}

/// A new queue as the store makes it.
fn new_held(settings: &Settings) -> Held {
    let new = NewLine { incarnation: 7, previous: 0, settings, text_hash: Some(1) };
    let mut held = Held::journaled(new.line(START));
    held.created(&new);
    held
}
